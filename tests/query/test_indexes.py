"""`Field(index=True)` makes a real index, and queries use it; a key lookup goes by the primary key."""

import re
import sqlite3
from datetime import UTC, date, datetime

import pytest

from ontologia import Entity, Field, Ontology, Relation


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    email: Field[str] = Field(default="", index=True)
    age: Field[int] = Field(default=0, index=True)
    height: Field[float] = Field(default=0.0, index=True)
    born: Field[date | None] = Field(default=None, index=True)
    seen: Field[datetime | None] = Field(default=None, index=True)
    plain: Field[str] = ""


class Number(Entity):
    id: Field[int] = Field(primary_key=True)


class Knows(Relation[Person, Person]):
    number: Field[str] = Field(instance_key=True)
    since: Field[int] = Field(default=0, index=True)


@pytest.fixture
def onto(path):
    with Ontology(path, entity_types=[Person, Number], relation_types=[Knows]) as onto:
        with onto.session() as session:
            session.ensure(Person(id=str(n), email=f"{n}@x", age=n, height=n / 2) for n in range(50))
            session.ensure(Number(id=n) for n in range(50))
            session.ensure(Knows(left_key=str(n), right_key="1", number="k", since=n) for n in range(50))
        with onto.session() as session:
            session.ensure(Person(id="7", email="new@x", age=700))
        yield onto


def entity_query(onto, condition):
    return onto.query().entities(Person).where(condition)


CONDITIONS = [
    Person.email == "3@x",
    Person.age == 3,
    Person.age > 45,
    Person.age <= 2,
    Person.age.in_([1, 2, 3]),
    Person.height == 1.5,
    Person.born == date(2024, 1, 1),
    Person.seen >= datetime(2024, 1, 1, tzinfo=UTC),
]


def steps(query):
    """The engine's plan: what follows the statement."""
    return query.explain().split("\n\n", 1)[1]


def names(conditions):
    return [f"{condition.operand.name} {condition.op}" for condition in conditions]


@pytest.mark.parametrize("condition", CONDITIONS, ids=names(CONDITIONS))
def test_a_filter_on_an_indexed_field_searches_the_index(onto, condition):
    field = condition.operand.name
    assert re.search(
        rf"SEARCH t USING (COVERING )?INDEX index_\w*Person\w*_{field}", steps(entity_query(onto, condition))
    )


@pytest.mark.parametrize("condition", CONDITIONS, ids=names(CONDITIONS))
def test_a_filter_on_an_indexed_field_scans_nothing(onto, condition):
    assert "SCAN t" not in steps(entity_query(onto, condition))


def test_an_index_gives_the_latest_rows_only(onto):
    assert (entity_query(onto, Person.age == 7).count(), entity_query(onto, Person.age == 700).count()) == (0, 1)


def test_a_filter_on_an_indexed_field_of_a_relation_searches_the_index(onto):
    assert re.search(
        r"SEARCH t USING (COVERING )?INDEX index_\w*Knows\w*_since",
        steps(onto.query().relations(Knows).where(Knows.since == 3)),
    )


def test_a_filter_on_a_plain_field_does_not_search_an_index_of_fields(onto):
    assert not re.search(r"USING INDEX index_\w*Person", steps(entity_query(onto, Person.plain == "x")))


@pytest.mark.parametrize("condition", [Person.id == "3", Person.id.in_(["3", "4"])])
def test_a_key_lookup_goes_by_the_primary_key(onto, condition):
    assert re.search(r"SEARCH t USING PRIMARY KEY \(.*entity_key=\?", steps(entity_query(onto, condition)))


def test_a_lookup_by_a_number_goes_by_the_primary_key_too(onto):
    plan = steps(onto.query().entities(Number).where(Number.id == 3))
    assert re.search(r"SEARCH t USING PRIMARY KEY \(.*entity_key=\?", plan)


def test_a_lookup_by_the_left_endpoint_goes_by_the_primary_key(onto):
    plan = steps(onto.query().relations(Knows).where(Knows.left_key == "3"))
    assert re.search(r"SEARCH t USING PRIMARY KEY \(.*left_key=\?", plan)


def test_a_lookup_by_the_right_endpoint_uses_its_index(onto):
    plan = steps(onto.query().relations(Knows).where(Knows.right_key == "3"))
    assert re.search(r"SEARCH t USING INDEX \w*right_key", plan)


def test_the_index_is_in_the_file(onto, path):
    rows = sqlite3.connect(path).execute("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '%email%'")
    assert len(rows.fetchall()) == 1


def test_an_index_asked_for_later_is_made_by_the_next_commit_without_a_migration(onto, path):
    class Indexed(Entity, name="Person"):
        id: Field[str] = Field(primary_key=True)
        email: Field[str] = ""
        age: Field[int] = 0
        height: Field[float] = 0.0
        born: Field[date | None] = None
        seen: Field[datetime | None] = None
        plain: Field[str] = Field(default="", index=True)

    with Ontology(path, entity_types=[Indexed]) as other:
        with other.session() as session:
            session.ensure(Indexed(id="new", plain="p"))
        plan = steps(other.query().entities(Indexed).where(Indexed.plain == "p"))
    assert re.search(r"SEARCH t USING (COVERING )?INDEX index_\w*_plain", plan)


def test_an_index_follows_a_field_through_a_migration_that_changes_its_type(onto, path):
    class Changed(Entity, name="Person"):
        id: Field[str] = Field(primary_key=True)
        age: Field[float] = Field(default=0.0, index=True)

    with Ontology(path, entity_types=[Changed]) as other:
        other.migrate(
            dry_run=False, force=True, upgraders={("Person", 1): lambda row: {"id": row["id"], "age": row["age"] + 0.5}}
        )
        query = other.query().entities(Changed).where(Changed.age == 3.5)
        assert (query.count(), bool(re.search(r"SEARCH t USING (COVERING )?INDEX index_\w*_age", steps(query)))) == (
            1,
            True,
        )


def test_explain_shows_the_statement_with_parameters_and_not_with_values(onto):
    assert "secret" not in entity_query(onto, Person.email == "secret").explain()
