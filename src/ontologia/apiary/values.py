"""Values as text: statistics as JSON, and partition values as folders have them. Both ways, by the type of the
column."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ontologia.errors import FrameSchemaError

BOUND_CHARACTERS = 1024  #: a longer bound is left out, which means: not known


def bound_json(value: Any) -> Any:
    """A bound as the ledger has it; None where JSON has no word for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= BOUND_CHARACTERS else None
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value if isinstance(value, (bool, int)) else None


def bound_value(stored: Any, arrow: pa.DataType) -> Any:
    """A stored bound as a value of its column; None if it is not known, or not of this type."""
    kinds = pa.types
    try:
        if kinds.is_boolean(arrow):
            return stored if isinstance(stored, bool) else None
        if kinds.is_integer(arrow) or kinds.is_floating(arrow):
            number = isinstance(stored, (int, float)) and not isinstance(stored, bool)
            return stored if number else None
        if not isinstance(stored, str):
            return None
        if kinds.is_date(arrow):
            return date.fromisoformat(stored)
        if kinds.is_timestamp(arrow):
            moment = datetime.fromisoformat(stored)
            return moment if (moment.tzinfo is None) == (arrow.tz is None) else None
        if kinds.is_decimal(arrow):
            return Decimal(stored)
        return stored if kinds.is_string(arrow) else None
    except (ValueError, ArithmeticError):
        return None


def partition_text(value: Any, column: str) -> str:
    """A partition value as text: numbers in plain decimals, `true` and `false`, dates and instants as ISO 8601."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FrameSchemaError(f"{column!r} is a partition column and cannot be {value}: use a finite number")
        return format(Decimal(repr(value)).normalize() + 0, "f")
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def partition_value(stored: str, arrow: pa.DataType) -> Any:
    """The value behind a partition text; None where the text is not one of this type, so that nothing is pruned."""
    kinds = pa.types
    try:
        if kinds.is_boolean(arrow):
            return {"true": True, "false": False}.get(stored)
        if kinds.is_integer(arrow):
            return int(stored)
        if kinds.is_floating(arrow):
            return float(stored)
    except ValueError:
        return None
    return bound_value(stored, arrow)
