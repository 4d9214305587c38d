"""Which cells a condition can leave out (seed, "Cell Reading and Partition Pruning").

A cell is left out only if no row of it can satisfy the condition. What is not known, or not understood, keeps it.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from ontologia.apiary.bounds import UNKNOWN, Bounds, CellBounds
from ontologia.apiary.entries import Cell
from ontologia.apiary.state import Snapshot
from ontologia.apiary.types import FrameSchema
from ontologia.apiary.values import bound_value

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.expressions import Expr

_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?")


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


def pruned(snapshot: Snapshot, where: Expr | None) -> Pruned:
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
    import numpy as np

    types = {name: schema.by_name[name].arrow for name in schema.names}
    test = None if where is None else _compiled(where, types)
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


def _compiled(tree: Expr, types: dict[str, pa.DataType]) -> Test | None:
    """A test that is False only where no row can satisfy the tree; None if it never is."""
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        return _compiled(tree.this, types)
    if isinstance(tree, exp.And | exp.Or):
        left, right = _compiled(tree.left, types), _compiled(tree.right, types)
        if isinstance(tree, exp.And):
            return _both(left, right)
        if left is None or right is None:
            return None
        return lambda find: left(find) | right(find)
    if isinstance(tree, exp.Boolean):
        return None if tree.this else (lambda find: False)
    if isinstance(tree, exp.Between):
        low = exp.GTE(this=tree.this, expression=tree.args["low"])
        high = exp.LTE(this=tree.this, expression=tree.args["high"])
        return None if tree.args.get("symmetric") else _both(_comparison(low, types), _comparison(high, types))
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

    if not isinstance(tree.this, exp.Column) or not tree.expressions or tree.args.get("query"):
        return None
    parts = [_comparison(exp.EQ(this=tree.this, expression=item), types) for item in tree.expressions]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return lambda find: reduce(operator.or_, (part(find) for part in known))


def _comparison(tree: Expr, types: dict[str, pa.DataType]) -> Test | None:
    from sqlglot import exp

    mirrored = {exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
    kind: Any = type(tree)
    if kind not in mirrored:
        return None
    column, other = tree.this.unnest(), tree.expression.unnest()
    if not isinstance(column, exp.Column):
        column, other, kind = other, column, mirrored[kind]
    if not isinstance(column, exp.Column):
        return None
    name = column.name
    value = _literal(other, types[name])
    if value is None:
        return None
    least, most = value
    strict = kind in (exp.GT, exp.LT) and least == most
    upwards, downwards = kind in (exp.EQ, exp.GT, exp.GTE), kind in (exp.EQ, exp.LT, exp.LTE)

    def test(find: Find) -> Any:
        bounds = find(name)
        answer = bounds.nulls != bounds.rows  # null compares with nothing
        if upwards:
            answer &= bounds.high.may(operator.gt if strict else operator.ge, least)
        if downwards:
            answer &= bounds.low.may(operator.lt if strict else operator.le, most)
        return answer

    return test


def _literal(tree: Expr, arrow: pa.DataType) -> tuple[Any, Any] | None:
    """A literal as a value of a column's type; the least and the most it can stand for, or None."""
    import pyarrow as pa
    from sqlglot import exp

    negative = as_double = False
    while isinstance(tree, exp.Cast | exp.Neg | exp.Paren):
        if isinstance(tree, exp.Cast):
            as_double = tree.to.is_type("double")
            if not as_double and not tree.to.is_type("date", "timestamp", "timestampntz", "timestamptz", "decimal"):
                return None
        negative = negative != isinstance(tree, exp.Neg)
        tree = tree.this
    kinds = pa.types
    if isinstance(tree, exp.Boolean):
        return (tree.this, tree.this) if kinds.is_boolean(arrow) else None
    if not isinstance(tree, exp.Literal):
        return None
    text = str(tree.this)
    if kinds.is_integer(arrow) or kinds.is_decimal(arrow):
        if not _PLAIN_NUMBER.fullmatch(text):
            return None
        number: Any = Decimal(text).copy_negate() if negative else Decimal(text)
        if kinds.is_integer(arrow) and number == int(number):
            number = int(number)  # compared with many integers, several times faster
        if as_double and (kinds.is_decimal(arrow) or abs(number) >= 1 << 53):
            return None  # the column is compared as a float, which is coarser
        return number, number
    if kinds.is_floating(arrow):
        return _float(text, negative, arrow)
    if negative or not tree.is_string:
        return None
    if kinds.is_string(arrow):
        return text, text
    if not _INSTANT.fullmatch(text):
        return None
    found = bound_value(text, arrow)
    if found is not None and kinds.is_date(arrow) == isinstance(found, datetime):
        return None
    return None if found is None else (found, found)


def _float(text: str, negative: bool, arrow: pa.DataType) -> tuple[float, float] | None:
    import pyarrow as pa

    try:
        value = float(text) * (-1 if negative else 1)
        if value != value:
            return None
        if arrow == pa.float64():
            return value, value
        narrow = struct.unpack("f", struct.pack("f", value))[0]  # a column of 32 bits may be compared as such
    except (ValueError, OverflowError):
        return None
    return min(value, narrow), max(value, narrow)


def total_bytes(cells: Iterable[Cell]) -> int:
    return sum(cell.bytes for cell in cells)
