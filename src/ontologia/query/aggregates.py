"""Aggregates and the conditions `having` puts on them: `count() > 5`, `sum(Order.total) >= 100`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ontologia.model import FieldExpr, Predicate, to_utc
from ontologia.model.expressions import COMPARABLE
from ontologia.model.values import abridge
from ontologia.query.numbers import value_kind

Function = Literal["count", "count_where", "sum", "avg", "min", "max", "avg_len"]
NUMERIC = ("int", "float")


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """A number made of many rows. Compare it to build a condition for `having`."""

    function: Function
    operand: FieldExpr[Any] | None = None
    where: Predicate | None = None

    @property
    def shape(self) -> Hashable:
        from ontologia.query.plan import place_of, shape_of

        return (
            self.function,
            None if self.operand is None else place_of(self.operand),
            None if self.where is None else shape_of(self.where),
        )

    @property
    def scalar(self) -> str:
        """What the number is."""
        if self.function in ("count", "count_where"):
            return "int"
        if self.function in ("avg", "avg_len") or self.operand is None:
            return "float"
        return self.operand.counted_as

    def __str__(self) -> str:
        return f"{self.function}({'' if self.operand is None else self.operand})"

    def __gt__(self, value: Any) -> AggregateCondition:
        return AggregateCondition(self, "gt", value)

    def __ge__(self, value: Any) -> AggregateCondition:
        return AggregateCondition(self, "ge", value)

    def __lt__(self, value: Any) -> AggregateCondition:
        return AggregateCondition(self, "lt", value)

    def __le__(self, value: Any) -> AggregateCondition:
        return AggregateCondition(self, "le", value)

    def __eq__(self, value: object) -> AggregateCondition:  # type: ignore[override]
        return AggregateCondition(self, "eq", value)

    def __ne__(self, value: object) -> AggregateCondition:  # type: ignore[override]
        return AggregateCondition(self, "ne", value)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class AggregateCondition:
    """A comparison of an aggregate with a value, for `having`."""

    aggregate: Aggregate
    op: str
    value: Any

    def __post_init__(self) -> None:
        scalar = self.aggregate.scalar
        allowed = COMPARABLE[scalar]
        wrong = not isinstance(self.value, allowed) or (isinstance(self.value, bool) and scalar != "bool")
        if wrong or (scalar == "date" and isinstance(self.value, datetime)):
            raise TypeError(f"{self.aggregate} is {scalar}: it cannot be compared with {abridge(self.value)}")
        if isinstance(self.value, datetime):
            object.__setattr__(self, "value", to_utc(self.value))

    @property
    def shape(self) -> Hashable:
        return (self.aggregate.shape, self.op, value_kind(self.value))


def count() -> Aggregate:
    """How many rows."""
    return Aggregate("count")


def sum(field: FieldExpr[Any]) -> Aggregate:
    """The total of a numeric field; None where there is no value."""
    return Aggregate("sum", numeric(field, "sum"))


def avg(field: FieldExpr[Any]) -> Aggregate:
    """The mean of a numeric field."""
    return Aggregate("avg", numeric(field, "avg"))


def min(field: FieldExpr[Any]) -> Aggregate:
    """The smallest value."""
    return Aggregate("min", single(field, "min"))


def max(field: FieldExpr[Any]) -> Aggregate:
    """The largest value."""
    return Aggregate("max", single(field, "max"))


def numeric(field: FieldExpr[Any], function: str) -> FieldExpr[Any]:
    single(field, function)
    if field.counted_as not in NUMERIC:
        raise TypeError(f"{function}() takes a number, and {field} is {field.counted_as}")
    return field


def single(field: FieldExpr[Any], function: str) -> FieldExpr[Any]:
    plain(field, function)
    if field.side is not None:
        raise ValueError(f"{function}() takes a field of the queried type, not {field}")
    return field


def plain(field: FieldExpr[Any], function: str) -> FieldExpr[Any]:
    """A field that has one value in a row, of the queried type or of an endpoint."""
    if not isinstance(field, FieldExpr):
        raise TypeError(f"{function}() takes a field, such as Customer.age, not {field!r}")
    if field.item_path is not None:
        raise ValueError(f"{function}() takes a field with one value, not {field}")
    return field
