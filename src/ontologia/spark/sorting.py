"""Rows in the order of their identity: sorted in memory while they are few, by DuckDB from disk when they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ontologia.engines.identity import identity_key, ordered
from ontologia.engines.parquet.commit import ROW_GROUP_ROWS
from ontologia.engines.parquet.duck import AS_STORED
from ontologia.errors import StorageBackendError

if TYPE_CHECKING:
    import pyarrow as pa

HELD_BYTES, ROW_GROUP_BYTES = 128 << 20, 64 << 20
SORT_MEMORY = "512MB"


class Sorter:
    """Takes rows in any order, gives them back in that of their identity, no two rows of one parted."""

    def __init__(self, identity: Sequence[str], held_bytes: int = HELD_BYTES) -> None:
        self.identity = list(identity)
        self._most = held_bytes
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._files: list[Path] = []
        self._folder = tempfile.TemporaryDirectory(prefix="ontologia-sort-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._folder.cleanup()

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._most:
            self._spill()

    def _spill(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._files.append(Path(self._folder.name, f"{len(self._files)}.parquet"))
        pq.write_table(pa.concat_tables(self._held), self._files[-1], compression="lz4", write_statistics=False)
        self._held, self._bytes = [], 0

    def chunks(self) -> Iterator[pa.Table]:
        import pyarrow as pa

        if not self._held and not self._files:
            return
        if not self._files:
            held, self._held = pa.concat_tables(self._held), []
            yield ordered(held, self.identity)
            return
        if self._held:
            self._spill()
        schema = pa.parquet.read_schema(self._files[0])
        for chunk in sorted_files(self._files, schema.names, self.identity):
            yield chunk.cast(schema)


def sorted_files(
    files: Sequence[Path], names: Sequence[str], identity: Sequence[str], then: str = ""
) -> Iterator[pa.Table]:
    """The rows of Parquet files in the order of identity, `then` of something else, in chunks of about a row group."""
    import duckdb

    shown = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    keys = ", ".join(f'"{name}"' for name in identity)
    with tempfile.TemporaryDirectory(prefix="ontologia-sort-") as spill:
        connection = duckdb.connect(":memory:", config={"memory_limit": SORT_MEMORY, "temp_directory": spill})
        try:
            connection.execute("SET TimeZone = 'UTC'")
            statement = f"SELECT {shown} FROM read_parquet($files, {AS_STORED}) ORDER BY {keys}{then}"
            connection.execute(statement, {"files": [str(file) for file in files]})
            yield from identity_chunks(connection.to_arrow_reader(ROW_GROUP_ROWS), identity)
        except duckdb.Error as problem:
            raise StorageBackendError(f"rows cannot be sorted: {problem}", context={"operation": "write"}) from problem
        finally:
            connection.close()


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as tables of about a row group: Spark hands them over in small pieces."""
    import pyarrow as pa

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


def identity_chunks(batches: Iterable[pa.RecordBatch], identity: Sequence[str]) -> Iterator[pa.Table]:
    """Tables of about a row group, from sorted rows, never cut between rows of one identity."""
    import pyarrow as pa

    rest: pa.Table | None = None
    for gathering in gathered(batches):
        table = gathering if rest is None else pa.concat_tables([rest, gathering])
        keys = identity_key(table, identity)
        cut = table.num_rows - 1
        last = keys[cut].as_py()
        while cut > 0 and last is not None and keys[cut - 1].as_py() == last:
            cut -= 1
        if cut:
            yield table.slice(0, cut)
        rest = table.slice(cut)
    if rest is not None and rest.num_rows:
        yield rest
