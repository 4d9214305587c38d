"""From a plan to one SQL statement.

The tree is built once per shape of a plan and rendered for the dialect of the engine; values are always parameters.
Engines supply the rows of each type in the window that was asked for; `sources` joins them, `conditions` filters them,
and what is selected of them, aggregation, order and paging are made here, the same for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ontologia.model import COMMIT_ID, Column, FieldExpr, TypeRef
from ontologia.query.aggregates import Aggregate, AggregateCondition
from ontologia.query.carried_rows import leave_out_unused
from ontologia.query.conditions import Binding, Conditions
from ontologia.query.dialects import Dialect, Node, parameter
from ontologia.query.in_force import is_removal
from ontologia.query.plan import Plan, group_names
from ontologia.query.sources import Sources
from ontologia.query.stored_rows import StoredRows
from ontologia.query.trees import select_from

REMOVED = "removed?"  # the last column where rows are versions: whether one says that something was removed


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result: its name for the caller, and the scalar it holds (None: JSON text).

    With `columns`, it is a JSON document that holds these fields under these names, for the engine to take apart.
    `nullable` is False where storage itself keeps nulls out.
    """

    name: str
    scalar: str | None
    columns: tuple[tuple[str, Column], ...] = ()
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Statement:
    """A compiled plan, good for every plan of its shape."""

    sql: str
    outputs: tuple[ResultColumn, ...]
    bindings: tuple[Binding, ...]
    having: tuple[Binding, ...]
    tree: exp.Select
    windowed: bool
    """Whether the end of the window is a parameter; an engine may have it in its choice of files instead."""
    constants: Mapping[str, Any]
    """Values of the rows themselves, whatever the plan."""

    def parameters(self, plan: Plan) -> dict[str, Any]:
        """The values of a plan, as this statement names and encodes them."""
        values: dict[str, Any] = dict(self.constants)
        for condition, binding in zip(plan.conditions(), self.bindings, strict=True):
            values.update(binding.parameters(condition.value))
        for having, binding in zip(plan.having, self.having, strict=True):
            values.update(binding.parameters(having.value))
        if self.windowed:
            values["window"] = plan.window.commit
        if plan.limit is not None:
            values["limit"] = plan.limit
        if plan.offset is not None:
            values["offset"] = plan.offset
        return values


def compile(plan: Plan, stored_rows: Mapping[TypeRef, StoredRows], dialect: Dialect) -> Statement:
    """Compile a plan against the stored rows of every type it names."""
    return _Compilation(plan, stored_rows, dialect).statement()


class _Compilation:
    def __init__(self, plan: Plan, stored_rows: Mapping[TypeRef, StoredRows], dialect: Dialect) -> None:
        self.plan = plan
        self.dialect = dialect
        self.sources = Sources(plan, stored_rows, dialect)
        self.conditions = Conditions(self.sources)
        self.having: list[Binding] = []

    # --- the statement ---

    def statement(self) -> Statement:
        self.sources.enter("s", self.plan.source)
        filters = [self.conditions.predicate(predicate, "s") for predicate in self.plan.where]
        for number, hop in enumerate(self.plan.hops):
            self.sources.enter(f"r{number}", hop.relation)
            self.sources.enter(f"e{number}", hop.entity)
            filters += [self.conditions.hop_predicate(predicate, number) for predicate in hop.where]
        if self.plan.aggregates:
            (select, outputs), order = self.aggregation(), []
        else:
            order = self.ordering(self.result_aliases())
            select, outputs = self.projection(order)
        select = self.sources.select_from(select)
        if filters:
            select = select.where(*filters, copy=False)
        if not self.plan.aggregates:
            select = self.page(select, order, len(outputs))
        if self.plan.across is not None:
            for alias in self.sources.refs:
                leave_out_unused(select, alias)
        named = {node.name for node in select.find_all(exp.Placeholder)}
        constants = {
            name: value
            for rows in self.sources.stored_rows.values()
            for name, value in rows.constants.items()
            if name in named
        }
        bindings, having = tuple(self.conditions.bindings), tuple(self.having)
        return Statement(self.dialect.render(select), outputs, bindings, having, select, "window" in named, constants)

    def projection(self, order: Sequence[exp.Ordered]) -> tuple[exp.Select, tuple[ResultColumn, ...]]:
        outputs: list[ResultColumn] = []
        selected: list[exp.Expr] = []
        for alias in self.result_aliases():
            for output, node in self.row_of(alias):
                selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
                outputs.append(output)
        if self.plan.shows_removals and self.wants(REMOVED):
            removed = is_removal("s") if self.sources.stored_rows[self.plan.source].has_removals else exp.false()
            selected.append(exp.alias_(removed, f"c{len(outputs)}", quoted=True))
            outputs.append(ResultColumn(REMOVED, "bool", nullable=False))
        if self.plan.ends_only:
            return self.each_end_once(selected, order), tuple(outputs)
        return exp.select(*selected, copy=False), tuple(outputs)

    def each_end_once(self, selected: list[exp.Expr], order: Sequence[exp.Ordered]) -> exp.Select:
        """The entities reached, with what they are sorted by: of where they were reached from, the greatest value."""
        keys = []
        for number, key in enumerate(order):
            of_source = any(column.table == "s" for column in key.this.find_all(exp.Column))
            value = exp.Max(this=key.this) if of_source else key.this
            keys.append((exp.alias_(value, f"k{number}", quoted=True), of_source))
        groups = [item.this for item in selected] + [key.this for key, of_source in keys if not of_source]
        select = exp.select(*selected, *(key for key, _ in keys), copy=False)
        return select.group_by(*(group.copy() for group in groups), copy=False)

    def page(self, select: exp.Select, order: list[exp.Ordered], width: int) -> exp.Select:
        """The rows in order, and the page of them that was asked for."""
        if self.plan.ends_only:
            ends = [exp.column(f"c{number}", table="d", quoted=True) for number in range(width)]
            select = select_from(select.subquery("d", copy=False), ends)
            order = [
                exp.Ordered(
                    this=exp.column(f"k{number}", table="d", quoted=True),
                    desc=key.args.get("desc"),
                    nulls_first=key.args.get("nulls_first"),
                )
                for number, key in enumerate(order)
            ]
        if order:
            select = select.order_by(*order, copy=False)
        if self.plan.limit is not None or (self.plan.offset is not None and self.dialect.name == "sqlite"):
            unlimited = exp.Literal.number(-1)
            select = select.limit(parameter("limit") if self.plan.limit is not None else unlimited, copy=False)
        if self.plan.offset is not None:
            select = select.offset(parameter("offset"), copy=False)
        return select

    def result_aliases(self) -> list[str]:
        last = len(self.plan.hops) - 1
        if self.plan.ends_only:
            return [f"e{last}"]
        return ["s", *(alias for number in range(last + 1) for alias in (f"r{number}", f"e{number}"))]

    def row_of(self, alias: str) -> Iterable[tuple[ResultColumn, Node]]:
        """Commit, then identity where no field holds it, then fields in the order of the class; or `only` some."""
        ref = self.sources.refs[alias]
        if self.wants(COMMIT_ID):
            yield ResultColumn(COMMIT_ID, "int", nullable=False), self.sources.plain(alias, COMMIT_ID)
        if ref.kind == "relation" or self.plan.stored:
            for name in filter(self.wants, ref.identity):
                yield ResultColumn(name, "str", nullable=False), self.sources.plain(alias, name)
        columns = [
            (name, column)
            for column in self.plan.schemas[ref].columns
            if self.wants(name := column.physical if self.plan.stored else column.name)
        ]
        document = self.sources.stored_rows[ref].document
        if document is not None and columns:
            yield ResultColumn(document, None, tuple(columns)), self.sources.plain(alias, document)
            return
        for name, column in columns:
            yield ResultColumn(name, column.scalar, nullable=column.nullable), self.sources.stored(alias, column)

    def wants(self, name: str) -> bool:
        return self.plan.only is None or name in self.plan.only

    def ordering(self, aliases: list[str]) -> list[exp.Ordered]:
        """The order asked for, then the deterministic one of RFC 0004 §4.3."""
        if self.plan.unordered:
            return []
        ordered = []
        for order in self.plan.order:
            for node in self.sort_keys(order.operand):
                ordered.append(exp.Ordered(this=node, desc=order.descending, nulls_first=not order.descending))
        for alias in aliases:
            names = self.sources.refs[alias].identity
            keys = names if self.plan.window.deduplicated else (COMMIT_ID, *names)
            ordered += [exp.Ordered(this=self.sources.plain(alias, key), nulls_first=True) for key in keys]
        return ordered

    def sort_keys(self, operand: FieldExpr[Any]) -> list[Node]:
        last = len(self.plan.hops) - 1
        reached = self.plan.ends_only and operand.owner == self.plan.hops[last].entity
        alias = f"e{last}" if reached else "s"
        if operand.scalar is not None:
            return [self.sources.scalar(operand, alias)]
        return self.dialect.json_order(self.sources.place(operand, alias))

    # --- aggregation ---

    def aggregation(self) -> tuple[exp.Select, tuple[ResultColumn, ...]]:
        outputs: list[ResultColumn] = []
        selected: list[exp.Expr] = []
        keys = []
        for name, group in zip(group_names(self.plan.groups), self.plan.groups, strict=True):
            node = self.group_key(group)
            keys.append(node)
            selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
            outputs.append(ResultColumn(name, group.scalar))
        for name, aggregate in self.plan.aggregates:
            node, scalar = self.aggregate(aggregate)
            selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
            outputs.append(ResultColumn(name, scalar))
        select = exp.select(*selected, copy=False)
        if keys:
            select = select.group_by(*(key.copy() for key in keys), copy=False)
            # By their names in the result: Spark does not see that an expression is the one it groups by.
            named = (exp.column(f"c{number}", quoted=True) for number in range(len(keys)))
            select = select.order_by(*(exp.Ordered(this=key, nulls_first=True) for key in named), copy=False)
        for number, condition in enumerate(self.plan.having):
            node, scalar = self.aggregate(condition.aggregate)
            comparison = self.conditions.comparison(
                condition.op, condition.value, scalar, self.aggregate_encoder(condition)
            )
            names = tuple(f"h{number}{suffix}" for suffix in comparison.suffixes)
            self.having.append(Binding(names, comparison.encode))
            select = select.having(comparison.test(node, [parameter(name) for name in names]), copy=False)
        return select, tuple(outputs)

    def aggregate_encoder(self, condition: AggregateCondition) -> Callable[[Any], Any]:
        """How a value is compared with an aggregate: as the field itself for the least and greatest, else a number."""
        operand = condition.aggregate.operand
        if condition.aggregate.function in ("min", "max") and operand is not None and operand.scalar:
            return self.conditions.encoder(operand, "s")
        scalar = "float" if condition.aggregate.scalar in ("int", "float") else None
        return lambda value: self.dialect.encode(scalar, value)

    def group_key(self, group: FieldExpr[Any]) -> Node:
        alias = "s" if group.side is None else f"at_{group.side}"
        if alias not in self.sources.refs:
            self.sources.enter(alias, group.owner)
        if group.scalar is not None:
            return self.sources.scalar(group, alias)
        return self.dialect.json_text(self.sources.place(group, alias))

    def aggregate(self, aggregate: Aggregate) -> tuple[Node, str | None]:
        if aggregate.function == "count":
            return exp.Count(this=exp.Star()), "int"
        if aggregate.where is not None:
            test = exp.Case(
                ifs=[exp.If(this=self.conditions.predicate(aggregate.where, "s"), true=exp.Literal.number(1))]
            )
            return exp.Count(this=test), "int"
        operand = aggregate.operand
        assert operand is not None
        if aggregate.function == "avg_len":
            return exp.Avg(this=self.length(operand)), "float"
        scalar = aggregate.scalar
        if operand.scalar is not None:
            subject = self.sources.scalar(operand, "s")
        elif operand.counted_as == "int":
            subject = self.dialect.json_integer(self.sources.place(operand, "s"))
        else:
            kind = "number" if operand.counted_as == "float" else "text"
            subject = self.dialect.json_value(self.sources.place(operand, "s"), kind)
        match aggregate.function:
            case "sum":
                return self.dialect.total(subject, scalar), scalar
            case "avg":
                return self.dialect.mean(subject, operand.counted_as), scalar
            case "min":
                return exp.Min(this=subject), scalar
        return exp.Max(this=subject), scalar

    def length(self, operand: FieldExpr[Any]) -> Node:
        if operand.scalar is None:
            return self.dialect.json_length(self.sources.place(operand, "s"))
        return self.dialect.text_length(self.sources.scalar(operand, "s"))
