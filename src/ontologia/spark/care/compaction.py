"""Compaction whose snapshots are written by executors. The lease, the rules and the index are the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ontologia.engines.base import Engine
from ontologia.files.data_files import DataFile
from ontologia.runtime.store import Store
from ontologia.spark.failures import explain_failures
from ontologia.spark.loading.staging import ROWS_SORTED
from ontologia.spark.ranges import BATCH_ROWS, collect_in_arrow, cut_into_ranges
from ontologia.spark.reading.rows import native_paths, read_files
from ontologia.spark.workers import PART, Message, part_messages, parts_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.care import CompactionReport, SnapshotWork

WROTE = Message(PART)
FILES_PER_TASK = 16


def compact(
    spark: SparkSession, store: Store, type_name: str | None = None, *, apply: bool = False
) -> CompactionReport:
    """Compact on executors: one job per type, snapshots in parts, memory bounded by a part (RFC 0004 §6)."""
    report: CompactionReport = store.engine.compact(type_name, apply=apply, workers=_Executors(spark, store.engine))
    return report


@dataclass(frozen=True, slots=True)
class _Executors:
    """Spark's executors, which write the parts of a snapshot."""

    spark: SparkSession
    engine: Engine

    def write_snapshot(self, task: SnapshotWork) -> list[DataFile]:
        with explain_failures(f"compacting {task.schema.ref}"):
            return parts_of(self._by_shuffle(task) if task.is_wide else self._by_range(task))

    def _by_range(self, task: SnapshotWork) -> list[Any]:
        """Each task reads its range of keys from all files: nothing is shuffled."""
        ranges = task.ranges()

        def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield WROTE.batch(part_messages(task.write_range(ranges[number])))

        return self.spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(written, WROTE.ddl).collect()

    def _by_shuffle(self, task: SnapshotWork) -> list[Any]:
        """Each file is read once, and Spark brings the rows of a range together."""
        ordered = cut_into_ranges(self._all_rows(task), list(task.identity), ROWS_SORTED).sorted_by(*task.order)

        def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield WROTE.batch(part_messages(task.write_batches(batches)))

        return collect_in_arrow(ordered, written, WROTE.ddl)

    def _all_rows(self, task: SnapshotWork) -> DataFrame:
        """Every row of the files to merge, with all columns."""
        struct = from_arrow_schema(task.stored_schema)
        paths = native_paths(self.spark, self.engine, task.files)
        if paths is not None:
            return read_files(self.spark, struct, paths.values())
        groups = max(1, len(task.files) // FILES_PER_TASK)

        def fetched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                for table in task.some_rows(number, groups):
                    yield from table.to_batches(max_chunksize=BATCH_ROWS)

        return self.spark.range(0, groups, 1, groups).mapInArrow(fetched, struct)
