"""A few Python values as Arrow, without pyarrow's own conversion.

The first conversion of a process imports pandas, where that is installed, and takes longer than a commit. Many values,
and kinds that are not made here, still go that way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ontologia.errors import ValidationError

FEW = 20_000
INSTANT = pa.timestamp("us", "UTC")
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def table_of_pandas(frame: Any) -> pa.Table:
    """A DataFrame as a table. An index that has a name is a column; one that has none only counts."""
    named = [name for name in frame.index.names if name is not None]
    for name in named:
        if name in frame.columns:
            raise ValidationError(
                f"the DataFrame has both a column and an index called {name!r}: drop one of them, or rename it"
            )
    return pa.Table.from_pandas(frame.reset_index(level=named) if named else frame, preserve_index=False)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array: `pa.array(values, kind)`."""
    is_many = len(values) > FEW and not pa.types.is_float64(kind) and not pa.types.is_int64(kind)
    if is_many or "pandas" in sys.modules:
        return pa.array(values, kind)
    made = _make(values, kind)
    return pa.array(values, kind) if made is None else made


def scalar_of(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value as a scalar: `pa.scalar(value, kind)`."""
    return array_of([value], kind)[0]


def numbers_of(values: npt.NDArray[np.int64] | Sequence[int]) -> pa.Array:
    """Whole numbers as an array that shares their memory: `pa.array(values)`."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


def numpy_of(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Whole numbers, none of them null, for numpy: `column.to_numpy()`."""
    chunks = [
        np.frombuffer(chunk.buffers()[1], np.int64, len(chunk), chunk.offset * 8)
        for chunk in column.cast(pa.int64()).chunks
        if len(chunk)
    ]
    return np.concatenate(chunks) if chunks else np.empty(0, np.int64)


def instants_of(column: pa.ChunkedArray) -> list[datetime | None]:
    """Instants of microseconds as Python's: `column.to_pylist()`, for which pyarrow imports pandas."""
    return [None if value is None else EPOCH + value * MICROSECOND for value in microseconds_of(column)]


def microseconds_of(column: pa.ChunkedArray) -> list[int | None]:
    """Instants of microseconds as numbers, without a cast, which copies."""
    return [value for chunk in column.chunks for value in chunk.view(pa.int64()).to_pylist()]


def empty_table(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([], schema)


def _make(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """An array of texts, bytes, instants, integers, floats or truths; None where they are something else."""
    if pa.types.is_string(kind) and all(value is None or type(value) is str for value in values):
        return _of_bytes([None if value is None else value.encode() for value in values], kind)
    if pa.types.is_binary(kind) and all(value is None or type(value) is bytes for value in values):
        return _of_bytes(values, kind)
    if kind == INSTANT and all(value is None or _is_instant(value) for value in values):
        instants = [value and (value - EPOCH) // MICROSECOND for value in values]
        return array_of(instants, pa.int64()).view(kind)
    plain: Any = {pa.int64(): (int, np.int64), pa.float64(): (float, np.float64)}.get(kind)
    if plain is not None and all(value is None or type(value) is plain[0] for value in values):
        if plain[0] is int and any(value is not None and not -(2**63) <= value < 2**63 for value in values):
            return None
        data = np.array([0 if value is None else value for value in values], plain[1])
        return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(data)])
    if pa.types.is_boolean(kind) and all(value is None or type(value) is bool for value in values):
        bits = np.packbits(np.array([bool(value) for value in values], bool), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(bits)])
    return None


def _is_instant(value: Any) -> bool:
    return type(value) is datetime and value.tzinfo is not None


def _of_bytes(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:], dtype=np.int32)
    data = b"".join(value for value in values if value is not None)
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(offsets), pa.py_buffer(data)])


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    if not any(value is None for value in values):
        return None
    return pa.py_buffer(np.packbits(np.array([value is not None for value in values], bool), bitorder="little"))
