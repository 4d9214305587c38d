"""Rows in the order of their identity: sorted in memory while they are few, by DuckDB from disk when they are many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.errors import StorageBackendError
from ontologia.files.duck import AS_STORED, raise_interrupt, read_all
from ontologia.files.identity import identity_key, sort_by_identity
from ontologia.files.quoting import exact_paths, quote_names
from ontologia.files.scratch import Scratch
from ontologia.files.writing import gather

HELD_BYTES = 128 << 20
SORT_MEMORY = "512MB"
BATCH_ROWS = 8_192
"""Few: rows may be wide, and a batch is held as a whole."""


class Sorter:
    """Takes rows in any order, gives them back in that of their identity, no two rows of one parted."""

    def __init__(self, identity: Sequence[str], held_bytes: int = HELD_BYTES) -> None:
        self.identity = list(identity)
        self._most = held_bytes
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._files: list[Path] = []
        self._folder = Scratch("sort")

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
        self._files.append(Path(self._folder.name, f"{len(self._files)}.parquet"))
        pq.write_table(pa.concat_tables(self._held), self._files[-1], compression="lz4", write_statistics=False)
        self._held, self._bytes = [], 0

    def chunks(self) -> Iterator[pa.Table]:
        if not self._held and not self._files:
            return
        if not self._files:
            held, self._held = pa.concat_tables(self._held), []
            yield sort_by_identity(held, self.identity)
            return
        if self._held:
            self._spill()
        schema = pq.read_schema(self._files[0])
        for chunk in sort_files(self._files, schema.names, self.identity):
            yield chunk.cast(schema)


def sort_files(
    files: Sequence[Path], names: Sequence[str], identity: Sequence[str], then: str = ""
) -> Iterator[pa.Table]:
    """The rows of Parquet files in the order of identity, `then` of something else, in chunks of about a row group."""
    rows = f"SELECT {quote_names(names)} FROM read_parquet($files, {AS_STORED})"
    with _ask(f"{rows} ORDER BY {quote_names(identity)}{then}", files) as batches:
        yield from identity_chunks(batches, identity)


def find_repeated(files: Sequence[Path], identity: Sequence[str]) -> pa.Table:
    """The first identity that Parquet files have more than once, if there is one. They may differ in other columns."""
    names = quote_names(identity)
    rows = f"SELECT {names} FROM read_parquet($files, {AS_STORED})"
    with _ask(f"{rows} GROUP BY {names} HAVING count(*) > 1 ORDER BY {names} LIMIT 1", files) as batches:
        return read_all(batches)


@contextmanager
def _ask(question: str, files: Sequence[Path]) -> Iterator[pa.RecordBatchReader]:
    """What DuckDB answers about files, with bounded memory: what does not fit is on disk meanwhile."""
    with Scratch("sort") as spill:
        connection = duckdb.connect(":memory:", config={"memory_limit": SORT_MEMORY, "temp_directory": spill})
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(question, {"files": exact_paths(files)})
            yield connection.to_arrow_reader(BATCH_ROWS)
        except Exception as problem:
            raise_interrupt(problem)
            if not isinstance(problem, duckdb.Error):
                raise
            raise StorageBackendError(f"rows cannot be sorted: {problem}", context={"operation": "write"}) from problem
        finally:
            connection.close()


def identity_chunks(batches: Iterable[pa.RecordBatch], identity: Sequence[str]) -> Iterator[pa.Table]:
    """Tables of about a row group, from sorted rows, never cut between rows of one identity."""
    rest: pa.Table | None = None
    for gathering in gather(batches):
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
