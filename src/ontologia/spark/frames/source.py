"""Frames through the data source: `spark.read.format("ontologia").option("frame", "h.b.f").load(root)`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from ontologia.apiary.ledger import Ledger
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.state import FrameSnapshot
from ontologia.apiary.writing import remove_cells
from ontologia.errors import UnknownNameError, ValidationError
from ontologia.objects import Location
from ontologia.spark.frames.tasks import FrameWork, cells_of, cells_text, gather, shares
from ontologia.spark.frames.types import spark_arrow, struct_of
from ontologia.spark.frames.work import commit_cells, work_on
from ontologia.spark.options import moment
from ontologia.spark.tables import check_no_table_is_made
from ontologia.spark.workers import plainly_said

READ_OPTIONS = ("path", "frame", "asOf", "versionAsOf", "timestampAsOf", "settings")
WRITE_OPTIONS = ("path", "frame", "settings")


def open_frame(options: Mapping[str, str]) -> tuple[Node, FrameName]:
    """The node and the frame that options name. It sends no heartbeats: this process lives for one job."""
    if not options.get("path"):
        raise ValidationError('say where the frames are: .load("s3://bucket/prefix")')
    name = FrameName.parse(options["frame"])
    node = Node(Location.from_text(options["path"], options.get("settings")), read_only=True)
    node.registry.frame(name)
    return node, name


def plan_read(options: Mapping[str, str]) -> tuple[FrameWork, FrameSnapshot]:
    node, name = open_frame(options)
    return work_on(node, name), node.ledger(name).snapshot(_version(node.ledger(name), options))


def _version(ledger: Ledger, options: Mapping[str, str]) -> int | None:
    said = [name for name in ("asOf", "versionAsOf", "timestampAsOf") if options.get(name) is not None]
    if len(said) > 1:
        raise ValidationError(f"{' and '.join(said)} both say which version to read: give one of them")
    if not said:
        return None
    text = str(options.get(said[0]))
    if said[0] == "timestampAsOf":
        return ledger.version_at(moment("timestampAsOf", text))
    if not text.isdecimal():
        raise ValidationError(f"the option {said[0]} takes the number of a version, not {text!r}")
    return int(text)


class FrameReader(DataSourceReader):
    """Reads one version of a frame: cells are pruned on the driver and read on executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.work, self.snapshot = plan_read(options)
        there = struct_of(self.work.schema)
        self.names = schema.fieldNames()
        for field in schema:
            if field.name not in there.fieldNames():
                raise UnknownNameError(
                    f"{self.work.name} has no column {field.name!r}; it has {', '.join(there.fieldNames())}"
                )
            if field.dataType != there[field.name].dataType:
                found = there[field.name].dataType.simpleString()
                raise ValidationError(f"{self.work.name}.{field.name} is {found}: read it so, and cast")

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(cells_text(share)) for share in shares(self.snapshot.cells, 16)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        target = spark_arrow(self.work.schema)
        if partition is None or partition.value is None:
            return
        found = self.work.read(cells_of(partition.value), self.names)
        chosen = pa.schema([target.field(name) for name in self.names])
        yield from found.cast(chosen).to_batches(max_chunksize=131_072)


@dataclasses.dataclass
class CellsWritten(WriterCommitMessage):
    """What one task wrote."""

    cells: str


class FrameWriter(DataSourceArrowWriter):
    """Appends to a frame, or replaces its rows: tasks write cells, the driver commits one entry."""

    def __init__(self, options: Mapping[str, str], overwrite: bool) -> None:
        node, name = open_frame(options)
        self.options = {name: options[name] for name in WRITE_OPTIONS if options.get(name) is not None}
        self.work = work_on(node, name)
        self.overwrite = overwrite
        self.began = time.time()

    @plainly_said()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        check_no_table_is_made()
        piece = self.work.node.capacity.sizing.piece
        return CellsWritten(cells_text(self.work.write(gather(iterator, piece))))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        node, name = open_frame(self.options)
        written = [message for message in messages if isinstance(message, CellsWritten)]
        cells = [cell for message in written for cell in cells_of(message.cells)]
        commit_cells(node, name, cells, replace=self.overwrite, took_s=time.time() - self.began)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take cells back that no commit was tried with. Spark calls this after a failed commit as well, which took
        them back itself if it could be sure that no entry names them; then no task is without a message."""
        if None not in messages:
            return
        node, name = open_frame(self.options)
        for message in messages:
            if isinstance(message, CellsWritten):
                remove_cells(node, name, cells_of(message.cells))
