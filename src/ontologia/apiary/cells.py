"""Cells: how rows become Parquet files, how large those get, and what the ledger says of them (seed, "Cell
Writing")."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.apiary.entries import Cell
from ontologia.apiary.names import partition_folder
from ontologia.apiary.values import bound_json
from ontologia.errors import FrameSchemaError
from ontologia.objects import Objects

if TYPE_CHECKING:
    import pyarrow as pa

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
    folder: Objects, table: pa.Table, values: Mapping[str, str], partition_by: Sequence[str], scratch: Scratch
) -> Cell:
    """Write one cell under a new name. It is not part of the frame until a ledger entry says so, and need not survive a
    power failure before."""
    cell_id = f"cell_{uuid.uuid4()}"
    path = "/".join([*(partition_folder(name, values[name]) for name in partition_by), f"{cell_id}.parquet"])
    if len(f"{folder.prefix}/{path}".encode()) > _KEY_BYTES:
        raise FrameSchemaError(
            f"the key of a cell would be longer than the {_KEY_BYTES} bytes a store takes: {path[:80]}…: use shorter "
            "names, or fewer partition columns"
        )
    stats = statistics(table, partition_by)
    size = _put(folder, path, table, scratch)
    return Cell(cell_id, path, dict(values), table.num_rows, size, stats, exact=True)


def _put(folder: Objects, path: str, table: pa.Table, scratch: Scratch) -> int:
    import pyarrow as pa

    if table.nbytes <= IN_MEMORY_BYTES:
        sink = pa.BufferOutputStream()
        _write(sink, table)
        data: Any = memoryview(sink.getvalue()).cast("B")
        folder.put_ahead(path, data)
        return int(data.nbytes)
    local = scratch() / path.rpartition("/")[2]
    try:
        _write(str(local), table)
        folder.put_file(path, local)
        return local.stat().st_size
    finally:
        local.unlink(missing_ok=True)


def _write(sink: Any, table: pa.Table) -> None:
    from ontologia.files.writing import parquet_writer, repeating_columns, write_rows

    with parquet_writer(sink, table.schema, compression="lz4", dictionary=repeating_columns(table)) as writer:
        write_rows(writer, table)


def statistics(table: pa.Table, constant: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Least and greatest value and the number of nulls per column (the seed's ColumnStats). `constant` columns have the
    value of the first row everywhere."""
    return {
        name: _column_statistics(table.column(name).slice(0, 1) if name in constant else table.column(name), name)
        for name in table.column_names
    }


def _column_statistics(column: pa.ChunkedArray, name: str) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    low = high = None
    if column.type == pa.float16():
        column = column.cast(pa.float32())  # Arrow does not compare shorter ones
    if not (pa.types.is_binary(column.type) or column.null_count == len(column)):
        try:
            low, high = (column[0].as_py(),) * 2 if len(column) == 1 else pc.min_max(column).as_py().values()
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
    import pyarrow.compute as pc

    if math.isfinite(pc.sum(column).as_py()):  # one NaN makes the sum NaN, and a sum is quicker than a look at each
        return False
    return bool(pc.any(pc.is_nan(column)).as_py())
