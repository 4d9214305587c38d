"""Declarations under `from __future__ import annotations`, where every annotation is text at first."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, TypedDict

import pytest
import typing_extensions

from ontologia import Entity, Field, Relation


class Tree(TypedDict):
    value: int
    children: list[Tree]


class Branch(typing_extensions.TypedDict):
    name: str
    parent: typing_extensions.NotRequired[Branch]


class Forest(Entity):
    kind: ClassVar[str] = "forest"
    id: Field[str] = Field(primary_key=True)
    tree: Field[Tree | None] = None
    branch: Field[Branch | None] = None
    planted: Field[datetime | None] = None
    plot: Field[Plot | None] = None


class Plot(TypedDict):
    rows: int


def test_fields_are_found_and_class_variables_are_not():
    assert list(Forest.__entity_fields__) == ["id", "tree", "branch", "planted", "plot"]


def test_a_recursive_typed_dict_is_validated_to_the_bottom():
    with pytest.raises(ValueError, match="value"):
        Forest(id="f", tree={"value": 1, "children": [{"value": "x", "children": []}]})


def test_a_recursive_typed_dict_of_typing_extensions_is_validated_to_the_bottom():
    with pytest.raises(ValueError, match="name"):
        Forest(id="f", branch={"name": "a", "parent": {"name": None}})


def test_a_recursive_value_is_kept():
    tree = {"value": 1, "children": [{"value": 2, "children": []}]}
    assert Forest(id="f", tree=tree).tree == tree


def test_a_name_declared_after_the_class_is_found_at_first_use():
    with pytest.raises(ValueError, match="rows"):
        Forest(id="f", plot={"rows": "many"})


def test_a_class_in_a_function_sees_the_names_around_it():
    class Size(TypedDict):
        width: int

    class Box(Entity):
        id: Field[str] = Field(primary_key=True)
        size: Field[Size]

    with pytest.raises(ValueError, match="width"):
        Box(id="b", size={"width": "wide"})


def test_rules_are_checked_at_class_creation():
    with pytest.raises(TypeError, match=r"Odd\.id"):

        class Odd(Entity):
            id: Field[float] = Field(primary_key=True)


def test_an_unsupported_annotation_is_refused_at_class_creation():
    with pytest.raises(TypeError, match=r"Odd\.things"):

        class Odd(Entity):
            id: Field[str] = Field(primary_key=True)
            things: Field[set[str]]


def test_an_optional_instance_key_is_refused_at_class_creation():
    with pytest.raises(TypeError, match=r"Odd\.number"):

        class Odd(Relation[Forest, Forest]):
            number: Field[str | None] = Field(instance_key=True)


def test_a_relation_in_a_function_joins_classes_of_that_function():
    class Node(Entity):
        id: Field[int] = Field(primary_key=True)

    class Edge(Relation[Node, Node]):
        weight: Field[float] = 1.0

    assert Edge(left_key=1, right_key=2).left_key == "1"
