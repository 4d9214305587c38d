"""What an executor does of a compaction: one range of keys becomes one part of the snapshot, or several.

Current rows come first, superseded ones after them. Those wait in a file of their own, so that a task's memory stays
bounded, however long a history is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ontologia.engines.parquet.care.compaction import SNAPSHOT_GROUP_ROWS
from ontologia.engines.parquet.engine import S3Repository
from ontologia.engines.parquet.read.scan import SUPERSEDED_BY
from ontologia.engines.parquet.write.row_files import file_schema
from ontologia.files.data_files import DataFile
from ontologia.files.identity import identity_key
from ontologia.files.key_ranges import KeyRange
from ontologia.files.reading import rows_between
from ontologia.files.sorting import Sorter
from ontologia.files.writing import ROW_GROUP_ROWS, RowGroups, gather, parquet_writer
from ontologia.model import COMMIT_ID, TypeSchema
from ontologia.spark.parts import PART_BYTES, put_part
from ontologia.spark.source import repository_at

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FILES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """What an executor needs to write its part of a snapshot."""

    uri: str
    folder: str
    schema: TypeSchema
    document: bool
    files: tuple[DataFile, ...] = ()

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of a commit's file."""
        return file_schema(self.schema, document=self.document)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a snapshot's file."""
        import pyarrow as pa

        return self.stored_schema.append(pa.field(SUPERSEDED_BY, pa.int64()))


def snapshot_of_range(task: SnapshotTask, keys: KeyRange) -> list[DataFile]:
    """Write one range of keys, read from all files."""
    with Sorter([*task.schema.ref.identity, COMMIT_ID]) as sorter:
        for table in rows_within(task, keys):
            sorter.add(table)
        return _written(task, sliced(sorter.chunks()))


def snapshot_of_rows(task: SnapshotTask, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write rows that come in the order of identity and commit."""
    return _written(task, gather(batches))


def _written(task: SnapshotTask, tables: Iterable[pa.Table]) -> list[DataFile]:
    with SnapshotParts(task) as parts:
        for table in settled(tables, task):
            parts.add(table)
        return parts.finish()


def rows_within(task: SnapshotTask, keys: KeyRange) -> Iterator[pa.Table]:
    """The rows of a range in all files, some files at a time, since a store answers several requests at once."""
    repository = repository_at(task.uri)
    assert isinstance(repository, S3Repository)
    reading, names, first = repository.reader, task.stored_schema.names, task.schema.ref.identity[0]
    for start in range(0, len(task.files), FILES_AT_ONCE):
        files = task.files[start : start + FILES_AT_ONCE]
        for tables in repository.objects.map(lambda file: list(rows_between(reading, file, names, keys, first)), files):
            yield from tables


def sliced(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        for start in range(0, table.num_rows, ROW_GROUP_ROWS):
            yield table.slice(start, ROW_GROUP_ROWS)


def settled(tables: Iterable[pa.Table], task: SnapshotTask) -> Iterator[pa.Table]:
    """Rows with the commit that superseded each: that of the next row, where it has the same identity."""
    import pyarrow as pa
    import pyarrow.compute as pc

    last: pa.Table | None = None
    for table in tables:
        rows = table if last is None else pa.concat_tables([last, table])
        keys = identity_key(rows, task.schema.ref.identity)
        last, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
        same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        commits = pa.chunked_array(
            [*rows.column(COMMIT_ID).slice(1).chunks, *last.column(COMMIT_ID).chunks], pa.int64()
        )
        yield rows.append_column(SUPERSEDED_BY, pc.if_else(same, commits, pa.scalar(None, pa.int64())))
    if last is not None:
        yield last.append_column(SUPERSEDED_BY, pa.nulls(1, pa.int64()))


class SnapshotParts:
    """The parts of a snapshot in the making: a file of current rows, and beside it one of superseded rows."""

    def __init__(self, task: SnapshotTask) -> None:
        self.task = task
        self.schema = task.file_schema
        self._local = tempfile.TemporaryDirectory(prefix="ontologia-snapshot-")
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._groups = {
            "current": RowGroups(lambda rows: self._write("current", rows)),
            "superseded": RowGroups(lambda rows: self._write("superseded", rows)),
        }
        self._rows = 0
        self._done: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._local.cleanup()

    def add(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        rows = table.select(self.schema.names).cast(self.schema)
        old = pc.is_valid(rows.column(SUPERSEDED_BY))
        self._groups["current"].add(rows.filter(pc.invert(old)))
        self._groups["superseded"].add(rows.filter(old))
        self._rows += rows.num_rows
        if sum(self._path(name).stat().st_size for name in self._writers) >= PART_BYTES:
            self._put()

    def _path(self, name: str) -> Path:
        return Path(self._local.name, f"{name}.parquet")

    def _write(self, name: str, rows: pa.Table) -> None:
        if name not in self._writers:
            self._writers[name] = parquet_writer(self._path(name), self.schema)
        self._writers[name].write_table(rows, row_group_size=SNAPSHOT_GROUP_ROWS)

    def _put(self) -> None:
        """Complete a part: the superseded rows go behind the current ones."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for groups in self._groups.values():
            groups.finish()
        aside = self._writers.pop("superseded", None)
        if aside is not None:
            aside.close()
            with pq.ParquetFile(self._path("superseded")) as reader:
                for batch in reader.iter_batches(batch_size=ROW_GROUP_ROWS):
                    self._write("current", pa.Table.from_batches([batch]))
        if self._rows:
            self._writers.pop("current").close()
            self._done.append(put_part(self.task.uri, self.task.folder, self._path("current"), self._rows))
        self._rows = 0

    def finish(self) -> list[DataFile]:
        self._put()
        return self._done
