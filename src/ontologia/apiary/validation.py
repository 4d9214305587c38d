"""Rows against a frame's schema: the seed's table "Schema Validation Rules", row by row.

Whether a type can be cast is decided by the types alone, so that a write that works today works tomorrow; casts that
could still lose a value (nanoseconds, whole numbers beyond 2^53) are checked value by value as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ontologia.apiary.types import FrameField, FrameSchema
from ontologia.errors import ExtraColumnsWarning, FrameSchemaError, warn

_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_FLOATS = {"halffloat": 11, "float": 24, "double": 53}


def conform(table: pa.Table, schema: FrameSchema, partition_by: Sequence[str], frame: str) -> pa.Table:
    """The rows as the frame stores them: its columns, its types, its order. Raises `FrameSchemaError`."""
    if table.schema.equals(schema.arrow):
        _check_nulls(table, schema, partition_by, frame)
        return table.replace_schema_metadata(None)  # what pandas notes there of its index is not of the frame
    given = table.column_names
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise FrameSchemaError(f"{frame}: the rows have a column twice: {', '.join(twice)}")
    extra = [name for name in given if name not in schema.by_name]
    if extra:
        warn(ExtraColumnsWarning(f"{frame} has no column {', '.join(extra)}: dropped from this write"))
    missing = [field.name for field in schema.fields if not field.nullable and field.name not in given]
    missing += [name for name in partition_by if name not in given and name not in missing]
    if missing:
        raise FrameSchemaError(
            f"{frame} needs a value for {', '.join(missing)}, and the rows have no such column. They have "
            f"{', '.join(given) or 'no columns'}"
        )
    columns = [
        _cast(table.column(field.name), field, frame)
        if field.name in given
        else pa.chunked_array([pa.nulls(table.num_rows, field.arrow)])
        for field in schema.fields
    ]
    found = pa.table(columns, schema=schema.arrow)
    _check_nulls(found, schema, partition_by, frame)
    return found


def _check_nulls(table: pa.Table, schema: FrameSchema, partition_by: Sequence[str], frame: str) -> None:
    for name in partition_by:
        if table.column(name).null_count:
            count = table.column(name).null_count
            raise FrameSchemaError(
                f"{frame} is partitioned by {name!r}, and {count:,} {'row has' if count == 1 else 'rows have'} null "
                "there: give a value, such as 'unknown'"
            )
    for field in schema.fields:
        if not field.nullable and table.column(field.name).null_count:
            raise FrameSchemaError(
                f"{frame}: column {field.name!r} must not be null, and is in "
                f"{table.column(field.name).null_count:,} rows"
            )


def _cast(column: pa.ChunkedArray, field: FrameField, frame: str) -> pa.ChunkedArray:
    wanted = field.arrow
    if column.type == wanted:
        return column
    if not is_safe(column.type, wanted):
        raise FrameSchemaError(
            f"{frame}: column {field.name!r} is {field.data_type}, and {column.type} does not go into it without "
            f"loss: cast it yourself, as in table.column({field.name!r}).cast({str(wanted)!r}), if that is meant"
        )
    try:
        return column.cast(wanted, safe=True)
    except pa.ArrowInvalid as problem:
        raise FrameSchemaError(
            f"{frame}: column {field.name!r} is {field.data_type}, and a value does not go into it: {problem}"
        ) from problem


def is_safe(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type has an equal in the other, but for what a checked cast still finds."""
    kinds = pa.types
    if given == wanted or kinds.is_null(given):
        return True
    if kinds.is_dictionary(given):
        return is_safe(given.value_type, wanted)
    if kinds.is_integer(given):
        bits, signed = _INTEGERS[str(given)], str(given).startswith("int")
        if kinds.is_integer(wanted):
            return _INTEGERS[str(wanted)] >= bits and (not signed or str(wanted).startswith("int"))
        if kinds.is_floating(wanted):
            return _FLOATS[str(wanted)] >= bits or wanted == pa.float64()
        return False
    if kinds.is_floating(given):
        return kinds.is_floating(wanted) and _FLOATS[str(wanted)] >= _FLOATS[str(given)]
    if kinds.is_string(wanted):
        return bool(kinds.is_large_string(given) or given == pa.string_view())
    if kinds.is_binary(wanted):
        return bool(kinds.is_large_binary(given) or kinds.is_fixed_size_binary(given) or given == pa.binary_view())
    if kinds.is_date32(wanted):
        return bool(kinds.is_date(given))
    if kinds.is_timestamp(wanted):
        if kinds.is_date(given):
            return wanted.tz is None
        return kinds.is_timestamp(given) and (given.tz is None) == (wanted.tz is None)
    if kinds.is_decimal(wanted) and kinds.is_decimal(given):
        whole_digits = wanted.precision - wanted.scale >= given.precision - given.scale
        return bool(whole_digits and wanted.scale >= given.scale)
    return False
