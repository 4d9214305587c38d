"""Which columns of a frame a statement means: those it spells out, or all where it may mean some without a name."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.expressions import Expr

from ontologia.apiary.types import FrameSchema

_CLAUSES = ("Select", "From", "Where", "Group", "Having", "Qualify", "Order", "Ordered", "Limit", "Offset", "Distinct")
_SOURCES = ("Table", "TableAlias", "Join", "CTE", "With", "Subquery", "Union", "Except", "Intersect", "Values")
_PARTS = ("Alias", "Identifier", "Var", "Tuple", "Null", "Lambda", "Interval", "DataType", "DataTypeParam")
_AROUND_AGGREGATES = ("Filter", "WithinGroup", "IgnoreNulls", "RespectNulls", "WindowSpec")
_SPELLED_OUT = frozenset((*_CLAUSES, *_SOURCES, *_PARTS, *_AROUND_AGGREGATES))


def columns_meant(tree: Expr, schema: FrameSchema) -> list[str]:
    """The columns of a frame that a statement may mean, and at least one: a frame without any has no rows."""
    if not _spells_out(tree):
        return list(schema.names)
    named = {identifier.name.casefold() for identifier in tree.find_all(exp.Identifier)}
    return [name for name in schema.names if name.casefold() in named] or [schema.names[0]]


def _spells_out(tree: Expr) -> bool:
    """Whether every column is named that a statement means. What is not known to need names does not count: COLUMNS(),
    `#2`, PIVOT and `*` have none."""
    tables = {table.alias_or_name.casefold() for table in tree.find_all(exp.Table)}
    return all(_is_spelled_out(node, tables) for node in tree.walk())


def _is_spelled_out(node: Any, tables: set[str]) -> bool:
    if isinstance(node, exp.Star):
        return isinstance(node.parent, exp.Count)
    if isinstance(node, exp.Column):
        return bool(node.table) or node.name.casefold() not in tables  # the name of a table stands for its whole row
    if isinstance(node, exp.Join):
        return node.method != "NATURAL"
    if isinstance(node, exp.Table):
        return not node.alias_column_names and not node.args.get("pivots")
    if isinstance(node, exp.Columns | exp.Dot | exp.Placeholder | exp.Parameter):
        return False
    return isinstance(node, exp.Condition) or type(node).__name__ in _SPELLED_OUT
