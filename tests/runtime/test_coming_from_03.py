"""Names and habits of Ontologia 0.3 code, each as a script of that release uses it."""

import functools
import subprocess
import sys
from contextlib import suppress
from typing import Literal

import pytest
from typing_extensions import TypedDict

from ontologia import (
    BatchSizeExceededError,
    Entity,
    Field,
    MigrationError,
    MigrationTokenError,
    OntologiaConfig,
    Ontology,
    Relation,
    SchemaOutdatedError,
    Session,
    left,
    upgrader,
)
from ontologia.query import avg, count, max, min, sum
from ontologia.runtime.fingerprints import code_fingerprint


class Corner(TypedDict):
    at: tuple[int, int]


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""
    tier: Field[Literal["basic", "gold"]] = "basic"
    age: Field[int] = 0
    extra: Field[dict[str, object]] = Field(default_factory=dict)
    point: Field[tuple[float, float] | None] = None
    path: Field[list[tuple[int, ...]]] = Field(default_factory=list)
    corner: Field[Corner | None] = None


class Product(Entity):
    id: Field[str] = Field(primary_key=True)


class Bought(Relation[Customer, Product]):
    number: Field[str] = Field(instance_key=True)
    amount: Field[int] = 1


class Likes(Relation[Customer, Product]): ...


class CustomerLater(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""
    age: Field[str] = ""
    email: Field[str | None] = None


TYPES = {"entity_types": [Customer, Product], "relation_types": [Bought, Likes]}


@pytest.fixture
def session(path):
    session = Session(path, **TYPES)
    yield session
    session.close()


# --- sessions ---


def test_a_session_gives_itself_as_a_session(session):
    assert session.session() is session


def test_a_session_is_usable_after_its_block_committed(session):
    with session:
        session.ensure(Customer(id="a"))
    with session:
        session.ensure(Customer(id="b"))
    assert [customer.id for customer in session.query().entities(Customer).collect()] == ["a", "b"]


def test_a_session_is_usable_after_its_block_failed(session):
    with suppress(KeyError), session:
        session.ensure(Customer(id="a"))
        raise KeyError
    assert session.query().entities(Customer).count() == 0


def test_validate_passes_when_code_and_store_agree_and_writes_nothing(session):
    session.validate()
    assert session.list_commits() == []


@pytest.fixture
def outdated(session, path):
    """A store with two customers, opened with a class that has changed."""
    with session:
        session.ensure([Customer(id="a", name="Anna", age=3), Customer(id="b", age=4), Product(id="p")])
        session.ensure(Bought(left_key="a", right_key="p", number="1"))
    onto = Ontology(path, entity_types=[CustomerLater, Product])
    yield onto
    onto.close()


def test_validate_says_how_code_and_store_differ(outdated):
    with pytest.raises(SchemaOutdatedError) as caught:
        outdated.validate()
    (diff,) = caught.value.diffs
    removed = ["tier", "extra", "point", "path", "corner"]
    assert (diff.added_fields, diff.removed_fields, diff.changed_fields, diff.stored_version) == (
        ["email"],
        removed,
        {"age": ("int", "str")},
        1,
    )


def test_a_commit_is_checked_for_the_types_it_touches(outdated):
    with outdated.session() as session:
        session.ensure(Product(id="q"))
    assert outdated.query().entities(Product).count() == 2


def test_a_batch_that_is_too_large_says_its_count(path):
    session = Session(path, **TYPES, config=OntologiaConfig(max_batch_size=1))
    session.ensure([Customer(id="a"), Customer(id="b")])
    with pytest.raises(BatchSizeExceededError) as caught:
        session.commit()
    assert (caught.value.count, caught.value.limit) == (2, 1)


def test_the_settings_of_buckets_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("ONTOLOGIA_S3_REGION", "eu-north-1")
    monkeypatch.setenv("ONTOLOGIA_S3_ENDPOINT_URL", "http://127.0.0.1:9000")
    config = OntologiaConfig()
    assert (config.s3_region, config.s3_endpoint_url) == ("eu-north-1", "http://127.0.0.1:9000")
    assert OntologiaConfig(s3_region="eu-west-1").s3_region == "eu-west-1"


# --- types ---


def test_values_of_every_03_annotation_come_back_as_they_were(session):
    customer = Customer(
        id="a",
        tier="gold",
        extra={"anything": [1, None, {"x": "y"}]},
        point=(1.5, 2.0),
        path=[(1,), (2, 3)],
        corner={"at": (1, 2)},
    )
    with session:
        session.ensure(customer)
    assert session.query().entities(Customer).collect() == [customer]


def test_writing_the_same_tuples_again_changes_nothing(session):
    for expected in (1, None):
        session.ensure(Customer(id="a", point=(1.5, 2.0), path=[(1,)]))
        assert session.commit() == expected


def test_a_literal_takes_its_values_alone():
    with pytest.raises(ValueError, match="'basic' or 'gold'"):
        Customer(id="a", tier="silver")


def test_the_instance_key_of_an_unkeyed_relation_is_none(session):
    with session:
        session.ensure([Likes(left_key="a", right_key="p"), Bought(left_key="a", right_key="p", number="7")])
    likes, bought = (session.query().relations(cls).first() for cls in (Likes, Bought))
    assert (likes.meta().instance_key, bought.meta().instance_key) == (None, "7")


# --- queries ---


def test_the_aggregates_of_the_query_package(outdated, session):
    customers = session.query().entities(Customer)
    found = customers.group_by(Customer.tier).agg(
        n=count(), all=sum(Customer.age), mean=avg(Customer.age), low=min(Customer.age), high=max(Customer.age)
    )
    assert found == [{"tier": "basic", "n": 2, "all": 7, "mean": 3.5, "low": 3, "high": 4}]


def test_groups_by_a_field_of_an_end(outdated, session):
    found = session.query().relations(Bought).group_by(left(Bought).tier).agg(n=count())
    assert found == [{"tier": "basic", "n": 1}]


def test_relations_of_a_path_have_their_ends(outdated, session):
    (path,) = session.query().entities(Customer).via(Bought).collect()
    assert (path.relations[0].left.id, path.relations[0].right.id) == ("a", "p")


# --- migrations ---


def to_later(row):
    return {"id": row["id"], "name": row["name"], "age": str(row["age"])}


def test_rows_are_counted_by_type(outdated):
    preview = outdated.migrate(upgraders={("Customer", 1): to_later})
    result = outdated.migrate(dry_run=False, token=preview.token, upgraders={("Customer", 1): to_later})
    assert (preview.estimated_rows["Customer"], result.rows_migrated["Customer"]) == (2, 2)
    assert (preview.estimated_rows, dict(result.rows_migrated), "Product" in result.rows_migrated) == (
        2,
        {"Customer": 2},
        False,
    )


@pytest.mark.parametrize("force", [False, True])
def test_a_wrong_token_is_refused_force_or_not(outdated, force):
    with pytest.raises(MigrationTokenError):
        outdated.migrate(dry_run=False, token="0" * 32, force=force, upgraders={("Customer", 1): to_later})


def test_two_upgraders_for_one_step_are_refused():
    upgrader("Customer", from_version=1)(to_later)
    with pytest.raises(MigrationError, match="two upgraders for Customer from version 1"):
        upgrader("Customer", from_version=1)(lambda row: row)


def test_an_upgrader_that_is_defined_again_replaces_the_old_one():
    def define():
        @upgrader("Customer", from_version=1)
        def again(row):
            return row

    define()
    define()


def test_the_upgrader_of_a_relation_need_not_return_its_keys(outdated, path):
    class Changed(Relation[Customer, Product], name="Bought"):
        number: Field[str] = Field(instance_key=True)
        amount: Field[str]

    onto = Ontology(path, relation_types=[Changed])
    onto.migrate(dry_run=False, force=True, upgraders={("Bought", 1): lambda row: {"amount": str(row["amount"])}})
    (found,) = onto.repository.query_relations("Bought")
    assert (found["left_key"], found["right_key"], found["instance_key"], found["amount"]) == ("a", "p", "1", "1")


def test_a_preview_says_how_many_values_a_dropped_field_discards(outdated, path):
    class Smaller(Entity, name="Customer"):
        id: Field[str] = Field(primary_key=True)
        tier: Field[Literal["basic", "gold"]] = "basic"
        age: Field[int] = 0
        extra: Field[dict[str, object]] = Field(default_factory=dict)
        path: Field[list[tuple[int, ...]]] = Field(default_factory=list)

    preview = Ontology(path, entity_types=[Smaller]).migrate()
    assert preview.discarded_values == {"Customer": {"name": 2}}


def test_an_upgrader_sees_what_a_dropped_field_had_so_nothing_is_discarded_unseen(outdated):
    assert outdated.migrate(upgraders={("Customer", 1): to_later}).discarded_values == {}


# --- the token and the code of upgraders ---

SUFFIX = "!"


def shout(text):
    return text + SUFFIX


def loud(row):
    return to_later(row) | {"name": shout(row["name"])}


def test_a_token_is_bound_to_the_code_of_its_upgraders(outdated):
    token = outdated.migrate(upgraders={("Customer", 1): to_later}).token
    with pytest.raises(MigrationTokenError):
        outdated.migrate(dry_run=False, token=token, upgraders={("Customer", 1): loud})


def test_code_that_an_upgrader_calls_counts(monkeypatch):
    before = code_fingerprint(loud)
    monkeypatch.setattr(sys.modules[__name__], "SUFFIX", "?")
    assert code_fingerprint(loud) != before


def test_what_an_upgrader_encloses_counts():
    def adding(number):
        return lambda row: row | {"age": number}

    assert code_fingerprint(adding(1)) == code_fingerprint(adding(1)) != code_fingerprint(adding(2))


def test_partial_functions_and_objects_count_by_what_they_hold():
    class Adding:
        def __init__(self, number):
            self.number = number

        def __call__(self, row):
            return row | {"age": self.number}

    assert code_fingerprint(Adding(1)) == code_fingerprint(Adding(1)) != code_fingerprint(Adding(2))
    partials = [functools.partial(int, base=base) for base in (2, 2, 8)]
    assert code_fingerprint(partials[0]) == code_fingerprint(partials[1]) != code_fingerprint(partials[2])


def test_two_processes_agree_on_the_code_of_a_function():
    script = (
        "from ontologia.runtime.fingerprints import code_fingerprint\n"
        "def step(row):\n    return {k: v for k, v in row.items() if k in {'a', 'b', 'c', 'd'}}\n"
        "print(code_fingerprint(step))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
