"""One task: a fragment over some cells of a frame, on the node that runs it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ontologia.apiary.colony.bees import Chamber
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import Pruned
from ontologia.apiary.queries.manifest import Task
from ontologia.apiary.sql.planning import Reference, plan_query
from ontologia.apiary.sql.sealing import open_sealed
from ontologia.apiary.sql.statements import ReadStatement, parse_statement
from ontologia.errors import ValidationError

if TYPE_CHECKING:
    import pyarrow as pa


def run_task(node: Node, task: Task) -> pa.Table:
    """The rows of a fragment. It goes the way of every statement: parsed, planned, and run where it can open its cells
    and nothing else, whoever wrote it."""
    statement = parse_statement(task.sql_fragment)
    if not isinstance(statement, ReadStatement) or statement.explain is not None:
        raise ValidationError(f"a fragment is a SELECT over a frame, not {task.sql_fragment[:60]!r}")
    with ExitStack() as pins:
        plan = plan_query(node, statement.tree, None, None, pins)
        if len(plan.references) != 1:
            raise ValidationError(f"a fragment reads one frame, and this one {len(plan.references)}")
        reference = _over_cells(node, plan.references[0], task, pins)

        def run(chamber: Chamber) -> pa.Table:
            with open_sealed(node, [reference], chamber) as database:
                return database.table(plan.sql())

        return node.bees.run("a task of a query", [run])[0]


def _over_cells(node: Node, reference: Reference, task: Task, pins: ExitStack) -> Reference:
    if task.version is None and not task.cells:  # another system's way to say: the whole frame
        return replace(reference, pruned=Pruned(list(reference.snapshot.cells)))
    snapshot = pins.enter_context(node.reading(reference.name, task.version))
    by_key = {f"{reference.name.folder}/{cell.path}": cell for cell in snapshot.cells}
    missing = [key for key in task.cells if key not in by_key]
    if missing:
        raise ValidationError(
            f"{reference.name} has no cell {missing[0]} at version {snapshot.version}: it was compacted since, or "
            "vacuumed; ask again"
        )
    return replace(reference, snapshot=snapshot, pruned=Pruned([by_key[key] for key in task.cells]))
