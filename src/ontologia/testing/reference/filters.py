"""What a filter means, in plain Python: the three-valued logic that every engine must agree on.

A truth is True, False or None for unknown, as in SQL. Nothing here is shared with the compiler, so that the two can
be held against each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from ontologia.model import Combination, Condition, FieldExpr, Negation, Predicate, TypeRef, encode_json, instant_text

Truth = bool | None
ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Version:
    """One row of history. `values` holds fields by name, those kept as JSON already as parsed JSON."""

    ref: TypeRef
    identity: tuple[str, ...]
    commit_id: int
    schema_version_id: int
    values: Mapping[str, Any]
    removed: bool = False

    def value(self, operand: FieldExpr[Any]) -> Any:
        """A scalar field or a key."""
        if operand.column is not None:
            return self.values[operand.name]
        return self.identity[{"left_key": 0, "right_key": 1}.get(operand.name, len(self.identity) - 1)]

    def inside(self, operand: FieldExpr[Any]) -> Any:
        """What lies at a place of a structured field; `ABSENT` where nothing does."""
        return walk(self.values[operand.name], operand.steps)


class Nobody(Version):
    """An end that does not exist: every field of it is missing."""

    __slots__ = ()

    def __init__(self, ref: TypeRef) -> None:
        super().__init__(ref, (), 0, 0, {})

    def value(self, operand: FieldExpr[Any]) -> Any:
        return None

    def inside(self, operand: FieldExpr[Any]) -> Any:
        return ABSENT


def walk(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if not isinstance(document, dict) or step not in document:
            return ABSENT
        document = document[step]
    return document


def parse_json(value: Any) -> Any:
    """A structured value as JSON remembers it."""
    return None if value is None else json.loads(encode_json(value))


def passes(predicate: Predicate, row: Version, entities: Callable[[TypeRef], Sequence[Version]]) -> bool:
    """Whether a row passes. `entities` gives the rows of an endpoint's type in the window that is read."""
    return _is(True, predicate, row, entities)


def _is(wanted: bool, predicate: Predicate, row: Version, entities: Callable[[TypeRef], Sequence[Version]]) -> bool:
    """Whether a filter is true of a row, or whether it is false; an unknown is neither."""
    if isinstance(predicate, Negation):
        return _is(not wanted, predicate.part, row, entities)
    if isinstance(predicate, Combination):
        every = all if (predicate.op == "and") is wanted else any
        return every(_is(wanted, part, row, entities) for part in predicate.parts)
    assert isinstance(predicate, Condition)
    if predicate.operand.side is None:
        return _evaluate_condition(predicate, row) is wanted
    key = row.identity[0 if predicate.operand.side == "left" else 1]
    ends = [entity for entity in entities(predicate.operand.owner) if entity.identity[0] == key]
    return any(_evaluate_condition(predicate, end) is wanted for end in ends or [Nobody(predicate.operand.owner)])


def _evaluate_condition(condition: Condition, row: Version) -> Truth:
    operand = condition.operand
    if operand.scalar is not None:
        return _evaluate_scalar(condition, row.value(operand))
    place = row.inside(operand)
    if operand.item_path is None:
        return _evaluate_json(condition, place)
    items = place if isinstance(place, list) else []
    return any(_evaluate_json(condition, walk(item, operand.item_path)) is True for item in items)


def _evaluate_scalar(condition: Condition, value: Any) -> Truth:
    op, wanted = condition.op, condition.value
    match op:
        case "is_null":
            return value is None
        case "is_not_null":
            return value is not None
        case "in" if not wanted:
            return False
    if value is None:
        return None
    match op:
        case "is_true":
            return value is True
        case "is_false":
            return value is False
        case "in":
            return any(compare("eq", value, item) for item in wanted)
        case "startswith" | "endswith" | "contains":
            return match_text(op, value, wanted)
    return compare(op, value, wanted)


def _evaluate_json(condition: Condition, value: Any) -> Truth:
    op, wanted = condition.op, condition.value
    nothing = value is ABSENT or value is None
    match op:
        case "is_null":
            return nothing
        case "is_not_null":
            return not nothing
        case "in" if not wanted:
            return False
    if nothing:
        return None
    match op:
        case "is_true" | "is_false":
            return value is (op == "is_true") if isinstance(value, bool) else None
        case "in":
            return any(_compare_json("eq", value, item) for item in wanted)
        case "contains" if isinstance(value, list):
            return any(item is not None and _compare_json("eq", item, wanted) for item in value)
        case "startswith" | "endswith" | "contains":
            return isinstance(value, str) and isinstance(wanted, str) and match_text(op, value, wanted)
    return _compare_json(op, value, wanted)


def _compare_json(op: str, value: Any, wanted: Any) -> bool:
    """A value of another kind is not equal, and neither smaller nor larger."""
    if isinstance(wanted, (int, float)):
        return compare(op, as_number(value), wanted) if is_number(value) else op == "ne"
    return compare(op, value, json_text(wanted)) if isinstance(value, str) else op == "ne"


def json_text(value: Any) -> str:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_number(value: Any) -> Any:
    """A number as engines take it out of JSON: an integer of more than 64 bits is a float."""
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def match_text(op: str, value: str, wanted: str) -> bool:
    """Exact and case-sensitive; `%` and `_` are themselves."""
    return wanted in value if op == "contains" else bool(getattr(value, op)(wanted))


def compare(op: str, left: Any, right: Any) -> bool:
    a, b = rank(left), rank(right)
    match op:
        case "eq":
            return bool(a == b)
        case "ne":
            return bool(a != b)
        case "lt":
            return bool(a < b)
        case "le":
            return bool(a <= b)
        case "gt":
            return bool(a > b)
    return bool(a >= b)


def rank(value: Any) -> Any:
    """A sort key: null before everything, NaN after every number and equal to itself."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value)
