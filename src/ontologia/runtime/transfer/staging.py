"""Checked rows on disk, between reading files and writing a commit.

Files are read and checked before any lock is taken, and a commit that loses a race starts again from here. A store
takes each identity once per commit, so rows whose order does not rule repeats out are split by identity into parts
that fit in memory, where the last word wins.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.model import TypeSchema
from ontologia.runtime.transfer.conflicts import identities
from ontologia.runtime.transfer.records import Identity, RecordReader

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE, BYTES_AT_ONCE = 25_000, 16 << 20
MAX_PARTS = 256


class StagedType:
    """The rows of one type, in the order of the files until `seal`, each identity once after it."""

    def __init__(self, reader: RecordReader, folder: Path) -> None:
        self.reader = reader
        self.rows = 0
        self._bytes = 0
        self._held_bytes = 0
        self._folder = folder
        self._identities: list[Identity] = []
        self._values: list[dict[str, Any]] = []
        self._last: Identity = ()
        self._ascending = True
        self._writer: Any = None
        self._parts: list[Path] = [folder / "rows.arrow"]

    @property
    def schema(self) -> TypeSchema:
        return self.reader.schema

    def add(self, identity: Identity, values: dict[str, Any], size: int) -> None:
        """Take a row that has about this size."""
        self._ascending = self._ascending and self._last < identity
        self._last = identity
        self._identities.append(identity)
        self._values.append(values)
        self.rows += 1
        self._bytes += size
        self._held_bytes += size
        if len(self._values) >= ROWS_AT_ONCE or self._held_bytes >= BYTES_AT_ONCE:
            self._spill()

    def _spill(self) -> None:
        import pyarrow as pa

        table = self.reader.table(self._identities, self._values)
        if self._writer is None:
            self._folder.mkdir(parents=True)
            self._writer = pa.ipc.new_stream(self._parts[0], table.schema)
        self._writer.write_table(table)
        self._identities, self._values, self._held_bytes = [], [], 0

    def seal(self) -> None:
        """No more rows come."""
        if self._values:
            self._spill()
        if self._writer is None:
            self._parts = []
            return
        self._writer.close()
        if not self._ascending:
            self._parts = self._split(self._parts[0])

    def _split(self, source: Path) -> list[Path]:
        """Rows of one identity into one part, in their order."""
        import pyarrow as pa

        count = min(MAX_PARTS, max(-(-self.rows // ROWS_AT_ONCE), -(-self._bytes // BYTES_AT_ONCE)))
        parts = [self._folder / f"part-{number}.arrow" for number in range(count)]
        writers = [pa.ipc.new_stream(part, self.reader.arrow_schema) for part in parts]
        for table in _batches(source):
            keys = ("\0".join(identity).encode() for identity in identities(self.reader.ref, table))
            numbers = pa.array([zlib.crc32(key) % count for key in keys], pa.int32())
            for number, writer in enumerate(writers):
                chosen = table.filter(_equal(numbers, number))
                if chosen.num_rows:
                    writer.write_table(chosen)
        for writer in writers:
            writer.close()
        source.unlink()
        return parts

    def tables(self) -> Iterator[pa.Table]:
        """The rows, each identity once: as often as asked, for a commit may have to start again."""
        for part in self._parts:
            if self._ascending:
                yield from _batches(part)
            else:
                yield self._last_words(part)

    def _last_words(self, part: Path) -> pa.Table:
        import pyarrow as pa

        with pa.ipc.open_stream(part) as stream:
            table = stream.read_all()
        last = {identity: number for number, identity in enumerate(identities(self.reader.ref, table))}
        return table.take(pa.array(sorted(last.values()), pa.int64()))


def _batches(path: Path) -> Iterator[pa.Table]:
    import pyarrow as pa

    with pa.ipc.open_stream(path) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def _equal(numbers: Any, number: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(numbers, number)
