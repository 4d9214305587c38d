"""Rows of several schema versions in one statement: each version gives what was asked for, and no more."""

import re

import pytest

from ontologia import Entity, Field, Ontology


class Reading(Entity):
    id: Field[str] = Field(primary_key=True)
    place: Field[str]
    value: Field[int]


class Moved(Entity, name="Reading"):
    id: Field[str] = Field(primary_key=True)
    site: Field[str] = Field(renamed_from="place")
    value: Field[int | None]


@pytest.fixture
def readings(tmp_path):
    """Two rows in two versions each."""
    with Ontology(str(tmp_path / "onto.db"), entity_types=[Reading]) as onto, onto.session() as session:
        session.ensure([Reading(id="a", place="x", value=1), Reading(id="b", place="y", value=2)])
    with Ontology(str(tmp_path / "onto.db"), entity_types=[Moved]) as onto:
        onto.migrate(dry_run=False, force=True)
        yield onto.query().entities(Moved).across_versions().with_history()


def test_an_aggregate_takes_the_columns_that_it_is_of_from_every_version(readings, monkeypatch):
    asked = []
    engine = readings._source
    run = engine.run
    monkeypatch.setattr(engine, "run", lambda statement, *rest: asked.append(statement.sql) or run(statement, *rest))

    answers = (readings.sum(Moved.value), readings.count(), readings.where(Moved.site == "y").sum(Moved.value))

    assert answers == (6, 4, 4)
    given = [re.search(r"FROM \(SELECT (.*?) FROM .* UNION ALL SELECT (.*?) FROM", sql).groups() for sql in asked]
    assert given == [
        ('"v"."value" AS "value"', '"t"."value" AS "value"'),
        ('"v"."entity_key"', '"t"."entity_key"'),
        ('"v"."place" AS "site", "v"."value" AS "value"', '"t"."site" AS "site", "t"."value" AS "value"'),
    ]


def test_rows_come_in_the_order_of_their_commits_whatever_is_taken(readings):
    assert [row.site for row in readings.collect()] == ["x", "y", "x", "y"]
    assert [row.value for row in readings.where(Moved.id == "b").order_by(Moved.value).collect()] == [2, 2]
