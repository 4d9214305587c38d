"""What a class may declare, and what it is refused with: a TypeError that names the class and the field."""

import types
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, ClassVar, TypedDict

import pydantic
import pytest

from ontologia import Entity, Field, Meta, MetadataUnavailableError, Relation, meta


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    email: Field[str | None] = None
    tags: Field[list[str]] = Field(default_factory=list)
    age: Field[int] = Field(default=18, index=True)


class Product(Entity):
    sku: Field[int] = Field(primary_key=True)


class Subscription(Relation[Customer, Product]):
    seats: Field[int] = 1


class Contract(Relation[Customer, Product], name="Deal"):
    number: Field[str] = Field(instance_key=True)
    total: Field[float] = 0.0


# --- entities ---


def test_an_entity_takes_its_stored_name_from_the_class():
    assert Customer.__entity_name__ == "Customer"


def test_name_overrides_the_stored_name():
    assert Contract.__relation_name__ == "Deal"


def test_an_entity_lists_its_fields_in_order():
    assert list(Customer.__entity_fields__) == ["id", "name", "email", "tags", "age"]


def test_a_relation_lists_its_payload_and_not_its_identity():
    assert list(Contract.__relation_fields__) == ["total"]


def test_a_bare_value_is_a_default():
    assert Customer(id="c1", name="Alice").email is None


def test_field_default_is_a_default():
    assert Customer(id="c1", name="Alice").age == 18


def test_a_default_factory_makes_a_new_value_for_every_object():
    assert Customer(id="c1", name="A").tags is not Customer(id="c2", name="B").tags


def test_a_mutable_default_is_not_shared():
    class Bag(Entity):
        id: Field[str] = Field(primary_key=True)
        items: Field[list[int]] = []  # noqa: RUF012

    Bag(id="a").items.append(1)
    assert Bag(id="b").items == []


def test_a_subclass_inherits_fields():
    class Person(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]

    class Employee(Person):
        salary: Field[int] = 0

    assert list(Employee.__entity_fields__) == ["id", "name", "salary"]


def test_a_class_variable_is_no_field():
    class Counted(Entity):
        total: ClassVar[int] = 0
        id: Field[str] = Field(primary_key=True)

    assert list(Counted.__entity_fields__) == ["id"]


def test_two_primary_keys_are_refused_with_both_names():
    with pytest.raises(TypeError, match=r"Twice.*first.*second"):

        class Twice(Entity):
            first: Field[str] = Field(primary_key=True)
            second: Field[str] = Field(primary_key=True)


def test_an_entity_without_a_primary_key_is_refused():
    with pytest.raises(TypeError, match=r"Nameless.*exactly one primary key"):

        class Nameless(Entity):
            name: Field[str]


def test_an_instance_key_on_an_entity_is_refused():
    with pytest.raises(TypeError, match=r"Odd\.number"):

        class Odd(Entity):
            id: Field[str] = Field(primary_key=True)
            number: Field[str] = Field(instance_key=True)


@pytest.mark.parametrize("annotation", [float, bool, bytes, list[str], Any, str | None, str | int])
def test_a_primary_key_must_be_a_scalar_with_an_exact_text(annotation):
    with pytest.raises(TypeError, match=r"Odd\.id.*primary key"):

        class Odd(Entity):
            id: Field[annotation] = Field(primary_key=True)


@pytest.mark.parametrize(("annotation", "value"), [(str, "x"), (int, 7), (date, date(2024, 1, 2))])
def test_a_primary_key_may_be_text_a_number_or_a_date(annotation, value):
    class Thing(Entity):
        id: Field[annotation] = Field(primary_key=True)

    assert Thing(id=value).id == value


def test_an_unsupported_annotation_is_refused_by_class_and_field():
    with pytest.raises(TypeError, match=r"Odd\.things.*set"):

        class Odd(Entity):
            id: Field[str] = Field(primary_key=True)
            things: Field[set[str]]


def test_a_field_without_an_annotation_is_refused():
    with pytest.raises(TypeError, match=r"Odd\.name.*annotation"):

        class Odd(Entity):
            id: Field[str] = Field(primary_key=True)
            name = Field(default="x")


def test_default_and_default_factory_together_are_refused():
    with pytest.raises(TypeError, match="not both"):
        Field(default=1, default_factory=int)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", " "])
def test_a_stored_name_that_no_store_can_hold_is_refused(name):
    with pytest.raises(TypeError, match="Odd"):

        class Odd(Entity, name=name):
            id: Field[str] = Field(primary_key=True)


def test_a_default_of_the_wrong_type_is_refused_and_never_stored():
    class Odd(Entity):
        id: Field[str] = Field(primary_key=True)
        count: Field[int] = "many"

    with pytest.raises(pydantic.ValidationError, match="count"):
        Odd(id="1")


def test_times_inside_structured_fields_are_instants_in_utc_as_others_are():
    class Stay(TypedDict):
        begin: datetime

    class Guest(Entity, name="Guest"):
        id: Field[str] = Field(primary_key=True)
        seen: Field[list[datetime]]
        stay: Field[Stay | None] = None
        spans: Field[dict[str, tuple[datetime, datetime]]] = Field(default_factory=dict)

    noon, later = datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    guest = Guest(id="1", seen=[noon, later], stay={"begin": noon}, spans={"a": (later, noon)})
    utc = noon.replace(tzinfo=UTC)
    assert (guest.seen, guest.stay, guest.spans) == ([utc, utc], {"begin": utc}, {"a": (utc, utc)})
    assert {moment.tzinfo for moment in guest.seen} == {UTC}
    with pytest.raises(ValueError, match="outside the years 1 to 9999 in UTC"):
        Guest(id="1", seen=[datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))])


def test_a_naive_default_is_taken_as_utc_like_a_value():
    class Event(Entity):
        id: Field[str] = Field(primary_key=True)
        at: Field[datetime] = datetime(2024, 1, 1)

    assert Event(id="1") == Event(id="1", at=datetime(2024, 1, 1))


# --- relations ---


def test_a_primary_key_on_a_relation_is_refused():
    with pytest.raises(TypeError, match=r"Odd\.number"):

        class Odd(Relation[Customer, Product]):
            number: Field[str] = Field(primary_key=True)


def test_two_instance_keys_are_refused_with_both_names():
    with pytest.raises(TypeError, match=r"Odd.*one.*two"):

        class Odd(Relation[Customer, Product]):
            one: Field[str] = Field(instance_key=True)
            two: Field[str] = Field(instance_key=True)


def test_an_instance_key_with_a_default_is_refused():
    with pytest.raises(TypeError, match=r"Odd\.number.*default"):

        class Odd(Relation[Customer, Product]):
            number: Field[str] = Field(default="x", instance_key=True)


@pytest.mark.parametrize("annotation", [int, str | None, Any, list[str]])
def test_an_instance_key_that_is_not_text_is_refused(annotation):
    with pytest.raises(TypeError, match=r"Odd\.number.*instance key"):

        class Odd(Relation[Customer, Product]):
            number: Field[annotation] = Field(instance_key=True)


def test_a_relation_without_endpoints_is_refused():
    with pytest.raises(TypeError, match=r"Odd.*joins"):

        class Odd(Relation):
            pass


def test_a_relation_between_things_that_are_no_entities_is_refused():
    with pytest.raises(TypeError, match="Odd"):

        class Odd(Relation[int, str]):
            pass


@pytest.mark.parametrize("name", ["left_key", "right_key", "left", "right", "instance_key"])
def test_a_field_named_like_a_part_of_every_relation_is_refused(name):
    with pytest.raises(TypeError, match=rf"Odd\.{name}"):
        types.new_class(
            "Odd",
            (Relation[Customer, Product],),
            exec_body=lambda body: body.update(__annotations__={name: Field[str]}),
        )


def test_an_unkeyed_relation_has_an_empty_instance_key():
    assert Subscription(left_key="c1", right_key="1").instance_key == ""


def test_a_keyed_relation_shows_its_instance_key_under_both_names():
    contract = Contract(left_key="c1", right_key="1", number="n7")
    assert (contract.number, contract.instance_key) == ("n7", "n7")


def test_model_dump_of_a_keyed_relation_has_all_of_its_identity():
    contract = Contract(left_key="c1", right_key="1", number="n7")
    assert contract.model_dump() == {"left_key": "c1", "right_key": "1", "number": "n7", "total": 0.0}


def test_a_keyed_relation_is_built_again_from_its_dump():
    contract = Contract(left_key="c1", right_key="1", number="n7")
    assert Contract.model_validate(contract.model_dump()) == contract


@pytest.mark.parametrize("values", [{}, {"number": ""}, {"number": "  \t"}, {"number": None}])
def test_a_missing_or_blank_instance_key_is_a_value_error(values):
    with pytest.raises(ValueError, match="number"):
        Contract(left_key="c1", right_key="1", **values)


@pytest.mark.parametrize("values", [{"left_key": "c1"}, {"right_key": "1"}, {"left_key": None, "right_key": "1"}])
def test_a_relation_needs_both_endpoints(values):
    with pytest.raises(pydantic.ValidationError):
        Subscription(**values)


def test_an_endpoint_may_be_given_as_the_entity_has_its_key():
    assert Subscription(left_key="c1", right_key=42).right_key == "42"


def test_a_relation_that_was_not_read_has_no_endpoints_yet():
    assert Subscription(left_key="c1", right_key="1").left is None


# --- values ---


def test_a_bad_value_is_pydantics_validation_error():
    with pytest.raises(pydantic.ValidationError, match="age"):
        Customer(id="c1", name="Alice", age="old")


def test_a_missing_required_value_is_named():
    with pytest.raises(pydantic.ValidationError, match="name"):
        Customer(id="c1")


def test_an_unknown_field_is_an_error_and_never_dropped():
    with pytest.raises(pydantic.ValidationError, match="nickname"):
        Customer(id="c1", name="Alice", nickname="Al")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_int_beyond_64_bits_is_refused(value):
    with pytest.raises(pydantic.ValidationError, match="64 bits"):
        Customer(id="c1", name="Alice", age=value)


def test_assignment_is_validated_like_construction():
    customer = Customer(id="c1", name="Alice")
    with pytest.raises(pydantic.ValidationError):
        customer.age = "old"


def test_assigning_an_unknown_field_is_an_error():
    with pytest.raises(AttributeError, match="nickname"):
        Customer(id="c1", name="Alice").nickname = "Al"


def test_model_validate_builds_from_a_dict():
    assert Customer.model_validate({"id": "c1", "name": "Alice"}) == Customer(id="c1", name="Alice")


def test_model_dump_gives_plain_values():
    dumped = Customer(id="c1", name="Alice").model_dump()
    assert dumped == {"id": "c1", "name": "Alice", "email": None, "tags": [], "age": 18}


def test_equality_is_by_value():
    assert Customer(id="c1", name="Alice") != Customer(id="c1", name="Bob")


def test_objects_of_different_classes_differ():
    assert Customer(id="1", name="a") != Product(sku=1)


def test_repr_can_be_read():
    assert repr(Contract(left_key="c1", right_key="1", number="n")) == (
        "Contract(left_key='c1', right_key='1', number='n', total=0.0)"
    )


def test_meta_of_an_object_that_was_not_read_is_unavailable():
    with pytest.raises(MetadataUnavailableError, match="Customer"):
        Customer(id="c1", name="Alice").meta()


def test_meta_as_a_function_serves_a_class_with_a_field_of_that_name():
    class Page(Entity):
        id: Field[str] = Field(primary_key=True)
        meta: Field[str] = ""

    page = Page(id="p", meta="mine")
    page.__commit_id__ = 3
    assert meta(page) == Meta(3, "Page", key="p")


def test_an_earlier_name_is_one_that_is_free_now():
    with pytest.raises(TypeError, match="there is a field 'tzone' still"):

        class Both(Entity):
            id: Field[str] = Field(primary_key=True)
            tzone: Field[str]
            timezone: Field[str] = Field(renamed_from="tzone")

    with pytest.raises(TypeError, match="cannot both be what 'tzone' was"):

        class Twice(Entity):
            id: Field[str] = Field(primary_key=True)
            zone: Field[str] = Field(renamed_from="tzone")
            timezone: Field[str] = Field(renamed_from="tzone")

    with pytest.raises(TypeError, match="the name that the type had before, not 'Same'"):

        class Same(Entity, renamed_from="Same"):
            id: Field[str] = Field(primary_key=True)

    with pytest.raises(TypeError, match="the name that the field had before, not 7"):

        class Odd(Entity):
            id: Field[str] = Field(primary_key=True, renamed_from=7)


def test_an_earlier_name_is_no_part_of_the_fingerprint():
    class Plain(Entity, name="Airline"):
        id: Field[str] = Field(primary_key=True)

    class Named(Entity, name="Airline", renamed_from="Carrier"):
        id: Field[str] = Field(primary_key=True, renamed_from="code")

    assert Plain.__declaration__.schema.fingerprint == Named.__declaration__.schema.fingerprint
