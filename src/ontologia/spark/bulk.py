"""Bulk maintenance on Spark: compaction and migration whose work is done by executors.

The rules, tokens, leases and commits are those of the embedded path; only who reads and writes rows differs.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Transaction, TypeLayout
from ontologia.engines.parquet import compaction
from ontologia.engines.parquet.commit import ROW_GROUP_ROWS, ParquetTransaction, RowFile, file_schema
from ontologia.engines.parquet.compaction import CompactionReport, Job, Written
from ontologia.engines.parquet.records import Part
from ontologia.engines.parquet.relation import SUPERSEDED_BY
from ontologia.engines.parquet.repository import S3Repository
from ontologia.engines.parquet.writer import parquet_writer
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import MigrationError, ValidationError
from ontologia.model import COMMIT_ID, TypeSchema
from ontologia.objects import open_objects
from ontologia.query.plan import LATEST
from ontologia.runtime import migration
from ontologia.runtime.delta import identity_key
from ontologia.runtime.migration import MigrationPreview, MigrationResult, Step
from ontologia.runtime.store import Store
from ontologia.runtime.upgraders import Upgraders, registered_upgraders
from ontologia.spark.failures import explained
from ontologia.spark.reading import native_paths, stored_rows
from ontologia.spark.sorting import identity_chunks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARTS = "path string, size bigint, rows bigint, error string"


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


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """What an executor needs to write its part of a snapshot."""

    uri: str
    folder: str
    schema: TypeSchema
    document: bool


def _snapshot(spark: SparkSession, repository: S3Repository, job: Job, path: str) -> Written:
    task = SnapshotTask(repository.objects.uri, f"{path}/", job.layout.schema, repository.has_document)
    identity = [f"`{name}`" for name in task.schema.ref.identity]
    ordered = _all_rows(spark, repository, job).repartitionByRange(*identity)
    ordered = ordered.sortWithinPartitions(*identity, f"`{COMMIT_ID}`")
    with explained(f"compacting {job.layout.ref}"):
        rows = ordered.mapInArrow(lambda batches: _snapshot_part(task, batches), PARTS).collect()
    parts = tuple(Part(row.path, row["size"], row.rows) for row in rows if row.path is not None)
    return Written(sum(part.row_count for part in parts), sum(part.size for part in parts), parts)


def _all_rows(spark: SparkSession, repository: S3Repository, job: Job) -> DataFrame:
    """Every row of the files to merge, with all their columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    plain = file_schema(job.layout.schema, document=repository.has_document)
    paths = native_paths(spark, repository, job.entries)
    if paths is not None:
        return spark.read.schema(from_arrow_schema(plain)).parquet(*paths.values())
    uri, files = repository.objects.uri, [path for entry in job.entries for path, _ in entry.files]
    listed = spark.createDataFrame([(path,) for path in files], "path string").repartition(len(files))
    names = plain.names

    def fetched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import io

        import pyarrow.parquet as pq

        objects = open_objects(uri)
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from pq.ParquetFile(io.BytesIO(objects.get(path).data)).iter_batches(columns=names)

    return listed.mapInArrow(fetched, from_arrow_schema(plain))


def _snapshot_part(task: SnapshotTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One range of keys: current rows first, superseded ones after them, each knowing what superseded it."""
    import io

    import pyarrow as pa
    import pyarrow.compute as pc

    schema = file_schema(task.schema, document=task.document).append(pa.field(SUPERSEDED_BY, pa.int64()))
    sink, rows = io.BytesIO(), 0
    superseded: list[pa.Table] = []
    with parquet_writer(pa.PythonFile(sink, mode="w"), schema) as writer:
        for table in identity_chunks(batches, task.schema.ref.identity):
            settled = _settled(table, task).select(schema.names).cast(schema)
            old = pc.is_valid(settled.column(SUPERSEDED_BY))
            writer.write_table(settled.filter(pc.invert(old)), row_group_size=ROW_GROUP_ROWS)
            superseded.append(settled.filter(old))
            rows += settled.num_rows
        for table in superseded:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
    message: dict[str, Any] = {}
    if rows:
        path = f"{task.folder}part-{uuid.uuid4().hex}.parquet"
        open_objects(task.uri).put(path, sink.getvalue())
        message = {"path": path, "size": len(sink.getvalue()), "rows": rows}
    yield _message(message)


def _settled(table: pa.Table, task: SnapshotTask) -> pa.Table:
    """Rows in order of identity and commit, with the commit of the next row of the same identity."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = identity_key(table, task.schema.ref.identity).combine_chunks()
    commits = table.column(COMMIT_ID).combine_chunks()
    if len(keys) < 2:
        return table.append_column(SUPERSEDED_BY, pa.nulls(len(keys), pa.int64()))
    same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    following = pc.if_else(same, commits.slice(1), pa.scalar(None, pa.int64()))
    return table.append_column(SUPERSEDED_BY, pa.concat_arrays([following, pa.nulls(1, pa.int64())]))


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
    rows = stored_rows(spark, repository, transaction.catalog, step.layout.schema, LATEST)
    layout = transaction.activate(step.declaration.schema, step.target)
    identity = [f"`{name}`" for name in layout.ref.identity]
    task = UpgradeTask(
        repository.objects.uri,
        transaction.staging(layout),
        step,
        layout,
        transaction.commit_id,
        repository.has_document,
        upgraders,
    )
    ordered = rows.repartitionByRange(*identity).sortWithinPartitions(*identity)
    with explained(f"migrating {layout.ref}"):
        found = ordered.mapInArrow(lambda batches: _upgrade_part(task, batches), PARTS).collect()
    failed = next((row.error for row in found if row.error is not None), None)
    if failed is not None:
        raise MigrationError(failed)
    parts = [Part(row.path, row["size"], row.rows) for row in found if row.path is not None]
    if parts:
        digest = hashlib.sha256("".join(sorted(part.path for part in parts)).encode()).hexdigest()
        transaction.adopt(layout, parts, digest)
    return sum(part.row_count for part in parts)


def _upgrade_part(task: UpgradeTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Upgrade one range of keys. A row that cannot be upgraded is reported with its type, identity and content."""
    file = RowFile(task.layout, task.commit_id, document=task.document)
    message: dict[str, Any] = {}
    try:
        for table in identity_chunks(batches, task.layout.ref.identity):
            file.add(migration.upgraded_rows(task.step, task.step.layout.schema_version_id, table, task.upgraders))
        if file.count:
            body = file.finish()
            path = f"{task.folder}part-{uuid.uuid4().hex}.parquet"
            open_objects(task.uri).put(path, body)
            message = {"path": path, "size": len(body), "rows": file.count}
    except MigrationError as problem:
        message = {"error": str(problem)}
    yield _message(message)


def _message(content: Mapping[str, Any]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = pa.schema([("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("error", pa.string())])
    return pa.RecordBatch.from_pylist([dict(content)], schema=schema)
