"""Sorting by several fields is said one by one."""

import pytest

from ontologia import Entity, Field, Ontology


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    age: Field[int]
    name: Field[str]


@pytest.fixture
def people():
    with Ontology(":memory:", entity_types=[Person]) as onto:
        with onto.session() as session:
            session.ensure(
                Person(id=key, age=age, name=name) for key, age, name in (("a", 2, "x"), ("b", 1, "y"), ("c", 1, "z"))
            )
        yield onto.query().entities(Person)


def test_orders_add_up(people):
    found = people.order_by(Person.age).order_by(Person.name, descending=True).collect()
    assert [person.id for person in found] == ["c", "b", "a"]


def test_two_fields_in_one_order_are_refused_with_the_way_to_say_it(people):
    with pytest.raises(TypeError, match=r"one field at a time: \.order_by\(first\)\.order_by\(second\)"):
        people.order_by(Person.age, Person.name)


@pytest.mark.parametrize("value", ["desc", 1, None])
def test_a_direction_is_true_or_false(people, value):
    with pytest.raises(TypeError, match="True or False"):
        people.order_by(Person.age, value)
