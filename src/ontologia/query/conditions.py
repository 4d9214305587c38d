"""Filters as SQL tests, with the parameters that their values become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlglot import exp

from ontologia.model import Combination, Condition, FieldExpr, Negation, Predicate, key_text
from ontologia.query import numbers
from ontologia.query.dialects import COMPARISONS, Node, Place, case, parameter
from ontologia.query.numbers import value_kind
from ontologia.query.plan import has_zero_byte, is_long_list, pad
from ontologia.query.sources import SELECTIVE, Sources
from ontologia.query.trees import select_from

NUMBERS: dict[str | None, type] = {"int": int, "float": float}
MATCHES = ("startswith", "endswith", "contains")


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


class Conditions:
    """The conditions of one statement over its sources. `bindings` are in the order of `Plan.conditions`."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.dialect = sources.dialect
        self.bindings: list[Binding] = []
        self._items = 0

    def hop_predicate(self, predicate: Predicate, number: int) -> Node:
        relation = self.sources.plan.hops[number].relation
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
        key = self.sources.plain(alias, f"{condition.operand.side}_key")
        if condition.op == "in" and not condition.value:
            return exp.Boolean(this=negated)
        inner = f"x{len(self.bindings)}"
        self.sources.enter(inner, operand.owner)
        test = self.test(condition, operand, inner)
        found = self.among_ends(inner, key, exp.not_(exp.paren(test)) if negated else test)
        if (condition.op == "is_null") is negated or condition.op not in ("is_null", "is_not_null"):
            return found
        return exp.paren(exp.or_(found, exp.not_(self.among_ends(inner, key, None))))

    def among_ends(self, inner: str, key: Node, test: Node | None) -> Node:
        keys = select_from(self.sources.rows(inner, probe=False), [self.sources.plain(inner, "entity_key")])
        if test is not None:
            keys = keys.where(test, copy=False)
        return exp.In(this=key.copy(), query=keys.subquery(copy=False))

    def test(self, condition: Condition, operand: FieldExpr[Any], alias: str) -> Node:
        if operand.scalar is not None:
            test = self.scalar_test(condition, operand, alias)
            rare = condition.op in SELECTIVE and self.sources.is_indexed(operand, alias)
            return self.dialect.rare(test) if rare else test
        place = self.sources.place(operand, alias)
        if operand.item_path is not None:
            return self.some_item(place, operand.item_path, lambda item: self.json_test(condition, item))
        return self.json_test(condition, place)

    def some_item(self, place: Place, steps: tuple[str, ...], test: Callable[[Place], Node]) -> Node:
        self._items += 1
        return self.dialect.some_item(place, steps, f"item{self._items}", test)

    def scalar_test(self, condition: Condition, operand: FieldExpr[Any], alias: str) -> Node:
        op = condition.op
        by_key = op in ("eq", "in") and self.sources.is_primary_key(operand, alias)
        subject = self.sources.plain(alias, "entity_key") if by_key else self.sources.scalar(operand, alias)
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
        if by_key or op not in SELECTIVE or not bound or not self.sources.is_indexed(operand, alias):
            return test
        assert operand.column is not None
        found = self.sources.stored_rows[self.sources.refs[alias]].index_test(operand.column, alias, op, bound)
        return test if found is None else exp.paren(exp.and_(found, test))

    def among(
        self, condition: Condition, subject: Node, scalar: str | None, encode: Callable[[Any], Any]
    ) -> tuple[Node, list[exp.Placeholder]]:
        is_list = is_long_list(condition.value) or any(
            len(self.comparison("eq", value, scalar, encode).suffixes) > 1 for value in condition.value
        )
        if is_list and (found := self.in_list(condition, subject, scalar, encode)) is not None:
            return found, []
        comparisons = [self.comparison("eq", value, scalar, encode) for value in pad(condition.value)]
        if not comparisons:
            return exp.false(), []
        tests = self.bind_each(comparisons)
        bound = [name for names in tests for name in names]
        if len(bound) == len(comparisons):
            return subject.isin(*bound), bound
        each = zip(comparisons, tests, strict=True)
        return _any_of([comparison.test(subject.copy(), names) for comparison, names in each]), bound

    def in_list(
        self, condition: Condition, subject: Node, scalar: str | None, encode: Callable[[Any], Any]
    ) -> Node | None:
        """All values as one parameter, where the engine takes lists and these values can be in one."""
        dialect, values = self.dialect, condition.value
        items: Callable[[Any], list[Any]] = lambda values: list(map(encode, values))  # noqa: E731
        if scalar in NUMBERS:
            items = numbers.as_integers if scalar == "int" else numbers.as_floats
        elif not isinstance(encode(values[0]), str):
            return None
        if not dialect.takes_lists:
            return None
        (bound,) = self.bind(("",), lambda values: (dialect.encode_list(items(values)),))
        found = dialect.is_listed(subject, bound, scalar)
        if scalar not in NUMBERS or set(map(value_kind, values)) == {NUMBERS[scalar]}:
            return found
        # Numbers of another type may all be none of this one, and in an empty list nothing is, not even unknown.
        return case((exp.not_(subject.copy().is_(exp.null())), found))

    def comparison(self, op: str, value: Any, scalar: str | None, encode: Callable[[Any], Any]) -> Comparison:
        """A value compared with a scalar: of a number of another type, the range of those that pass (`numbers`)."""
        kind = value_kind(value)
        differs = kind == "wide" or (not self.dialect.exact_numbers and (kind is int) is not (scalar == "int"))
        if scalar not in NUMBERS or not differs:
            return Comparison(
                ("",), lambda value: (encode(value),), lambda subject, bound: _compare(op, subject, bound)
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
                return self.json_in(condition, place)
            case "contains":
                return self.json_contains(condition, place)
        if op in MATCHES:
            match_text = self.match(condition, self.dialect.json_scalar(place, "text"))
            return self.dialect.json_cases(place, (self.dialect.is_kind(place, "text"), match_text), otherwise=False)
        comparison = self.json_comparison(op, value)
        return comparison.test(place, self.bind(comparison.suffixes, comparison.encode))

    def json_in(self, condition: Condition, place: Place) -> Node:
        """Whether what is at a place, which is of any kind, is one of these values."""
        dialect, values = self.dialect, condition.value
        if not values:
            return exp.false()
        if not dialect.takes_lists:
            comparisons = [self.json_comparison("eq", item) for item in pad(values)]
            each = zip(comparisons, self.bind_each(comparisons), strict=True)
            return _any_of([comparison.test(place, bound) for comparison, bound in each])
        # A list for each kind: to look at the place once more for every value takes an engine all its memory.
        lists: list[tuple[str, Node, Node, str, Callable[[Iterable[Any]], list[Any]]]] = []
        if any(map(_is_number, values)):
            whole, number = dialect.json_integer(place), dialect.json_scalar(place, "number")
            lists.append(("_whole", exp.not_(whole.is_(exp.null())), whole, "int", numbers.as_integers))
            lists.append(("_number", dialect.is_kind(place, "number"), number, "float", numbers.as_floats))
        text, encode = dialect.json_scalar(place, "text"), partial(dialect.encode, None)
        one_by_one = sum(not _is_number(value) for value in pad(values)) if has_zero_byte(values) else 0
        if not one_by_one and not all(map(_is_number, values)):
            lists.append(
                ("_text", dialect.is_kind(place, "text"), text, "str", lambda values: list(map(encode, values)))
            )

        def encode_lists(values: Iterable[Any]) -> Iterable[Any]:
            for *_, scalar, items in lists:
                yield dialect.encode_list(items(value for value in values if _is_number(value) is (scalar != "str")))
            if one_by_one:  # a list parameter may end at a zero byte, and a text of its own does not
                yield from (encode(value) for value in pad(tuple(values)) if not _is_number(value))

        suffixes = [*(suffix for suffix, *_ in lists), *(f"_text{number}" for number in range(one_by_one))]
        bound = self.bind(tuple(suffixes), encode_lists)
        branches = [
            (applies, dialect.is_listed(subject, name, scalar))
            for name, (_, applies, subject, scalar, _) in zip(bound, lists, strict=False)
        ]
        if one_by_one:
            branches.append((dialect.is_kind(place, "text"), text.isin(*bound[len(lists) :])))
        return dialect.json_cases(place, *branches, otherwise=False)

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
        if not _is_number(value):
            return Comparison(
                ("",),
                lambda value: (dialect.encode(None, value),),
                lambda place, bound: dialect.json_cases(
                    place,
                    (dialect.is_kind(place, "text"), _compare(op, dialect.json_scalar(place, "text"), bound)),
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
            for comparison, value in zip(comparisons, pad(values), strict=True):
                yield from comparison.encode(value)

        self.bindings[-1] = Binding(names, encode)
        return found

    def bind(self, suffixes: tuple[str, ...], encode: Callable[[Any], Iterable[Any]]) -> list[exp.Placeholder]:
        """Parameters for the value of the condition that is being compiled."""
        names = tuple(f"p{len(self.bindings) - 1}{suffix}" for suffix in suffixes)
        self.bindings[-1] = Binding(names, encode)
        return [parameter(name) for name in names]

    def encoder(self, operand: FieldExpr[Any], alias: str) -> Callable[[Any], Any]:
        rows, column, dialect = self.sources.stored_rows[self.sources.refs[alias]], operand.column, self.dialect
        if column is None:
            return key_text
        return lambda value: rows.encode(column, dialect.encode(column.scalar, value))


def _nothing(value: Any) -> Iterable[Any]:
    return ()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _any_of(tests: Sequence[Node]) -> Node:
    """Whether one of them is true, in halves of halves: engines follow a chain of many only so far."""
    if len(tests) == 1:
        return exp.paren(tests[0])
    half = len(tests) // 2
    return exp.paren(exp.Or(this=_any_of(tests[:half]), expression=_any_of(tests[half:])))


def _any_text(subject: Node) -> Node:
    """What a match of the empty text is: true, and of null unknown, as any match."""
    return case((exp.not_(subject.is_(exp.null())), exp.true()))


def _compare(op: str, subject: Node, bound: Sequence[Node]) -> Node:
    return COMPARISONS[op](this=subject, expression=bound[0].copy())


def _within(op: str, subject: Node, bound: Sequence[Node]) -> Node:
    test = exp.Between(this=subject, low=bound[0].copy(), high=bound[1].copy())
    return exp.not_(exp.paren(test)) if op == "ne" else test


def _key_value(value: Any) -> str:
    return key_text(int(value) if isinstance(value, float) and value.is_integer() else value)
