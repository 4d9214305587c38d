"""Rows that a caller hands over, whatever they come in, as Arrow tables of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

import pyarrow as pa

from ontologia.apiary.cells import CellSizing
from ontologia.apiary.types import FrameField, FrameSchema
from ontologia.errors import FrameSchemaError
from ontologia.files.arrays import table_of_pandas


def tables(data: Any, schema: FrameSchema, sizing: CellSizing) -> Iterator[pa.Table]:
    """The rows, in tables of up to two cells. At least one, so that columns are seen."""
    found = _arrow(data, schema)
    twice = CellSizing(2 * sizing.piece, 2 * sizing.piece, floor=1)
    if isinstance(found, pa.Table):
        yield from twice.cut(found)
        return
    batches: list[pa.RecordBatch] = []
    size, any_given = 0, False
    for batch in found:
        batches.append(batch)
        size += batch.nbytes
        if size >= sizing.piece:
            yield from twice.cut(pa.Table.from_batches(batches))
            batches, size, any_given = [], 0, True
    if batches or not any_given:
        yield pa.Table.from_batches(batches, found.schema)


def is_spark(data: Any) -> bool:
    """Whether this is a DataFrame of Spark, which writes its cells itself."""
    return type(data).__module__.startswith("pyspark.sql")


def one_table(data: Any, schema: FrameSchema) -> pa.Table:
    """All rows at once."""
    found = _arrow(data, schema)
    return found if isinstance(found, pa.Table) else found.read_all()


def _arrow(data: Any, schema: FrameSchema) -> Any:
    """A table, or a reader of batches."""
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, bytes | bytearray | memoryview | pa.Buffer):
        return from_ipc(data)
    kind = type(data)
    if kind.__module__.startswith("pandas.") and kind.__name__ == "DataFrame":
        return table_of_pandas(data)
    if kind.__module__.startswith("polars.") and kind.__name__ in ("DataFrame", "LazyFrame"):
        return (data.collect() if hasattr(data, "collect") else data).to_arrow()
    if hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):
        return pa.RecordBatchReader.from_stream(data)
    if isinstance(data, Sequence) and not isinstance(data, str) and all(isinstance(row, dict) for row in data):
        return _from_rows(data, schema) if data else schema.arrow.empty_table()
    raise FrameSchemaError(
        f"a {kind.__module__}.{kind.__qualname__} does not hold rows: pass a pyarrow Table or RecordBatchReader, a "
        "pandas, polars or Spark DataFrame, or a list of dicts"
    )


def _from_rows(rows: Sequence[dict[str, Any]], schema: FrameSchema) -> pa.Table:
    """Python values have no Arrow type: they take that of the column."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table(
        {name: column_of([row.get(name) for row in rows], name, schema.by_name.get(name)) for name in names}
    )


def column_of(values: Sequence[Any], name: str, field: FrameField | None) -> pa.Array:
    """Python values as a column. Fractions are refused where whole numbers are wanted: Arrow would cut them off."""
    wanted = field.data_type if field else "one type"
    try:
        if field is not None and pa.types.is_integer(field.arrow):
            for value in values:
                if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
                    raise pa.ArrowInvalid(f"{value!r} is a {type(value).__name__}, not an int")
        return pa.array(values, type=field.arrow if field else None)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as problem:
        raise FrameSchemaError(f"column {name!r} is {wanted}, and a value does not fit: {problem}") from problem


def from_ipc(data: Any) -> pa.Table:
    """The table in the bytes of an Arrow IPC stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as problem:
        raise FrameSchemaError(f"these bytes are not an Arrow IPC stream: {problem}") from problem


def to_ipc(table: pa.Table) -> bytes:
    """A table as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
