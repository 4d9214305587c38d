"""`df.write.format("ontologia")`: executors check, compare and stage rows, the driver publishes once.

The commit runs in a process of its own on the driver and shares no memory with the plan or the tasks. Everything it
needs is in the plan, which is pickled to it, and in the tasks' messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ontologia.engines.staging import remove_if_empty
from ontologia.errors import OntologiaError
from ontologia.spark.workers import plainly_said
from ontologia.spark.writing.plan import WritePlan
from ontologia.spark.writing.shares import StagedShare, shares_of, stage_share

if TYPE_CHECKING:
    import pyarrow as pa


class OntologiaWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    @plainly_said()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context: Any = TaskContext.get()
        return stage_share(self.plan, iterator, f"{context.partitionId():05d}")

    @plainly_said()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from ontologia.spark.writing.landing import land

        land(self.plan, shares_of(messages))
        clear(self.plan, shares_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        clear(self.plan, shares_of(messages), failed=True)


def clear(plan: WritePlan, shares: Sequence[StagedShare], *, failed: bool = False) -> None:
    """Remove what was staged, best effort: nothing here may undo a commit, and what stays is vacuumed.

    A write that failed also takes back the rows it set aside: run again, it sets them aside again.
    """
    with contextlib.suppress(OntologiaError, OSError):
        objects = plan.staging.open_objects()
        staged = {path for share in shares for path in (*share.parts, *share.seen)}
        staged |= {info.key for info in objects.list(plan.folder)}  # a failed task sends no message
        if failed:
            staged |= {path for share in shares for path in share.quarantined}
        objects.delete_many(sorted(staged))
        remove_if_empty(plan.staging)
