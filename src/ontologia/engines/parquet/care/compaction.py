"""Compaction: the files of a type become one snapshot whose rows know the commit that superseded them (RFC 0004 §6).

Commits and manifests are untouched; only the index changes, so that every question has the same answer before and
after. Current rows come first, sorted by identity, in row groups of their own; superseded ones follow. A key lookup
then reads one row group, and the latest state needs no window function.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.engines.base import TypeLayout
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.coverage import cover, current_entries, renew
from ontologia.engines.parquet.log.log import IndexVersion
from ontologia.engines.parquet.log.records import Head, IndexEntry
from ontologia.engines.parquet.read.scan import SUPERSEDED_BY
from ontologia.engines.parquet.write.accelerators import write_index
from ontologia.engines.parquet.write.row_files import file_schema
from ontologia.errors import ConcurrentWriteError, ValidationError
from ontologia.files.data_files import DataFile
from ontologia.files.duck import AS_STORED
from ontologia.files.quoting import quote_names
from ontologia.files.writing import ROW_GROUP_ROWS, parquet_writer
from ontologia.model import COMMIT_ID, TypeRef
from ontologia.objects import ConditionFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.parquet.engine import S3Repository


SNAPSHOT_GROUP_ROWS = 32_768
"""Smaller than in commits: a commit that touches some keys of a large type reads only the groups they are in."""


@dataclass(frozen=True, slots=True)
class TypeCompaction:
    """One type's part: how many files become one, and which commits it covers."""

    ref: TypeRef
    files: int
    rows: int
    min_commit_id: int
    max_commit_id: int
    path: str


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What was compacted, or would be."""

    applied: bool
    types: list[TypeCompaction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Job:
    """One type that is worth compacting."""

    layout: TypeLayout
    found: IndexVersion
    entries: Sequence[IndexEntry]  # to be merged
    kept: Sequence[IndexEntry]  # of earlier schema versions

    def summary(self, repository: S3Repository) -> TypeCompaction:
        first, last = self.entries[0].min_commit_id, self.entries[-1].max_commit_id
        rows = sum(entry.row_count or 0 for entry in self.entries)
        path = repository.snapshot_path(self.layout.ref, self.layout.schema_version_id, first, last)
        return TypeCompaction(self.layout.ref, len(self.entries), rows, first, last, path)


@dataclass(frozen=True, slots=True)
class Written:
    """A snapshot that was written: one file, or several parts in a folder of that name."""

    rows: int
    size: int
    parts: tuple[DataFile, ...] = ()


Writer = Callable[["S3Repository", Job, str], Written]


def compact(
    repository: S3Repository, type_name: str | None, *, apply: bool, write: Writer | None = None
) -> CompactionReport:
    """Merge what is worth merging, of one type or of all. `write` is who writes snapshots: by default, this process."""
    if not apply:
        jobs = _jobs(repository, repository.log.head().head, type_name)
        return CompactionReport(False, [job.summary(repository) for job in jobs])
    with repository.locked():
        start = repository.log.head().head
        done = [_compact(repository, start, job, write or _write) for job in _jobs(repository, start, type_name)]
    return CompactionReport(True, done)


def _jobs(repository: S3Repository, head: Head, type_name: str | None) -> list[Job]:
    catalog = repository.log.catalog(head)
    refs = [ref for ref in sorted(catalog.layouts) if type_name in (None, ref.name)]
    if type_name is not None and not refs:
        raise ValidationError(f"{type_name} is not in this store")
    jobs = repository.objects.map(lambda ref: _job(repository, head, catalog.layouts[ref]), refs)
    return [job for job in jobs if len(job.entries) > 1]


def _job(repository: S3Repository, head: Head, layout: TypeLayout) -> Job:
    found = repository.log.index(layout.ref)
    covered = cover(repository.log, head, layout.ref, found.index)
    entries = current_entries(covered, layout)
    return Job(layout, found, entries, [entry for entry in covered.entries if entry not in entries])


def _compact(repository: S3Repository, start: Head, job: Job, write: Writer) -> TypeCompaction:
    """One type: write the snapshot, check that nothing moved, replace the entries."""
    summary = _named(repository, job.summary(repository))
    written = write(repository, job, summary.path)
    repository.lease.guard()
    if repository.log.head().head != start:
        raise ConcurrentWriteError(f"the head moved while {job.layout.ref} was being compacted; run it again")
    snapshot = IndexEntry(
        summary.min_commit_id,
        summary.max_commit_id,
        summary.path,
        job.layout.schema_version_id,
        written.size,
        written.rows,
        written.parts,
    )
    index = renew(job.found.index, job.layout.ref, start.commit_id, [*job.kept, snapshot])
    try:
        write_index(repository, job.layout.ref, job.found, index, repository.log.schemas(start))
    except ConditionFailed as problem:
        raise ConcurrentWriteError(
            f"the index of {job.layout.ref} changed while it was being compacted; run it again"
        ) from problem
    return replace(summary, rows=written.rows)


def _write(repository: S3Repository, job: Job, path: str) -> Written:
    """Write a snapshot as one file, from this process."""
    with _snapshot_file(repository, job) as (file, rows):
        repository.objects.put_file(path, file)
        return Written(rows, file.stat().st_size)


def _named(repository: S3Repository, summary: TypeCompaction) -> TypeCompaction:
    """Never a name that is taken: a vacuum that stalled may still be about to delete what it found under it."""
    if not repository.objects.exists(summary.path):
        return summary
    return replace(summary, path=paths.another(summary.path, secrets.token_hex(4)))


@contextmanager
def _snapshot_file(repository: S3Repository, job: Job) -> Iterator[tuple[Path, int]]:
    """The snapshot as a local file, written in batches, and how many rows it has."""
    import pyarrow as pa

    plain = file_schema(job.layout.schema, document=repository.has_document)
    schema = plain.append(pa.field(SUPERSEDED_BY, pa.int64()))
    rows = 0
    with tempfile.TemporaryDirectory(prefix="ontologia-") as folder:
        path = Path(folder) / "snapshot.parquet"
        with (
            repository.reader.places(file for entry in job.entries for file in entry.files) as places,
            parquet_writer(path, schema) as writer,
        ):
            files = list(places.values())
            for current in (True, False):
                for table in _batches(repository, job.layout.ref, plain, files, current=current):
                    writer.write_table(table.cast(schema), row_group_size=SNAPSHOT_GROUP_ROWS)
                    rows += table.num_rows
        yield path, rows


def _batches(
    repository: S3Repository, ref: TypeRef, plain: pa.Schema, files: Sequence[str], *, current: bool
) -> Iterator[pa.Table]:
    """The rows with the commit that superseded each, current or superseded ones, in order, a row group at a time."""
    import pyarrow as pa

    identity, columns = quote_names(ref.identity), quote_names(plain.names)
    superseded = f"lead({COMMIT_ID}) OVER (PARTITION BY {identity} ORDER BY {COMMIT_ID})"
    sql = (
        f"SELECT {columns}, {SUPERSEDED_BY} FROM ("
        f"SELECT {columns}, {superseded} AS {SUPERSEDED_BY} FROM read_parquet($files, {AS_STORED})) "
        f"WHERE {SUPERSEDED_BY} IS {'' if current else 'NOT '}NULL ORDER BY {identity}, {COMMIT_ID}"
    )
    with repository.duck.cursor() as cursor:
        reader = cursor.execute(sql, {"files": list(files)}).to_arrow_reader(ROW_GROUP_ROWS)
        held: list[pa.RecordBatch] = []
        for batch in reader:
            held.append(batch)
            if sum(item.num_rows for item in held) >= ROW_GROUP_ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)
