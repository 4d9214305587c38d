"""Paths as objects: what they share, and what making them leaves behind."""

from __future__ import annotations

import gc

import pytest

from ontologia import Entity, Field, Ontology, Relation
from ontologia.model import Origin
from ontologia.query.results import Hydrator


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""


class Knows(Relation[Person, Person]):
    since: Field[int] = 0


@pytest.fixture
def onto(tmp_path):
    with Ontology(str(tmp_path / "people.db"), entity_types=[Person], relation_types=[Knows]) as onto:
        with onto.session() as session:
            session.ensure(Person(id=key, name=key.upper()) for key in "abcd")
            session.ensure(
                Knows(left_key=left, right_key=right, since=place)
                for place, (left, right) in enumerate(["ab", "bc", "bd", "ac"])
            )
        yield onto


def test_paths_have_one_object_for_each_thing_they_have_in_common(onto):
    first, second = onto.query().entities(Person).where(Person.id == "a").via(Knows).via(Knows).collect()

    assert [path.end.id for path in (first, second)] == ["c", "d"]
    assert first.source is second.source
    assert first.relations[0] is second.relations[0]
    assert first.entities[1] is second.entities[1]
    assert first.relations[1] is not second.relations[1]
    assert first.relations[0].left is first.source
    assert first.relations[1].right is first.end
    assert (first.entities[1].name, first.relations[1].since, second.relations[1].since) == ("B", 1, 2)


def test_two_versions_of_one_thing_are_two_objects(onto):
    with onto.session() as session:
        session.ensure(Person(id="a", name="new"))

    columns = [[1, 2, 1], ["a", "a", "a"], ["A", "new", "A"]]
    old, new, again = Hydrator.of(Person).hydrate_shared(columns, Origin("here"))

    assert (old.name, new.name) == ("A", "new")
    assert again is old
    assert (old.meta().commit_id, new.meta().commit_id) == (1, 2)


def test_the_collector_runs_again_after_objects_were_made_or_failed_to_be(onto):
    onto.query().entities(Person).collect()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="zip"):
        Hydrator.of(Person).objects([[1, 2], ["a"], ["A"]], origin=Origin("here"))
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off(onto):
    gc.disable()
    try:
        onto.query().entities(Person).collect()
        assert not gc.isenabled()
    finally:
        gc.enable()
