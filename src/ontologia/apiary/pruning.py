"""Which cells a condition can leave out (seed, "Cell Reading and Partition Pruning").

A cell is left out only if no row of it can satisfy the condition. What is not known, or not understood, keeps it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ontologia.apiary.bounds import UNKNOWN, Bounds, CellBounds
from ontologia.apiary.entries import Cell
from ontologia.apiary.literals import Span, span
from ontologia.apiary.state import FrameSnapshot
from ontologia.apiary.types import FrameSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.expressions import Expr

Find = Callable[[str], Bounds]
Test = Callable[[Find], Any]  #: for every cell, whether a row of it may satisfy the condition; or one answer for all


@dataclass(frozen=True)
class Pruned:
    """Cells to scan, and how many were left out, and why."""

    scanned: list[Cell] = field(default_factory=list)
    by_partition: int = 0
    by_statistics: int = 0

    @property
    def total(self) -> int:
        return len(self.scanned) + self.by_partition + self.by_statistics


def prune_cells(snapshot: FrameSnapshot, where: Expr | None) -> Pruned:
    """Leave out cells of a version that have no row for the condition."""
    return prune(snapshot.cells, where, snapshot.schema, snapshot.partition_by, snapshot.bounds)


def prune(
    cells: Sequence[Cell],
    where: Expr | None,
    schema: FrameSchema,
    partition_by: Sequence[str],
    bounds: CellBounds | None = None,
) -> Pruned:
    """Leave out cells that no row of can satisfy the condition."""
    types = {name: schema.by_name[name].arrow for name in schema.names}
    test = None if where is None else _compile(where, types)
    if test is None or not cells:
        return Pruned(list(cells))
    known = CellBounds(cells) if bounds is None else bounds
    inside = np.ones(len(cells), bool)
    if partition_by:
        inside &= test(lambda name: known.of_partition(name, types[name]))
    matching = inside & test(lambda name: known.of_statistics(name, types[name]))
    scanned = [cells[place] for place in np.flatnonzero(matching).tolist()]
    in_partition = int(inside.sum())
    return Pruned(scanned, len(cells) - in_partition, in_partition - len(scanned))


# --- conditions as tests -----------------------------------------------------------------------------------------


def _compile(tree: Expr, types: dict[str, pa.DataType]) -> Test | None:
    """A test that is False only where no row can satisfy the tree; None if it never is."""
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        return _compile(tree.this, types)
    if isinstance(tree, exp.And | exp.Or):
        left, right = _compile(tree.left, types), _compile(tree.right, types)
        if isinstance(tree, exp.And):
            return _both(left, right)
        if left is None or right is None:
            return None
        return lambda find: left(find) | right(find)
    if isinstance(tree, exp.Boolean):
        return None if tree.this else (lambda find: False)
    if isinstance(tree, exp.Between):
        return None if tree.args.get("symmetric") else _range(tree, types)
    if isinstance(tree, exp.In):
        return _membership(tree, types)
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        return _nullness(tree.this, wanted=True)
    if isinstance(tree, exp.Not):
        inner = tree.this.unnest()
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return _nullness(inner.this, wanted=False)
        return None
    return _comparison(tree, types)


def _both(left: Test | None, right: Test | None) -> Test | None:
    if left is None or right is None:
        return left or right
    return lambda find: left(find) & right(find)


def _nullness(column: Expr, *, wanted: bool) -> Test | None:
    from sqlglot import exp

    if not isinstance(column, exp.Column):
        return None
    name = column.name

    def test(find: Find) -> Any:
        bounds = find(name)
        return (bounds.nulls == UNKNOWN) | (bounds.nulls > 0 if wanted else bounds.nulls != bounds.rows)

    return test


def _membership(tree: Any, types: dict[str, pa.DataType]) -> Test | None:
    from sqlglot import exp

    spans = None if tree.args.get("query") else _spans(tree.this, tree.expressions, types)
    if not spans:
        return None
    parts = [_compare(tree.this.name, exp.EQ, each) for each in spans]
    return lambda find: reduce(operator.or_, (part(find) for part in parts))


def _range(tree: Any, types: dict[str, pa.DataType]) -> Test | None:
    from sqlglot import exp

    spans = _spans(tree.this, [tree.args["low"], tree.args["high"]], types)
    if not spans:
        return None
    low, high = (_compare(tree.this.name, kind, each) for kind, each in zip((exp.GTE, exp.LTE), spans, strict=True))
    return lambda find: low(find) & high(find)


def _spans(column: Expr, literals: Sequence[Expr], types: dict[str, pa.DataType]) -> list[Span] | None:
    """What literals stand for that are compared with a column in one way; None if there is any doubt about one."""
    from sqlglot import exp

    if not isinstance(column, exp.Column):
        return None
    found = [span(literal.unnest(), types[column.name]) for literal in literals]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) and len({each.kind for each in known}) == 1 else None


def _comparison(tree: Expr, types: dict[str, pa.DataType]) -> Test | None:
    from sqlglot import exp

    mirrored = {exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
    kind: Any = type(tree)
    if kind not in mirrored:
        return None
    column, other = tree.this.unnest(), tree.expression.unnest()
    if not isinstance(column, exp.Column):
        column, other, kind = other, column, mirrored[kind]
    spans = _spans(column, [other], types)
    return _compare(column.name, kind, spans[0]) if spans else None


def _compare(name: str, kind: Any, value: Span) -> Test:
    from sqlglot import exp

    strict = kind in (exp.GT, exp.LT) and value.least == value.most
    upwards, downwards = kind in (exp.EQ, exp.GT, exp.GTE), kind in (exp.EQ, exp.LT, exp.LTE)

    def test(find: Find) -> Any:
        bounds = find(name)
        answer = bounds.nulls != bounds.rows  # null compares with nothing
        if upwards:
            answer &= bounds.high.may(operator.gt if strict else operator.ge, value.least)
        if downwards:
            answer &= bounds.low.may(operator.lt if strict else operator.le, value.most)
        return answer

    return test


def total_bytes(cells: Iterable[Cell]) -> int:
    return sum(cell.bytes for cell in cells)
