"""A task's share of a write: rows are checked, compared with the store, and staged.

What differs is staged whole. Of the rest the driver needs the identities alone, to see what several tasks have. Spark
gives a Python source its rows as they are spread: a task may have any key, and compares at the head that it finds.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import WriterCommitMessage

from ontologia.engines.base import Engine
from ontologia.errors import ValidationError
from ontologia.files.sorting import Sorter
from ontologia.files.writing import ROW_GROUP_ROWS, gather
from ontologia.objects import Objects
from ontologia.query.plan import Window
from ontologia.runtime.delta import OPERATION, operations
from ontologia.runtime.intake.comparing import keep_stored, one_each
from ontologia.runtime.intake.rows import ORDER, RejectedRow
from ontologia.spark.tables import check_no_table_is_made
from ontologia.spark.workers import engine_at
from ontologia.spark.writing.plan import WritePlan

ROWS_PER_PART, BYTES_PER_PART = 8 * ROW_GROUP_ROWS, 64 << 20


@dataclass
class StagedShare(WriterCommitMessage):
    """What one task has to say: what it staged and set aside, and at which head it compared; or what stops the write.

    `parts` hold rows with their operation, none where a row is as stored; `seen` the identities of such rows alone.
    """

    parts: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    head: int = 0
    read: int = 0
    unchanged: int = 0
    rejected: int = 0
    error: str | None = None


def shares_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedShare]:
    """The messages of tasks that ended well."""
    return [message for message in messages if isinstance(message, StagedShare)]


def stage_share(plan: WritePlan, batches: Iterator[pa.RecordBatch], name: str | None = None) -> StagedShare:
    """Check one task's rows, compare and stage them. A row that stops the write is reported, not raised: a retry is no
    use. Rows that are set aside go into a file of this `name`, so that a task that is run again replaces it."""
    with ExitStack() as stack:
        work = _ShareTask(plan, stack)
        try:
            check_no_table_is_made()
            return work.run(batches, name)
        except ValidationError as problem:
            return replace(work.told, error=str(problem))


class _ShareTask:
    def __init__(self, plan: WritePlan, stack: ExitStack) -> None:
        self.plan = plan
        self.told = StagedShare()
        self.engine: Engine | None = None
        objects = plan.staging.open_objects()
        self.parts, self.seen = _Parts(plan, objects), _Parts(plan, objects)
        self.sorter = stack.enter_context(Sorter(plan.schema.ref.identity))

    def run(self, batches: Iterator[pa.RecordBatch], name: str | None) -> StagedShare:
        self.engine = self._open_known()
        rejected: list[RejectedRow] = []
        for given in gather(batches):
            self.told.read += given.num_rows
            rows, wrong = self.plan.intake.take(given)
            if wrong and self.plan.on_invalid == "abort":
                raise ValidationError(f"{self.plan.schema.ref}: {wrong[0].reason}. The source row is {wrong[0].source}")
            rejected += wrong
            if self.engine is None:
                self._stage(rows, None)
            else:
                self.sorter.add(rows)
        for rows in self.sorter.chunks():
            self._compare(rows)
        self.told.rejected = len(rejected)
        if rejected:
            self.told.quarantined = (self.plan.quarantine.add(rejected, name),)
        self.told.parts, self.told.seen = self.parts.finish(), self.seen.finish()
        return self.told

    def _open_known(self) -> Engine | None:
        """The store, if it has rows of the type that these could be compared with."""
        self.plan.check_in_reach()
        engine = engine_at(self.plan.location)
        schema, catalog = self.plan.schema, engine.catalog()
        catalog.check({schema.ref: schema})
        self.told.head = catalog.head
        return engine if schema.ref in catalog.layouts else None

    def _compare(self, rows: pa.Table) -> None:
        """Stage what differs from the store. Rows come in the order of their identity."""
        if not rows.num_rows:
            return
        assert self.engine is not None
        schema, window = self.plan.schema, Window("as_of", self.told.head)
        if not self.plan.is_ordered:
            rows = one_each(rows, schema.ref, "error")
        stored = self.engine.count_stored(schema.ref, self.engine.catalog())
        dense = stored is not None and self.told.read * 8 >= stored
        self._stage(rows, self.engine.rows_of(schema, self._values(rows), window, dense=dense))

    def _values(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns([ORDER]) if self.plan.is_ordered else rows

    def _stage(self, rows: pa.Table, stored: pa.Table | None) -> None:
        """Which of several rows of an identity is the last, the driver finds out, and has to see all of them whole."""
        identity = self.plan.schema.ref.identity
        rows = keep_stored(rows, stored, self.plan.schema.ref, self.plan.kept)
        operation = operations(self._values(rows), stored, identity)
        marked = rows.append_column(OPERATION, operation)
        if self.plan.is_ordered:
            self.parts.add(marked)
            return
        as_stored = pc.is_null(operation)
        self.parts.add(marked.filter(pc.invert(as_stored)))
        same = rows.select(list(identity)).filter(as_stored)
        self.told.unchanged += same.num_rows
        self.seen.add(same)


class _Parts:
    """The files of one task, each bounded, so that a task's memory does not grow with its share."""

    def __init__(self, plan: WritePlan, objects: Objects) -> None:
        self.plan = plan
        self.objects = objects
        self.paths: list[str] = []
        self._buffer = io.BytesIO()
        self._writer: Any = None
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._writer is None:
            self._buffer = io.BytesIO()
            self._writer = pq.ParquetWriter(self._buffer, rows.schema, compression="zstd")
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._rows += rows.num_rows
        if self._rows >= ROWS_PER_PART or self._buffer.tell() >= BYTES_PER_PART:
            self.finish()

    def finish(self) -> tuple[str, ...]:
        if self._writer is not None:
            self._writer.close()
            path = f"{self.plan.folder}{uuid.uuid4().hex}.parquet"
            self.objects.put(path, self._buffer.getvalue())
            self.paths.append(path)
            self._writer, self._rows = None, 0
        return tuple(self.paths)
