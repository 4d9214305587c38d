"""Commits as a stream: micro-batches of what they wrote.

The offset is a commit id, so a batch is a range of commits and reads the same rows however often it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ontologia.errors import OntologiaError, ValidationError
from ontologia.files.key_ranges import KeyRange
from ontologia.query.plan import Window
from ontologia.spark.reading.changes import change_rows, check_one_version, check_remembered, operation_column
from ontologia.spark.reading.reader import ReadPlan, to_batches
from ontologia.spark.workers import engine_at, plainly_said

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COMMITS = "maxCommitsPerBatch"


class CommitRange(InputPartition):
    """One task's share of a micro-batch: a range of keys in a range of commits."""

    def __init__(self, keys: KeyRange, after: int, upto: int) -> None:
        super().__init__((keys, after, upto))
        self.keys = keys
        self.after = after
        self.upto = upto


class RefusedStream(DataSourceStreamReader):
    """Says what is wrong with a stream at its first question: Spark hides what is raised when it makes a reader."""

    def __init__(self, problem: OntologiaError) -> None:
        self.problem = problem

    @plainly_said()
    def initialOffset(self) -> dict[str, int]:
        raise self.problem

    @plainly_said()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        raise self.problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self.problem


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delivers what commits wrote, in their order. Rows of one task are in the order of commits as well."""

    def __init__(self, wanted: ReadPlan, schema: StructType, max_commits: int | None) -> None:
        if operation_column(wanted.schema) not in schema.fieldNames():
            raise ValidationError('a stream delivers changes: add .option("changes", "true")')
        if max_commits is not None and max_commits < 1:
            raise ValidationError(f"{MAX_COMMITS} is a number of commits from 1 on, not {max_commits}")
        self.wanted = wanted
        self.nullable = {field.name: field.nullable for field in schema}
        self.max_commits = max_commits
        self.last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"commit": self.wanted.window.commit or 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows limits by rows, bytes and files only. A commit counts as a file.
        return ReadAllAvailable() if self.max_commits is None else ReadMaxFiles(self.max_commits)

    @plainly_said()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        catalog = engine_at(self.wanted.location).catalog()
        end = catalog.head if self.last is None else self.last
        if isinstance(limit, ReadMaxFiles):
            # The state at which history begins is one commit: there is none in between to go on from.
            end = min(end, max(start["commit"] + limit.max_files, catalog.base))
        return {"commit": max(end, start["commit"])}

    @plainly_said()
    def prepareForTriggerAvailableNow(self) -> None:
        self.last = self._head()

    @plainly_said()
    def reportLatestOffset(self) -> dict[str, int]:
        return {"commit": self._head()}

    def _head(self) -> int:
        return engine_at(self.wanted.location).catalog().head

    @plainly_said()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, upto = start["commit"], end["commit"]
        if upto <= after:
            return []
        engine = engine_at(self.wanted.location)
        check_remembered(engine.catalog(), self.wanted.schema, after)
        if self.wanted.across is None:
            check_one_version(engine, self.wanted.schema, after)
        shares = engine.shares(self.wanted.schema, Window("since", after), across=self.wanted.across is not None)
        return [CommitRange(share.keys, after, upto) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CommitRange)
        with plainly_said():
            engine = engine_at(self.wanted.location)
            after, upto, across = partition.after, partition.upto, self.wanted.across
            rows = change_rows(engine, self.wanted.schema, partition.keys, after, upto, across)
            yield from to_batches(self.wanted, rows, self.nullable)
