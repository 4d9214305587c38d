"""What of a statement can be done cell by cell, and how the answer is made of the parts.

Each place where a statement names a frame becomes a fragment over that frame. In general that asks for rows: those
columns that the statement names, by the conditions it has for this frame alone; and the statement itself runs over
what comes back. Counts, sums, averages, least and greatest values of one frame are taken where its cells are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.expressions import Expr

from ontologia.apiary.conditions import conjunction
from ontologia.apiary.sql.planning import PlannedQuery, Reference
from ontologia.apiary.sql.statements import DIALECT
from ontologia.apiary.types import FrameSchema

_MADE_OF_PARTS = {"from_", "expressions", "where", "group", "having", "order", "limit", "offset"}
_NAMED = ("this", "alias")
_WHOLE_ONLY = ("Window", "Subquery", "Filter", "WithinGroup", "IgnoreNulls", "Lambda", "PositionalColumn")
_PART = "\u200bpart_{}"


@dataclass(frozen=True)
class Fragment:
    """What is asked of the cells of one reference: as text, with the real name of the frame."""

    reference: Reference
    tree: Expr

    @property
    def sql(self) -> str:
        return self.tree.sql(dialect=DIALECT)

    @property
    def sql_over_view(self) -> str:
        """The same over the view that stands for the frame here."""
        tree = self.tree.copy()
        table = tree.find(exp.Table)
        assert table is not None
        table.replace(exp.Table(this=_name(self.reference.view), alias=table.args.get("alias")))
        return tree.sql(dialect=DIALECT)


@dataclass(frozen=True)
class Parts:
    """A statement as fragments, and the statement over their rows, which stand under the names of the views."""

    fragments: Sequence[Fragment]
    merge: Expr


def in_parts(plan: PlannedQuery) -> Parts:
    """Take a statement apart. Every statement can be."""
    return _split_aggregates(plan) or Parts([Fragment(ref, _rows_of(plan, ref)) for ref in plan.references], plan.tree)


# --- rows --------------------------------------------------------------------------------------------------------


def _rows_of(plan: PlannedQuery, reference: Reference) -> Expr:
    columns = [exp.column(name, quoted=True) for name in plan.columns(reference.snapshot.schema)]
    select = exp.select(*columns).from_(_frame(reference))
    where = conjunction([part for part in _conditions(reference.where) if _gives_the_same_again(part)])
    return select if where is None else select.where(where)


def _conditions(where: Expr | None) -> list[Expr]:
    if where is None:
        return []
    return [part.unnest() for part in where.flatten()] if isinstance(where, exp.And) else [where]


def _gives_the_same_again(tree: Expr) -> bool:
    """A condition that is tested here and there must mean the same twice, as `random() < 0.5` does not."""
    return not any(
        isinstance(node, exp.Func) and not isinstance(node, exp.Cast | exp.Connector) for node in tree.walk()
    )


def _frame(reference: Reference, alias: Expr | None = None) -> Expr:
    name = reference.name
    return exp.Table(this=_name(name.frame), db=_name(name.box), catalog=_name(name.hive), alias=alias)


def _name(text: str) -> Any:
    return exp.to_identifier(text, quoted=True)


# --- aggregates --------------------------------------------------------------------------------------------------


def _split_aggregates(plan: PlannedQuery) -> Parts | None:
    """Aggregates of one frame that can be made of those of its parts; None if there is anything else."""
    tree = plan.tree
    if len(plan.references) != 1 or not isinstance(tree, exp.Select) or not _is_plain(tree):
        return None
    (reference,) = plan.references
    table = tree.args["from_"].this
    alias = table.alias.casefold()
    schema = reference.snapshot.schema
    keys = _keys(tree, schema, alias)
    found = [node for node in tree.find_all(exp.AggFunc) if node.find_ancestor(exp.Where) is None]
    if keys is None or not (found or keys) or not all(_can_be_merged(node, schema) for node in found):
        return None
    if not _names_only_keys(tree, keys):
        return None
    parts: dict[str, Expr] = {name: exp.column(name, table=alias, quoted=True) for name in keys}
    merge = tree.copy()
    for node in [node for node in merge.find_all(exp.AggFunc) if node.find_ancestor(exp.Where) is None]:
        node.replace(_merge_aggregate(node, parts))
    merge.set("where", None)
    projections = [exp.alias_(part, name, quoted=True) for name, part in parts.items()]
    select = exp.select(*projections).from_(_frame(reference, table.args["alias"].copy()))
    if tree.args.get("where"):
        select.set("where", tree.args["where"].copy())
    if keys:
        select = select.group_by(*(exp.Literal.number(place) for place in range(1, len(keys) + 1)))
    return Parts([Fragment(reference, select)], merge)


def _is_plain(tree: Any) -> bool:
    """A SELECT of one frame, without windows, subqueries, and functions that may be aggregates we do not know."""
    if any(value and name not in _MADE_OF_PARTS for name, value in tree.args.items()):
        return False
    table = tree.args["from_"].this
    if not isinstance(table, exp.Table) or any(said for name, said in table.args.items() if name not in _NAMED):
        return False
    if table.alias_column_names or tree.find(*(getattr(exp, name) for name in _WHOLE_ONLY)) is not None:
        return False
    if any(node is not tree for node in tree.find_all(exp.Query)):
        return False
    outside = [node for node in tree.find_all(exp.Func) if node.find_ancestor(exp.Where) is None]
    known = (exp.AggFunc, exp.Cast, exp.Connector, exp.Coalesce, exp.Round, exp.Abs)
    return all(isinstance(node, known) for node in outside)


def _keys(tree: Any, schema: FrameSchema, alias: str) -> list[str] | None:
    """The columns of GROUP BY, by their declared names; None if there is more to it than columns."""
    group = tree.args.get("group")
    if group is None:
        return []
    if any(value for name, value in group.args.items() if name != "expressions"):
        return None
    folded = {name.casefold(): name for name in schema.names}
    keys = []
    for item in group.expressions:
        if isinstance(item, exp.Literal) and item.is_int and 0 < int(item.this) <= len(tree.expressions):
            item = tree.expressions[int(item.this) - 1].unalias()
        if not isinstance(item, exp.Column) or item.name.casefold() not in folded:
            return None
        if item.table and item.table.casefold() != alias:
            return None
        keys.append(folded[item.name.casefold()])
    return list(dict.fromkeys(keys))


def _can_be_merged(node: Any, schema: FrameSchema) -> bool:
    if type(node) not in (exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg) or node.args.get("expressions"):
        return False
    if node.find(exp.Distinct, exp.Order, exp.Limit) is not None or node.find_ancestor(exp.AggFunc) is not None:
        return False
    if not _gives_the_same_again(node.this):
        return False
    if type(node) is not exp.Avg:
        return True
    kinds = {name.casefold(): schema.by_name[name].arrow for name in schema.names}
    kind = kinds.get(node.this.name.casefold()) if isinstance(node.this, exp.Column) else None
    return kind is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _names_only_keys(tree: Any, keys: Sequence[str]) -> bool:
    """Whether columns outside of aggregates are those of GROUP BY, or names that the SELECT gives."""
    named = {key.casefold() for key in keys}
    given = {item.alias.casefold() for item in tree.expressions if item.alias}
    for column in tree.find_all(exp.Column):
        if column.find_ancestor(exp.AggFunc, exp.Where) is not None or column.name.casefold() in named:
            continue
        late = column.find_ancestor(exp.Having, exp.Order) is not None
        if not late or column.table or column.name.casefold() not in given:
            return False
    return tree.find(exp.Star) is None or all(isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))


def _merge_aggregate(node: Any, parts: dict[str, Expr]) -> Expr:
    """The aggregate of the parts of an aggregate. What they are is added to `parts`."""

    def part(tree: Expr) -> Expr:
        name = _PART.format(len(parts))
        parts[name] = tree.copy()
        return exp.column(name, quoted=True)

    if isinstance(node, exp.Count):
        return exp.cast(exp.Coalesce(this=exp.Sum(this=part(node)), expressions=[exp.Literal.number(0)]), "BIGINT")
    if isinstance(node, exp.Avg):
        total, count = exp.Sum(this=node.this.copy()), exp.Count(this=node.this.copy(), big_int=True)
        whole = exp.cast(exp.Sum(this=part(total)), "DOUBLE")
        return exp.paren(exp.Div(this=whole, expression=exp.Sum(this=part(count)), typed=False, safe=True))
    return type(node)(this=part(node))  # type: ignore[no-any-return]


# --- the answer --------------------------------------------------------------------------------------------------


def merge_sql(
    parts: Parts, types: Mapping[str, Mapping[str, str]], rows: Mapping[str, str], names: Sequence[str]
) -> str:
    """The statement that makes the answer. `types` has the columns of each view with their types, `rows` the name of
    the table that has its rows, and `names` what the columns of the answer are called."""
    tree: Any = parts.merge.copy()
    if isinstance(tree, exp.Select) and len(names) == len(tree.expressions):
        for item, name in zip(list(tree.expressions), names, strict=True):
            if not isinstance(item, exp.Alias | exp.Column | exp.Star):
                item.replace(exp.alias_(item.copy(), name, quoted=True))
    ctes = []
    for view, columns in types.items():
        casts = [
            exp.alias_(exp.cast(exp.column(name, quoted=True), kind, dialect=DIALECT), name, quoted=True)
            for name, kind in columns.items()
        ]
        select = exp.select(*casts).from_(exp.Table(this=_name(rows[view])))
        ctes.append(exp.CTE(this=select, alias=exp.TableAlias(this=_name(view))))
    own = tree.args.get("with_")
    both = [*ctes, *(own.expressions if own else [])]
    tree.set("with_", exp.With(expressions=both, recursive=own.args.get("recursive") if own else None))
    return str(tree.sql(dialect=DIALECT))
