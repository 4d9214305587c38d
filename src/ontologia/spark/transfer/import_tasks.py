"""What executors do of an import: check the records of a stretch of a file, and merge a range of keys."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.staging import Staging
from ontologia.errors import ValidationError
from ontologia.files.sorting import identity_chunks
from ontologia.model import TypeRef, TypeSchema
from ontologia.objects import Location, Objects
from ontologia.query.plan import Window
from ontologia.runtime.intake.comparing import one_each
from ontologia.runtime.intake.rows import ORDER
from ontologia.runtime.transfer.conflicts import Rules
from ontologia.runtime.transfer.files import Readers, Split, check_records
from ontologia.runtime.transfer.importing import TypeImport, merge_rows
from ontologia.runtime.transfer.records import Identity, RecordReader
from ontologia.spark.workers import PART, Message, engine_at, part_messages

ROWS_AT_ONCE = 25_000


COUNTS = ("seen", "inserted", "updated", "unchanged", "skipped")
READ = Message(
    {"split": "bigint", "kind": "string", "type": "string", "path": "string", "rows": "bigint", "error": "string"}
)
MERGED = Message({**PART, "refused": "string", **dict.fromkeys(COUNTS, "bigint")})


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What an executor needs to read a stretch of a file."""

    area: Location
    folder: str
    readers: Readers


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What an executor needs to compare a range of keys with the store."""

    location: Location
    head: int
    known: bool
    schema: TypeSchema
    staging: Staging | None
    """Where rows are written; None where they are only counted."""
    rules: Rules


def staged_schema(reader: RecordReader) -> pa.Schema:
    """Checked rows as they are staged: identity, fields, and their order in the files."""
    return reader.arrow_schema.append(pa.field(ORDER, pa.int64()))


def read_splits(task: ReadTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the records of each stretch and stage them. A bad record is reported, not raised: a retry is no use."""
    objects = task.area.open_objects()
    for batch in batches:
        for row in batch.to_pylist():
            try:
                found = _read_split(task, objects, row["number"], Split(Path(row["path"]), row["start"], row["end"]))
            except ValidationError as problem:
                found = [{"error": str(problem)}]
            yield READ.batch([{"split": row["number"], **message} for message in found])


def _read_split(task: ReadTask, objects: Objects, place: int, split: Split) -> list[dict[str, Any]]:
    held: dict[TypeRef, _Rows] = {}
    for number, _, reader, identity, values in check_records(split, task.readers):
        rows = held.get(reader.ref)
        if rows is None:
            rows = held[reader.ref] = _Rows(reader)
        rows.add(identity, values, place << 32 | number)
    found = []
    for ref, rows in held.items():
        path = f"{task.folder}{ref.kind}-{quote(ref.name, safe='')}-{place:06d}.parquet"
        objects.put(path, rows.finish())
        found.append({"kind": ref.kind, "type": ref.name, "path": path, "rows": rows.count})
    return found


@dataclass(slots=True)
class _Rows:
    """Checked rows of one type, as a Parquet file in the making. Their order decides which of an identity is last."""

    reader: RecordReader
    count: int = 0
    _identities: list[Identity] = field(default_factory=list)
    _values: list[dict[str, Any]] = field(default_factory=list)
    _orders: list[int] = field(default_factory=list)
    _sink: io.BytesIO = field(default_factory=io.BytesIO)
    _writer: Any = None

    def add(self, identity: Identity, values: dict[str, Any], order: int) -> None:
        self._identities.append(identity)
        self._values.append(values)
        self._orders.append(order)
        self.count += 1
        if len(self._values) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, staged_schema(self.reader), compression="zstd")
        table = self.reader.table(self._identities, self._values)
        self._writer.write_table(table.append_column(ORDER, pa.array(self._orders, pa.int64())))
        self._identities, self._values, self._orders = [], [], []

    def finish(self) -> bytes:
        self._flush()
        self._writer.close()
        return self._sink.getvalue()


def merge_part(task: MergeTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compare one range of keys with the store, and write what differs."""
    schema, ref = task.schema, task.schema.ref
    found, seen, refused = TypeImport(ref), 0, None
    with nullcontext() if task.staging is None else task.staging.writer() as parts:
        for chunk in identity_chunks(batches, ref.identity):
            rows = one_each(chunk, ref, "last").drop_columns([ORDER])
            seen += rows.num_rows
            stored = None
            if task.known:
                stored = engine_at(task.location).rows_of(schema, rows, Window("as_of", task.head), dense=False)
            changes, reason = merge_rows(found, rows, stored, task.rules)
            refused = refused or reason
            if parts is not None:
                if refused is not None:
                    break
                parts.add(changes)
        written = [] if refused is not None or parts is None else parts.finish()
    counts = {"refused": refused, "seen": seen} | {name: getattr(found, name) for name in COUNTS if name != "seen"}
    yield MERGED.batch([counts, *part_messages(written)])
