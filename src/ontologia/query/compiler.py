"""From a plan to one SQL statement.

The tree is built once per shape of a plan and rendered for the dialect of the engine; values are always parameters.
Engines supply the rows of each type in the window that was asked for (see `relation`); filters, joins, aggregation,
order and paging are made here, the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from ontologia.model import COMMIT_ID, Column, Combination, Condition, FieldExpr, Negation, Predicate, TypeRef, key_text
from ontologia.query.aggregates import Aggregate
from ontologia.query.dialects import COMPARISONS, Dialect, Node, Place, case, parameter
from ontologia.query.plan import Plan, padded
from ontologia.query.relation import Relation

MATCHES = ("startswith", "endswith", "contains")
KEYS = "touched_keys"  # the table of identities an engine supplies for a plan that is `keyed`
SELECTIVE = ("eq", "in", "gt", "ge", "lt", "le")


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: its name for the caller, and the scalar it holds (None: JSON text).

    With `columns`, it is a JSON document that holds these fields under these names, for the engine to take apart.
    `nullable` is False where storage itself keeps nulls out.
    """

    name: str
    scalar: str | None
    columns: tuple[tuple[str, Column], ...] = ()
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Binding:
    """How one comparison's value becomes parameters."""

    names: tuple[str, ...]
    encode: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """A compiled plan, good for every plan of its shape."""

    sql: str
    outputs: tuple[Output, ...]
    bindings: tuple[Binding, ...]
    having: tuple[Binding, ...]
    tree: exp.Select
    windowed: bool
    """Whether the end of the window is a parameter; an engine may have it in its choice of files instead."""

    def parameters(self, plan: Plan) -> dict[str, Any]:
        """The values of a plan, as this statement names and encodes them."""
        values: dict[str, Any] = {}
        for condition, binding in zip(plan.conditions(), self.bindings, strict=True):
            if condition.op == "in":
                for name, value in zip(binding.names, padded(condition.value), strict=True):
                    values[name] = binding.encode(value)
            elif binding.names:
                values[binding.names[0]] = binding.encode(condition.value)
        for having, binding in zip(plan.having, self.having, strict=True):
            values[binding.names[0]] = binding.encode(having.value)
        if self.windowed:
            values["window"] = plan.window.commit
        if plan.limit is not None:
            values["limit"] = plan.limit
        if plan.offset is not None:
            values["offset"] = plan.offset
        return values


def compile(plan: Plan, relations: Mapping[TypeRef, Relation], dialect: Dialect) -> Statement:
    """Compile a plan against the relations of every type it names."""
    return _Compilation(plan, relations, dialect).statement()


class _Compilation:
    def __init__(self, plan: Plan, relations: Mapping[TypeRef, Relation], dialect: Dialect) -> None:
        self.plan = plan
        self.relations = relations
        self.dialect = dialect
        self.used: dict[str, dict[str, Column]] = {}
        self.refs: dict[str, TypeRef] = {}
        self.bindings: dict[int, Binding] = {}
        self.having: list[Binding] = []
        self.numbers = {id(condition): number for number, condition in enumerate(plan.conditions())}

    # --- the statement ---

    def statement(self) -> Statement:
        self.enter("s", self.plan.source)
        filters = [self.predicate(predicate, "s") for predicate in self.plan.where]
        for number, hop in enumerate(self.plan.hops):
            self.enter(f"r{number}", hop.relation)
            self.enter(f"e{number}", hop.entity)
            filters += [self.hop_predicate(predicate, number) for predicate in hop.where]
        if self.plan.aggregates:
            (select, outputs), order = self.aggregation(), []
        else:
            order = self.ordering(self.result_aliases())
            select, outputs = self.projection(order)
        select = self.from_sources(select)  # last, when it is known which columns are used
        if filters:
            select = select.where(*filters)
        if not self.plan.aggregates:
            select = self.paged(select, order, len(outputs))
        bindings = tuple(self.bindings[number] for number in range(len(self.numbers)))
        windowed = any(node.name == "window" for node in select.find_all(exp.Placeholder))
        return Statement(self.dialect.render(select), outputs, bindings, tuple(self.having), select, windowed)

    def projection(self, order: Sequence[exp.Ordered]) -> tuple[exp.Select, tuple[Output, ...]]:
        outputs: list[Output] = []
        selected: list[exp.Expr] = []
        for alias in self.result_aliases():
            for output, node in self.row_of(alias):
                selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
                outputs.append(output)
        if self.plan.ends_only:  # sorted by after duplicates are gone, so it must be among what is selected
            for number, key in enumerate(order):
                selected.append(exp.alias_(key.this, f"k{number}", quoted=True))
        return exp.select(*selected), tuple(outputs)

    def paged(self, select: exp.Select, order: list[exp.Ordered], width: int) -> exp.Select:
        """The rows in order, and the page of them that was asked for."""
        if self.plan.ends_only:
            distinct = select.distinct().subquery("d")
            select = exp.select(*(exp.column(f"c{number}", table="d", quoted=True) for number in range(width)))
            select = select.from_(distinct)
            keys = (exp.column(f"k{number}", table="d", quoted=True) for number in range(len(order)))
            order = [exp.Ordered(this=key, nulls_first=True) for key in keys]
        if order:
            select = select.order_by(*order)
        if self.plan.limit is not None or (self.plan.offset is not None and self.dialect.name == "sqlite"):
            unlimited = exp.Literal.number(-1)
            select = select.limit(parameter("limit") if self.plan.limit is not None else unlimited)
        if self.plan.offset is not None:
            select = select.offset(parameter("offset"))
        return select

    def result_aliases(self) -> list[str]:
        last = len(self.plan.hops) - 1
        if self.plan.ends_only:
            return [f"e{last}"]
        return ["s", *(alias for number in range(last + 1) for alias in (f"r{number}", f"e{number}"))]

    def row_of(self, alias: str) -> Iterable[tuple[Output, Node]]:
        """Commit, then identity where no field holds it, then fields in the order of the class; or `only` some."""
        ref = self.refs[alias]
        if self.wants(COMMIT_ID):
            yield Output(COMMIT_ID, "int", nullable=False), self.plain(alias, COMMIT_ID)
        if ref.kind == "relation" or self.plan.stored:
            for name in filter(self.wants, ref.identity):
                yield Output(name, "str", nullable=False), self.plain(alias, name)
        columns = [
            (name, column)
            for column in self.plan.schemas[ref].columns
            if self.wants(name := column.physical if self.plan.stored else column.name)
        ]
        document = self.relations[ref].document
        if document is not None and columns:
            yield Output(document, None, tuple(columns)), self.plain(alias, document)
            return
        for name, column in columns:
            yield Output(name, column.scalar, nullable=column.nullable), self.stored(alias, column)

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
            names = self.refs[alias].identity
            keys = names if self.plan.window.deduplicated else (COMMIT_ID, *names)
            ordered += [exp.Ordered(this=self.plain(alias, key), nulls_first=True) for key in keys]
        return ordered

    def sort_keys(self, operand: FieldExpr[Any]) -> list[Node]:
        if operand.scalar is not None:
            return [self.scalar(operand, "s")]
        place = self.place(operand, "s")
        return [self.dialect.json_value(place, "number"), self.dialect.json_value(place, "text")]

    def from_sources(self, select: exp.Select) -> exp.Select:
        select = select.from_(self.rows("s", probe=self.probes()))
        if self.plan.keyed:
            names = self.plan.source.identity
            same = [exp.EQ(this=self.plain("k", name), expression=self.plain("s", name)) for name in names]
            select = select.join(exp.to_table(KEYS, alias="k"), on=exp.and_(*same), join_type="inner")
        for number, hop in enumerate(self.plan.hops):
            near, far = ("left_key", "right_key") if hop.forward else ("right_key", "left_key")
            before = "s" if number == 0 else f"e{number - 1}"
            on_near = exp.EQ(this=self.plain(f"r{number}", near), expression=self.plain(before, "entity_key"))
            on_far = exp.EQ(this=self.plain(f"e{number}", "entity_key"), expression=self.plain(f"r{number}", far))
            select = select.join(self.rows(f"r{number}", probe=True), on=on_near, join_type="inner")
            select = select.join(self.rows(f"e{number}", probe=True), on=on_far, join_type="inner")
        return select

    def rows(self, alias: str, *, probe: bool) -> exp.Subquery:
        columns = list(self.used[alias].values())
        relation = self.relations[self.refs[alias]]
        return relation.rows(self.plan.window, columns, probe=probe).subquery(alias)

    def probes(self) -> bool:
        """Whether to look for a newer version row by row: after a filter, or when rows are wanted in key order."""
        plan = self.plan
        if plan.keyed or any(self.selective(predicate) for predicate in plan.where):
            return True
        return not plan.aggregates and not plan.hops and (bool(plan.where) or not plan.order)

    def selective(self, predicate: Predicate) -> bool:
        """Whether a filter finds few rows by key or index, so that deduplication should follow it."""
        if isinstance(predicate, Combination):
            test = any if predicate.op == "and" else all
            return test(self.selective(part) for part in predicate.parts)
        if not isinstance(predicate, Condition) or predicate.op not in SELECTIVE or predicate.operand.side:
            return False
        operand = predicate.operand
        if operand.column is None or operand.name == self.plan.schema.primary_key:
            return True
        return not operand.steps and self.is_indexed(operand, "s")

    # --- aggregation ---

    def aggregation(self) -> tuple[exp.Select, tuple[Output, ...]]:
        outputs: list[Output] = []
        selected: list[exp.Expr] = []
        keys = []
        for group in self.plan.groups:
            node = self.group_key(group)
            keys.append(node)
            selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
            outputs.append(Output(".".join((group.name, *group.steps)), group.scalar))
        for name, aggregate in self.plan.aggregates:
            node, scalar = self.aggregate(aggregate)
            selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
            outputs.append(Output(name, scalar))
        select = exp.select(*selected)
        if keys:
            select = select.group_by(*(key.copy() for key in keys))
            select = select.order_by(*(exp.Ordered(this=key.copy(), nulls_first=True) for key in keys))
        for number, condition in enumerate(self.plan.having):
            node, _ = self.aggregate(condition.aggregate)
            self.having.append(Binding((f"h{number}",), self.aggregate_encoder(condition.aggregate)))
            test = COMPARISONS[condition.op](this=node, expression=parameter(f"h{number}"))
            select = select.having(test)
        return select, tuple(outputs)

    def aggregate_encoder(self, aggregate: Aggregate) -> Callable[[Any], Any]:
        """How a value is compared with an aggregate: as the field itself for the least and greatest, else a number."""
        if aggregate.function in ("min", "max") and aggregate.operand is not None and aggregate.operand.scalar:
            return self.encoder(aggregate.operand, "s")
        return lambda value: self.dialect.encode("float", value)

    def group_key(self, group: FieldExpr[Any]) -> Node:
        if group.scalar is not None:
            return self.scalar(group, "s")
        return self.dialect.json_text(self.place(group, "s"))

    def aggregate(self, aggregate: Aggregate) -> tuple[Node, str | None]:
        if aggregate.function == "count":
            return exp.Count(this=exp.Star()), "int"
        if aggregate.where is not None:
            test = exp.Case(ifs=[exp.If(this=self.predicate(aggregate.where, "s"), true=exp.Literal.number(1))])
            return exp.Count(this=test), "int"
        operand = aggregate.operand
        assert operand is not None
        if aggregate.function == "avg_len":
            return exp.Avg(this=self.length(operand)), "float"
        if operand.scalar is None:
            subject, scalar = self.dialect.json_value(self.place(operand, "s"), "number"), "float"
        else:
            subject, scalar = self.scalar(operand, "s"), operand.scalar
        match aggregate.function:
            case "sum":
                return self.dialect.total(subject, scalar), scalar
            case "avg":
                return self.dialect.mean(subject, scalar), "float"
            case "min":
                return exp.Min(this=subject), scalar
        return exp.Max(this=subject), scalar

    def length(self, operand: FieldExpr[Any]) -> Node:
        if operand.scalar is None:
            return self.dialect.json_length(self.place(operand, "s"))
        return exp.Length(this=self.scalar(operand, "s"))

    # --- filters ---

    def hop_predicate(self, predicate: Predicate, number: int) -> Node:
        relation = self.plan.hops[number].relation
        owners = {condition.operand.owner for condition in predicate.conditions()}
        return self.predicate(predicate, f"r{number}" if owners == {relation} else f"e{number}")

    def predicate(self, predicate: Predicate, alias: str) -> Node:
        if isinstance(predicate, Condition):
            return self.condition(predicate, alias)
        if isinstance(predicate, Negation):
            return exp.not_(exp.paren(self.predicate(predicate.part, alias)))
        if isinstance(predicate, Combination):
            parts = [self.predicate(part, alias) for part in predicate.parts]
            return exp.paren(exp.and_(*parts) if predicate.op == "and" else exp.or_(*parts))
        raise TypeError(f"{predicate!r} is not a filter")

    def condition(self, condition: Condition, alias: str) -> Node:
        operand = condition.operand
        if operand.side is None:
            return self.test(condition, operand, alias)
        # A filter on an endpoint: its key is among the entities that pass, read in the same window.
        inner = f"x{self.numbers[id(condition)]}"
        self.enter(inner, operand.owner)
        test = self.test(condition, replace(operand, side=None), inner)
        keys = exp.select(self.plain(inner, "entity_key")).from_(self.rows(inner, probe=False)).where(test)
        return exp.In(this=self.plain(alias, f"{operand.side}_key"), query=keys.subquery())

    def test(self, condition: Condition, operand: FieldExpr[Any], alias: str) -> Node:
        if operand.scalar is not None:
            test = self.scalar_test(condition, operand, alias)
            rare = condition.op in SELECTIVE and self.is_indexed(operand, alias)
            return self.dialect.rare(test) if rare else test
        place = self.place(operand, alias)
        if operand.item_path is not None:
            return self.dialect.some_item(place, operand.item_path, lambda item: self.json_test(condition, item))
        return self.json_test(condition, place)

    def scalar_test(self, condition: Condition, operand: FieldExpr[Any], alias: str) -> Node:
        op = condition.op
        by_key = op in ("eq", "in") and self.is_primary_key(operand, alias)
        subject = self.plain(alias, "entity_key") if by_key else self.scalar(operand, alias)
        encode = _key_value if by_key else self.encoder(operand, alias)
        match op:
            case "is_null" | "is_not_null":
                self.bind(condition, (), encode)
                test = subject.is_(exp.null())
                return test if op == "is_null" else exp.not_(test)
            case "is_true" | "is_false":
                self.bind(condition, (), encode)
                return exp.EQ(this=subject, expression=exp.Boolean(this=op == "is_true"))
            case "in":
                return self.among(condition, encode, lambda bound: subject.isin(*bound))
        if op in MATCHES:
            return self.match(condition, subject)
        return COMPARISONS[op](this=subject, expression=self.bind(condition, ("",), encode)[0])

    def json_test(self, condition: Condition, place: Place) -> Node:
        op, value = condition.op, condition.value

        def encode(value: Any) -> Any:
            return self.dialect.encode(None, value)

        match op:
            case "is_null" | "is_not_null":
                self.bind(condition, (), encode)
                test = self.dialect.json_absent(place)
                return test if op == "is_null" else exp.not_(test)
            case "is_true" | "is_false":
                self.bind(condition, (), encode)
                return exp.EQ(this=self.dialect.json_truth(place), expression=exp.Boolean(this=op == "is_true"))
            case "in":
                kinds = [_json_kind(item) for item in padded(value)]
                return self.among(
                    condition,
                    encode,
                    lambda bound: exp.paren(
                        exp.or_(*(self.json_compare(place, k, "eq", b) for k, b in zip(kinds, bound, strict=True)))
                    ),
                )
        if op in MATCHES:
            return self.dialect.json_test(place, "text", lambda subject: self.match(condition, subject), False)
        return self.json_compare(place, _json_kind(value), op, self.bind(condition, ("",), encode)[0])

    def json_compare(self, place: Place, kind: str, op: str, bound: Node) -> Node:
        def test(subject: Node) -> Node:
            return COMPARISONS[op](this=subject, expression=bound)

        return self.dialect.json_test(place, kind, test, otherwise=op == "ne")

    def match(self, condition: Condition, subject: Node) -> Node:
        if condition.value == "":
            self.bind(condition, (), self.dialect.encode_match)
            return case((exp.not_(subject.is_(exp.null())), exp.true()))  # of null it stays unknown, as any match
        (bound,) = self.bind(condition, ("",), self.dialect.encode_match)
        return self.dialect.match(condition.op, subject, bound)

    def among(
        self, condition: Condition, encode: Callable[[Any], Any], test: Callable[[list[exp.Placeholder]], Node]
    ) -> Node:
        if not condition.value:
            self.bind(condition, (), encode)
            return exp.false()
        suffixes = tuple(f"_{number}" for number in range(len(padded(condition.value))))
        return test(self.bind(condition, suffixes, encode))

    def bind(
        self, condition: Condition, suffixes: tuple[str, ...], encode: Callable[[Any], Any]
    ) -> list[exp.Placeholder]:
        number = self.numbers[id(condition)]
        names = tuple(f"p{number}{suffix}" for suffix in suffixes)
        self.bindings[number] = Binding(names, encode)
        return [parameter(name) for name in names]

    def encoder(self, operand: FieldExpr[Any], alias: str) -> Callable[[Any], Any]:
        relation, column, dialect = self.relations[self.refs[alias]], operand.column, self.dialect
        if column is None:
            return key_text
        return lambda value: relation.encode(column, dialect.encode(column.scalar, value))

    # --- columns ---

    def enter(self, alias: str, ref: TypeRef) -> None:
        self.refs[alias] = ref
        self.used[alias] = {}

    def plain(self, alias: str, name: str) -> exp.Column:
        return exp.column(name, table=alias, quoted=True)

    def stored(self, alias: str, column: Column) -> exp.Column:
        self.used[alias][column.physical] = column
        return self.plain(alias, column.physical)

    def is_primary_key(self, operand: FieldExpr[Any], alias: str) -> bool:
        return operand.name == self.plan.schemas[self.refs[alias]].primary_key

    def is_indexed(self, operand: FieldExpr[Any], alias: str) -> bool:
        return any(column.name == operand.name for column in self.plan.schemas[self.refs[alias]].indexed)

    def scalar(self, operand: FieldExpr[Any], alias: str) -> Node:
        """The column of a scalar field. Keys are read from the identity, which has an order and an index."""
        if operand.column is None:
            named = operand.name in self.refs[alias].identity
            return self.plain(alias, operand.name if named else "instance_key")
        if operand.scalar == "str" and self.is_primary_key(operand, alias):
            return self.plain(alias, "entity_key")
        return self.stored(alias, operand.column)

    def place(self, operand: FieldExpr[Any], alias: str) -> Place:
        assert operand.column is not None
        return self.dialect.place(self.stored(alias, operand.column), operand.steps)


def _json_kind(value: Any) -> str:
    return "number" if isinstance(value, (int, float)) else "text"


def _key_value(value: Any) -> str:
    return key_text(int(value) if isinstance(value, float) and value.is_integer() else value)
