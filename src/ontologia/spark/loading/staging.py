"""What an executor does with its share of a load: check, deduplicate, compare with the store, write what differs.

Shares are ranges of keys, so that all rows of one identity meet in one task, the comparison reads one range of the
store, and parts lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import TypeLayout
from ontologia.engines.dispatch import open_engine
from ontologia.engines.staging import Staging
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.files.sorting import Sorter, identity_chunks
from ontologia.files.writing import gather
from ontologia.model import TypeSchema
from ontologia.objects import Location
from ontologia.query.plan import Window
from ontologia.runtime.delta import OPERATION, delta
from ontologia.runtime.intake.checks import Check
from ontologia.runtime.intake.comparing import (
    COUNTS,
    OnConflict,
    OnDuplicate,
    OnInvalid,
    OnTie,
    count_ties,
    keep_stored,
    one_each,
    resolve_conflicts,
    tally,
)
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.rows import ORDER, RejectedRow
from ontologia.spark.loading.mapping import REASON, SOURCE
from ontologia.spark.loading.removals import Removals, SyncTask
from ontologia.spark.ranges import collect_in_arrow, cut_into_ranges
from ontologia.spark.workers import PART, Message, engine_at, part_messages

PATIENCE_MS = 60_000
STAGED = Message(
    {**PART, "error": "string", **dict.fromkeys(COUNTS, "bigint"), "range": "bigint", "removals_ipc": "binary"}
)
ROWS_SORTED, ROWS_COMPARED = 1_000_000, 500_000
"""How many rows a task takes: those that Spark sorts pass through, those that are compared are held."""
REJECTED_HELD = 50_000


def patient(location: Location) -> Location:
    """The location, for a writer that waits longer than usual for its turn, unless it was told how long.

    A job that has to start again costs more than a wait, also for the lease of a writer that died to run out.
    """
    plain, given = OntologiaConfig(), location.settings
    if given.lock_timeout_ms == plain.lock_timeout_ms:
        given = replace(given, lock_timeout_ms=PATIENCE_MS)
    if given.s3_lock_timeout_ms == plain.s3_lock_timeout_ms:
        given = replace(given, s3_lock_timeout_ms=PATIENCE_MS)
    return replace(location, settings=given)


class StagedRows(NamedTuple):
    """What the tasks of a load report, and what a sync takes away."""

    messages: list[Any]
    removals: Removals


@dataclass(frozen=True, slots=True)
class StageTask:
    """Everything a task needs to know; small, and pickled to every executor."""

    location: Location
    head: int
    known: bool
    layout: TypeLayout
    staging: Staging | None
    """Where rows are written; None where they are only counted."""
    quarantine: Quarantine
    on_invalid: OnInvalid
    on_duplicate: OnDuplicate
    on_conflict: OnConflict
    on_tie: OnTie = "error"
    kept: tuple[str, ...] = ()
    """The columns that keep what is stored."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    dense: bool = False
    """Whether many of the stored rows in a range of keys are wanted."""
    sync: SyncTask | None = None
    """Set where the type becomes what its source is."""

    @property
    def schema(self) -> TypeSchema:
        return self.layout.schema

    @property
    def presorted(self) -> bool:
        """Whether Spark sorts the rows. Of a known type most are expected to be stored already: what differs is few.

        The order that decides between rows of one identity is Spark's, so then it sorts too.
        """
        return not self.known or self.on_duplicate == "last"

    @property
    def key_is_field(self) -> bool:
        """Whether the key is also a field, with the same text: then it travels once."""
        key = self.schema.by_name.get(self.schema.primary_key or "")
        return key is not None and key.scalar == "str" and key.physical not in self.checks


def stage_rows(rows: DataFrame, task: StageTask, stored: int | None) -> StagedRows:
    """Run a load's job over rows of `map_rows`: the messages of its tasks. `stored` is `Engine.count_stored`."""
    identity = task.schema.ref.identity
    if task.on_duplicate == "error":
        rows = rows.drop(ORDER)
    if task.key_is_field:
        rows = rows.drop(task.schema.by_name[task.schema.primary_key or ""].physical)
    found = cut_into_ranges(rows, identity, ROWS_SORTED if task.presorted else ROWS_COMPARED)
    ready = found.rows
    if task.presorted:
        after = rows.columns if task.on_duplicate == "last" else ()  # rows of equal order come in that of their values
        ready = found.sorted_by(*(name for name in dict.fromkeys((*identity, ORDER, *after)) if name in rows.columns))
    task = replace(task, dense=stored is not None and found.count * 8 >= stored)
    if task.sync is not None:
        task = replace(task, sync=replace(task.sync, cuts=found.cuts))
    messages = collect_in_arrow(ready, lambda batches: stage(task, batches), STAGED.ddl)
    failed = next((row.error for row in messages if row.error is not None), None)
    if failed is not None:
        raise ValidationError(failed)
    return StagedRows(messages, _removals(task, messages))


def _removals(task: StageTask, messages: Sequence[Any]) -> Removals:
    """What a sync takes away. Spark runs no task for rows that it knows to be none: then the driver does the work."""
    found = [Removals.read(row.removed, row.removals_ipc) for row in messages if row.range is not None]
    if task.sync is not None:
        reported = {row.range for row in messages}
        with open_engine(task.location) as engine:
            for number in range(len(task.sync.cuts) + 1):
                if number not in reported:
                    found.append(task.sync.find_removals(engine, number, []))
    return Removals.all_of(found, task.schema.ref.identity)


def stage(task: StageTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one share, and report its counts and its parts. A row that stops the run is reported too, not raised."""
    with ExitStack() as stack:
        share = _ShareTask(task, stack)
        try:
            parts = share.run(batches)
            messages = [share.counts | share.removals(), *part_messages(parts)]
        except ValidationError as problem:
            messages = [{"error": str(problem), **share.counts}]
    yield STAGED.batch(messages)


class _ShareTask:
    def __init__(self, task: StageTask, stack: ExitStack) -> None:
        self.task = task
        self.counts: dict[str, Any] = dict.fromkeys(COUNTS, 0)
        self.rejected: list[RejectedRow] = []
        self.files_aside = 0
        self.keys: list[pa.Table] = []
        """The identities of the rows, where what is not among them goes."""
        self.parts = None if task.staging is None else stack.enter_context(task.staging.writer())
        self.sorter = stack.enter_context(Sorter(task.schema.ref.identity))

    def removals(self) -> dict[str, Any]:
        """What goes, of the stored rows in this task's range. It is decided by the rows that the task has seen itself,
        so that an identity has one fate, also where the source gives others when it is read again."""
        sync = self.task.sync
        if sync is None:
            return {}
        context: Any = TaskContext.get()
        found = sync.find_removals(engine_at(self.task.location), context.partitionId(), self.keys)
        return {"range": context.partitionId(), "removed": found.count, "removals_ipc": found.packed()}

    def run(self, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
        if self.task.presorted:
            for table in identity_chunks(batches, self.task.schema.ref.identity):
                self._compare(self._valid(table))
        else:
            for table in gather(batches):
                self.sorter.add(self._valid(table))
            for table in self.sorter.chunks():
                self._compare(table)
        self._set_aside()
        return [] if self.parts is None else self.parts.finish()

    def _valid(self, table: pa.Table) -> pa.Table:
        """The rows that pass every check, as storage has them; those that do not are set aside."""
        self.counts["read"] += table.num_rows
        if table.column(REASON).null_count < table.num_rows:
            self._reject(table.filter(pc.is_valid(table.column(REASON))))
            table = table.filter(pc.is_null(table.column(REASON)))
        return self._check(table).drop_columns([REASON, SOURCE])

    def _check(self, table: pa.Table) -> pa.Table:
        """Check what Spark's types cannot say: structured fields and the constraints of annotations."""
        reasons: dict[int, str] = {}
        for column in self.task.schema.columns:
            check = self.task.checks.get(column.physical)
            if check is not None:
                place = table.schema.get_field_index(column.physical)
                values, problems = check.of(column, table.column(place))
                table = table.set_column(place, column.physical, values)
                reasons = {**problems, **reasons}
        if not reasons:
            return table
        rows = pa.array(reasons, pa.int64())
        invalid = table.take(rows).set_column(table.schema.get_field_index(REASON), REASON, [list(reasons.values())])
        self._reject(invalid)
        return table.filter(pa.array([row not in reasons for row in range(table.num_rows)]))

    def _reject(self, invalid: pa.Table) -> None:
        self.counts["rejected"] += invalid.num_rows
        rows = invalid.select([REASON, SOURCE]).to_pylist()
        if self.task.on_invalid == "abort":
            raise ValidationError(f"{self.task.layout.ref}: {rows[0][REASON]}. The source row is {rows[0][SOURCE]}")
        self.rejected += [RejectedRow(row[REASON], row[SOURCE]) for row in rows]
        if len(self.rejected) >= REJECTED_HELD:
            self._set_aside()

    def _set_aside(self) -> None:
        """Write the rows that do not fit, under a name that is the same when Spark tries the task again."""
        if self.rejected and self.parts is not None:
            context: Any = TaskContext.get()
            self.task.quarantine.add(self.rejected, f"{context.partitionId():05d}-{self.files_aside:03d}")
            self.files_aside += 1
        self.rejected = []

    def _compare(self, table: pa.Table) -> None:
        """Append what differs from the store. Rows come in the order of their identity."""
        task, ref = self.task, self.task.schema.ref
        wanted = one_each(table, ref, task.on_duplicate)
        if task.on_duplicate == "last":
            self.counts["ties"] += count_ties(table, ref, task.on_tie)
            wanted = wanted.drop_columns([ORDER])
        if task.sync is not None:
            self.keys.append(wanted.select(list(ref.identity)))
        current = self._current(wanted)
        wanted = keep_stored(wanted, current, ref, task.kept)
        changed = resolve_conflicts(delta(wanted, current, ref.identity), ref, task.on_conflict)
        tally(self.counts, changed, wanted.num_rows)
        if task.key_is_field:
            key = task.schema.by_name[task.schema.primary_key or ""].physical
            changed = changed.append_column(key, changed.column("entity_key"))
        if self.parts is not None:
            self.parts.add(changed.drop_columns([OPERATION]))

    def _current(self, wanted: pa.Table) -> pa.Table | None:
        """What the store has of these identities: one read of their range."""
        if not self.task.known or not wanted.num_rows:
            return None
        engine = engine_at(self.task.location)
        return engine.rows_of(self.task.schema, wanted, Window("as_of", self.task.head), dense=self.task.dense)
