"""Snapshots: the rows of many files in one order, each with the commit that superseded it (RFC 0004 §6).

Current rows come first, sorted by identity, in row groups of their own; superseded ones follow. Those wait in a file
of their own, so that memory stays bounded, however long a history is. A `SnapshotTask` can be sent to executors, which
write ranges of keys side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines import shares
from ontologia.engines.parquet.read.shares import cuts_of_files, is_small
from ontologia.engines.row_files import file_schema, span_of
from ontologia.engines.staging import PART_BYTES, put_part
from ontologia.files.data_files import DataFile, KeySpan
from ontologia.files.hashes import hash_of_file
from ontologia.files.identity import identity_key
from ontologia.files.key_ranges import EVERYTHING, KeyRange, key_ranges
from ontologia.files.reading import FileReader, reader_at, rows_between
from ontologia.files.scratch import Scratch
from ontologia.files.sorting import Sorter
from ontologia.files.writing import LOOKUP_GROUP_ROWS, ROW_GROUP_ROWS, RowGroups, gather, lookup_writer, write_rows
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeSchema
from ontologia.objects import Location
from ontologia.query.in_force import are_current, are_removals

FILES_AT_ONCE = 32
MOST_ROWS_AGAIN, MOST_FILES_AGAIN = 8_000_000, 100_000


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A snapshot to be written: which files become one, and where it goes."""

    location: Location
    path: str
    schema: TypeSchema
    document: bool
    files: tuple[DataFile, ...]
    store_id: str | None = None
    base: int = 0
    """Rows that were superseded at this commit or before it are left out."""

    @property
    def identity(self) -> tuple[str, ...]:
        return self.schema.ref.identity

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which rows are sorted."""
        return (*self.identity, COMMIT_ID)

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of the files to merge: where removals are among the rows, with what marks them."""
        return file_schema(self.schema, document=self.document, settled=any(file.removals for file in self.files))

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a snapshot's file."""
        return file_schema(self.schema, document=self.document, settled=True)

    def open_reader(self) -> FileReader:
        """How a process that works for others reads the store."""
        return reader_at(self.location, self.store_id)

    def ranges(self) -> list[KeyRange]:
        """Ranges of keys that can be written side by side."""
        return key_ranges(cuts_of_files(self.open_reader(), self.files, self.identity[0]))

    @property
    def is_wide(self) -> bool:
        """Whether there is much in files that may have keys from everywhere, which every range would have to read."""
        small = [file.row_count or 0 for file in self.files if is_small(file)]
        ranges = sum(file.row_count or 0 for file in self.files) // shares.ROWS_PER_SHARE + 1
        return sum(small) * ranges > MOST_ROWS_AGAIN or len(small) * ranges > MOST_FILES_AGAIN

    def some_rows(self, number: int, groups: int) -> Iterator[pa.Table]:
        """The rows of one of so many groups of files."""
        return self._rows_in(self.open_reader(), self.files[number::groups], EVERYTHING)

    def rows(self, reader: FileReader, keys: KeyRange = EVERYTHING) -> Iterator[pa.Table]:
        """The rows of a range in all files."""
        return self._rows_in(reader, self.files, keys)

    def _rows_in(self, reader: FileReader, files: Sequence[DataFile], keys: KeyRange) -> Iterator[pa.Table]:
        """The rows of some files, several files at a time, since a store answers several requests at once."""
        for start in range(0, len(files), FILES_AT_ONCE):
            some = files[start : start + FILES_AT_ONCE]
            for tables in reader.objects.map(lambda file: list(self._rows_of(reader, file, keys)), some):
                yield from tables

    def _rows_of(self, reader: FileReader, file: DataFile, keys: KeyRange) -> Iterator[pa.Table]:
        names = self.stored_schema.names
        unmarked = SUPERSEDED_BY in names and not file.removals
        for rows in rows_between(reader, file, names[:-1] if unmarked else names, keys, self.identity[0]):
            yield rows.append_column(SUPERSEDED_BY, pa.nulls(rows.num_rows, pa.int64())) if unmarked else rows

    def write_file(self, reader: FileReader) -> DataFile:
        """Write the whole snapshot as one file; none where no row is left."""
        reader.check_large(self.files)
        with Sorter(self.order) as sorter, SnapshotFile(self) as file:
            for table in self.rows(reader):
                sorter.add(table)
            for table in add_superseding(_cut(sorter.chunks()), self.identity):
                file.add(_left_after(table, self.base))
            if not file.rows:
                return DataFile(self.path, 0, 0)
            path = file.complete()
            reader.objects.put_file(self.path, path)
            size, digest = path.stat().st_size, hash_of_file(path)
            return DataFile(self.path, size, file.rows, digest, file.keys, file.rows_in_force, file.removals)

    def write_range(self, keys: KeyRange) -> list[DataFile]:
        """Write one range of keys, read from all files, as parts."""
        with Sorter(self.order) as sorter:
            for table in self.rows(self.open_reader(), keys):
                sorter.add(table)
            return self._write_parts(_cut(sorter.chunks()))

    def write_batches(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write rows that come in `order`, as parts."""
        return self._write_parts(gather(batches))

    def _write_parts(self, tables: Iterable[pa.Table]) -> list[DataFile]:
        done = []
        with SnapshotFile(self) as file:
            for table in add_superseding(tables, self.identity):
                file.add(table)
                if file.size >= PART_BYTES:
                    done.append(self._put(file))
            if not file.is_complete:
                done.append(self._put(file))
        return done

    def _put(self, file: SnapshotFile) -> DataFile:
        path = file.complete()
        objects = self.open_reader().objects
        return put_part(objects, f"{self.path}/", path, file.rows, file.keys, file.rows_in_force, file.removals)


def _cut(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        for start in range(0, table.num_rows, ROW_GROUP_ROWS):
            yield table.slice(start, ROW_GROUP_ROWS)


def add_superseding(tables: Iterable[pa.Table], identity: tuple[str, ...]) -> Iterator[pa.Table]:
    """Sorted rows with the commit that superseded each: that of the next row, where it has the same identity; of a row
    that says that something was removed, its own."""
    last: pa.Table | None = None
    for table in tables:
        rows = table if last is None else pa.concat_tables([last, table])
        keys = identity_key(rows, identity)
        last, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
        same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        commits = pa.chunked_array(
            [*rows.column(COMMIT_ID).slice(1).chunks, *last.column(COMMIT_ID).chunks], pa.int64()
        )
        yield _mark_superseded(rows, pc.if_else(same, commits, pa.scalar(None, pa.int64())))
    if last is not None:
        yield _mark_superseded(last, pa.nulls(1, pa.int64()))


def _left_after(rows: pa.Table, base: int) -> pa.Table:
    """The rows that were not superseded yet at a commit; all of them, where there is none."""
    return rows.filter(are_current(rows, at=base)) if base else rows


def _mark_superseded(rows: pa.Table, by: pa.ChunkedArray) -> pa.Table:
    """Rows with the commits that superseded them, unless they were superseded by their own."""
    if SUPERSEDED_BY not in rows.column_names:
        return rows.append_column(SUPERSEDED_BY, by)
    kept = pc.if_else(are_removals(rows), rows.column(COMMIT_ID), by)
    return rows.set_column(rows.column_names.index(SUPERSEDED_BY), SUPERSEDED_BY, kept)


class SnapshotFile:
    """A snapshot's file in the making: current rows, and beside them the superseded ones until it is complete."""

    def __init__(self, task: SnapshotTask) -> None:
        self._begin()
        self._key = task.identity[0]
        self._schema = task.file_schema
        self._local = Scratch("snapshot")
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._groups = {
            "current": RowGroups(lambda rows: self._write("current", rows)),
            "superseded": RowGroups(lambda rows: self._write("superseded", rows)),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._local.cleanup()

    @property
    def size(self) -> int:
        """How many bytes were written so far."""
        return sum(self._path(name).stat().st_size for name in self._writers)

    def _begin(self) -> None:
        self.rows = self.rows_in_force = self.removals = 0
        self.keys: KeySpan | None = None
        self.is_complete = True

    def add(self, table: pa.Table) -> None:
        if self.is_complete:
            self._begin()
        rows = table.select(self._schema.names).cast(self._schema)
        old = pc.is_valid(rows.column(SUPERSEDED_BY))
        current = rows.filter(pc.invert(old))
        self._groups["current"].add(current)
        self._groups["superseded"].add(rows.filter(old))
        self.rows += rows.num_rows
        self.rows_in_force += current.num_rows
        self.removals += pc.sum(are_removals(rows)).as_py() or 0
        self.keys = span_of(rows, self._key, self.keys)
        self.is_complete = self.is_complete and not rows.num_rows

    def complete(self) -> Path:
        """Put the superseded rows behind the current ones. What is added afterwards is another file."""
        for groups in self._groups.values():
            groups.finish()
        aside = self._writers.pop("superseded", None)
        if aside is not None:
            aside.close()
            with pq.ParquetFile(self._path("superseded")) as reader:
                for table in gather(reader.iter_batches(batch_size=LOOKUP_GROUP_ROWS)):
                    self._write("current", table)
        self._writers.pop("current").close()
        self.is_complete = True
        return self._path("current")

    def _path(self, name: str) -> Path:
        return Path(self._local.name, f"{name}.parquet")

    def _write(self, name: str, rows: pa.Table) -> None:
        if name not in self._writers:
            self._writers[name] = lookup_writer(self._path(name), self._schema, rows)
        write_rows(self._writers[name], rows, LOOKUP_GROUP_ROWS)
