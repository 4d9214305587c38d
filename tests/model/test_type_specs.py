"""Annotations as data (RFC 0009 §5.1), and the column each one gets."""

import typing
from datetime import date, datetime
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest
import typing_extensions

from ontologia import build_type_spec
from ontologia.model.columns import layout


class Address(TypedDict):
    street: str
    zip: typing_extensions.NotRequired[int]


class Tree(TypedDict):
    value: int
    children: "list[Tree]"


class Chain(typing_extensions.TypedDict):
    next: typing_extensions.NotRequired["Chain"]


def primitive(name):
    return {"kind": "primitive", "name": name}


@pytest.mark.parametrize("scalar", [str, int, float, bool, datetime, date, bytes])
def test_a_scalar_is_a_primitive(scalar):
    assert build_type_spec(scalar) == primitive(scalar.__name__)


def test_none_is_a_primitive():
    assert build_type_spec(None) == primitive("NoneType")


@pytest.mark.parametrize("annotation", [Any, "SomethingNotDefined", typing.ForwardRef("Nothing")])
def test_any_and_forward_references_are_the_primitive_any(annotation):
    assert build_type_spec(annotation) == primitive("Any")


def test_a_list_has_an_item():
    assert build_type_spec(list[int]) == {"kind": "list", "item": primitive("int")}


def test_a_bare_list_holds_anything():
    assert build_type_spec(list) == build_type_spec(list[Any])


def test_a_dict_has_a_key_and_a_value():
    assert build_type_spec(dict[int, date]) == {"kind": "dict", "key": primitive("int"), "value": primitive("date")}


def test_a_bare_dict_holds_anything():
    assert build_type_spec(dict) == build_type_spec(dict[Any, Any])


def test_a_typed_dict_says_which_fields_are_required():
    spec = build_type_spec(Address)
    assert {name: field["required"] for name, field in spec["fields"].items()} == {"street": True, "zip": False}


@pytest.mark.parametrize(("annotation", "path"), [(Tree, ("children", "item")), (Chain, ("next",))])
def test_a_recursive_typed_dict_refers_to_itself(annotation, path):
    spec = build_type_spec(annotation)["fields"][path[0]]["type"]
    for step in path[1:]:
        spec = spec[step]
    assert spec == {"kind": "ref", "name": annotation.__name__}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (str | int, int | str),
        (Optional[str], None | str),  # noqa: UP045
        (Union[int, str, None], Union[None, str, int]),  # noqa: UP007
        (list[str] | dict[str, int], dict[str, int] | list[str]),
        (Union[int, Union[str, float]], float | str | int),  # noqa: UP007
    ],
)
def test_the_order_of_writing_a_union_does_not_matter(one, other):
    assert build_type_spec(one) == build_type_spec(other)


def test_a_union_of_one_is_that_one():
    assert build_type_spec(Union[int]) == primitive("int")  # noqa: UP007


def test_annotated_is_what_it_annotates():
    assert build_type_spec(Annotated[int, "a note"]) == primitive("int")


@pytest.mark.parametrize("annotation", [set[int], complex, frozenset, Literal[1.5, "a"]])
def test_what_cannot_be_stored_is_refused_with_its_name(annotation):
    with pytest.raises(TypeError, match="not supported"):
        build_type_spec(annotation)


@pytest.mark.parametrize(
    ("annotation", "sqlite", "arrow", "spark", "nullable"),
    [
        (str, "TEXT", "string", "string", False),
        (int, "INTEGER", "int64", "bigint", False),
        (float, "REAL", "double", "double", False),
        (bool, "INTEGER", "bool", "boolean", False),
        (datetime, "TEXT", "timestamp[us, tz=UTC]", "timestamp", False),
        (date, "TEXT", "date32[day]", "date", False),
        (bytes, "BLOB", "binary", "binary", False),
        (int | None, "INTEGER", "int64", "bigint", True),
        (bytes | None, "BLOB", "binary", "binary", True),
        (str | int, "TEXT", "string", "string", True),
        (str | int | None, "TEXT", "string", "string", True),
        (list[int], "TEXT", "string", "string", True),
        (dict[str, int], "TEXT", "string", "string", True),
        (Address, "TEXT", "string", "string", True),
        (Tree, "TEXT", "string", "string", True),
        (Any, "TEXT", "string", "string", True),
        (None, "TEXT", "string", "string", True),
    ],
)
def test_each_annotation_has_its_column_in_every_system(annotation, sqlite, arrow, spark, nullable):
    (column,) = layout([("x", build_type_spec(annotation))])
    assert (column.sqlite_type, str(column.arrow_type), column.spark_type, column.nullable) == (
        sqlite,
        arrow,
        spark,
        nullable,
    )


@pytest.mark.parametrize(
    ("annotation", "storage"),
    [
        (str, "scalar"),
        (float | None, "scalar"),
        (bool, "scalar"),
        (str | int, "json"),
        (list[str], "json"),
        (dict[str, int], "json"),
        (Address, "json"),
        (Tree | None, "json"),
        (Any, "json"),
    ],
)
def test_a_field_has_a_typed_column_only_when_it_is_always_one_scalar(annotation, storage):
    (column,) = layout([("x", build_type_spec(annotation))])
    assert column.storage == storage


@pytest.mark.parametrize("name", ["entity_key", "commit_id", "ROWID", "Fields_Json", "schema_version_id", "left_key"])
def test_a_field_named_like_a_system_column_is_stored_beside_it(name):
    (column,) = layout([(name, build_type_spec(str))])
    assert (column.name, column.physical) == (name, f"{name}__2")


def test_names_that_differ_only_in_case_get_different_columns():
    columns = layout([("a", build_type_spec(str)), ("A", build_type_spec(str)), ("A__2", build_type_spec(str))])
    assert len({column.physical.casefold() for column in columns}) == 3


def test_the_columns_do_not_depend_on_the_order_of_fields():
    specs = [("Name", build_type_spec(str)), ("name", build_type_spec(int)), ("NAME", build_type_spec(int))]
    one = {column.name: column.physical for column in layout(specs)}
    assert one == {column.name: column.physical for column in layout(reversed(specs))}


@pytest.mark.parametrize(
    ("annotation", "same_as"),
    [
        (object, Any),
        (dict[str, object], dict[str, Any]),
        (Literal["a", "b"], str),
        (Literal["a", None], str | None),
        (Literal[1, "a"], int | str),
        (Literal[True], bool),
        (tuple[int, ...], list[int]),
        (tuple[int, str], list[int | str]),
        (tuple[()], list),
        (tuple, list),
    ],
    ids=repr,
)
def test_what_python_tells_apart_and_a_store_does_not(annotation, same_as):
    assert build_type_spec(annotation) == build_type_spec(same_as)
