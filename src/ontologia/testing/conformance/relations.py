"""Relations with and without keys, their endpoints, and traversals."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

import pytest

from ontologia.model import Entity, Field, Relation
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit


class Person(Entity):
    """A node."""

    id: Field[str] = Field(primary_key=True)
    age: Field[int] = Field(default=0)


class City(Entity):
    """A node of another type, with a key that is not text."""

    founded: Field[date] = Field(primary_key=True)
    name: Field[str]


class Knows(Relation[Person, Person]):
    """Unkeyed: once per pair."""

    since: Field[int] = Field(default=0)


class LivedIn(Relation[Person, City]):
    """Keyed: more than once per pair."""

    stay: Field[str] = Field(instance_key=True)
    years: Field[int] = Field(default=1)


ROME, OSLO = date(1, 4, 21), date(1048, 1, 1)
TO_ROME: Any = ROME  # keys are given as the entity has them, and kept as text
TO_OSLO: Any = OSLO


def path_keys(paths: Iterable[Any]) -> list[tuple[str, ...]]:
    return [tuple(entity.meta().key for entity in path.entities) for path in paths]


class RelationConformance(ConformanceSuite):
    """Relations and traversals."""

    @pytest.fixture
    def town(self, store: StoreUnderTest) -> Session:
        session = store.session(Person, City, Knows, LivedIn)
        commit(
            session,
            [Person(id=key, age=age) for key, age in (("a", 30), ("b", 40), ("c", 50))],
            [City(founded=ROME, name="Rome"), City(founded=OSLO, name="Oslo")],
            [
                Knows(left_key="a", right_key="b"),
                Knows(left_key="b", right_key="c"),
                Knows(left_key="b", right_key="x"),
            ],
            [
                LivedIn(left_key="a", right_key=TO_ROME, stay="1"),
                LivedIn(left_key="a", right_key=TO_ROME, stay="2", years=9),
            ],
            LivedIn(left_key="b", right_key=TO_OSLO, stay="1", years=3),
        )
        return session

    def test_parallel_relations_are_told_apart_by_their_instance_key(self, town: Session) -> None:
        found = town.query().relations(LivedIn).where(LivedIn.left_key == "a").collect()
        assert [(relation.instance_key, relation.years) for relation in found] == [("1", 1), ("2", 9)]

    def test_an_unkeyed_relation_is_the_same_one_for_the_same_pair(self, town: Session) -> None:
        commit(town, Knows(left_key="a", right_key="b", since=7))
        found = town.query().relations(Knows).where(Knows.left_key == "a").collect()
        assert [(relation.since, relation.instance_key) for relation in found] == [(7, "")]

    def test_relations_come_by_left_right_and_instance_key(self, town: Session) -> None:
        commit(
            town, LivedIn(left_key="a", right_key=TO_OSLO, stay="0"), LivedIn(left_key="A", right_key=TO_OSLO, stay="9")
        )
        found = town.query().relations(LivedIn).collect()
        assert [(r.left_key, r.right_key, r.stay) for r in found] == [
            ("A", "1048-01-01", "9"),
            ("a", "0001-04-21", "1"),
            ("a", "0001-04-21", "2"),
            ("a", "1048-01-01", "0"),
            ("b", "1048-01-01", "1"),
        ]

    def test_a_relation_carries_its_endpoints(self, town: Session) -> None:
        found = town.query().relations(LivedIn).where(LivedIn.years == 3).first()
        assert found is not None
        assert (found.left, found.right) == (Person(id="b", age=40), City(founded=OSLO, name="Oslo"))

    def test_an_endpoint_that_does_not_exist_is_none(self, town: Session) -> None:
        found = town.query().relations(Knows).where(Knows.right_key == "x").first()
        assert found is not None
        assert found.right is None

    def test_endpoints_of_versions_are_as_of_their_commit(self, town: Session) -> None:
        commit(town, Person(id="a", age=31), Knows(left_key="a", right_key="b", since=1))
        commit(town, Person(id="a", age=32))
        found = town.query().relations(Knows).where(Knows.left_key == "a").with_history().collect()
        assert [relation.left and relation.left.age for relation in found] == [30, 31]

    def test_endpoints_as_of_a_commit_are_as_of_that_commit(self, town: Session) -> None:
        commit(town, Person(id="a", age=31))
        commit(town, Person(id="a", age=32))
        found = town.query().relations(Knows).where(Knows.left_key == "a").as_of(2).collect()
        assert [relation.left and relation.left.age for relation in found] == [31]

    # --- traversals ---

    def test_one_hop(self, town: Session) -> None:
        paths: list[Any] = town.query().entities(Person).via(LivedIn).collect()
        assert [(path.source.id, path.relations[0].stay, path.end.name) for path in paths] == [
            ("a", "1", "Rome"),
            ("a", "2", "Rome"),
            ("b", "1", "Oslo"),
        ]

    def test_one_hop_from_the_other_end(self, town: Session) -> None:
        paths: list[Any] = town.query().entities(City).where(City.name == "Rome").via(LivedIn).collect()
        assert [path.end.id for path in paths] == ["a", "a"]

    def test_a_relation_of_a_type_with_itself_goes_left_to_right(self, town: Session) -> None:
        assert path_keys(town.query().entities(Person).via(Knows).collect()) == [("a", "b"), ("b", "c")]

    def test_and_right_to_left_in_reverse(self, town: Session) -> None:
        assert path_keys(town.query().entities(Person).via(Knows, reverse=True).collect()) == [("b", "a"), ("c", "b")]

    def test_two_hops(self, town: Session) -> None:
        paths: list[Any] = town.query().entities(Person).via(Knows).via(LivedIn).collect()
        assert path_keys(paths) == [("a", "b", "1048-01-01")]

    def test_a_filter_after_a_hop_is_about_its_relation(self, town: Session) -> None:
        paths: list[Any] = town.query().entities(Person).via(LivedIn).where(LivedIn.years > 2).collect()
        assert [path.relations[0].years for path in paths] == [9, 3]

    def test_a_filter_after_a_hop_is_about_its_entity(self, town: Session) -> None:
        paths: list[Any] = town.query().entities(Person).via(Knows).where(Person.age > 45).collect()
        assert path_keys(paths) == [("b", "c")]

    def test_a_filter_before_a_hop_is_about_the_source(self, town: Session) -> None:
        paths: list[Any] = town.query().entities(Person).where(Person.age > 35).via(Knows).collect()
        assert path_keys(paths) == [("b", "c")]

    def test_without_relations_gives_each_entity_reached_once(self, town: Session) -> None:
        found = town.query().entities(Person).via(LivedIn).without_relations().collect()
        assert [city.name for city in found] == ["Rome", "Oslo"]

    def test_a_traversal_as_of_a_commit_sees_no_later_hop(self, town: Session) -> None:
        commit(town, Knows(left_key="c", right_key="a"))
        query = town.query().entities(Person).via(Knows)
        assert (len(query.as_of(1).collect()), len(query.collect())) == (2, 3)

    def test_paths_can_be_paged(self, town: Session) -> None:
        query = town.query().entities(Person).via(LivedIn)
        pages = [path for start in range(3) for path in query.limit(1).offset(start).collect()]
        assert path_keys(pages) == path_keys(query.collect())

    def test_aggregation_on_a_traversal_is_refused(self, town: Session) -> None:
        with pytest.raises(ValueError, match="traversal"):
            town.query().entities(Person).via(Knows).count()
