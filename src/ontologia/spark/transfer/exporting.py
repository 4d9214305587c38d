"""Export on Spark: a folder of parts per type. Put together in the order of their names, they are the embedded file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from ontologia.engines.base import Engine
from ontologia.engines.catalog import TypeLayout
from ontologia.errors import StorageBackendError
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeSchema
from ontologia.query.in_force import are_removals, mark_removals
from ontologia.runtime import transfer
from ontologia.runtime.pages import column_of
from ontologia.runtime.store import Store
from ontologia.runtime.transfer import ExportReport, TypeExport
from ontologia.runtime.transfer.exporting import ExportJob, Format, new_file, stem_of
from ontologia.spark.failures import explain_failures
from ontologia.spark.loading.staging import ROWS_SORTED
from ontologia.spark.ranges import collect_in_arrow, cut_into_ranges
from ontologia.spark.reading.rows import check_reach, read_stored_rows
from ontologia.spark.workers import Message

WRITTEN = Message({"part": "string", "rows": "bigint"})


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
    check_reach(spark, store.engine)
    return transfer.export_data(
        store,
        directory,
        types=types,
        as_of=as_of,
        history_since=history_since,
        with_metadata=with_metadata,
        format=format,
        write=lambda job, layout, folder: _write_type(spark, store.engine, job, layout, folder),
    )


@dataclass(frozen=True, slots=True)
class ExportTask:
    """What an executor needs to write a part."""

    folder: str
    schema: TypeSchema
    format: Format
    with_metadata: bool
    versions: bool

    def part(self, number: int) -> Path:
        return Path(self.folder, f"part-{number:05d}.{self.format}")


def _write_type(spark: SparkSession, engine: Engine, job: ExportJob, layout: TypeLayout, folder: Path) -> TypeExport:
    schema, place = layout.schema, stem_of(layout.ref)
    task = ExportTask(str((folder / place).absolute()), schema, job.format, job.with_metadata, job.versions)
    Path(task.folder).mkdir(parents=True)
    rows = read_stored_rows(spark, engine, job.catalog, schema, job.window, across=job.across)
    rows = rows.where(f"`{COMMIT_ID}` <= {job.head}")
    keys = schema.ref.identity if schema.ref.kind == "relation" else [column_of(schema)]
    with explain_failures(f"exporting {layout.ref}"):
        ordered = cut_into_ranges(rows, keys, ROWS_SORTED).sorted_by(*keys, COMMIT_ID)
        written = collect_in_arrow(ordered, lambda batches: _write_part(task, batches), WRITTEN.ddl)
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
        with new_file(task.part(0), schema, task):
            pass  # a type without rows is in the export, too
    return TypeExport(layout.ref, place, sum(parts.values()))


def _find_removals(versions: pa.Table) -> pa.ChunkedArray:
    """Of what superseded versions, what is their own commit."""
    return mark_removals(are_removals(versions), versions.column(COMMIT_ID))


def _write_part(task: ExportTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One range of keys, in order. A part has its name when it is complete; a task that is tried again replaces it."""
    context: Any = TaskContext.get()
    path = task.part(context.partitionId())
    partial = path.with_name(f".{path.name}.{context.taskAttemptId()}")
    names, rows = [*task.schema.ref.identity, COMMIT_ID], 0
    kinds = pa.schema([(column.physical, column.arrow_type) for column in task.schema.columns])
    with new_file(partial, task.schema, task) as file:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            typed = table.select(kinds.names).cast(kinds)
            page = pa.table([*table.select(names).columns, *typed.columns], [*names, *kinds.names])
            file.write(page.append_column(SUPERSEDED_BY, _find_removals(table)) if task.versions else page)
            rows += table.num_rows
    partial.replace(path) if rows else partial.unlink()
    yield WRITTEN.batch([{"part": path.name, "rows": rows}])
