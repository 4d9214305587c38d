"""Compaction: the files of a type become one snapshot whose rows know the commit that superseded them (RFC 0004 §6).

Commits and manifests are untouched; only the index changes, so that every question has the same answer before and
after. A key lookup then reads one row group, and the latest state needs no window function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ontologia.engines.care import CompactionReport, TypeCompaction, Workers
from ontologia.engines.catalog import TypeLayout
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.snapshots import SnapshotTask
from ontologia.engines.parquet.log.coverage import cover, current_entries, renew
from ontologia.engines.parquet.log.log import IndexVersion
from ontologia.engines.parquet.log.records import Head, IndexEntry
from ontologia.engines.parquet.write.accelerators import write_index
from ontologia.errors import ConcurrentWriteError, ValidationError
from ontologia.objects import ConditionFailed, new_token

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


@dataclass(frozen=True, slots=True)
class Job:
    """One type that is worth compacting."""

    layout: TypeLayout
    found: IndexVersion
    entries: Sequence[IndexEntry]  # to be merged
    kept: Sequence[IndexEntry]  # of earlier schema versions, or not chosen

    def summary(self, engine: ParquetEngine) -> TypeCompaction:
        first, last = self.entries[0].min_commit_id, self.entries[-1].max_commit_id
        rows = sum(entry.row_count or 0 for entry in self.entries)
        path = engine.snapshot_path(self.layout.ref, self.layout.schema_version_id, first, last)
        return TypeCompaction(self.layout.ref, len(self.entries), rows, first, last, path)


def compact(
    engine: ParquetEngine, type_name: str | None, *, apply: bool, workers: Workers | None = None
) -> CompactionReport:
    """Merge what is worth merging, of one type or of all."""
    if not apply:
        jobs = _jobs(engine, engine.log.head().head, type_name)
        return CompactionReport(False, [job.summary(engine) for job in jobs])
    return CompactionReport(True, merge(engine, _all, type_name, workers))


Choice = Callable[[Sequence[IndexEntry]], Sequence[IndexEntry]]
"""Which entries of a type, that come oldest first, become one; they must follow each other."""


def _all(entries: Sequence[IndexEntry]) -> Sequence[IndexEntry]:
    return entries


def merge(
    engine: ParquetEngine, choose: Choice, type_name: str | None = None, workers: Workers | None = None
) -> list[TypeCompaction]:
    """Merge the chosen entries, of one type or of all, under the write lease."""
    with engine.locked():
        start = engine.log.head().head
        return [_compact(engine, start, job, workers) for job in _jobs(engine, start, type_name, choose)]


def _jobs(engine: ParquetEngine, head: Head, type_name: str | None, choose: Choice = _all) -> list[Job]:
    catalog = engine.log.catalog(head)
    refs = [ref for ref in sorted(catalog.layouts) if type_name in (None, ref.name)]
    if type_name is not None and not refs:
        raise ValidationError(f"{type_name} is not in this store")
    jobs = engine.objects.map(lambda ref: _job(engine, head, catalog.layouts[ref], choose), refs)
    return [job for job in jobs if len(job.entries) > 1]


def _job(engine: ParquetEngine, head: Head, layout: TypeLayout, choose: Choice) -> Job:
    found = engine.log.index(layout.ref)
    covered = cover(engine.log, head, layout.ref, found.index)
    entries = choose(current_entries(covered, layout))
    merged = {entry.path for entry in entries}
    return Job(layout, found, entries, [entry for entry in covered.entries if entry.path not in merged])


def _compact(engine: ParquetEngine, start: Head, job: Job, workers: Workers | None) -> TypeCompaction:
    """One type: write the snapshot, check that nothing moved, replace the entries."""
    summary = _name_snapshot(engine, job.summary(engine))
    snapshot = _write(engine, job, summary, workers)
    engine.lease.guard()
    if engine.log.head().head != start:
        raise ConcurrentWriteError(f"the head moved while {job.layout.ref} was being compacted; run it again")
    base = engine.log.compacted(start).base
    index = renew(job.found.index, job.layout.ref, start.commit_id, [*job.kept, snapshot], base)
    try:
        write_index(engine, job.layout.ref, job.found, index, engine.log.schemas(start))
    except ConditionFailed as problem:
        raise ConcurrentWriteError(
            f"the index of {job.layout.ref} changed while it was being compacted; run it again"
        ) from problem
    return replace(summary, rows=snapshot.row_count or 0)


def _write(engine: ParquetEngine, job: Job, summary: TypeCompaction, workers: Workers | None) -> IndexEntry:
    """Write a snapshot: one file from this process, or the parts of workers in a folder of that name."""
    files = tuple(file for entry in job.entries for file in entry.files)
    task = SnapshotTask(
        engine.location, summary.path, job.layout.schema, engine.has_document, files, engine.objects.store_id
    )
    first, last, version = summary.min_commit_id, summary.max_commit_id, job.layout.schema_version_id
    if workers is None:
        return IndexEntry.of_file(first, last, version, task.write_file(engine.reader))
    parts = tuple(workers.write_snapshot(task))
    size, rows = sum(part.size or 0 for part in parts), sum(part.row_count or 0 for part in parts)
    return IndexEntry(first, last, summary.path, version, size, rows, parts)


def _name_snapshot(engine: ParquetEngine, summary: TypeCompaction) -> TypeCompaction:
    """Never a name that is taken: a vacuum that stalled may still be about to delete what it found under it."""
    if not engine.objects.exists(summary.path):
        return summary
    return replace(summary, path=paths.another(summary.path, new_token(4)))
