"""Values as text: statistics as JSON, and partition values as folders have them. Both ways, by the type of the
column."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.errors import FrameSchemaError

BOUND_CHARACTERS = 1024  #: a longer bound is left out, which means: not known


def python_bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and the greatest value of a column as Python has them; None for a day or an instant before year 1 or
    after 9999, which Arrow and DuckDB have, and Python has not."""
    ends = column[0] if len(column) == 1 else pc.min_max(column)
    found = [ends, ends] if len(column) == 1 else [ends["min"], ends["max"]]
    return _python_value(found[0]), _python_value(found[1])


def _python_value(value: pa.Scalar) -> Any:
    if not pa.types.is_temporal(value.type):
        return value.as_py()
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return None


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


def foreign_bound(stored: Any, arrow: pa.DataType, *, upper: bool) -> Any:
    """A bound that another program recorded, as one that holds for the values that are read; None if it may not.

    It writes what it was given: numbers with fractions into a column of whole numbers, which are rounded when they are
    read, and texts into one of days, which are in another order. Its unsigned integers become floats, which are exact
    up to 2^53, and its floats come from comparisons with NaN.
    """
    kinds = pa.types
    if isinstance(stored, float) and kinds.is_integer(arrow):
        if not math.isfinite(stored) or abs(stored) >= 1 << 53:
            return None
        return math.ceil(stored) if upper else math.floor(stored)
    trusted = kinds.is_integer(arrow) or kinds.is_string(arrow) or kinds.is_boolean(arrow)
    return bound_value(stored, arrow) if trusted else None


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
            number = float(stored)
            return struct.unpack("f", struct.pack("f", number))[0] if arrow == pa.float32() else number
    except (ValueError, OverflowError):
        return None
    return bound_value(stored, arrow)
