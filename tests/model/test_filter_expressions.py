"""Filters as they are built: what is refused, before any storage is asked."""

from datetime import date, datetime
from typing import Any, TypedDict

import pytest

from ontologia import Entity, Field, Relation, left, right


class Line(TypedDict):
    sku: str


class Place(TypedDict, total=False):
    city: str
    lines: list[Line]


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    age: Field[int] = 0
    active: Field[bool] = True
    born: Field[date | None] = None
    seen: Field[datetime | None] = None
    data: Field[dict[str, Any]] = Field(default_factory=dict)
    tags: Field[list[str]] = Field(default_factory=list)
    place: Field[Place | None] = None
    places: Field[dict[str, Place]] = Field(default_factory=dict)
    either: Field[Place | str] = ""


class Knows(Relation[Person, Person]):
    since: Field[int] = 0


@pytest.mark.parametrize("compare", ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"])
def test_comparing_with_none_names_the_method_to_use(compare):
    with pytest.raises(TypeError, match="is_null"):
        getattr(Person.age, compare)(None)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("field", [Person.active, Person.age, Person.data["x"]])
def test_comparing_with_a_truth_value_names_the_method_to_use(field, value):
    with pytest.raises(TypeError, match=r"is_true.*is_false"):
        _ = field == value


@pytest.mark.parametrize("segment", ["", "a b", "1x", "a-b", "a'", 'a"', "a.", ".a", "a..b", "$", "*", "[0]"])
def test_a_path_segment_that_is_no_identifier_is_a_value_error(segment):
    with pytest.raises(ValueError, match="identifier"):
        Person.data.path(segment)


@pytest.mark.parametrize("segment", ["a.b", "a b", 0, None])
def test_an_item_that_is_no_identifier_is_a_value_error(segment):
    with pytest.raises(ValueError, match="identifier"):
        _ = Person.data[segment]


def test_items_and_paths_lead_to_the_same_place():
    assert str(Person.data["a"]["b"]) == str(Person.data.path("a.b"))


def test_a_path_segment_may_be_any_identifier():
    assert str(Person.data["größe"]) == "Person.data.größe"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Person.place["citty"], r"Person\.place\.citty: Place has no 'citty'; it has city, lines"),
        (lambda: Person.place.path("citty.name"), "Place has no 'citty'"),
        (lambda: Person.places["home"]["citty"], "Place has no 'citty'"),
        (lambda: Person.place["lines"].any_path("skuu"), "Line has no 'skuu'; it has sku"),
        (lambda: left(Knows).place["citty"], "Place has no 'citty'"),
    ],
)
def test_a_step_that_a_typed_dict_does_not_declare_is_a_value_error(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_step_that_is_declared_or_may_be_there_is_taken():
    assert str(Person.place["city"]) == "Person.place.city"
    assert str(Person.places["home"]["city"]) == "Person.places.home.city"
    assert str(Person.place["lines"].any_path("sku")) == "Person.place.lines.any_path('sku')"
    assert str(Person.either["anything"]) == "Person.either.anything"


def test_there_is_no_path_into_a_scalar():
    with pytest.raises(ValueError, match=r"Person\.age"):
        Person.age.path("x")


@pytest.mark.parametrize("end", [left, right])
def test_any_path_on_an_endpoint_is_a_value_error(end):
    with pytest.raises(ValueError, match="any_path"):
        end(Knows).tags.any_path("x")


def test_an_endpoint_has_only_the_fields_of_its_entity():
    with pytest.raises(AttributeError, match=r"Person.*height"):
        _ = left(Knows).height


def test_left_of_something_that_is_no_relation_is_a_type_error():
    with pytest.raises(TypeError, match="relation"):
        left(Person)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Person.age, "x"),
        (Person.id, 3),
        (Person.born, "2024-01-01"),
        (Person.born, datetime(2024, 1, 1)),
        (Person.seen, date(2024, 1, 1)),
        (Person.age, [1]),
        (Person.age, Person.age),
    ],
)
def test_a_value_of_another_type_is_a_type_error_that_names_the_field(field, value):
    with pytest.raises(TypeError, match=str(field)):
        _ = field == value


@pytest.mark.parametrize("method", ["startswith", "endswith", "contains"])
def test_matching_text_in_a_number_is_a_type_error(method):
    with pytest.raises(TypeError, match=r"Person\.age"):
        getattr(Person.age, method)("x")


def test_matching_with_something_that_is_no_text_is_a_type_error():
    with pytest.raises(TypeError, match="text"):
        Person.id.startswith(3)


@pytest.mark.parametrize("method", ["is_true", "is_false"])
def test_truth_of_a_number_is_a_type_error(method):
    with pytest.raises(TypeError, match="bool"):
        getattr(Person.age, method)()


@pytest.mark.parametrize("values", ["abc", 5, b"x", None])
def test_in_takes_a_collection(values):
    with pytest.raises(TypeError, match="collection"):
        Person.id.in_(values)


def test_a_filter_has_no_truth_value():
    with pytest.raises(TypeError, match=r"& \| ~"):
        bool(Person.age > 3)


def test_and_between_filters_is_caught():
    with pytest.raises(TypeError, match="truth value"):
        _ = Person.age > 3 and Person.age < 5


def test_a_field_has_no_truth_value():
    with pytest.raises(TypeError, match=r"Person\.age"):
        bool(Person.age)


@pytest.mark.parametrize("other", [True, None, "x"])
def test_combining_a_filter_with_something_else_is_a_type_error(other):
    with pytest.raises(TypeError, match="filter"):
        _ = (Person.age > 3) & other


@pytest.mark.parametrize(
    "build", [lambda: Person.id == "\ud800", lambda: Person.id.contains("\ud800"), lambda: Person.id.in_(["\ud800"])]
)
def test_text_that_is_no_unicode_is_refused_when_the_filter_is_built(build):
    with pytest.raises(ValueError, match="surrogate"):
        build()
