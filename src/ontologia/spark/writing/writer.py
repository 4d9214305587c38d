"""`df.write.format("ontologia")`: executors check and stage rows, the driver compares and publishes once.

The commit runs in a process of its own on the driver and shares no memory with the plan or the tasks. Everything it
needs is in the plan, which is pickled to it, and in the tasks' messages.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ontologia.engines.base import Engine
from ontologia.engines.dispatch import open_engine
from ontologia.errors import OntologiaError, ValidationError
from ontologia.files.writing import ROW_GROUP_ROWS, gather
from ontologia.model import Declaration, TypeSchema
from ontologia.objects import Location, Objects
from ontologia.runtime.intake.comparing import Mode, OnConflict, OnDuplicate, OnInvalid, OnTie
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.rows import Intake, RejectedRow, fit_columns
from ontologia.spark.options import number
from ontologia.spark.reading.rows import resolve
from ontologia.spark.tables import check_no_table_is_made
from ontologia.spark.types import arrow_schema_of
from ontologia.spark.workers import plainly_said

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_PART, BYTES_PER_PART = 8 * ROW_GROUP_ROWS, 64 << 20
WRITE_OPTIONS = (
    *("path", "type", "kind", "models", "onConflict", "onInvalid"),
    *("orderBy", "onTie", "maxRemovals", "branch", "settings"),
)
META = "meta."
STAGING = "staging/"
"""Where rows wait in a store before they are compared; a vacuum clears it."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write, agreed on the driver: into which type of which store, how, and where rows are staged."""

    location: Location
    staging: Location
    intake: Intake
    on_conflict: OnConflict
    on_invalid: OnInvalid
    on_tie: OnTie
    mode: Mode = "upsert"
    max_removals: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def schema(self) -> TypeSchema:
        return self.intake.schema

    @property
    def on_duplicate(self) -> OnDuplicate:
        return "error" if self.intake.order_by is None else "last"

    @property
    def folder(self) -> str:
        return f"{STAGING}{self.run}/"

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self.staging, self.run, self.schema.ref)


@dataclass
class StagedShare(WriterCommitMessage):
    """What one task has to say: the parts it staged and the rows it set aside, or the row that stops the write."""

    parts: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    read: int = 0
    rejected: int = 0
    error: str | None = None


class OntologiaWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    @plainly_said()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_share(self.plan, iterator)

    @plainly_said()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from ontologia.spark.writing.landing import land

        land(self.plan, shares_of(messages))
        clear(self.plan, shares_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        clear(self.plan, shares_of(messages), failed=True)


def plan_write(options: Mapping[str, str], given: StructType, *, overwrite: bool) -> WritePlan:
    """Settle a write from its options and the DataFrame's columns. What is wrong with either is said here."""
    uri = options.get("path")
    if not uri:
        raise ValidationError('say where the store is: .save("s3://bucket/prefix")')
    declaration = _declared(options)
    with open_engine(Location.from_text(uri, options.get("settings"), options.get("branch"))) as engine:
        schema = _schema(engine, options, declaration)
        if overwrite and not engine.capabilities.removals:
            raise ValidationError('a store keeps its history: write with .mode("append"), which updates what differs')
        location, staging = engine.location, engine.staging_area
    mode: Mode = "sync" if overwrite else "upsert"
    limit = None if "maxRemovals" not in options else number("maxRemovals", options["maxRemovals"])
    if limit is not None and (not overwrite or limit < 0):
        raise ValidationError(f"maxRemovals is a number of rows from 0 on, for .mode('overwrite'), not {limit}")
    return WritePlan(
        location,
        staging,
        fit_columns(arrow_schema_of(given), schema, declaration, options.get("orderBy")),
        cast("OnConflict", _choice("onConflict", options, "upsert", get_args(OnConflict))),
        cast("OnInvalid", _choice("onInvalid", options, "abort", get_args(OnInvalid))),
        cast("OnTie", _choice("onTie", options, "error", get_args(OnTie))),
        mode,
        limit,
        {name[len(META) :]: text for name, text in options.items() if name.lower().startswith(META)},
    )


def _schema(engine: Engine, options: Mapping[str, str], declaration: Declaration | None) -> TypeSchema:
    if declaration is not None:
        engine.catalog().check({declaration.ref: declaration.schema})
        return declaration.schema
    if "type" not in options:
        raise ValidationError('say which type: .option("type", "Customer")')
    return resolve(engine, options["type"], options.get("kind"))[1]


def _declared(options: Mapping[str, str]) -> Declaration | None:
    """The class of `models="module:Class"`, which may declare a type that the store does not have yet."""
    named = options.get("models")
    if named is None:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as problem:
        raise ValidationError(f"models={named!r} cannot be imported on the driver: {problem}") from None
    declaration = getattr(found, "__declaration__", None)
    if not isinstance(declaration, Declaration):
        raise ValidationError(f'models={named!r} names no entity or relation class: write it "app.models:Customer"')
    wanted = (options.get("type", declaration.ref.name), options.get("kind", declaration.ref.kind))
    if wanted != (declaration.ref.name, declaration.ref.kind):
        raise ValidationError(
            f"models={named!r} is {declaration.ref}, and the options ask for {' '.join(wanted[::-1])}"
        )
    return declaration


def _choice(name: str, options: Mapping[str, str], default: str, allowed: Sequence[str]) -> str:
    given = options.get(name, default)
    if given not in allowed:
        raise ValidationError(f"the option {name} is one of {', '.join(allowed)}, not {given!r}")
    return given


def shares_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedShare]:
    """The messages of tasks that ended well."""
    return [message for message in messages if isinstance(message, StagedShare)]


# --- on executors ---


def stage_share(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> StagedShare:
    """Check one task's rows and stage them. A row that stops the write is reported, not raised: a retry is no use."""
    objects = plan.staging.open_objects()
    share, parts = StagedShare(), _Parts(plan, objects)
    rejected: list[RejectedRow] = []
    try:
        check_no_table_is_made()
        for given in gather(batches):
            share.read += given.num_rows
            rows, wrong = plan.intake.take(given)
            if wrong and plan.on_invalid == "abort":
                raise ValidationError(f"{plan.schema.ref}: {wrong[0].reason}. The source row is {wrong[0].source}")
            rejected += wrong
            parts.add(rows)
    except ValidationError as problem:
        return replace(share, error=str(problem))
    share.rejected = len(rejected)
    if rejected:
        share.quarantined = (plan.quarantine.add(rejected),)
    share.parts = parts.finish()
    return share


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
        import pyarrow.parquet as pq

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


# --- on the driver ---


def clear(plan: WritePlan, shares: Sequence[StagedShare], *, failed: bool = False) -> None:
    """Remove what was staged, best effort: nothing here may undo a commit, and what stays is vacuumed.

    A write that failed also takes back the rows it set aside: run again, it sets them aside again.
    """
    with contextlib.suppress(OntologiaError, OSError):
        objects = plan.staging.open_objects()
        staged = {path for share in shares for path in share.parts}
        staged |= {info.key for info in objects.list(plan.folder)}  # a failed task sends no message
        if failed:
            staged |= {path for share in shares for path in share.quarantined}
        objects.delete_many(sorted(staged))
        remove_if_empty(plan.staging)


def remove_if_empty(staging: Location) -> None:
    """A folder beside an embedded file is not left behind, unless it holds rows that were set aside."""
    root = Path(unquote(urlsplit(staging.uri).path))
    if staging.uri.endswith(".staging") and root.is_dir() and not any(item.is_file() for item in root.rglob("*")):
        shutil.rmtree(root, ignore_errors=True)
