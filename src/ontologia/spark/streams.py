"""Streams: commits as micro-batches, and micro-batches as commits.

The source's offset is a commit id, so a batch is a range of commits and reads the same rows however often it is asked
for. The sink writes the stream and the batch into the commit's metadata; before it commits a batch it looks, under the
write lock, whether that is done. So a batch that is run again after a crash is committed once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ontologia.engines.base import Commit
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import OntologiaError, ValidationError
from ontologia.files.key_ranges import KeyRange
from ontologia.objects import open_objects
from ontologia.query.plan import Window
from ontologia.spark.changes import change_rows, operation_column
from ontologia.spark.landing import land
from ontologia.spark.source import KeyRangePartition, Wanted, repository_at, shown, split
from ontologia.spark.writing import WRITE_OPTIONS, WritePlan, clear, shares_of, stage_share

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COMMITS = "maxCommitsPerBatch"
SINK_OPTIONS = (*WRITE_OPTIONS, "streamId", "checkpointLocation")
STREAM, BATCH = "stream_id", "stream_batch"
CLOCK_SKEW = timedelta(days=1)
"""How far the clocks of two writers may be apart before a batch could be committed twice."""


# --- commits as a stream ---


class CommitRange(InputPartition):
    """One task's share of a micro-batch: a range of keys in a range of commits."""

    def __init__(self, keys: KeyRange, after: int, upto: int) -> None:
        super().__init__((keys, after, upto))
        self.keys = keys
        self.after = after
        self.upto = upto


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delivers what commits wrote, in their order. Rows of one task are in the order of commits as well."""

    def __init__(self, wanted: Wanted, schema: StructType, max_commits: int | None) -> None:
        if operation_column(wanted.schema) not in schema.fieldNames():
            raise ValidationError('a stream delivers changes: add .option("changes", "true")')
        if max_commits is not None and max_commits < 1:
            raise ValidationError(f"{MAX_COMMITS} is a number of commits from 1 on, not {max_commits}")
        self.wanted = wanted
        self.names = schema.fieldNames()
        self.max_commits = max_commits
        self.last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"commit": self.wanted.window.commit or 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows limits by rows, bytes and files only. A commit counts as a file.
        return ReadAllAvailable() if self.max_commits is None else ReadMaxFiles(self.max_commits)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._head() if self.last is None else self.last
        if isinstance(limit, ReadMaxFiles):
            end = min(end, start["commit"] + limit.max_files)
        return {"commit": max(end, start["commit"])}

    def prepareForTriggerAvailableNow(self) -> None:
        self.last = self._head()

    def reportLatestOffset(self) -> dict[str, int]:
        return {"commit": self._head()}

    def _head(self) -> int:
        return repository_at(self.wanted.uri).get_head_commit_id()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, upto = start["commit"], end["commit"]
        if upto <= after:
            return []
        ranges = split(self.wanted.uri, self.wanted.schema, Window("since", after))
        return [CommitRange(found.keys, after, upto) for found in ranges if isinstance(found, KeyRangePartition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, CommitRange)
        repository = repository_at(self.wanted.uri)
        rows = change_rows(repository, self.wanted.schema, partition.keys, partition.after, partition.upto)
        yield from shown(self.wanted, rows, self.names)


# --- a stream as commits ---


@dataclass(frozen=True, slots=True)
class Stream:
    """Names a stream across restarts. Nothing of it was committed before it was `born`, where that is known."""

    id: str
    born: datetime | None = None

    def has_committed(self, repository: RowwiseRepository, batch: int) -> bool:
        """Whether the log has this batch. Batches are committed in order, so the stream's newest commit tells."""
        newest = self._newest(repository)
        return newest is not None and int(newest.metadata[BATCH]) >= batch

    def _newest(self, repository: RowwiseRepository) -> Commit | None:
        for limit in (32, 1_024, None):
            commits = repository.commits(limit=limit)
            for commit in commits:
                if commit.metadata.get(STREAM) == self.id and BATCH in commit.metadata:
                    return commit
                if self.born is not None and datetime.fromisoformat(commit.created_at) < self.born - CLOCK_SKEW:
                    return None
            if limit is None or len(commits) < limit:
                return None
        return None


class OntologiaStreamWriter(DataSourceStreamArrowWriter):
    """Commits every micro-batch exactly once."""

    def __init__(self, plan: WritePlan, stream: Stream) -> None:
        self.plan = plan
        self.stream = stream

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_share(self.plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done: list[bool] = []

        def is_done(repository: RowwiseRepository) -> bool:
            done.append(self.stream.has_committed(repository, batchId))
            return done[-1]

        shares = shares_of(messages)
        land(self.plan, shares, is_done=is_done, metadata={STREAM: self.stream.id, BATCH: str(batchId)})
        clear(self.plan, shares, failed=done[-1])  # rows that a repeated batch set aside were set aside before

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        clear(self.plan, shares_of(messages), failed=True)


def stream_of(options: Mapping[str, str]) -> Stream:
    """The stream that options mean: the one they name, or the query whose checkpoint they name.

    Spark writes a query's id into its checkpoint. Batches are counted from 0 again after a checkpoint is deleted, so
    its place alone would make a new query look like the old one, and its batches like done.
    """
    named, place = options.get("streamId"), options.get("checkpointLocation")
    if named:
        return Stream(named)
    if not place:
        raise ValidationError('name the stream: .option("checkpointLocation", …), or .option("streamId", …)')
    uri = _uri(place)
    try:
        objects = open_objects(uri)
        query = json.loads(objects.get("metadata").data)["id"]
        info: Any = objects.head("metadata")
        return Stream(str(query), None if info is None else info.modified)
    except (OntologiaError, ValueError, KeyError):
        return Stream(hashlib.sha256(uri.encode()).hexdigest()[:32])


def _uri(place: str) -> str:
    """A checkpoint's place as we name it: Hadoop says `file:/x` and `s3a://`."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return f"file://{os.path.abspath(parts.path)}"
    return place.replace("s3a://", "s3://", 1).rstrip("/")
