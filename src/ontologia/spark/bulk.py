"""Bulk maintenance on Spark: compaction and migration whose work is done by executors.

The rules, tokens, leases and commits are those of the embedded path; only who reads and writes rows differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Transaction, TypeLayout
from ontologia.engines.parquet.care import compaction
from ontologia.engines.parquet.care.compaction import CompactionReport, Job, Written
from ontologia.engines.parquet.engine import S3Repository
from ontologia.engines.parquet.write.commit import ParquetTransaction
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import MigrationError, ValidationError
from ontologia.files.key_ranges import KeyRange, key_ranges
from ontologia.files.writing import gather
from ontologia.model import COMMIT_ID, Declaration
from ontologia.query.plan import LATEST
from ontologia.runtime import migration
from ontologia.runtime.migration import MigrationPreview, MigrationResult, Step
from ontologia.runtime.store import Store
from ontologia.runtime.upgraders import Upgraders, registered_upgraders
from ontologia.spark.failures import explained
from ontologia.spark.parts import PART, Parts, parts_of, told
from ontologia.spark.places import AttemptFolder
from ontologia.spark.ranges import BATCH_ROWS, quick_batches, ranged
from ontologia.spark.reading import native_paths, stored_rows
from ontologia.spark.snapshots import SnapshotTask, rows_within, snapshot_of_range, snapshot_of_rows
from ontologia.spark.splits import ROWS_PER_SPLIT, cuts_of_files, is_small
from ontologia.spark.staging import ROWS_SORTED
from ontologia.spark.workers import Message

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WROTE = Message({**PART, "error": "string"})
MOST_ROWS_AGAIN, MOST_FILES_AGAIN = 8_000_000, 100_000
FILES_PER_TASK = 16


# --- compaction ---


def compact(
    spark: SparkSession, store: Store, type_name: str | None = None, *, apply: bool = False
) -> CompactionReport:
    """Compact on executors: one job per type, snapshots in parts, memory bounded by a part (RFC 0004 §6)."""
    repository = store.repository
    if not isinstance(repository, S3Repository):
        raise ValidationError("compact is for object storage; sqlite needs no such care")
    return compaction.compact(
        repository, type_name, apply=apply, write=lambda store, job, path: _snapshot(spark, store, job, path)
    )


def _snapshot(spark: SparkSession, repository: S3Repository, job: Job, path: str) -> Written:
    files = tuple(file for entry in job.entries for file in entry.files)
    task = SnapshotTask(repository.objects.uri, f"{path}/", job.layout.schema, repository.has_document, files)
    with explained(f"compacting {job.layout.ref}"):
        found = _by_shuffle(spark, repository, job, task) if _is_wide(job) else _by_range(spark, repository, job, task)
    parts = tuple(parts_of(found))
    return Written(sum(part.row_count or 0 for part in parts), sum(part.size or 0 for part in parts), parts)


def _is_wide(job: Job) -> bool:
    """Whether there is much in files that may have keys from everywhere, which every task would have to read."""
    small = [file.row_count or 0 for entry in job.entries for file in entry.files if is_small(file)]
    rows = sum(entry.row_count or 0 for entry in job.entries)
    ranges = rows // ROWS_PER_SPLIT + 1
    return sum(small) * ranges > MOST_ROWS_AGAIN or len(small) * ranges > MOST_FILES_AGAIN


def _by_range(spark: SparkSession, repository: S3Repository, job: Job, task: SnapshotTask) -> list[Any]:
    """Each task reads its range of keys from all files: nothing is shuffled."""
    ranges = key_ranges(cuts_of_files(repository, job.entries, job.layout.ref.identity[0]))

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield WROTE.batch(told(snapshot_of_range(task, ranges[number])))

    return spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(written, WROTE.ddl).collect()


def _by_shuffle(spark: SparkSession, repository: S3Repository, job: Job, task: SnapshotTask) -> list[Any]:
    """Each file is read once, and Spark brings the rows of a range together."""
    identity = list(task.schema.ref.identity)
    ordered = ranged(_all_rows(spark, repository, job, task), identity, ROWS_SORTED).sorted_by(*identity, COMMIT_ID)

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield WROTE.batch(told(snapshot_of_rows(task, batches)))

    with quick_batches(spark, ordered):
        return ordered.mapInArrow(written, WROTE.ddl).collect()


def _all_rows(spark: SparkSession, repository: S3Repository, job: Job, task: SnapshotTask) -> DataFrame:
    """Every row of the files to merge, with all columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    struct = from_arrow_schema(task.stored_schema)
    paths = native_paths(spark, repository, job.entries)
    if paths is not None:
        return spark.read.schema(struct).parquet(*paths.values())
    groups = max(1, len(task.files) // FILES_PER_TASK)

    def fetched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for table in rows_within(replace(task, files=task.files[number::groups]), KeyRange()):
                yield from table.to_batches(max_chunksize=BATCH_ROWS)

    return spark.range(0, groups, 1, groups).mapInArrow(fetched, struct)


# --- migration ---


def migrate(
    spark: SparkSession,
    store: Store,
    *,
    dry_run: bool = True,
    token: str | None = None,
    force: bool = False,
    upgraders: Upgraders | None = None,
    meta: Mapping[str, str] | None = None,
) -> MigrationPreview | MigrationResult:
    """Migrate with upgraders on executors: the plan, the token, the checks and the commit are `Store.migrate`'s."""
    steps = registered_upgraders() if upgraders is None else upgraders
    declarations = list(store.declarations.values())
    if dry_run:
        return migration.preview(store.repository, declarations, steps)
    return migration.apply(
        store.repository,
        declarations,
        steps,
        token=token,
        force=force,
        metadata=dict(meta or {}),
        rewrite=lambda transaction, step, chain: _rewrite(spark, store.repository, transaction, step, chain),
    )


def _check_importable(declaration: Declaration) -> None:
    """Executors make objects of a class, so they have to find it as the driver did."""
    cls = declaration.cls
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise ValidationError(
            f"executors cannot import {cls.__qualname__} from {cls.__module__}: put the class into a module of its own"
        )


@dataclass(frozen=True, slots=True)
class UpgradeTask:
    """What an executor needs to carry rows to their new version."""

    uri: str
    folder: str
    step: Step
    layout: TypeLayout
    commit_id: int
    document: bool
    upgraders: Upgraders


def _rewrite(
    spark: SparkSession, repository: RowwiseRepository, transaction: Transaction, step: Step, upgraders: Upgraders
) -> int:
    if not isinstance(transaction, ParquetTransaction) or not isinstance(repository, S3Repository):
        raise ValidationError("a migration on Spark is for object storage; sqlite migrates in its own transaction")
    _check_importable(step.declaration)
    rows = stored_rows(spark, repository, transaction.catalog, step.layout.schema, LATEST)
    layout = transaction.activate(step.declaration.schema, step.target)
    place = AttemptFolder(transaction)
    task = UpgradeTask(
        repository.objects.uri,
        place.folder(layout),
        step,
        layout,
        transaction.commit_id,
        repository.has_document,
        upgraders,
    )
    with explained(f"migrating {layout.ref}"):
        ordered = ranged(rows, layout.ref.identity, ROWS_SORTED).sorted_by(*layout.ref.identity)
        with quick_batches(spark, ordered):
            found = ordered.mapInArrow(lambda batches: _upgrade_part(task, batches), WROTE.ddl).collect()
    failed = next((row.error for row in found if row.error is not None), None)
    if failed is not None:
        raise MigrationError(failed)
    parts = parts_of(found)
    place.take(layout, parts)
    return sum(part.row_count or 0 for part in parts)


def _upgrade_part(task: UpgradeTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Upgrade one range of keys. A row that cannot be upgraded is reported with its type, identity and content."""
    version = task.step.layout.schema_version_id
    with Parts(task.uri, task.folder, task.layout, task.commit_id, document=task.document) as parts:
        try:
            for table in gather(batches):
                parts.add(migration.upgraded_rows(task.step, version, table, task.upgraders))
            yield WROTE.batch(told(parts.finish()))
        except MigrationError as problem:
            yield WROTE.batch([{"error": str(problem)}])
