"""The one way data files are written: with statistics to prune by, in row groups bounded by rows and by bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 131_072
LOOKUP_GROUP_ROWS = 16_384
LOOKUP_PAGE_BYTES = 64 << 10
"""In files where rows are looked up by their key: the row group that has it is decoded whole."""
PAGE_BYTES = 1 << 20
ROW_GROUP_BYTES = 64 << 20
SAMPLED_ROWS = 4096
INCOMPRESSIBLE = 0.9
"""What is left of such a column by compressing it takes longer to read than the bytes that are saved."""
SAMPLED_RUNS = 64  # of rows that stand together: to pick rows one by one, Arrow would copy the whole column


def parquet_writer(
    sink: Any,
    schema: pa.Schema,
    *,
    compression: str | Mapping[str, str] = "zstd",
    dictionary: bool | list[str] = True,
    page_bytes: int = PAGE_BYTES,
) -> pq.ParquetWriter:
    """A writer with statistics on every column but floats, and with a dictionary for those columns that are named.

    Parquet's statistics leave NaN out, and readers that prune by them would lose the rows that have it: to us NaN is
    a value, equal to itself and greater than all others. Every page has a checksum, so that bit rot can be found.
    """
    exact = [field.name for field in schema if not pa.types.is_floating(field.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        use_dictionary=dictionary,
        write_statistics=exact,
        write_page_checksum=True,
        data_page_size=page_bytes,
    )


def lookup_writer(sink: Any, schema: pa.Schema, first: pa.Table) -> pq.ParquetWriter:
    """A writer of a file in which rows are looked up by their key; `first` are the first rows that go into it.

    A dictionary serves one row group: what comes again only beyond it does not count. Numbers that compressing makes no
    smaller, such as most floats, are written as they are: to decompress them would take longer than all the rest.
    """
    middle = max(first.num_rows - LOOKUP_GROUP_ROWS, 0) // 2
    sample = first.slice(middle, LOOKUP_GROUP_ROWS)
    repeating = repeating_columns(sample)
    compression = {
        name: "none" if name not in repeating and _is_incompressible(sample.column(name)) else "zstd"
        for name in schema.names
    }
    return parquet_writer(sink, schema, compression=compression, dictionary=repeating, page_bytes=LOOKUP_PAGE_BYTES)


def repeating_columns(rows: pa.Table) -> list[str]:
    """The columns whose values come again, by a sample. A dictionary of values that do not is made in vain: it doubles
    the time to write them, the file gets no smaller, and who looks for one value has to read them all."""
    if rows.num_rows <= SAMPLED_ROWS:
        return list(rows.column_names)
    run = SAMPLED_ROWS // SAMPLED_RUNS
    sample = pa.concat_tables(rows.slice(rows.num_rows * n // SAMPLED_RUNS, run) for n in range(SAMPLED_RUNS))
    return [name for name in rows.column_names if _repeats(sample.column(name))]


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type) and column.type.bit_width < 32:
        return True  # Arrow does not count these; there are few of them anyway
    there = len(column) - column.null_count  # a null takes no place in a dictionary
    return there == 0 or pc.count_distinct(column).as_py() <= 0.9 * there  # type: ignore[no-any-return]


def _is_incompressible(column: pa.ChunkedArray) -> bool:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)):
        return False
    values = column.drop_null().combine_chunks()
    width = column.type.bit_width // 8
    plain = values.buffers()[1].slice(values.offset * width, len(values) * width)
    return bool(pa.compress(plain, "zstd").size > INCOMPRESSIBLE * plain.size)


def write_rows(writer: pq.ParquetWriter, rows: pa.Table, most_rows: int = ROW_GROUP_ROWS) -> None:
    """Write rows in row groups of so many rows at most, and of few enough that a reader can hold one."""
    if rows.num_rows:
        fitting = max(ROW_GROUP_BYTES * rows.num_rows // max(rows.nbytes, 1), 1)
        writer.write_table(rows, row_group_size=min(most_rows, fitting))


class RowGroups:
    """Gathers rows to whole row groups: a chunk in which little changed would make a small one."""

    def __init__(self, write: Callable[[pa.Table], None]) -> None:
        self._write = write
        self._held: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._hold(rows)
        if self._rows >= ROW_GROUP_ROWS:
            held = pa.concat_tables(self._held)
            whole = held.num_rows - held.num_rows % ROW_GROUP_ROWS
            self._held, self._rows, self._bytes = [], 0, 0
            self._write(held.slice(0, whole))
            if whole < held.num_rows:
                self._hold(held.slice(whole))
        if self._bytes >= ROW_GROUP_BYTES:
            self.finish()

    def _hold(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes

    def finish(self) -> None:
        if self._held:
            self._write(pa.concat_tables(self._held))
            self._held, self._rows, self._bytes = [], 0, 0


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as tables of about a row group, for those that come in small pieces."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)
