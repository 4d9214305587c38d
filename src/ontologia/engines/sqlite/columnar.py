"""Between SQLite and Arrow, in both directions, without a Python object per value where that can be avoided.

Python's sqlite3 gives rows of Python objects. To fill Arrow columns faster than that, SQLite itself concatenates each
column of a result: bytes that cannot occur in UTF-8 mark the end of a value and NULL. One row comes back, whose
buffers become Arrow arrays. Reals and blobs, whose text is inexact or not UTF-8, are collected in the same pass by an
aggregate that appends to a list, so that every column sees the rows in one order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import output_schema
from ontologia.query.compiler import ResultColumn, Statement

if TYPE_CHECKING:
    import pyarrow as pa

END, NULL = 0xFF, 0xFE
ROWS_AT_ONCE = 50_000
FEW = 16
PLAIN = (None, "str", "int")  # what sqlite3 gives as it is wanted


def decode(output: ResultColumn, values: Sequence[Any]) -> Sequence[Any]:
    """A column of a result as Python values."""
    match output.scalar:
        case "bool":
            return [None if value is None else bool(value) for value in values]
        case "float":
            if any(type(value) is not float for value in values):  # NaN is kept as text, and v1 has whole numbers
                return [None if value is None else float(value) for value in values]
        case "bytes":  # v1 keeps them as hex
            return [bytes.fromhex(value) if isinstance(value, str) else value for value in values]
        case "datetime":
            parse = datetime.fromisoformat
            return [None if value is None else parse(value) for value in values]
        case "date":
            parse_date = date.fromisoformat
            return [None if value is None else parse_date(value) for value in values]
    return values


def encode(column: pa.ChunkedArray) -> list[Any]:
    """An Arrow column as values that SQLite stores: instants and dates as text, NaN as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(column) <= FEW:
        return _encode_few(column)
    if pa.types.is_timestamp(column.type):
        # Without a zone, because the cast is much faster then; it writes the six digits that microseconds have.
        text = column.cast(pa.timestamp("us")).cast(pa.string())
        column = pc.binary_join_element_wise(pc.binary_replace_slice(text, 10, 11, "T"), "+00:00", "")
    elif pa.types.is_date(column.type):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return ["NaN" if value is not None and value != value else value for value in values]
    return values


def _encode_few(column: pa.ChunkedArray) -> list[Any]:
    """`encode`, value by value: for a few of them, each step of Arrow's takes as long as all of this."""
    import pyarrow as pa

    from ontologia.files.arrays import instants_of

    if pa.types.is_timestamp(column.type):
        instants = instants_of(column)
        return [None if value is None else value.isoformat(timespec="microseconds") for value in instants]
    values: list[Any] = column.to_pylist()
    if pa.types.is_date(column.type):
        return [None if value is None else value.isoformat() for value in values]
    return ["NaN" if value != value else value for value in values]


def select_arrow(connection: sqlite3.Connection, statement: Statement, parameters: Mapping[str, Any]) -> pa.Table:
    """Run a statement into an Arrow table."""
    import pyarrow as pa

    schema = output_schema(statement)
    collected: list[_Collect] = []
    make: Any = lambda: _Collect(collected)  # noqa: E731 — its step is that of a list, which no protocol describes
    connection.create_aggregate("ontologia_collect", 1, make)
    text_factory, connection.text_factory = connection.text_factory, bytes
    try:
        row = connection.execute(_concatenating(statement), parameters).fetchone()
    except sqlite3.DataError:  # together, the values of a column are longer than the longest string of SQLite
        connection.text_factory = text_factory
        return select_rows(connection.execute(statement.sql, parameters), statement)
    finally:
        connection.text_factory = text_factory
    arrays = []
    lists = iter(collected)
    for output, field, value in zip(statement.outputs, schema, row, strict=True):
        if output.scalar in ("float", "bytes"):
            arrays.append(_array(output, next(lists, _Collect([])), field.type))
        else:
            arrays.append(_split(value).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(output: ResultColumn, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    from ontologia.files.arrays import array_of

    if output.scalar == "float":
        with suppress(pa.ArrowInvalid):  # a NaN is text
            return array_of(values, kind)
    return array_of(decode(output, values), kind)


def select_rows(cursor: sqlite3.Cursor, statement: Statement) -> pa.Table:
    """The rows of a statement as an Arrow table, by way of Python: what is quicker for a few of them."""
    import pyarrow as pa

    from ontologia.files.arrays import array_of

    schema = output_schema(statement)
    batches = []
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        columns = zip(statement.outputs, schema, zip(*rows, strict=True), strict=True)
        arrays = [array_of(decode(output, values), field.type) for output, field, values in columns]
        batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)


class _Collect(list[Any]):
    """An aggregate whose step is `list.append`, in C."""

    def __init__(self, collected: list[_Collect]) -> None:
        super().__init__()
        collected.append(self)

    step = list.append

    def finalize(self) -> None:
        return None


def _concatenating(statement: Statement) -> str:
    columns = []
    for number, output in enumerate(statement.outputs):
        if output.scalar in ("float", "bytes"):
            columns.append(f'ontologia_collect("c{number}")')
        else:
            value = f"coalesce(\"c{number}\", x'{NULL:02X}')" if output.nullable else f'"c{number}"'
            columns.append(f"group_concat({value}, x'{END:02X}')")
    return f"SELECT {', '.join(columns)} FROM ({statement.sql})"


def _split(data: bytes | None) -> pa.Array:
    """The concatenated texts as an Arrow string array."""
    import numpy as np
    import pyarrow as pa

    from ontologia.files.arrays import array_of

    if data is None:
        return array_of([], pa.string())
    raw = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(raw == END), len(raw))
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    lengths = ends - starts
    # A null is the one byte NULL alone.
    nulls = np.zeros(len(ends), bool)
    single = lengths == 1
    nulls[single] = raw[starts[single]] == NULL
    text = raw[raw < NULL]
    offsets = np.zeros(len(ends) + 1, np.int64)
    np.cumsum(np.where(nulls, 0, lengths), out=offsets[1:])
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    return pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
