"""The driver's part: hands cells and rows to executors, collects what they wrote, and commits once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.expressions import Expr

from ontologia.apiary.compaction import CompactionPolicy, due, groups
from ontologia.apiary.conditions import Filter, condition, render
from ontologia.apiary.entries import Action, AddCells, Cell, RewriteCells
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.partitions import check_limit
from ontologia.apiary.pruning import prune_cells
from ontologia.apiary.queries.manifest import QueryManifest, Task, announce
from ontologia.apiary.results import RewriteResult, WriteResult
from ontologia.apiary.rewriting import Rewrite, rewriting
from ontologia.apiary.sql.planning import PlannedQuery, Reference
from ontologia.apiary.sql.sealing import check_plan
from ontologia.apiary.sql.session import pruning_facts
from ontologia.apiary.sql.statements import ReadStatement
from ontologia.apiary.state import FrameSnapshot, FrameState, partition_of
from ontologia.apiary.writing import check_duration, remove_cells
from ontologia.errors import CommitOutcomeUnknownError, UnsupportedStatementError, ValidationError
from ontologia.objects import Location
from ontologia.spark.frames.tasks import FrameWork, cells_of, cells_text, gather, shares
from ontologia.spark.frames.types import spark_arrow, struct_of
from ontologia.spark.ranges import map_in_arrow

CELLS = "cells string"


def work_on(node: Node, name: FrameName) -> FrameWork:
    """A frame for tasks, by an address that is good in any process."""
    state = node.ledger(name).known()
    return FrameWork(Location(node.location.uri, node.location.settings), name, state.schema, state.partition_by)


def session_of(frame: DataFrame | None = None) -> SparkSession:
    if frame is not None:
        return frame.sparkSession
    from ontologia.spark.session import spark_session

    return SparkSession.getActiveSession() or spark_session("apiary")


# --- writing -----------------------------------------------------------------------------------------------------


def write(node: Node, name: FrameName, frame: DataFrame) -> WriteResult:
    """Append the rows of a DataFrame: executors write cells, one entry names them."""
    return _write(node, name, frame, replace=False)


def overwrite(node: Node, name: FrameName, frame: DataFrame) -> WriteResult:
    """Replace all rows by those of a DataFrame."""
    return _write(node, name, frame, replace=True)


def _write(node: Node, name: FrameName, frame: DataFrame, *, replace: bool) -> WriteResult:
    started = node.clock.steady()
    temperature = node.admit_write("block", 30.0)
    work, piece = work_on(node, name), node.capacity.sizing.piece

    def task(batches_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _message(work.write(gather(batches_, piece)))

    messages = map_in_arrow(frame, task, CELLS).collect()
    cells = [cell for message in messages for cell in cells_of(message[0])]
    version = commit_cells(node, name, cells, replace=replace, took_s=node.clock.steady() - started)
    return WriteResult(
        version,
        len(cells),
        sum(cell.rows for cell in cells),
        sum(cell.bytes for cell in cells),
        node.clock.steady() - started,
        temperature,
    )


def commit_cells(node: Node, name: FrameName, cells: Sequence[Cell], *, replace: bool, took_s: float) -> int:
    """One entry for all cells that executors wrote. Cells of a commit that certainly failed are taken back."""
    limit = node.registry.frame(name).max_partitions

    def propose(state: FrameState) -> Action:
        new = {partition_of(cell.partition_values, state.partition_by) for cell in cells}
        check_limit(str(name), () if replace else state.partitions, new, limit, {})
        return RewriteCells(tuple(state.cells), tuple(cells)) if replace else AddCells(tuple(cells))

    ledger = node.ledger(name)
    if not cells and not replace:
        return ledger.snapshot().version
    operation = "overwrite" if replace else "write"
    try:
        check_duration(name, operation, took_s)
        return ledger.commit(propose, operation).version
    except CommitOutcomeUnknownError:
        raise
    except Exception:
        remove_cells(node, name, cells)
        raise


def _message(cells: Sequence[Cell]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"cells": [cells_text(cells)]})


# --- care --------------------------------------------------------------------------------------------------------


def compact(node: Node, name: FrameName, force: bool) -> RewriteResult:
    """Merge small cells on executors. The policy, the race rule and the commit are those of the local compaction."""
    policy = CompactionPolicy.for_sizing(node.capacity.sizing)
    session = session_of()

    def fill(rewrite: Rewrite) -> None:
        rewrite.only_own_cells = True
        work = work_on(node, name)
        tasks = [
            group
            for cells in due(node, name, rewrite.snapshot, policy, force=force)
            for group in groups(cells, node.capacity.sizing, rewrite.schema)
        ]
        if not tasks:
            return

        def task(batches_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches_:
                for text in batch.column(0).to_pylist():
                    yield _message(work.write([work.read(cells_of(text), work.schema.names)]))

        handed = session.createDataFrame([(cells_text(group),) for group in tasks], CELLS)
        for message in handed.repartition(len(tasks)).mapInArrow(task, CELLS).collect():
            rewrite.writer.adopt(cells_of(message[0]))
        rewrite.removed = [cell for group in tasks for cell in group]

    return rewriting(node, name, "compact", fill)


# --- queries -----------------------------------------------------------------------------------------------------


def query(node: Node, statement: ReadStatement, plan: PlannedQuery) -> pa.Table:
    """A statement on Spark. Cells are pruned as they are for DuckDB; executors read what is left."""
    if statement.explain is not None:
        raise ValidationError("EXPLAIN runs with engine='duckdb'; what it says of cells holds for Spark, too")
    session = session_of()
    with _announce(node, statement, plan):
        views = []
        try:
            for reference in plan.references:
                frame = cells_frame(session, node, reference, plan)
                frame.createOrReplaceTempView(reference.view)
                views.append(reference.view)
            return session.sql(spark_text(plan)).toArrow()
        finally:
            for view in views:
                session.catalog.dropTempView(view)


def spark_text(plan: PlannedQuery) -> str:
    """A statement for Spark, which the seal has read as DuckDB does. Spark puts variables of the environment and of the
    machine in the place of `${…}` before it parses: texts say it in two parts, and nothing else may."""
    check_plan(plan)

    def in_two_parts(node: Expr) -> Expr:
        if not (isinstance(node, exp.Literal) and node.is_string and "${" in str(node.this)):
            return node
        first, *others = str(node.this).split("${")
        parts = [first + "$" * bool(others), *("{" + part + "$" for part in others[:-1]), "{" + others[-1]]
        return exp.Concat(expressions=[exp.Literal.string(part) for part in parts], safe=False, coalesce=False)

    text = str(plan.tree.transform(in_two_parts).sql(dialect="spark"))
    if "${" in text:
        raise UnsupportedStatementError("Spark would take ${…} for a variable: leave it out of names and comments")
    return text


def cells_frame(session: SparkSession, node: Node, reference: Reference, plan: PlannedQuery) -> DataFrame:
    """The cells of a reference as a DataFrame; only columns that the statement names are read."""
    work = work_on(node, reference.name)
    return _read_by_tasks(session, work, reference.pruned.scanned, plan.columns(work.schema))


def dataframe(
    node: Node, name: FrameName, snapshot: FrameSnapshot, columns: Sequence[str] | None, filter: Filter | None
) -> DataFrame:
    """The rows of a version as a DataFrame: cells are pruned here, read and filtered on executors."""
    work = work_on(node, name)
    names = [work.schema.column(column).name for column in (work.schema.names if columns is None else columns)]
    where = condition(filter, work.schema)
    cells = prune_cells(snapshot, where).scanned
    return _read_by_tasks(session_of(), work, cells, names, None if where is None else render(where))


def _read_by_tasks(
    session: SparkSession, work: FrameWork, cells: Sequence[Cell], names: Sequence[str], where: str | None = None
) -> DataFrame:
    target = spark_arrow(work.schema)
    tasks = shares(cells, session.sparkContext.defaultParallelism * 2)

    def task(batches_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches_:
            for text in batch.column(0).to_pylist():
                found = work.read(cells_of(text), names, where)
                wanted = pa.schema([target.field(name) for name in names])
                yield from found.cast(wanted).to_batches(max_chunksize=131_072)

    full = struct_of(work.schema)
    struct = type(full)([full[name] for name in names])
    if not tasks:
        return session.createDataFrame([], struct)
    handed = session.createDataFrame([(cells_text(share),) for share in tasks], CELLS)
    return handed.repartition(len(tasks)).mapInArrow(task, struct)


@contextmanager
def _announce(node: Node, statement: ReadStatement, plan: PlannedQuery) -> Iterator[None]:
    """`_queries/{query_id}/manifest.json` while the statement runs."""
    if node.read_only:
        yield
        return
    tasks = [
        Task(f"{node.node_id}_{uuid.uuid4()}", node.node_id, tuple(reference.keys), plan.sql())
        for reference in plan.references
    ]
    manifest = QueryManifest.new(
        statement.text,
        tasks,
        None,
        time.time(),
        coordinator=node.node_id,
        engine="spark",
        state="running",
        cells=[dict(pruning_facts([reference])) for reference in plan.references],
    )
    with announce(node.objects, manifest):
        yield
