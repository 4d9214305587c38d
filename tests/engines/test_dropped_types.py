"""Dropping a type (RFC 0009 §9): it reads as empty and takes no rows, and its history stays."""

import sqlite3

import pytest

from ontologia import DropRefusedError, Entity, Field, Ontology, Relation, ValidationError


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""


class NewCustomer(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""
    age: Field[int] = 0


class Product(Entity):
    id: Field[str] = Field(primary_key=True)


class Likes(Relation[NewCustomer, Product]):
    pass


@pytest.fixture
def onto(path):
    with Ontology(path, entity_types=[Customer]) as onto, onto.session() as session:
        session.ensure(Customer(id="c1"))
    with Ontology(path, entity_types=[NewCustomer, Product], relation_types=[Likes]) as onto:
        onto.migrate(dry_run=False, force=True)
        with onto.session() as session:
            session.ensure([Product(id="p1")])
        yield onto


def drop(onto, **options):
    token = onto.drop_types(entities=["Customer"], **options).token
    return onto.drop_types(entities=["Customer"], dry_run=False, token=token, **options)


def like(onto):
    with onto.session() as session:
        session.ensure(Likes(left_key="c1", right_key="p1"))


def test_a_drop_is_a_commit(onto):
    assert drop(onto) == 4


def test_a_dropped_type_reads_as_empty(onto):
    drop(onto)
    assert onto.query().entities(NewCustomer).collect() == []


@pytest.mark.parametrize("mode", ["with_history", "as_of", "history_since"])
def test_a_dropped_type_has_no_typed_history(onto, mode):
    drop(onto)
    arguments = () if mode == "with_history" else (2,)
    assert getattr(onto.query().entities(NewCustomer), mode)(*arguments).collect() == []


def test_a_dropped_type_counts_as_nothing(onto):
    drop(onto)
    assert onto.query().entities(NewCustomer).count() == 0


def test_a_dropped_type_takes_no_new_rows(onto):
    drop(onto)
    session = onto.session()
    session.ensure(NewCustomer(id="c2"))
    with pytest.raises(ValidationError, match="dropped"):
        session.commit()


def test_a_dropped_type_takes_no_single_row_either(onto):
    drop(onto)
    onto.repository.begin_transaction()
    with pytest.raises(ValidationError, match="dropped"):
        onto.repository.insert_entity("Customer", "c2", {"id": "c2"}, schema_version_id=2)
    onto.repository.rollback_transaction()


def test_a_refused_write_leaves_no_commit(onto):
    drop(onto)
    session = onto.session()
    session.ensure([NewCustomer(id="c2"), Product(id="p2")])
    with pytest.raises(ValidationError):
        session.commit()
    assert onto.repository.get_head_commit_id() == 4


def test_other_types_go_on(onto):
    drop(onto)
    with onto.session() as session:
        session.ensure(Product(id="p2"))
    assert onto.query().entities(Product).count() == 2


def test_types_are_named_in_a_list_by_their_names_or_classes(onto):
    assert onto.drop_types([Customer]).types == onto.drop_types(["Customer"]).types
    with pytest.raises(TypeError, match="takes lists of names"):
        onto.drop_types("Customer")


def test_dropping_without_the_token_is_refused(onto):
    with pytest.raises(DropRefusedError, match="token"):
        onto.drop_types(entities=["Customer"], dry_run=False)


def test_a_token_from_before_another_commit_is_refused(onto):
    token = onto.drop_types(entities=["Customer"]).token
    with onto.session() as session:
        session.ensure(Product(id="p2"))
    with pytest.raises(DropRefusedError, match="token"):
        onto.drop_types(entities=["Customer"], dry_run=False, token=token)


def test_a_drop_that_leaves_a_relation_without_an_endpoint_is_refused(onto):
    like(onto)
    with pytest.raises(DropRefusedError, match="Likes"):
        onto.drop_types(entities=["Customer"])


def test_a_cascading_drop_takes_the_relations_too(onto):
    like(onto)
    drop(onto, cascade_relations=True)
    assert onto.query().relations(Likes).collect() == []


def test_an_unknown_type_cannot_be_dropped(onto):
    with pytest.raises(ValidationError, match="Nobody"):
        onto.drop_types(entities=["Nobody"])


def test_a_preview_says_how_many_rows_would_go(onto):
    assert onto.drop_types(entities=["Customer"]).rows == {"entity Customer": 1}


def test_in_v2_no_entry_of_a_dropped_type_is_current(onto, path, engine_version):
    drop(onto)
    if engine_version == "v1":
        return
    rows = sqlite3.connect(path).execute(
        "SELECT schema_version_id, is_current FROM type_layout_catalog WHERE type_name = 'Customer' ORDER BY 1"
    )
    assert rows.fetchall() == [(1, 0), (2, 0)]


def test_the_history_stays_on_disk(onto, path, engine_version):
    drop(onto)
    tables = {"v1": ["entity_history"], "v2": ["entity_Customer_v1", "entity_Customer_v2"]}[engine_version]
    connection = sqlite3.connect(path)
    counts = [
        connection.execute(f"SELECT count(*) FROM {name} WHERE entity_key = 'c1'").fetchone()[0] for name in tables
    ]
    assert sum(counts) == 2


def test_storage_info_of_v2_shows_a_dropped_type_without_a_current_version(onto, engine_version):
    drop(onto)
    if engine_version == "v1":
        return
    assert onto.storage_info()["type_layouts"]["Customer"] == {
        "type_kind": "entity",
        "current_schema_version_id": None,
        "activation_commit_id": None,
        "historical_versions": [1, 2],
    }


def test_a_purge_deletes_the_history(onto, path, engine_version):
    drop(onto, purge_history=True)
    connection = sqlite3.connect(path)
    if engine_version == "v1":
        left = connection.execute("SELECT count(*) FROM entity_history WHERE entity_type = 'Customer'").fetchone()
        assert left == (0,)
    else:
        left = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'entity_Customer%'").fetchall()
        assert left == []


def test_the_log_of_an_earlier_commit_is_still_there_after_a_drop(onto):
    drop(onto)
    assert onto.list_commit_changes(1) == [
        {"kind": "entity", "type_name": "Customer", "key": "c1", "operation": "insert"}
    ]
