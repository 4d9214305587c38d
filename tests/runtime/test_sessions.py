"""Sessions: what is ensured, what is committed, and what is not."""

import contextlib
from typing import Any

import pytest

from ontologia import (
    BatchSizeExceededError,
    Entity,
    Field,
    LockContentionError,
    OntologiaConfig,
    Ontology,
    Relation,
    SchemaOutdatedError,
    Session,
    ValidationError,
)


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""
    tags: Field[list[str]] = Field(default_factory=list)


class Changed(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[int]
    age: Field[int]


class Knows(Relation[Customer, Customer]):
    since: Field[int] = 0


@pytest.fixture
def onto(path):
    with Ontology(path, entity_types=[Customer], relation_types=[Knows]) as onto:
        yield onto


def names(onto):
    return [customer.name for customer in onto.query().entities(Customer).collect()]


def head(onto):
    return onto.repository.get_head_commit_id()


# --- ensure ---


def test_one_object_is_ensured(onto):
    with onto.session() as session:
        session.ensure(Customer(id="1", name="a"))
    assert names(onto) == ["a"]


def test_a_generator_is_consumed_once_and_in_order(onto):
    with onto.session() as session:
        session.ensure(Customer(id="1", name=name) for name in "abc")
    assert names(onto) == ["c"]


def test_entities_and_relations_may_come_together(onto):
    with onto.session() as session:
        session.ensure([Customer(id="1"), Knows(left_key="1", right_key="1")])
    assert onto.query().relations(Knows).count() == 1


def test_a_list_that_was_changed_in_place_is_checked_again_and_taken_as_it_is_then(onto):
    customer = Customer(id="1", tags=["a"])
    customer.tags.append(5)
    session = onto.session()
    with pytest.raises(ValidationError, match=r"entity Customer.tags.1: Input should be a valid string, and it is 5"):
        session.ensure(customer)
    customer.tags[1] = "b"
    session.ensure(customer)
    customer.tags.append("later")
    session.commit()
    assert [found.tags for found in onto.query().entities(Customer).collect()] == [["a", "b"]]


def test_what_is_nested_in_anything_is_taken_as_it_is_when_it_is_ensured(tmp_path):
    class Note(Entity, name="Note"):
        id: Field[str] = Field(primary_key=True)
        data: Field[dict[str, Any]]
        thing: Field[Any]

    note = Note(id="1", data={"a": {"b": [1]}}, thing=[{"c": [1]}])
    with Ontology(str(tmp_path / "notes.db"), entity_types=[Note]) as notes:
        session = notes.session()
        session.ensure(note)
        note.data["a"]["b"].append(2)
        note.thing[0]["c"].append(2)
        session.commit()
        found = notes.query().entities(Note).first()
    assert (found.data, found.thing) == ({"a": {"b": [1]}}, [{"c": [1]}])


@pytest.mark.parametrize("thing", ["text", b"bytes", 5, None, {"id": "1"}, Customer])
def test_something_that_is_no_object_of_ours_is_a_type_error(onto, thing):
    with pytest.raises(TypeError, match="ensure"):
        onto.session().ensure(thing)


@pytest.mark.parametrize("thing", ["text", None, {"id": "1"}, [Customer(id="1")]])
def test_a_wrong_object_among_others_is_a_type_error(onto, thing):
    with pytest.raises(TypeError, match="ensure"):
        onto.session().ensure([Customer(id="1"), thing])


def test_the_last_word_on_an_identity_wins(onto):
    with onto.session() as session:
        session.ensure(Customer(id="1", name="first"))
        session.ensure(Customer(id="1", name="last"))
    assert names(onto) == ["last"]


def test_the_last_word_is_one_row(onto):
    session = onto.session()
    session.ensure(Customer(id="1", name=name) for name in "abc")
    session.commit()
    assert len(onto.list_commit_changes(1)) == 1


def test_an_object_changed_after_ensure_does_not_change_what_was_ensured(onto):
    session = onto.session()
    customer = Customer(id="1", name="before")
    session.ensure(customer)
    customer.name = "after"
    session.commit()
    assert names(onto) == ["before"]


def test_changing_a_key_after_ensure_leaves_two_whole_rows(onto):
    session = onto.session()
    customer = Customer(id="1", name="x")
    session.ensure(customer)
    customer.id = "2"
    session.ensure(customer)
    session.commit()
    assert [(row["id"]) for key in "12" for row in [onto.repository.get_latest_entity("Customer", key)]] == ["1", "2"]


def test_two_different_classes_under_one_name_are_refused(onto):
    session = onto.session()
    with pytest.raises(TypeError, match="name="):
        session.ensure(Changed(id="1", name=1, age=1))


# --- commit ---


def test_commit_gives_the_id(onto):
    session = onto.session()
    session.ensure(Customer(id="1"))
    assert session.commit() == 1


def test_commit_of_nothing_is_none(onto):
    assert onto.session().commit() is None


def test_commit_of_what_is_there_already_is_none(onto):
    for expected in (1, None):
        session = onto.session()
        session.ensure(Customer(id="1", name="a", tags=["x"]))
        assert session.commit() == expected


def test_an_empty_commit_leaves_no_entry_in_the_log(onto):
    for _ in range(2):
        with onto.session() as session:
            session.ensure(Customer(id="1"))
    assert head(onto) == 1


def test_only_what_changed_is_written(onto):
    with onto.session() as session:
        session.ensure(Customer(id=key) for key in "123")
    with onto.session() as session:
        session.ensure([Customer(id="1"), Customer(id="2", name="new"), Customer(id="4")])
    assert [(change["key"], change["operation"]) for change in onto.list_commit_changes(2)] == [
        ("2", "update_version"),
        ("4", "insert"),
    ]


def test_a_session_can_commit_again(onto):
    session = onto.session()
    ids = []
    for name in "ab":
        session.ensure(Customer(id="1", name=name))
        ids.append(session.commit())
    assert ids == [1, 2]


def test_leaving_without_an_exception_commits(onto):
    with onto.session() as session:
        session.ensure(Customer(id="1"))
    assert head(onto) == 1


def test_leaving_with_an_exception_discards(onto):
    with contextlib.suppress(RuntimeError), onto.session() as session:
        session.ensure(Customer(id="1"))
        raise RuntimeError
    assert head(onto) == 0


def test_a_session_of_its_own_discards_too(path):
    with contextlib.suppress(RuntimeError), Session(path, entity_types=[Customer]) as session:
        session.ensure(Customer(id="1"))
        raise RuntimeError
    with Ontology(path) as onto:
        assert head(onto) == 0


def test_discard_forgets(onto):
    session = onto.session()
    session.ensure(Customer(id="1"))
    session.discard()
    assert session.commit() is None


def test_commit_metadata_is_in_the_log(onto):
    session = onto.session()
    session.ensure(Customer(id="1"))
    session.add_commit_meta("why", "because")
    session.commit(meta={"who": "me"})
    assert onto.get_commit(1)["metadata"] == {"why": "because", "who": "me"}


def test_a_commit_says_the_namespace_that_its_session_was_given(path):
    with Session(path, "prod", entity_types=[Customer], instance_metadata={"workers": 4}) as session:
        session.ensure(Customer(id="1"))
    with Ontology(path) as onto:
        assert onto.get_commit(1)["metadata"] == {"namespace": "prod"}


@pytest.mark.parametrize("meta", [{"n": 5}, {1: "x"}, {"x": None}, {"x": ["y"]}])
def test_commit_metadata_that_is_not_text_is_refused(onto, meta):
    session = onto.session()
    session.ensure(Customer(id="1"))
    with pytest.raises(ValidationError, match="text to text"):
        session.commit(meta=meta)


def test_a_failed_commit_can_be_tried_again(onto, path):
    session = onto.session()
    session.ensure(Customer(id="1"))
    with pytest.raises(ValidationError):
        session.commit(meta={"n": 5})
    assert session.commit() == 1


# --- limits ---


@pytest.fixture
def small(path):
    with Ontology(path, OntologiaConfig(max_batch_size=3), entity_types=[Customer]) as onto:
        yield onto


def test_a_batch_of_the_limit_is_committed(small):
    with small.session() as session:
        session.ensure(Customer(id=key) for key in "123")
    assert small.query().entities(Customer).count() == 3


def test_a_batch_over_the_limit_is_refused_with_both_numbers(small):
    session = small.session()
    session.ensure(Customer(id=key) for key in "1234")
    with pytest.raises(BatchSizeExceededError) as caught:
        session.commit()
    assert (caught.value.rows, caught.value.limit) == (4, 3)


def test_a_batch_over_the_limit_writes_nothing(small):
    session = small.session()
    session.ensure(Customer(id=key) for key in "1234")
    with pytest.raises(BatchSizeExceededError):
        session.commit()
    assert (head(small), small.query().entities(Customer).count()) == (0, 0)


def test_rows_that_do_not_change_do_not_count(small):
    with small.session() as session:
        session.ensure(Customer(id=key) for key in "123")
    with small.session() as session:
        session.ensure(Customer(id=key) for key in "123456")
    assert small.query().entities(Customer).count() == 6


# --- schema ---


def outdated(path):
    with Ontology(path, entity_types=[Customer]) as onto, onto.session() as session:
        session.ensure(Customer(id="1"))
    return Ontology(path, entity_types=[Changed])


def test_a_commit_with_an_outdated_class_is_refused_with_the_differences(path):
    with outdated(path) as onto:
        session = onto.session()
        session.ensure(Changed(id="1", name=1, age=1))
        with pytest.raises(SchemaOutdatedError) as caught:
            session.commit()
    (diff,) = caught.value.diffs
    assert (diff.type_name, diff.added, diff.removed, [change.name for change in diff.changed]) == (
        "Customer",
        ("age",),
        ("tags",),
        ["name"],
    )


def test_a_query_with_an_outdated_class_is_refused(path):
    with outdated(path) as onto, pytest.raises(SchemaOutdatedError, match="migrate"):
        onto.query().entities(Changed).collect()


def test_an_outdated_declared_class_does_not_stop_commits_of_other_types(path):
    class Other(Entity):
        id: Field[str] = Field(primary_key=True)

    with outdated(path) as onto:
        session = onto.session()
        session.ensure(Other(id="1"))
        assert session.commit() == head(onto) == 2


def test_a_migration_by_another_process_before_the_lock_is_noticed(onto, path, monkeypatch):
    """The classes are checked again under the lock."""
    with onto.session() as session:
        session.ensure(Customer(id="1"))
    catalog = onto.engine.catalog
    stale = catalog()
    with Ontology(path, entity_types=[Changed]) as other:
        other.migrate(
            dry_run=False, force=True, upgraders={("Customer", 1): lambda row: {"id": row["id"], "name": 1, "age": 1}}
        )
    monkeypatch.setattr(onto.engine, "catalog", lambda: stale)
    session = onto.session()
    session.ensure(Customer(id="2"))
    with pytest.raises(SchemaOutdatedError):
        session.commit()


def test_a_type_that_was_not_declared_is_learned_from_its_object(path):
    with Ontology(path) as onto:
        with onto.session() as session:
            session.ensure(Customer(id="1"))
        assert onto.query().entities(Customer).count() == 1


@pytest.mark.parametrize("types", [["Customer"], [Customer(id="1")], [Entity], [Knows], [str]])
def test_declaring_something_that_is_no_entity_class_is_a_type_error(path, types):
    with pytest.raises(TypeError):
        Ontology(path, entity_types=types)


def test_declaring_two_classes_under_one_name_is_a_type_error(path):
    with pytest.raises(TypeError, match="Customer"):
        Ontology(path, entity_types=[Customer, Changed])


# --- the log ---


@pytest.fixture
def log(onto):
    for number in range(1, 13):
        with onto.session() as session:
            session.ensure(Customer(id="1", name=str(number)))
    return onto


def test_commits_are_listed_newest_first_ten_at_a_time(log):
    assert [commit["id"] for commit in log.list_commits()] == list(range(12, 2, -1))


def test_the_number_of_commits_can_be_limited(log):
    assert [commit["id"] for commit in log.list_commits(limit=2)] == [12, 11]


def test_commits_can_be_listed_since_another(log):
    assert [commit["id"] for commit in log.list_commits(since_commit_id=9)] == [12, 11, 10]


def test_a_commit_has_its_four_keys(log):
    assert set(log.get_commit(3)) == {"id", "created_at", "runtime_id", "metadata"}


def test_commits_are_in_order_of_time(log):
    times = [commit["created_at"] for commit in log.list_commits(limit=None)]
    assert times == sorted(times, reverse=True)


def test_an_unknown_commit_is_none(log):
    assert (log.get_commit(99), log.get_commit(0), log.list_commit_changes(99)) == (None, None, [])


@pytest.mark.parametrize("commit_id", [2**63 - 1, 2**63, 10**30])
def test_a_commit_id_beyond_all_numbers_is_only_unknown(log, commit_id):
    found = log.get_commit(commit_id), log.list_commit_changes(commit_id), log.list_commits(since_commit_id=commit_id)
    assert found == (None, [], [])


def test_a_limit_beyond_all_numbers_is_no_limit(log):
    assert len(log.list_commits(limit=10**30)) == 12


def test_a_change_of_a_relation_has_its_endpoints(onto):
    with onto.session() as session:
        session.ensure(Knows(left_key="a", right_key="b"))
    assert onto.list_commit_changes(1) == [
        {
            "kind": "relation",
            "type_name": "Knows",
            "left_key": "a",
            "right_key": "b",
            "instance_key": "",
            "operation": "insert",
        }
    ]


def test_two_sessions_of_one_ontology_do_not_share_what_they_ensure(onto):
    one, other = onto.session(), onto.session()
    one.ensure(Customer(id="1"))
    assert (other.commit(), one.commit()) == (None, 1)


def test_a_closed_ontology_says_so(onto):
    from ontologia import StorageBackendError

    onto.close()
    with pytest.raises(StorageBackendError, match="closed"):
        onto.query().entities(Customer).collect()


def test_contention_is_an_error_that_may_be_retried():
    from ontologia import ConcurrentWriteError

    assert issubclass(LockContentionError, ConcurrentWriteError)
