"""The node that asks: it hands out tasks, does its own, takes over what others do not deliver, and makes the answer."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from ontologia.apiary.colony.bees import Chamber
from ontologia.apiary.colony.heartbeats import INTERVAL_S, Heartbeat, all_heartbeats, assignment, load_json
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import Pruned
from ontologia.apiary.queries.fragments import Fragment, Parts, in_parts, merge_sql
from ontologia.apiary.queries.manifest import QueryManifest, Task, announce, read_part
from ontologia.apiary.queries.tasks import run_task
from ontologia.apiary.sql.planning import PlannedQuery
from ontologia.apiary.sql.sealing import open_sealed
from ontologia.errors import ValidationError
from ontologia.objects import pauses

_log = logging.getLogger(__name__)


def run_by_nodes(node: Node, statement: str, plan: PlannedQuery, timeout_s: float) -> pa.Table:
    """The answer to a statement, whose cells are read by all nodes that take tasks, this one among them.

    1. take the statement apart, 2. assign cells to nodes, 3. announce a query per fragment, 4. do the own tasks,
    5. collect what others leave, and take over what they do not, 6. clean up, 7. make the answer.
    """
    if node.read_only:
        raise ValidationError(
            "engine='colony' leaves a manifest for other nodes, and this apiary was opened to read only: open it "
            "without read_only, or use engine='duckdb'"
        )
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise ValidationError(f"timeout is a number of seconds above 0, not {timeout_s!r}")
    parts = in_parts(plan)
    shapes = _shapes(node, plan, parts)
    rows = {fragment.reference.view: f"{fragment.reference.view}_rows" for fragment in parts.fragments}
    merge = merge_sql(parts, shapes.types, rows, shapes.names)
    nodes = _workers(node)
    with ExitStack() as stack:
        queries = []
        for fragment in parts.fragments:
            reference = fragment.reference
            manifest = QueryManifest.new(
                statement,
                _tasks(fragment, nodes, node.node_id),
                merge,
                node.clock.wall(),
                coordinator=node.node_id,
                timeout_s=timeout_s,
                engine="colony",
                state="running",
                cells={"scanned": len(reference.pruned.scanned), "total": reference.pruned.total},
            )
            stack.enter_context(announce(node.objects, manifest))
            queries.append(manifest)
        found = [list(_collect(node, manifest, timeout_s)) for manifest in queries]
    tables = {rows[part.reference.view]: _join(tables) for part, tables in zip(parts.fragments, found, strict=True)}
    return _answer(node, plan, merge, tables)


def explain_by_nodes(node: Node, plan: PlannedQuery) -> list[tuple[str, str]]:
    """What EXPLAIN says: which node would get how many cells, what it would be asked, and how the answer is made."""
    parts = in_parts(plan)
    nodes = _workers(node)
    facts = []
    for fragment in parts.fragments:
        for task in _tasks(fragment, nodes, node.node_id):
            facts.append((f"assigned_to_{task.node_id}", f"{len(task.cells)} cells"))
        facts.append(("sql_fragment", fragment.sql))
    return [*facts, ("merge_sql", parts.merge.sql(dialect="duckdb"))]


# --- tasks -------------------------------------------------------------------------------------------------------


def _workers(node: Node) -> list[Heartbeat]:
    """The nodes that take tasks now: those that say so and are alive, and this one."""
    alive = [beat for beat in all_heartbeats(node.objects) if beat.state(node.clock.wall()) == "alive"]
    others = [beat for beat in alive if beat.takes_tasks and beat.node_id != node.node_id]
    here = next((beat for beat in alive if beat.node_id == node.node_id), None)
    cache = here.cache if here else {"cached_cells": node.cached_cells()}
    moment = here.timestamp if here else datetime.now(UTC)
    return [*others, Heartbeat(node.node_id, moment, 0, {}, load_json(node.load()), cache)]


def _tasks(fragment: Fragment, nodes: Sequence[Heartbeat], coordinator: str) -> list[Task]:
    """A task for each node that gets cells; this node has one in any case, so that there is an answer without cells."""
    reference = fragment.reference
    given = assignment(sorted(reference.keys), nodes) or {coordinator: []}
    return [
        Task(f"{node_id}_{uuid.uuid4()}", node_id, tuple(cells), fragment.sql, reference.snapshot.version)
        for node_id, cells in given.items()
    ]


def _collect(node: Node, manifest: QueryManifest, timeout_s: float) -> Iterator[pa.Table]:
    """The parts of an answer, as they come."""
    deadline = node.clock.steady() + timeout_s
    waiting = {task.node_id: task for task in manifest.tasks}
    own = waiting.pop(node.node_id, None)
    if own is not None:
        yield run_task(node, own)
    waits, look_at_nodes = pauses(0.02, 0.5), node.clock.steady() + INTERVAL_S
    while waiting:
        there = {info.key for info in node.objects.list(f"{manifest.folder}/")}
        for node_id in [node_id for node_id in waiting if manifest.part_of(node_id) in there]:
            task = waiting.pop(node_id)
            part = read_part(node.objects, manifest.part_of(node_id))
            yield _take_over(node, task, part) if isinstance(part, str) else part
        late = set(waiting) if node.clock.steady() >= deadline else set()
        if waiting and node.clock.steady() >= look_at_nodes:
            late |= waiting.keys() - {beat.node_id for beat in _workers(node)}
            look_at_nodes = node.clock.steady() + INTERVAL_S
        for node_id in late:
            yield _take_over(node, waiting.pop(node_id), "it delivered nothing in time, or is no longer alive")
        if waiting:
            node.clock.sleep(min(next(waits), max(0.0, deadline - node.clock.steady())))


def _take_over(node: Node, task: Task, reason: str) -> pa.Table:
    """Another node's task, done here. What is wrong with the task itself is raised here, too."""
    _log.warning("a task of node %s is done here: %s", task.node_id, reason)
    return run_task(node, task)


# --- the answer --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shapes:
    """Types of the columns that fragments give, by view, and the names of the columns of the answer."""

    types: dict[str, dict[str, str]]
    names: list[str]


def _shapes(node: Node, plan: PlannedQuery, parts: Parts) -> _Shapes:
    """Ask DuckDB what the statement and its fragments give, without rows. What is wrong with a statement is said here,
    in the words of the local engine, before any other node is troubled."""
    empty = [replace(reference, pruned=Pruned()) for reference in plan.references]

    def describe(chamber: Chamber) -> _Shapes:
        with open_sealed(node, empty, chamber) as database:
            names = database.describe(plan.sql()).column("column_name").to_pylist()
            types = {}
            for part in parts.fragments:
                said = database.describe(part.sql_over_view)
                columns, kinds = said.column("column_name"), said.column("column_type")
                types[part.reference.view] = dict(zip(columns.to_pylist(), kinds.to_pylist(), strict=True))
        return _Shapes(types, names)

    return node.bees.run("a statement", [describe])[0]


def _join(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default")


def _answer(node: Node, plan: PlannedQuery, merge: str, tables: dict[str, pa.Table]) -> pa.Table:
    def run(chamber: Chamber) -> pa.Table:
        with open_sealed(node, [], chamber) as database:
            return database.table(merge, **tables)

    return node.bees.run("a statement", [run])[0]
