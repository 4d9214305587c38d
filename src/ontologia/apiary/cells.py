"""Cells: how rows become Parquet files, how large those get, and what the ledger says of them (seed, "Cell
Writing")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.apiary.entries import Cell
from ontologia.apiary.names import partition_folder
from ontologia.apiary.types import FrameSchema
from ontologia.apiary.values import bound_json, python_bounds
from ontologia.errors import FrameSchemaError
from ontologia.objects import Objects, new_uuid

IN_MEMORY_BYTES = 64 << 20  #: larger cells are written to disk first, and sent from there
FLOOR_BYTES = 16 << 20
_KEY_BYTES = 1000
_UNKNOWN_WIDTH = 32  # of a text, where nothing is known of it
_FOOTER_TEXT_BYTES = 4096  # longer ones are left out of a footer's statistics
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

    @property
    def most(self) -> int:
        """What no cell is larger than, unless a single row is."""
        return max(self.largest, self.floor)

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
            if piece.nbytes > self.most and piece.num_rows > 1:
                yield from self.cut(piece)
            else:
                yield piece

    def gather(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same rows in tables of about the target size. None but the only one is much smaller: what is left at the
        end goes with the table before it."""
        held: list[pa.Table] = []
        size = 0
        for part in parts:
            held.append(part)
            size += part.nbytes
            while size >= 2 * self.piece and sum(table.num_rows for table in held) > 1:
                table = pa.concat_tables(held)
                fitting = table.num_rows * (self.piece * 15 // 16) // size  # so that a row that is longer fits, too
                first = min(max(fitting, 1), table.num_rows - 1)
                yield table.slice(0, first)
                held = [table.slice(first)]
                size = held[0].nbytes
        if held:
            yield pa.concat_tables(held)

    def runs(self, parts: Iterable[pa.Table]) -> Iterator[Iterator[pa.Table]]:
        """Parts in runs of one cell each, to be used one after another. A run ends before it is larger than a cell may
        be."""
        pieces = (piece for part in parts for piece in self.cut(part))
        waiting = next(pieces, None)

        def run() -> Iterator[pa.Table]:
            nonlocal waiting
            size = 0
            while waiting is not None and (size == 0 or size + waiting.nbytes <= self.most):
                piece = waiting
                size += piece.nbytes
                yield piece
                waiting = next(pieces, None)

        while waiting is not None:
            yield run()


def decoded_size(cell: Cell, schema: FrameSchema | None = None) -> int:
    """How large the rows of a cell are in memory: by what its writer said, else by the widths of its columns."""
    if cell.decoded_bytes is not None:
        return cell.decoded_bytes
    if schema is None:
        return cell.bytes
    return max(
        cell.bytes, cell.rows * sum(_width(field.arrow, cell.stats.get(field.name, {})) for field in schema.fields)
    )


def _width(kind: pa.DataType, stats: Mapping[str, Any]) -> int:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = [len(end) for end in (stats.get("min"), stats.get("max")) if isinstance(end, str)]
        return 4 + (max(ends) if ends else _UNKNOWN_WIDTH)
    return max(1, int(kind.bit_width) // 8)


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
        rows, decoded, stats = _write(sink, parts, partition_by)
        data: Any = memoryview(sink.getvalue()).cast("B")
        folder.put_ahead(path, data)
        return Cell(cell_id, path, dict(values), rows, int(data.nbytes), stats, exact=exact, decoded_bytes=decoded)
    local = scratch() / f"{cell_id}.parquet"
    try:
        rows, decoded, stats = _write(str(local), parts, partition_by)
        folder.put_file(path, local)
        size = local.stat().st_size
        return Cell(cell_id, path, dict(values), rows, size, stats, exact=exact, decoded_bytes=decoded)
    finally:
        local.unlink(missing_ok=True)


def _write(sink: Any, parts: Iterable[pa.Table], constant: Sequence[str]) -> tuple[int, int, dict[str, dict[str, Any]]]:
    """Write a file; how many rows it has, how large they are in memory, and what there is to say of its columns. A part
    is not held once it is written."""
    from ontologia.files.writing import parquet_writer, repeating_columns, write_rows

    coming = iter(parts)
    first = next(coming)
    schema, dictionary = first.schema, repeating_columns(first)
    columns = [_Column(name, name in constant, from_footer=True) for name in schema.names]
    rows = decoded = 0
    with parquet_writer(sink, schema, compression="lz4", dictionary=dictionary) as writer:
        for part in chain([first], coming):
            write_rows(writer, part)
            rows += part.num_rows
            decoded += part.nbytes
            for column in columns:
                column.add(part.column(column.name))
    texts = _text_bounds(writer.writer.metadata, schema)
    return rows, decoded, {column.name: column.to_json(texts.get(column.name, ())) for column in columns}


def statistics(table: pa.Table) -> dict[str, dict[str, Any]]:
    """Least and greatest value and the number of nulls per column (the seed's ColumnStats)."""
    columns = [_Column(name) for name in table.column_names]
    for column in columns:
        column.add(table.column(column.name))
    return {column.name: column.to_json() for column in columns}


def _text_bounds(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, list[str]]:
    """Bounds of texts as Parquet's writer found them: it compares each value of its dictionaries once, we would compare
    all rows. Row groups are left out where it wrote none, as for long texts."""
    found: dict[str, list[str]] = {}
    for number, column in enumerate(schema):
        if not pa.types.is_string(column.type):
            continue
        groups = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        try:
            ends = [
                end for group in groups if group is not None and group.has_min_max for end in (group.min, group.max)
            ]
        except UnicodeDecodeError as problem:
            raise FrameSchemaError(f"column {column.name!r} has text that is not UTF-8: {problem}") from problem
        found[column.name] = ends
    return found


@dataclass
class _Column:
    """What there is to say of a column, gathered part by part. A constant one has the value of its first row
    everywhere; one whose bounds are in the footer of the file is looked at only where texts are too long for that."""

    name: str
    constant: bool = False
    from_footer: bool = False
    nulls: int = 0
    has_nan: bool = False
    lows: list[Any] = field(default_factory=list)
    highs: list[Any] = field(default_factory=list)

    def add(self, column: pa.ChunkedArray) -> None:
        if self.constant:
            column = column.slice(0, 1)
        self.nulls += column.null_count
        if pa.types.is_binary(column.type) or column.null_count == len(column) or self._is_in_footer(column):
            return
        if column.type == pa.float16():
            column = column.cast(pa.float32())  # Arrow does not compare shorter ones
        try:
            low, high = python_bounds(column)
        except UnicodeDecodeError as problem:
            raise FrameSchemaError(f"column {self.name!r} has text that is not UTF-8: {problem}") from problem
        self.lows.append(low)
        self.highs.append(high)
        self.has_nan = self.has_nan or (pa.types.is_floating(column.type) and _has_nan(column))

    def _is_in_footer(self, column: pa.ChunkedArray) -> bool:
        if not self.from_footer or not pa.types.is_string(column.type):
            return False
        return bool(pc.max(pc.binary_length(column)).as_py() <= _FOOTER_TEXT_BYTES)

    def to_json(self, known: Sequence[str] = ()) -> dict[str, Any]:
        # NaN is greater than all numbers, so there is no greatest.
        return {
            "min": bound_json(_end(min, [*self.lows, *known])),
            "max": None if self.has_nan else bound_json(_end(max, [*self.highs, *known])),
            "null_count": self.nulls,
            "distinct_count": None,
        }


def _end(choose: Callable[..., Any], ends: Sequence[Any]) -> Any:
    """The least or the greatest of what parts have; None where one of them is not known, as no values are."""
    numbers = [end for end in ends if end == end]  # a part of NaN alone has no number
    return None if None in ends or not numbers else choose(numbers)


def _has_nan(column: pa.ChunkedArray) -> bool:
    if math.isfinite(pc.sum(column).as_py()):  # one NaN makes the sum NaN, and a sum is quicker than a look at each
        return False
    return bool(pc.any(pc.is_nan(column)).as_py())
