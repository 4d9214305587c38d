"""The driver's part of a write: what tasks found to differ, sorted and each identity once, in one commit.

Tasks cannot see each other's rows, so this is where two tasks with the same identity meet. Rows pass through in
chunks; DuckDB sorts them, and spills to disk what does not fit. They are compared here only if somebody else committed
to the type after a task had looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.base import Engine
from ontologia.engines.catalog import TypeLayout
from ontologia.engines.dispatch import open_engine
from ontologia.engines.transaction import Transaction
from ontologia.errors import ValidationError
from ontologia.files.quoting import quote_names
from ontologia.files.sorting import Sorter, sort_files
from ontologia.files.writing import RowGroups
from ontologia.model import COMMIT_ID, SCHEMA_VERSION_ID, arrow_schema
from ontologia.query.plan import LATEST, Plan
from ontologia.runtime.delta import OPERATION, delta
from ontologia.runtime.intake.comparing import COUNTS, count_ties, keep_stored, one_each, resolve_conflicts, tally
from ontologia.runtime.intake.conversions import GRAMMAR, NAMED_INFINITE
from ontologia.runtime.intake.reports import TypeReport
from ontologia.runtime.intake.rows import ORDER
from ontologia.runtime.intake.syncing import check_removals, check_sync, identities_to_remove
from ontologia.spark.loading.staging import patient
from ontologia.spark.writing.overtaken import overtaken
from ontologia.spark.writing.plan import WritePlan
from ontologia.spark.writing.shares import StagedShare
from ontologia.spark.writing.staged import staged_files

IN_MEMORY_BYTES = 32 << 20
"""Staged rows are compressed: so much of them is a few times as much in memory."""

Check = Callable[[Engine], bool]


def land(
    plan: WritePlan,
    shares: Sequence[StagedShare],
    *,
    is_done: Check | None = None,
    metadata: dict[str, str] | None = None,
) -> int | None:
    """Publish what tasks staged. Returns the commit id, or None when nothing differs from the store.

    `is_done` is asked under the write lock, so that no other writer can make its answer wrong.
    """
    failed = next((share.error for share in shares if share.error is not None), None)
    if failed is not None:
        raise ValidationError(failed)
    with open_engine(patient(plan.location)) as engine, staged_files(plan, shares) as staged:

        def work(transaction: Transaction) -> int | None:
            if is_done is not None and is_done(engine):
                return None
            counts = dict.fromkeys(COUNTS, 0)
            counts["read"] = sum(share.read for share in shares)
            counts["rejected"] = sum(share.rejected for share in shares)
            counts["unchanged"] = sum(share.unchanged for share in shares)
            transaction.catalog.check({plan.schema.ref: plan.schema})
            if plan.mode == "sync":
                _take_away(engine, transaction, plan, staged.all, counts)
            later = overtaken(engine, transaction.catalog, plan, shares, staged)
            counts["unchanged"] -= later.revived
            if staged.parts or later.files:
                _append(engine, transaction, plan, [*staged.parts, *later.files], counts, again=later.is_needed)
            if not counts["inserted"] and not counts["updated"] and not counts["removed"]:
                return None
            record = {"spark_write": plan.run, **TypeReport(**counts).as_metadata()}
            return transaction.publish({**plan.metadata, **record, **(metadata or {})})

        commit_id = engine.transact(work)
        engine.tidy("load")
        return commit_id


def _take_away(
    engine: Engine, transaction: Transaction, plan: WritePlan, files: Sequence[Path], counts: dict[str, int]
) -> None:
    """Remove what is stored and not among the rows of an overwrite."""
    schema, catalog = plan.schema, transaction.catalog
    check_sync(schema.ref, engine.capabilities, plan.on_conflict, counts["rejected"])
    if schema.ref not in catalog.layouts:
        return
    identity = schema.ref.identity
    empty = pa.table({name: pa.array([], pa.string()) for name in identity})
    read = [pq.read_table(file, columns=list(identity), partitioning=None).cast(empty.schema) for file in files]
    everything = Plan.of(schema, stored=True, only=identity, unordered=True)
    gone = identities_to_remove(engine.table(everything, None, catalog), pa.concat_tables([empty, *read]), identity)
    check_removals(schema.ref, gone.num_rows, counts["read"], plan.max_removals)
    if gone.num_rows:
        transaction.remove(transaction.layout_for(schema), transaction.current(schema, gone))
    counts["removed"] = gone.num_rows


def _append(
    engine: Engine,
    transaction: Transaction,
    plan: WritePlan,
    files: Sequence[Path],
    counts: dict[str, int],
    *,
    again: bool,
) -> None:
    schema = plan.schema
    layout = transaction.layout_for(schema)
    in_memory = sum(file.stat().st_size for file in files) <= IN_MEMORY_BYTES
    with _output(engine, transaction, layout, in_memory=in_memory) as write:
        for chunk in _sort(plan, files, in_memory=in_memory):
            wanted = one_each(chunk, schema.ref, plan.on_duplicate)
            if plan.is_ordered:
                counts["ties"] += count_ties(chunk.drop_columns([OPERATION]), schema.ref, plan.on_tie)
                wanted = wanted.drop_columns([ORDER])
            found = _compare_again(engine, transaction, plan, wanted, counts["read"]) if again else _differing(wanted)
            changed = resolve_conflicts(found, schema.ref, plan.on_conflict)
            tally(counts, changed, wanted.num_rows)
            write(changed.drop_columns([OPERATION]))


def _differing(wanted: pa.Table) -> pa.Table:
    """The rows that a task found to differ from the store."""
    return wanted.filter(pc.is_valid(wanted.column(OPERATION)))


def _compare_again(engine: Engine, transaction: Transaction, plan: WritePlan, wanted: pa.Table, read: int) -> pa.Table:
    """The rows that differ from the store as it is under the write lock."""
    schema, catalog = plan.schema, transaction.catalog
    wanted = wanted.drop_columns([OPERATION])
    stored = engine.count_stored(schema.ref, catalog)
    current = None
    if schema.ref in catalog.layouts and stored is not None and read * 8 >= stored:
        current = engine.rows_of(schema, wanted, LATEST, catalog, dense=True)
    elif schema.ref in catalog.layouts:
        current = transaction.current(schema, wanted.select(list(schema.ref.identity)))
    wanted = keep_stored(wanted, current, schema.ref, plan.kept)
    return delta(wanted, current, schema.ref.identity)


@contextmanager
def _output(
    engine: Engine, transaction: Transaction, layout: TypeLayout, *, in_memory: bool
) -> Iterator[Callable[[pa.Table], None]]:
    """Where rows go. Many of them become parts of a commit on object storage, which do not stay in memory."""
    if in_memory or not engine.capabilities.object_storage:
        groups = RowGroups(lambda rows: transaction.append(layout, rows))
        yield groups.add
        groups.finish()
        return
    with transaction.staging(layout).writer() as parts:
        yield parts.add
        transaction.adopt(layout, parts.finish())


def _sort(plan: WritePlan, files: Sequence[Path], *, in_memory: bool) -> Iterator[pa.Table]:
    """All staged rows in the order of identity, in chunks that never part two rows of one."""
    schema = plan.schema
    kinds = {field.name: field.type for field in arrow_schema(schema.ref.kind, schema.columns)}
    names = [*(name for name in kinds if name not in (COMMIT_ID, SCHEMA_VERSION_ID)), OPERATION]
    with Sorter(schema.ref.identity) as sorter:
        if plan.is_ordered:
            later = f"{_later(files[0])}, {quote_names(names)}"  # rows of equal order come in that of their values
            chunks = sort_files(files, [*names, ORDER], schema.ref.identity, later)
        elif in_memory:
            for file in files:
                sorter.add(pq.read_table(file, columns=names, partitioning=None))
            chunks = sorter.chunks()
        else:
            chunks = sort_files(files, names, schema.ref.identity)
        for chunk in chunks:
            yield _cast(chunk, kinds)


def _later(file: Path) -> str:
    """What decides which row of an identity is the last: as in a mapping, text that reads as a number counts as one."""
    kind = pq.read_schema(file).field(ORDER).type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return (f", {_number_in_text()} NULLS FIRST" if is_text else "") + f', "{ORDER}" NULLS FIRST'


def _number_in_text() -> str:
    """The number that a text is read as, by the grammar of float fields; DuckDB itself reads more texts as numbers."""
    number = f"""TRY_CAST(trim("{ORDER}", ' \t\r\n') AS DOUBLE)"""
    is_number = f"""regexp_full_match("{ORDER}", '{GRAMMAR["float"]}')"""
    is_finite = f"""(NOT isinf({number}) OR regexp_matches("{ORDER}", '{NAMED_INFINITE}'))"""
    return f"CASE WHEN {is_number} AND {is_finite} THEN {number} END"


def _cast(chunk: pa.Table, kinds: dict[str, pa.DataType]) -> pa.Table:
    for place, name in enumerate(chunk.column_names):
        if name in kinds:
            chunk = chunk.set_column(place, name, chunk.column(name).cast(kinds[name]))
    return chunk
