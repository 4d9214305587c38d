"""Questions without classes, as a repository asks them: numbers, groups, and rows one after the other."""

import pytest

from ontologia import Entity, Field, Ontology, Relation, count, initialize_storage, open_repository
from ontologia.query import sum as total


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    tier: Field[str]
    age: Field[int]


class Knows(Relation[Customer, Customer]):
    years: Field[int]


@pytest.fixture(params=["a file", "a folder"])
def repository(tmp_path, request):
    place = str(tmp_path / "onto.db") if request.param == "a file" else (tmp_path / "store").as_uri()
    if request.param == "a folder":
        initialize_storage(place)
    with Ontology(place, entity_types=[Customer], relation_types=[Knows]) as onto, onto.session() as session:
        session.ensure([Customer(id=f"c{n}", tier="gold" if n else "free", age=20 + n) for n in range(3)])
        session.ensure([Knows(left_key="c0", right_key="c1", years=2), Knows(left_key="c1", right_key="c2", years=3)])
    with open_repository(place) as found:
        yield found


def test_numbers_and_groups_are_of_the_rows_that_are_asked_for(repository):
    tier, age = (repository.field("entity", "Customer", name) for name in ("tier", "age"))
    years = repository.field("relation", "Knows", "years")
    assert repository.count_entities("Customer", where=[tier == "gold"]) == 2
    assert repository.count_relations("Knows", where=[years > 2]) == 1
    assert repository.aggregate_entities("Customer", total(age), where=[tier == "gold"]) == 43
    assert repository.aggregate_relations("Knows", total(years)) == 5
    groups = repository.group_by_entities("Customer", [tier], {"n": count(), "ages": total(age)}, where=[age > 0])
    assert sorted(groups, key=lambda group: group["n"]) == [
        {"tier": "free", "n": 1, "ages": 20},
        {"tier": "gold", "n": 2, "ages": 43},
    ]
    assert repository.group_by_entities("Customer", [tier], {"n": count()}, having=[count() > 1]) == [
        {"tier": "gold", "n": 2}
    ]
    left = repository.field("relation", "Knows", "left_key")
    assert {row["left_key"] for row in repository.group_by_relations("Knows", [left], {"n": count()})} == {"c0", "c1"}


def test_the_latest_rows_come_one_after_the_other(repository):
    assert [row["id"] for row in repository.iter_latest_entities("Customer")] == ["c0", "c1", "c2"]
    assert [row["years"] for row in repository.iter_latest_relations("Knows")] == [2, 3]
