"""Export and import on Spark: the files, rules, reports and errors of the embedded path, with executors at work.

An export is a folder of parts per type. Put together in the order of their names, they are what the embedded export
writes into one file; both imports read either. An import reads stretches of files side by side and stages checked
rows; then it cuts them into ranges of keys, as a load does, and publishes once.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Catalog, Transaction, TypeLayout
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.engine import S3Repository
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import OntologiaError, StorageBackendError, ValidationError
from ontologia.model import COMMIT_ID, TypeRef, TypeSchema
from ontologia.objects import open_objects
from ontologia.runtime import transfer
from ontologia.runtime.store import Store
from ontologia.runtime.transfer import ExportReport, ImportReport, OnConflict, Precondition, TypeExport, TypeImport
from ontologia.runtime.transfer.conflicts import Rules
from ontologia.runtime.transfer.exporting import ExportJob, Format, column_of, new_file, stem_of
from ontologia.runtime.transfer.files import Readers, splits_of
from ontologia.runtime.transfer.importing import Refuse, layout_for
from ontologia.runtime.transfer.records import RecordReader
from ontologia.spark.failures import explained
from ontologia.spark.import_tasks import (
    COUNTS,
    MERGED,
    READ,
    MergeTask,
    ReadTask,
    merge_part,
    read_splits,
    staged_schema,
)
from ontologia.spark.mapping import ORDER
from ontologia.spark.parts import parts_of
from ontologia.spark.places import check_reach, place_of
from ontologia.spark.ranges import quick_batches, ranged
from ontologia.spark.reading import stored_rows, uri_of
from ontologia.spark.staging import ROWS_SORTED, staging_of
from ontologia.spark.workers import Message
from ontologia.spark.writing import remove_if_empty

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 32 << 20
WRITTEN = Message({"part": "string", "rows": "bigint"})


# --- out ---


def export_data(
    spark: SparkSession,
    store: Store,
    directory: str | os.PathLike[str],
    *,
    types: Sequence[str] | None = None,
    as_of: int | None = None,
    history_since: int | None = None,
    with_metadata: bool = False,
    format: Format = "jsonl",
) -> ExportReport:
    """What `ontologia.runtime.transfer.export_data` writes, by executors and in parts.

    They write into the directory themselves, so on a cluster it has to be one that all machines share.
    """
    check_reach(spark, store.repository)
    return transfer.export_data(
        store,
        directory,
        types=types,
        as_of=as_of,
        history_since=history_since,
        with_metadata=with_metadata,
        format=format,
        write=lambda job, layout, folder: _write_type(spark, store.repository, job, layout, folder),
    )


@dataclass(frozen=True, slots=True)
class ExportTask:
    """What an executor needs to write a part."""

    folder: str
    schema: TypeSchema
    format: Format
    with_metadata: bool

    def part(self, number: int) -> Path:
        return Path(self.folder, f"part-{number:05d}.{self.format}")


def _write_type(
    spark: SparkSession, repository: RowwiseRepository, job: ExportJob, layout: TypeLayout, folder: Path
) -> TypeExport:
    schema, place = layout.schema, stem_of(layout.ref)
    task = ExportTask(str((folder / place).absolute()), schema, job.format, job.with_metadata)
    Path(task.folder).mkdir(parents=True)
    rows = stored_rows(spark, repository, job.catalog, schema, job.window).where(f"`{COMMIT_ID}` <= {job.head}")
    keys = schema.ref.identity if schema.ref.kind == "relation" else [column_of(schema)]
    with explained(f"exporting {layout.ref}"):
        ordered = ranged(rows, keys, ROWS_SORTED).sorted_by(*keys, COMMIT_ID)
        with quick_batches(spark, ordered):
            written = ordered.mapInArrow(lambda batches: _write_part(task, batches), WRITTEN.ddl).collect()
    parts = {row.part: row.rows for row in written if row.rows}
    there = {path.name: path for path in Path(task.folder).iterdir()}
    if not parts.keys() <= there.keys():
        raise StorageBackendError(
            f"tasks wrote {len(parts)} parts of {layout.ref}, and not all are in {folder.parent}: executors on other "
            "machines write to their own disks. Export to a folder that all of them share, or run with master local[*]",
            context={"operation": "export"},
        )
    for name in there.keys() - parts.keys():  # of a task that failed and was tried again
        there[name].unlink()
    if not parts:
        with new_file(task.part(0), schema, job.format, with_metadata=job.with_metadata):
            pass  # a type without rows is in the export, too
    return TypeExport(layout.ref, place, sum(parts.values()))


def _write_part(task: ExportTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One range of keys, in order. A part has its name when it is complete; a task that is tried again replaces it."""
    import pyarrow as pa
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    path = task.part(context.partitionId())
    partial = path.with_name(f".{path.name}.{context.taskAttemptId()}")
    names, rows = [*task.schema.ref.identity, COMMIT_ID], 0
    kinds = pa.schema([(column.physical, column.arrow_type) for column in task.schema.columns])
    with new_file(partial, task.schema, task.format, with_metadata=task.with_metadata) as file:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            typed = table.select(kinds.names).cast(kinds)
            file.write(pa.table([*table.select(names).columns, *typed.columns], [*names, *kinds.names]))
            rows += table.num_rows
    partial.replace(path) if rows else partial.unlink()
    yield WRITTEN.batch([{"part": path.name, "rows": rows}])


# --- in ---


def import_data(
    spark: SparkSession,
    store: Store,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    on_conflict: OnConflict = "abort",
    precondition: str | Precondition | None = None,
    meta: Mapping[str, str] | None = None,
) -> ImportReport:
    """What `ontologia.runtime.transfer.import_data` does, with files read, checked and compared by executors.

    They read the files themselves, so on a cluster these have to lie where all machines find them.
    """
    check_reach(spark, store.repository)
    return transfer.import_data(
        store,
        path,
        dry_run=dry_run,
        on_conflict=on_conflict,
        precondition=precondition,
        meta=meta,
        work=lambda rules: _OnSpark(spark, store.repository, rules),
    )


@dataclass(frozen=True, slots=True)
class StagedParts:
    """The checked rows of one type, in parts in the staging area."""

    schema: TypeSchema
    rows: int
    parts: tuple[str, ...]


class _OnSpark:
    """The work of an import, on executors."""

    def __init__(self, spark: SparkSession, repository: RowwiseRepository, rules: Rules) -> None:
        self.spark = spark
        self.repository = repository
        self.rules = rules
        self.staging = staging_of(repository)

    @contextmanager
    def staged(self, files: Sequence[Path], readers: Readers) -> Iterator[Mapping[TypeRef, StagedParts]]:
        task = ReadTask(self.staging, f"{paths.STAGING}{uuid.uuid4().hex}/", readers)
        try:
            yield self._read(files, task)
        finally:
            with suppress(OntologiaError, OSError):  # what stays is vacuumed
                objects = open_objects(self.staging)
                objects.delete_many([info.key for info in objects.list(task.folder)])
                remove_if_empty(self.staging)

    def _read(self, files: Sequence[Path], task: ReadTask) -> dict[TypeRef, StagedParts]:
        splits = [split for path in files for split in splits_of(path.absolute(), SPLIT_BYTES)]
        listed = [(number, str(split.path), split.start, split.end) for number, split in enumerate(splits)]
        frame = self.spark.createDataFrame(listed, "number bigint, path string, start bigint, `end` bigint")
        with explained("reading files"):
            spread = frame.repartition(len(splits))
            messages = spread.mapInArrow(lambda batches: read_splits(task, batches), READ.ddl).collect()
        failed = min(((row.split, row.error) for row in messages if row.error is not None), default=None)
        if failed is not None:
            raise ValidationError(failed[1])
        found: dict[TypeRef, list[Any]] = {}
        for row in messages:
            if row.path is not None:
                found.setdefault(TypeRef(row.kind, row.type), []).append(row)
        return {
            ref: StagedParts(task.readers.of(ref).schema, sum(r.rows for r in rows), tuple(r.path for r in rows))
            for ref, rows in sorted(found.items())
        }

    def merge(self, item: StagedParts, catalog: Catalog, transaction: Transaction | None, refuse: Refuse) -> TypeImport:
        ref = item.schema.ref
        known = catalog.layouts.get(ref)
        with nullcontext() if transaction is None else place_of(transaction, self.staging) as place:
            if transaction is None:
                layout = known or TypeLayout(ref, item.schema, 1, catalog.head + 1)
            else:
                layout = known or layout_for(transaction, item.schema)
            task = MergeTask(
                target=uri_of(self.repository),
                head=catalog.head,
                known=known is not None,
                layout=replace(layout, schema=item.schema),
                document=isinstance(self.repository, S3Repository) and self.repository.has_document,
                staging=self.staging,
                folder="" if place is None else place.folder(layout),
                rules=self.rules,
                dry_run=transaction is None,
            )
            messages = self._merged(item, task)
            refuse(next((row.refused for row in messages if row.refused is not None), None))
            parts = parts_of(messages)
            if transaction is not None and place is not None and parts:
                place.take(layout_for(transaction, item.schema) if known else layout, parts)
        counts = {name: sum(row[name] or 0 for row in messages) for name in COUNTS}
        return TypeImport(ref, rows=item.rows, repeated=item.rows - counts.pop("seen"), **counts)

    def _merged(self, item: StagedParts, task: MergeTask) -> list[Any]:
        identity = item.schema.ref.identity
        with explained(f"importing {item.schema.ref}"):
            ordered = ranged(self._rows(item), identity, ROWS_SORTED).sorted_by(*identity, ORDER)
            with quick_batches(self.spark, ordered):
                return ordered.mapInArrow(lambda batches: merge_part(task, batches), MERGED.ddl).collect()

    def _rows(self, item: StagedParts) -> DataFrame:
        """Staged parts as a DataFrame, fetched through the object store wherever that is."""
        from pyspark.sql.pandas.types import from_arrow_schema

        staging = self.staging
        listed = self.spark.createDataFrame([(path,) for path in item.parts], "path string")

        def fetched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow.parquet as pq

            objects = open_objects(staging)
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    yield from pq.ParquetFile(io.BytesIO(objects.get(path).data)).iter_batches()

        struct = from_arrow_schema(staged_schema(RecordReader(item.schema)))
        return listed.repartition(len(item.parts)).mapInArrow(fetched, struct)
