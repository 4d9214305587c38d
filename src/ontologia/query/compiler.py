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
from ontologia.query import numbers
from ontologia.query.aggregates import Aggregate, AggregateCondition
from ontologia.query.dialects import COMPARISONS, Dialect, Node, Place, case, parameter
from ontologia.query.numbers import value_kind
from ontologia.query.plan import Plan, group_names, padded
from ontologia.query.stored_rows import StoredRows

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
    """How one comparison's value becomes parameters: as many as there are names."""

    names: tuple[str, ...]
    encode: Callable[[Any], Iterable[Any]]

    def parameters(self, value: Any) -> Iterable[tuple[str, Any]]:
        return zip(self.names, self.encode(value), strict=True) if self.names else ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value against a subject: the parameters it takes, what they hold, and the test."""

    suffixes: tuple[str, ...]
    encode: Callable[[Any], Iterable[Any]]
    test: Callable[[Any, list[exp.Placeholder]], Node]


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


def compile(plan: Plan, relations: Mapping[TypeRef, StoredRows], dialect: Dialect) -> Statement:
    """Compile a plan against the relations of every type it names."""
    return _Compilation(plan, relations, dialect).statement()


class _Compilation:
    def __init__(self, plan: Plan, relations: Mapping[TypeRef, StoredRows], dialect: Dialect) -> None:
        self.plan = plan
        self.relations = relations
        self.dialect = dialect
        self.used: dict[str, dict[str, Column]] = {}
        self.refs: dict[str, TypeRef] = {}
        self.bindings: list[Binding] = []
        self.having: list[Binding] = []
        self.items = 0

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
        windowed = any(node.name == "window" for node in select.find_all(exp.Placeholder))
        bindings, having = tuple(self.bindings), tuple(self.having)
        return Statement(self.dialect.render(select), outputs, bindings, having, select, windowed)

    def projection(self, order: Sequence[exp.Ordered]) -> tuple[exp.Select, tuple[Output, ...]]:
        outputs: list[Output] = []
        selected: list[exp.Expr] = []
        for alias in self.result_aliases():
            for output, node in self.row_of(alias):
                selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
                outputs.append(output)
        if self.plan.ends_only:
            return self.each_end_once(selected, order), tuple(outputs)
        return exp.select(*selected), tuple(outputs)

    def each_end_once(self, selected: list[exp.Expr], order: Sequence[exp.Ordered]) -> exp.Select:
        """The entities reached, with what they are sorted by: of where they were reached from, the greatest value."""
        keys = []
        for number, key in enumerate(order):
            of_source = any(column.table == "s" for column in key.this.find_all(exp.Column))
            value = exp.Max(this=key.this) if of_source else key.this
            keys.append((exp.alias_(value, f"k{number}", quoted=True), of_source))
        groups = [item.this for item in selected] + [key.this for key, of_source in keys if not of_source]
        select = exp.select(*selected, *(key for key, _ in keys))
        return select.group_by(*(group.copy() for group in groups))

    def paged(self, select: exp.Select, order: list[exp.Ordered], width: int) -> exp.Select:
        """The rows in order, and the page of them that was asked for."""
        if self.plan.ends_only:
            ends = select.subquery("d")
            select = exp.select(*(exp.column(f"c{number}", table="d", quoted=True) for number in range(width)))
            select = select.from_(ends)
            order = [
                exp.Ordered(
                    this=exp.column(f"k{number}", table="d", quoted=True),
                    desc=key.args.get("desc"),
                    nulls_first=key.args.get("nulls_first"),
                )
                for number, key in enumerate(order)
            ]
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
        last = len(self.plan.hops) - 1
        reached = self.plan.ends_only and operand.owner == self.plan.hops[last].entity
        alias = f"e{last}" if reached else "s"
        if operand.scalar is not None:
            return [self.scalar(operand, alias)]
        return self.dialect.json_order(self.place(operand, alias))

    def from_sources(self, select: exp.Select) -> exp.Select:
        select = self.from_keys(select) if self.plan.keyed else select.from_(self.rows("s", probe=self.probes()))
        for number, hop in enumerate(self.plan.hops):
            near, far = ("left_key", "right_key") if hop.forward else ("right_key", "left_key")
            before = "s" if number == 0 else f"e{number - 1}"
            on_near = exp.EQ(this=self.plain(f"r{number}", near), expression=self.plain(before, "entity_key"))
            on_far = exp.EQ(this=self.plain(f"e{number}", "entity_key"), expression=self.plain(f"r{number}", far))
            select = select.join(self.rows(f"r{number}", probe=True), on=on_near, join_type="inner")
            select = select.join(self.rows(f"e{number}", probe=True), on=on_far, join_type="inner")
        for side in ("left", "right"):
            alias = f"at_{side}"
            if alias in self.refs:  # grouped by one of its fields; an end that does not exist has none
                end = exp.EQ(this=self.plain(alias, "entity_key"), expression=self.plain("s", f"{side}_key"))
                select = select.join(self.rows(alias, probe=False), on=end, join_type="left")
        return select

    def from_keys(self, select: exp.Select) -> exp.Select:
        """The rows of the identities in `KEYS`. These come first: they are few beside what is stored."""
        identity = self.plan.source.identity
        on: list[Node] = [exp.EQ(this=self.plain("s", name), expression=self.plain("k", name)) for name in identity]
        rows = self.rows("s", probe=True)
        relation, columns = self.relations[self.plan.source], list(self.used["s"].values())
        of_keys = relation.rows_of_keys("k", self.plan.window, columns)
        if of_keys is not None:
            rows = of_keys[0].subquery("s")
            on.append(of_keys[1])
        return select.from_(exp.to_table(KEYS, alias="k")).join(rows, on=exp.and_(*on), join_type=self.dialect.in_turn)

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
        for name, group in zip(group_names(self.plan.groups), self.plan.groups, strict=True):
            node = self.group_key(group)
            keys.append(node)
            selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
            outputs.append(Output(name, group.scalar))
        for name, aggregate in self.plan.aggregates:
            node, scalar = self.aggregate(aggregate)
            selected.append(exp.alias_(node, f"c{len(outputs)}", quoted=True))
            outputs.append(Output(name, scalar))
        select = exp.select(*selected)
        if keys:
            select = select.group_by(*(key.copy() for key in keys))
            # By their names in the result: Spark does not see that an expression is the one it groups by.
            named = (exp.column(f"c{number}", quoted=True) for number in range(len(keys)))
            select = select.order_by(*(exp.Ordered(this=key, nulls_first=True) for key in named))
        for number, condition in enumerate(self.plan.having):
            node, scalar = self.aggregate(condition.aggregate)
            comparison = self.comparison(condition.op, condition.value, scalar, self.aggregate_encoder(condition))
            names = tuple(f"h{number}{suffix}" for suffix in comparison.suffixes)
            self.having.append(Binding(names, comparison.encode))
            select = select.having(comparison.test(node, [parameter(name) for name in names]))
        return select, tuple(outputs)

    def aggregate_encoder(self, condition: AggregateCondition) -> Callable[[Any], Any]:
        """How a value is compared with an aggregate: as the field itself for the least and greatest, else a number."""
        operand = condition.aggregate.operand
        if condition.aggregate.function in ("min", "max") and operand is not None and operand.scalar:
            return self.encoder(operand, "s")
        scalar = "float" if condition.aggregate.scalar in ("int", "float") else None
        return lambda value: self.dialect.encode(scalar, value)

    def group_key(self, group: FieldExpr[Any]) -> Node:
        alias = "s" if group.side is None else f"at_{group.side}"
        if alias not in self.refs:
            self.enter(alias, group.owner)
        if group.scalar is not None:
            return self.scalar(group, alias)
        return self.dialect.json_text(self.place(group, alias))

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
        scalar = aggregate.scalar
        if operand.scalar is not None:
            subject = self.scalar(operand, "s")
        elif operand.counted_as == "int":
            subject = self.dialect.json_integer(self.place(operand, "s"))
        else:
            kind = "number" if operand.counted_as == "float" else "text"
            subject = self.dialect.json_value(self.place(operand, "s"), kind)
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
            return self.dialect.json_length(self.place(operand, "s"))
        return self.dialect.text_length(self.scalar(operand, "s"))

    # --- filters ---

    def hop_predicate(self, predicate: Predicate, number: int) -> Node:
        relation = self.plan.hops[number].relation
        owners = {condition.operand.owner for condition in predicate.conditions()}
        return self.predicate(predicate, f"r{number}" if owners == {relation} else f"e{number}")

    def predicate(self, predicate: Predicate, alias: str, *, negated: bool = False) -> Node:
        """Negations are carried down to the comparisons, where "not true" and "unknown" can be told apart."""
        if isinstance(predicate, Condition):
            return self.condition(predicate, alias, negated=negated)
        if isinstance(predicate, Negation):
            return self.predicate(predicate.part, alias, negated=not negated)
        if isinstance(predicate, Combination):
            parts = [self.predicate(part, alias, negated=negated) for part in predicate.parts]
            both = (predicate.op == "and") is not negated
            return exp.paren(exp.and_(*parts) if both else exp.or_(*parts))
        raise TypeError(f"{predicate!r} is not a filter")

    def condition(self, condition: Condition, alias: str, *, negated: bool) -> Node:
        operand = condition.operand
        self.bindings.append(Binding((), _nothing))  # comes first, so that the order is that of `Plan.conditions`
        if operand.side is not None:
            return self.end_condition(condition, replace(operand, side=None), alias, negated=negated)
        test = self.test(condition, operand, alias)
        return exp.not_(exp.paren(test)) if negated else test

    def end_condition(self, condition: Condition, operand: FieldExpr[Any], alias: str, *, negated: bool) -> Node:
        """A filter on an endpoint: its key is among the entities that pass, read in the same window.

        An end that does not exist is one whose every field is missing.
        """
        key = self.plain(alias, f"{condition.operand.side}_key")
        if condition.op == "in" and not condition.value:
            return exp.Boolean(this=negated)
        inner = f"x{len(self.bindings)}"
        self.enter(inner, operand.owner)
        test = self.test(condition, operand, inner)
        found = self.among_ends(inner, key, exp.not_(exp.paren(test)) if negated else test)
        if (condition.op == "is_null") is negated or condition.op not in ("is_null", "is_not_null"):
            return found
        return exp.paren(exp.or_(found, exp.not_(self.among_ends(inner, key, None))))

    def among_ends(self, inner: str, key: Node, test: Node | None) -> Node:
        keys = exp.select(self.plain(inner, "entity_key")).from_(self.rows(inner, probe=False))
        return exp.In(this=key.copy(), query=(keys if test is None else keys.where(test)).subquery())

    def test(self, condition: Condition, operand: FieldExpr[Any], alias: str) -> Node:
        if operand.scalar is not None:
            test = self.scalar_test(condition, operand, alias)
            rare = condition.op in SELECTIVE and self.is_indexed(operand, alias)
            return self.dialect.rare(test) if rare else test
        place = self.place(operand, alias)
        if operand.item_path is not None:
            return self.some_item(place, operand.item_path, lambda item: self.json_test(condition, item))
        return self.json_test(condition, place)

    def some_item(self, place: Place, steps: tuple[str, ...], test: Callable[[Place], Node]) -> Node:
        self.items += 1
        return self.dialect.some_item(place, steps, f"item{self.items}", test)

    def scalar_test(self, condition: Condition, operand: FieldExpr[Any], alias: str) -> Node:
        op = condition.op
        by_key = op in ("eq", "in") and self.is_primary_key(operand, alias)
        subject = self.plain(alias, "entity_key") if by_key else self.scalar(operand, alias)
        encode = _key_value if by_key else self.encoder(operand, alias)
        match op:
            case "is_null" | "is_not_null":
                missing = subject.is_(exp.null())
                return missing if op == "is_null" else exp.not_(missing)
            case "is_true" | "is_false":
                return exp.EQ(this=subject, expression=exp.Boolean(this=op == "is_true"))
        if op in MATCHES:
            return self.match(condition, subject)
        scalar = "str" if by_key else operand.scalar
        if op == "in":
            test, bound = self.among(condition, subject, scalar, encode)
        else:
            comparison = self.comparison(op, condition.value, scalar, encode)
            bound = self.bind(comparison.suffixes, comparison.encode)
            test = comparison.test(subject, bound)
        if by_key or op not in SELECTIVE or not bound or not self.is_indexed(operand, alias):
            return test
        assert operand.column is not None
        found = self.relations[self.refs[alias]].index_test(operand.column, alias, op, bound)
        return test if found is None else exp.paren(exp.and_(found, test))

    def among(
        self, condition: Condition, subject: Node, scalar: str | None, encode: Callable[[Any], Any]
    ) -> tuple[Node, list[exp.Placeholder]]:
        comparisons = [self.comparison("eq", value, scalar, encode) for value in padded(condition.value)]
        if not comparisons:
            return exp.false(), []
        tests = self.bind_each(comparisons)
        bound = [name for names in tests for name in names]
        if len(bound) == len(comparisons):
            return subject.isin(*bound), bound
        each = zip(comparisons, tests, strict=True)
        return exp.paren(exp.or_(*(comparison.test(subject.copy(), names) for comparison, names in each))), bound

    def comparison(self, op: str, value: Any, scalar: str | None, encode: Callable[[Any], Any]) -> Comparison:
        """A value compared with a scalar: of a number of another type, the range of those that pass (`numbers`)."""
        kind = value_kind(value)
        differs = kind == "wide" or (not self.dialect.exact_numbers and (kind is int) is not (scalar == "int"))
        if scalar not in ("int", "float") or not differs:
            return Comparison(
                ("",), lambda value: (encode(value),), lambda subject, bound: _compared(op, subject, bound)
            )
        ranged = numbers.integers if scalar == "int" else numbers.floats
        encode_end = self.dialect.encode
        return Comparison(
            ("_from", "_to"),
            lambda value: (encode_end(scalar, end) for end in ranged(op, value)),
            lambda subject, bound: _within(op, subject, bound),
        )

    def json_test(self, condition: Condition, place: Place) -> Node:
        op, value = condition.op, condition.value
        match op:
            case "is_null" | "is_not_null":
                test = self.dialect.json_absent(place)
                return test if op == "is_null" else exp.not_(test)
            case "is_true" | "is_false":
                return exp.EQ(this=self.dialect.json_truth(place), expression=exp.Boolean(this=op == "is_true"))
            case "in":
                comparisons = [self.json_comparison("eq", item) for item in padded(value)]
                if not comparisons:
                    return exp.false()
                each = zip(comparisons, self.bind_each(comparisons), strict=True)
                return exp.paren(exp.or_(*(comparison.test(place, bound) for comparison, bound in each)))
            case "contains":
                return self.json_contains(condition, place)
        if op in MATCHES:
            match_text = self.match(condition, self.dialect.json_scalar(place, "text"))
            return self.dialect.json_cases(place, (self.dialect.is_kind(place, "text"), match_text), otherwise=False)
        comparison = self.json_comparison(op, value)
        return comparison.test(place, self.bind(comparison.suffixes, comparison.encode))

    def json_contains(self, condition: Condition, place: Place) -> Node:
        """Of a text, that this is in it; of a list, that some item is this."""
        dialect, equals = self.dialect, self.json_comparison("eq", condition.value)
        text = dialect.json_scalar(place, "text")
        if isinstance(condition.value, str) and condition.value:
            bound = self.bind(("", "_text"), lambda value: (*equals.encode(value), dialect.encode_match(value)))
            in_text: Node = dialect.match("contains", text, bound.pop())
        else:
            bound = self.bind(equals.suffixes, equals.encode)
            in_text = _any_text(text) if condition.value == "" else exp.false()
        item = self.some_item(place, (), lambda item: equals.test(item, bound))
        return dialect.json_cases(
            place, (dialect.is_list(place), item), (dialect.is_kind(place, "text"), in_text), otherwise=False
        )

    def json_comparison(self, op: str, value: Any) -> Comparison:
        """A value compared with what is at a place, which is of any kind: of another kind it is just not equal."""
        dialect = self.dialect
        if not isinstance(value, (int, float)):
            return Comparison(
                ("",),
                lambda value: (dialect.encode(None, value),),
                lambda place, bound: dialect.json_cases(
                    place,
                    (dialect.is_kind(place, "text"), _compared(op, dialect.json_scalar(place, "text"), bound)),
                    otherwise=op == "ne",
                ),
            )
        if dialect.exact_numbers:
            number = self.comparison(op, value, "float", lambda value: dialect.encode("float", value))
            return Comparison(
                number.suffixes,
                number.encode,
                lambda place, bound: dialect.json_cases(
                    place,
                    (dialect.is_kind(place, "number"), number.test(dialect.json_scalar(place, "number"), bound)),
                    otherwise=op == "ne",
                ),
            )

        def test(place: Place, bound: list[exp.Placeholder]) -> Node:
            whole, number = dialect.json_integer(place), dialect.json_scalar(place, "number")
            return dialect.json_cases(
                place,
                (exp.not_(whole.is_(exp.null())), _within(op, whole.copy(), bound[:2])),
                (dialect.is_kind(place, "number"), _within(op, number, bound[2:])),
                otherwise=op == "ne",
            )

        return Comparison(
            ("_from", "_to", "_above", "_below"),
            lambda value: (
                *numbers.integers(op, value),
                *(dialect.encode("float", x) for x in numbers.floats(op, value)),
            ),
            test,
        )

    def match(self, condition: Condition, subject: Node) -> Node:
        if condition.value == "":
            return _any_text(subject)
        (bound,) = self.bind(("",), lambda value: (self.dialect.encode_match(value),))
        return self.dialect.match(condition.op, subject, bound)

    def bind_each(self, comparisons: Sequence[Comparison]) -> list[list[exp.Placeholder]]:
        """The parameters of several comparisons, for the values of one condition."""
        found = [
            self.bind(tuple(f"_{number}{suffix}" for suffix in comparison.suffixes), _nothing)
            for number, comparison in enumerate(comparisons)
        ]
        names = tuple(name.name for names in found for name in names)

        def encode(values: tuple[Any, ...]) -> Iterable[Any]:
            for comparison, value in zip(comparisons, padded(values), strict=True):
                yield from comparison.encode(value)

        self.bindings[-1] = Binding(names, encode)
        return found

    def bind(self, suffixes: tuple[str, ...], encode: Callable[[Any], Iterable[Any]]) -> list[exp.Placeholder]:
        """Parameters for the value of the condition that is being compiled."""
        names = tuple(f"p{len(self.bindings) - 1}{suffix}" for suffix in suffixes)
        self.bindings[-1] = Binding(names, encode)
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
        return self.plain(alias, self.relations[self.refs[alias]].shown(column))

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


def _nothing(value: Any) -> Iterable[Any]:
    return ()


def _any_text(subject: Node) -> Node:
    """What a match of the empty text is: true, and of null unknown, as any match."""
    return case((exp.not_(subject.is_(exp.null())), exp.true()))


def _compared(op: str, subject: Node, bound: Sequence[Node]) -> Node:
    return COMPARISONS[op](this=subject, expression=bound[0].copy())


def _within(op: str, subject: Node, bound: Sequence[Node]) -> Node:
    test = exp.Between(this=subject, low=bound[0].copy(), high=bound[1].copy())
    return exp.not_(exp.paren(test)) if op == "ne" else test


def _key_value(value: Any) -> str:
    return key_text(int(value) if isinstance(value, float) and value.is_integer() else value)
