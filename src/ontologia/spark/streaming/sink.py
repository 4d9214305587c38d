"""A stream as commits: every micro-batch is one, exactly once.

The sink writes the stream and the batch into the commit's metadata; before it commits a batch it looks, under the
write lock, whether that is done. So a batch that is run again after a crash is committed once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ontologia.engines.base import Engine
from ontologia.errors import OntologiaError, ValidationError
from ontologia.objects import open_objects
from ontologia.spark.workers import plainly_said
from ontologia.spark.writing.landing import land
from ontologia.spark.writing.plan import WRITE_OPTIONS, WritePlan
from ontologia.spark.writing.shares import shares_of, stage_share
from ontologia.spark.writing.writer import clear

if TYPE_CHECKING:
    import pyarrow as pa

SINK_OPTIONS = (*WRITE_OPTIONS, "streamId", "checkpointLocation")
STREAM, BATCH = "stream_id", "stream_batch"


@dataclass(frozen=True, slots=True)
class Stream:
    """Names a stream across restarts."""

    id: str

    def has_committed(self, engine: Engine, batch: int) -> bool:
        """Whether the log has this batch. Batches are committed in order, so the stream's newest commit tells.

        The log is read back to it, however far that is: a checkpoint does not say how old it is. One that was copied
        or restored has files of today.
        """
        own = (commit for commit in engine.walk() if commit.metadata.get(STREAM) == self.id)
        newest = next((commit for commit in own if BATCH in commit.metadata), None)
        return newest is not None and int(newest.metadata[BATCH]) >= batch


class OntologiaStreamWriter(DataSourceStreamArrowWriter):
    """Commits every micro-batch exactly once."""

    def __init__(self, plan: WritePlan, stream: Stream) -> None:
        self.plan = plan
        self.stream = stream

    @plainly_said()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_share(self.plan, iterator)

    @plainly_said()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done: list[bool] = []

        def is_done(engine: Engine) -> bool:
            done.append(self.stream.has_committed(engine, batchId))
            return done[-1]

        shares = shares_of(messages)
        land(self.plan, shares, is_done=is_done, metadata={STREAM: self.stream.id, BATCH: str(batchId)})
        clear(self.plan, shares, failed=done[-1])  # rows that a repeated batch set aside were set aside before

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        clear(self.plan, shares_of(messages), failed=True)


def stream_of(options: Mapping[str, str]) -> Stream:
    """The stream that options mean: the one they name, or the query whose checkpoint they name.

    Spark writes a query's id into its checkpoint. Batches are counted from 0 again after a checkpoint is deleted, so
    its place alone would make a new query look like the old one, and its batches like done. A checkpoint that cannot
    be read from here names no stream: then the caller has to.
    """
    named, place = options.get("streamId"), options.get("checkpointLocation")
    if named:
        return Stream(named)
    if not place:
        raise ValidationError('name the stream: .option("checkpointLocation", …), or .option("streamId", …)')
    try:
        uri, key = _metadata(place)
        objects = open_objects(uri)
        query = json.loads(objects.get(key).data)["id"]
    except (OntologiaError, ImportError, ValueError, KeyError, TypeError) as problem:
        raise ValidationError(
            f"the id of the stream cannot be read from its checkpoint {place}, and without one a batch could be "
            "committed twice or not at all: name the stream with .option('streamId', …), a name that no other stream "
            f"into this store has. ({problem})"
        ) from problem
    return Stream(str(query))


def _metadata(place: str) -> tuple[str, str]:
    """Where a checkpoint has its metadata: a store as we name it, and the key there.

    To Hadoop a place is a scheme, an authority and a path in which no sign means anything: `#`, `?` and `%` are of the
    name, as they are in a key. It says `file:/x` and `s3a://`, too.
    """
    scheme, authority, path = re.fullmatch(r"(?:(\w[\w+.-]*):)?(?://([^/]*))?(.*)", place, re.DOTALL).groups()  # type: ignore[union-attr]
    if scheme in (None, "file"):
        return f"file://{quote(os.path.abspath(path))}", "metadata"
    bucket = f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{authority or ''}"
    return bucket, f"{path.strip('/')}/metadata"
