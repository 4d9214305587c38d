"""Cells: how rows become Parquet files, how large those get, and what the ledger says of them (seed, "Cell
Writing")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.apiary.entries import Cell
from ontologia.apiary.names import partition_folder
from ontologia.apiary.values import bound_json, python_bounds
from ontologia.errors import FrameSchemaError
from ontologia.objects import Objects, new_uuid

IN_MEMORY_BYTES = 64 << 20  #: larger cells are written to disk first, and sent from there
FLOOR_BYTES = 16 << 20
_KEY_BYTES = 1000
Scratch = Callable[[], Path]  #: a directory for files on their way, made when it is needed


@dataclass(frozen=True)
class CellSizing:
    """Seed, "Leafcutter Cell Sizing": cells that fit the memory of the bee that will scan them."""

    target: int
    largest: int
    floor: int = FLOOR_BYTES

    @classmethod
    def for_bee(cls, memory_per_bee: int) -> CellSizing:
        """A quarter of a bee's memory, twice that at most, and nothing cut smaller than the floor."""
        target = max(memory_per_bee // 4, 1)
        return cls(target, target * 2)

    @property
    def piece(self) -> int:
        """What is cut to: the target, but not below the floor, where a request costs more than what it brings."""
        return max(self.target, self.floor)

    def cut(self, table: pa.Table) -> Iterator[pa.Table]:
        """The rows in pieces of even row counts. A piece that turns out too large, for its rows are longer, is cut
        again."""
        count = min(math.ceil(table.nbytes / self.piece), table.num_rows)
        if count <= 1:
            yield table
            return
        for number in range(count):
            start, end = (number * table.num_rows // count, (number + 1) * table.num_rows // count)
            piece = table.slice(start, end - start)
            if piece.nbytes > max(self.largest, self.floor) and piece.num_rows > 1:
                yield from self.cut(piece)
            else:
                yield piece


def write_cell(
    folder: Objects,
    table: pa.Table,
    values: Mapping[str, str],
    partition_by: Sequence[str],
    scratch: Scratch,
    *,
    exact: bool = True,
) -> Cell:
    """Write one cell under a new name. It is not part of the frame until a ledger entry says so, and need not survive a
    power failure before. `exact` says that its columns are in the order they were declared in."""
    in_memory = table.nbytes <= IN_MEMORY_BYTES
    return stream_cell(folder, [table], values, partition_by, scratch, in_memory=in_memory, exact=exact)


def stream_cell(
    folder: Objects,
    parts: Iterable[pa.Table],
    values: Mapping[str, str],
    partition_by: Sequence[str],
    scratch: Scratch,
    *,
    in_memory: bool,
    exact: bool = True,
) -> Cell:
    """The same for rows that come in parts, which are encoded one by one. There is at least one part."""
    cell_id = f"cell_{new_uuid()}"
    path = "/".join([*(partition_folder(name, values[name]) for name in partition_by), f"{cell_id}.parquet"])
    if len(f"{folder.prefix}/{path}".encode()) > _KEY_BYTES:
        raise FrameSchemaError(
            f"the key of a cell would be longer than the {_KEY_BYTES} bytes a store takes: {path[:80]}…: use shorter "
            "names, or fewer partition columns"
        )
    if in_memory:
        sink = pa.BufferOutputStream()
        rows, stats = _write(sink, parts, partition_by)
        data: Any = memoryview(sink.getvalue()).cast("B")
        folder.put_ahead(path, data)
        return Cell(cell_id, path, dict(values), rows, int(data.nbytes), stats, exact=exact)
    local = scratch() / f"{cell_id}.parquet"
    try:
        rows, stats = _write(str(local), parts, partition_by)
        folder.put_file(path, local)
        return Cell(cell_id, path, dict(values), rows, local.stat().st_size, stats, exact=exact)
    finally:
        local.unlink(missing_ok=True)


def _write(sink: Any, parts: Iterable[pa.Table], constant: Sequence[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Write a file; how many rows it has, and what there is to say of its columns."""
    from ontologia.files.writing import parquet_writer, repeating_columns, write_rows

    coming = iter(parts)
    written = [next(coming)]
    schema, dictionary = written[0].schema, repeating_columns(written[0])
    with parquet_writer(sink, schema, compression="lz4", dictionary=dictionary) as writer:
        write_rows(writer, written[0])
        for part in coming:
            write_rows(writer, part)
            written.append(part)
    table = pa.concat_tables(written)
    return table.num_rows, statistics(table, constant, writer.writer.metadata)


def statistics(
    table: pa.Table, constant: Sequence[str] = (), footer: pq.FileMetaData | None = None
) -> dict[str, dict[str, Any]]:
    """Least and greatest value and the number of nulls per column (the seed's ColumnStats). `constant` columns have the
    value of the first row everywhere; `footer` is that of the file these rows were written to."""
    texts = {} if footer is None else _text_bounds(footer, table.schema)
    return {
        name: _column_statistics(
            table.column(name).slice(0, 1) if name in constant else table.column(name), name, texts.get(name)
        )
        for name in table.column_names
    }


def _text_bounds(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, tuple[str, str]]:
    """Bounds of texts as Parquet's writer found them: it compares each value of its dictionaries once, we would compare
    all rows. Columns are left out where it wrote none, as for long texts."""
    found = {}
    for number, field in enumerate(schema):
        if not pa.types.is_string(field.type) or not footer.num_row_groups:
            continue
        parts = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if all(part is not None and part.has_min_max for part in parts):
            with suppress(UnicodeDecodeError):
                found[field.name] = (min(part.min for part in parts), max(part.max for part in parts))
    return found


def _column_statistics(column: pa.ChunkedArray, name: str, known: tuple[str, str] | None = None) -> dict[str, Any]:
    low = high = None
    if column.type == pa.float16():
        column = column.cast(pa.float32())  # Arrow does not compare shorter ones
    if known is not None:
        low, high = known
    elif not (pa.types.is_binary(column.type) or column.null_count == len(column)):
        try:
            low, high = python_bounds(column)
        except UnicodeDecodeError as problem:
            raise FrameSchemaError(f"column {name!r} has text that is not UTF-8: {problem}") from problem
        if pa.types.is_floating(column.type) and _has_nan(column):
            high = None  # NaN is greater than all numbers, so there is no greatest
    return {
        "min": bound_json(low),
        "max": bound_json(high),
        "null_count": column.null_count,
        "distinct_count": None,
    }


def _has_nan(column: pa.ChunkedArray) -> bool:
    if math.isfinite(pc.sum(column).as_py()):  # one NaN makes the sum NaN, and a sum is quicker than a look at each
        return False
    return bool(pc.any(pc.is_nan(column)).as_py())
