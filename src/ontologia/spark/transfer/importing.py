"""Import on Spark: stretches of files are read and staged side by side, then merged by ranges of keys."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.staging import remove_if_empty
from ontologia.engines.transaction import Transaction
from ontologia.errors import OntologiaError, ValidationError
from ontologia.model import TypeRef, TypeSchema
from ontologia.runtime import transfer
from ontologia.runtime.intake.rows import ORDER
from ontologia.runtime.store import Store
from ontologia.runtime.transfer import ImportReport, OnConflict, Precondition, TypeImport
from ontologia.runtime.transfer.conflicts import Rules
from ontologia.runtime.transfer.files import Readers, splits_of
from ontologia.runtime.transfer.importing import Refuse
from ontologia.runtime.transfer.records import RecordReader
from ontologia.spark.failures import explain_failures
from ontologia.spark.loading.staging import ROWS_SORTED
from ontologia.spark.ranges import collect_in_arrow, cut_into_ranges
from ontologia.spark.reading.rows import check_reach
from ontologia.spark.transfer.import_tasks import (
    COUNTS,
    MERGED,
    READ,
    MergeTask,
    ReadTask,
    merge_part,
    read_splits,
    staged_schema,
)
from ontologia.spark.workers import parts_of
from ontologia.spark.writing.plan import STAGING

SPLIT_BYTES = 32 << 20


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
    check_reach(spark, store.engine)
    return transfer.import_data(
        store,
        path,
        dry_run=dry_run,
        on_conflict=on_conflict,
        precondition=precondition,
        meta=meta,
        work=lambda rules: _OnSpark(spark, store.engine, rules),
    )


@dataclass(frozen=True, slots=True)
class StagedParts:
    """The checked rows of one type, in parts in the staging area."""

    schema: TypeSchema
    rows: int
    parts: tuple[str, ...]


class _OnSpark:
    """The work of an import, on executors."""

    def __init__(self, spark: SparkSession, engine: Engine, rules: Rules) -> None:
        self.spark = spark
        self.engine = engine
        self.rules = rules
        self.area = engine.staging_area

    @contextmanager
    def stage(self, files: Sequence[Path], readers: Readers) -> Iterator[Mapping[TypeRef, StagedParts]]:
        task = ReadTask(self.area, f"{STAGING}{uuid.uuid4().hex}/", readers)
        try:
            yield self._read(files, task)
        finally:
            with suppress(OntologiaError, OSError):  # what stays is vacuumed
                objects = self.area.open_objects()
                objects.delete_many([info.key for info in objects.list(task.folder)])
                remove_if_empty(self.area)

    def _read(self, files: Sequence[Path], task: ReadTask) -> dict[TypeRef, StagedParts]:
        splits = [split for path in files for split in splits_of(path.absolute(), SPLIT_BYTES)]
        listed = [(number, str(split.path), split.start, split.end) for number, split in enumerate(splits)]
        frame = self.spark.createDataFrame(listed, "number bigint, path string, start bigint, `end` bigint")
        with explain_failures("reading files"):
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
        layout = None if transaction is None else transaction.layout_for(item.schema)
        task = MergeTask(
            location=self.engine.location,
            head=catalog.head,
            known=ref in catalog.layouts,
            schema=item.schema,
            staging=None if transaction is None or layout is None else transaction.staging(layout),
            rules=self.rules,
        )
        messages = self._merge(item, task)
        refuse(next((row.refused for row in messages if row.refused is not None), None))
        if transaction is not None and layout is not None:
            transaction.adopt(layout, parts_of(messages))
        counts = {name: sum(row[name] or 0 for row in messages) for name in COUNTS}
        return TypeImport(ref, rows=item.rows, repeated=item.rows - counts.pop("seen"), **counts)

    def _merge(self, item: StagedParts, task: MergeTask) -> list[Any]:
        identity = item.schema.ref.identity
        with explain_failures(f"importing {item.schema.ref}"):
            ordered = cut_into_ranges(self._rows(item), identity, ROWS_SORTED).sorted_by(*identity, ORDER)
            return collect_in_arrow(ordered, lambda batches: merge_part(task, batches), MERGED.ddl)

    def _rows(self, item: StagedParts) -> DataFrame:
        """Staged parts as a DataFrame, fetched through the object store wherever that is."""
        area = self.area
        listed = self.spark.createDataFrame([(path,) for path in item.parts], "path string")

        def fetched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            objects = area.open_objects()
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    yield from pq.ParquetFile(io.BytesIO(objects.get(path).data)).iter_batches()

        struct = from_arrow_schema(staged_schema(RecordReader(item.schema)))
        return listed.repartition(len(item.parts)).mapInArrow(fetched, struct)
