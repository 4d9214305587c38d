"""How schemas of 0.3 are understood, and when a class agrees with one."""

import datetime
from typing import Any, NotRequired

import pytest
from typing_extensions import TypedDict

from ontologia import Entity, Field, Relation, build_type_spec
from ontologia.engines.ontologia_03.schemas import agrees, type_schema
from support.shop_03 import ADDRESS, Address
from support.writer_03 import STR, as_text, entity, optional, relation


def spec_of(stored):
    return type_schema(entity("T", "id", id=STR, f=stored)).by_name["f"].spec


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("str", str),
        ("any", Any),
        ("NoneType", None),
        ("str | int", str | int),
        ("datetime.date | None", datetime.date | None),
        ("datetime.datetime | None", datetime.datetime | None),
        ("list[str] | None", list[str] | None),
        ("dict[str, typing.Any]", dict[str, Any]),
        ("typing.Optional[str]", str | None),
        ("typing.Union[str, int, NoneType]", str | int | None),
        ("typing.List[int]", list[int]),
        ("list", list),
        ("dict", dict),
        ("what is this?", Any),
        ("tuple[int, str]", Any),
    ],
)
def test_a_type_is_read_from_its_text(text, annotation):
    assert spec_of(as_text(text)) == build_type_spec(annotation)


def test_a_typed_dict_is_what_the_class_says():
    assert spec_of(ADDRESS) == build_type_spec(Address)


def test_unions_are_in_the_one_order():
    assert spec_of(optional(STR)) == spec_of({"kind": "union", "members": [STR, optional(STR)["members"][0]]})


class Partial(TypedDict):
    text: str
    amount: NotRequired[float]


def declared(annotation, base=Entity):
    return type(
        "T", (base,), {"__annotations__": {"id": Field[str], "f": Field[annotation]}, "id": Field(primary_key=True)}
    ).__declaration__.schema


FLOAT = {"kind": "primitive", "name": "float"}
PARTIAL = {"kind": "typed_dict", "name": "Partial", "total": True, "fields": {"text": STR, "amount": FLOAT}}


@pytest.mark.parametrize(
    ("stored", "annotation", "same"),
    [
        (as_text("models.Address | None"), Address | None, True),
        (as_text("models.main.<locals>.Address | None"), Address | None, True),
        (as_text("list[models.Address] | None"), list[Address] | None, True),
        (as_text("models.Place | None"), Address | None, False),
        (as_text("models.Address | None"), Address, False),
        (PARTIAL, Partial, True),
        (PARTIAL, Address, False),
        ({"kind": "list", "item": PARTIAL}, list[Partial], True),
        ({"kind": "dict", "key": STR, "value": PARTIAL}, dict[str, Partial], True),
        (STR, int, False),
        (optional(STR), str, False),
        (optional(STR), int | None, False),
    ],
)
def test_a_class_fills_in_what_03_forgot_and_nothing_else(stored, annotation, same):
    assert agrees(type_schema(entity("T", "id", id=STR, f=stored)), declared(annotation)) is same


def test_a_relation_has_its_ends_and_its_instance_key_is_no_field():
    class Left(Entity, name="L03"):
        id: Field[str] = Field(primary_key=True)

    class Edge(Relation[Left, Left], name="E03"):
        number: Field[str] = Field(instance_key=True)
        weight: Field[str]

    stored = type_schema(relation("E03", "L03", "L03", "number", number=STR, weight=STR))
    assert stored.fingerprint == Edge.__declaration__.schema.fingerprint
    assert agrees(stored, Edge.__declaration__.schema)
    assert not agrees(type_schema(relation("E03", "L03", "X", "number", number=STR, weight=as_text("a.B"))), stored)
