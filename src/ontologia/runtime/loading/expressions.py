"""The few expressions of Spark that have one meaning everywhere: columns, literals, and `trim`.

All others are Spark's. Nothing is translated that could mean something else there.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.errors import ValidationError
from ontologia.runtime.intake.loads import show_names
from ontologia.runtime.loading.sources import OnlySpark

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_TEXT = re.compile(r"'([^'\\]*)'")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
VALUES = {"true", "false", "user", "current_catalog", "current_database", "current_date", "current_time"}
VALUES |= {"current_timestamp", "current_user", "localtimestamp", "session_user"}
"""Words that Spark takes for a value where no column has such a name."""
_TRIMMED = re.compile(r"trim\s*\((.*)\)", re.IGNORECASE | re.DOTALL)


def evaluate(table: pa.Table, expression: Any) -> pa.ChunkedArray:
    """An expression over the columns of a source."""
    if not isinstance(expression, str):
        raise OnlySpark(f"{expression!r} is an expression of Spark")
    text = expression.strip()
    if found := _TRIMMED.fullmatch(text):
        inner = evaluate(table, found[1])
        if not pa.types.is_string(inner.type):
            raise OnlySpark(f"{expression!r} is an expression of Spark")
        return pc.utf8_trim(inner, " ")
    if found := _QUOTED.fullmatch(text):
        return _column(table, found[1].replace("``", "`"))
    if found := _TEXT.fullmatch(text):
        return _repeat(table, pa.scalar(found[1], pa.string()))
    if _NUMBER.fullmatch(text):
        return _repeat(table, pa.scalar(int(text), pa.int64()))
    if text.lower() == "null":
        return pa.chunked_array([pa.nulls(table.num_rows)])
    if _NAME.fullmatch(text):
        return _column(table, text)
    raise OnlySpark(f"{expression!r} is an expression of Spark")


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column by its exact name, or by the only one that differs in case."""
    names = table.column_names
    found = [place for place, column in enumerate(names) if column == name]
    found = found or [place for place, column in enumerate(names) if column.lower() == name.lower()]
    if len(found) == 1:
        return table.column(found[0])
    if found:
        raise OnlySpark(f"several columns of the source are called {name!r}")
    if name.lower() in VALUES:
        raise OnlySpark(f"{name!r} is an expression of Spark")
    raise ValidationError(f"the source has no column {name}; it has {show_names(names)}")


def _repeat(table: pa.Table, value: pa.Scalar) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(value, table.num_rows)])
