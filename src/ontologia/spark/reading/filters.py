"""Filters of Spark's as filters of ours, where there is an exact equivalent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from ontologia.model import COMMIT_ID, FieldExpr, Predicate

if TYPE_CHECKING:
    from ontologia.spark.reading.reader import ReadPlan


def translate(wanted: ReadPlan, filter_: Any) -> Predicate | None:
    """A filter of Spark's as one of ours; None where we have no exact equivalent."""
    if isinstance(filter_, datasource.Not):
        inner = translate(wanted, filter_.child)
        return None if inner is None else ~inner
    attribute = getattr(filter_, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return None
    field = _field(wanted, attribute[0])
    if field is None:
        return None
    value = getattr(filter_, "value", None)
    match filter_:
        case datasource.IsNull():
            return field.is_null()
        case datasource.IsNotNull():
            return field.is_not_null()
        case datasource.In() if all(item is not None for item in filter_.value):
            return field.in_(filter_.value)
    if value is None:
        return None
    if isinstance(value, bool):
        return (field.is_true() if value else field.is_false()) if isinstance(filter_, datasource.EqualTo) else None
    compare: dict[type[Any], Callable[[Any], Predicate]] = {
        datasource.EqualTo: field.__eq__,
        datasource.GreaterThan: field.__gt__,
        datasource.GreaterThanOrEqual: field.__ge__,
        datasource.LessThan: field.__lt__,
        datasource.LessThanOrEqual: field.__le__,
        datasource.StringStartsWith: field.startswith,
        datasource.StringEndsWith: field.endswith,
        datasource.StringContains: field.contains,
    }
    test = compare.get(type(filter_))
    return None if test is None else test(value)


def _field(wanted: ReadPlan, name: str) -> FieldExpr[Any] | None:
    schema = wanted.schema
    if name in schema.ref.identity and (wanted.stored or schema.ref.kind == "relation"):
        return FieldExpr(schema.ref, name, None)
    if wanted.physical(name) == COMMIT_ID:
        return None
    column = next((item for item in schema.columns if name == (item.physical if wanted.stored else item.name)), None)
    if column is None or column.scalar is None:
        return None
    return FieldExpr(schema.ref, column.name, column)
