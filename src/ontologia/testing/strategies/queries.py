"""Random queries over a random model: filters, windows, orders, pages, numbers, groups and traversals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Any

from hypothesis import strategies as st

from ontologia.model import FieldExpr, Predicate
from ontologia.query import aggregates as of
from ontologia.query.builder import QueryRoot
from ontologia.query.plan import Window
from ontologia.testing.reference.answers import numbers_of
from ontologia.testing.reference.store import ReferenceStore
from ontologia.testing.strategies.models import INSTANTS, STEPS, Kind, RandomModel, RandomType

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
MATCHES = ("startswith", "endswith", "contains")
JSON_PROBES = st.sampled_from(
    (0, 1, -1, 0.5, 2**53, 2**53 + 1, 2.0**53, 2**63, nan, inf, "", "a", "1", "NaN", "a\x00b", INSTANTS[3], b"a")
)


@dataclass(frozen=True)
class RandomQuery:
    """A query that can be asked of anything, and that can be read when a test fails."""

    text: str
    ask: Callable[[QueryRoot], Any] = field(repr=False)
    numbers: tuple[FieldExpr[Any], ...] = field(default=(), repr=False)

    def magnitude(self, reference: ReferenceStore) -> float:
        """The sum of the sizes of all numbers it may add up: its rounding is relative to that."""
        sizes = [
            abs(value)
            for operand in self.numbers
            for value in numbers_of(operand, reference.window(operand.owner, Window("history"), across=True))
        ]
        return float(sum(size for size in sizes if isfinite(size)))


# --- filters ---


@st.composite
def conditions(draw: st.DrawFn, item: RandomType, side: str | None = None) -> tuple[str, Predicate]:
    """One comparison of a field of a type, or of an endpoint's."""
    name = draw(st.sampled_from(sorted(item.kinds)))
    kind = item.kinds[name]
    operand = getattr(item.cls, name) if side is None else item.cls.__declaration__.expression(name, side)
    if not kind.scalar:
        operand = _draw_place(draw, operand, side)
    op, value = draw(_comparisons(kind))
    text = f"{operand}.{op}({value!r})"
    if value is None:
        return text, getattr(operand, op)()
    return text, getattr(operand, f"__{op}__" if op in ORDERED else op)(value)


def _draw_place(draw: st.DrawFn, operand: FieldExpr[Any], side: str | None) -> FieldExpr[Any]:
    ways = ("whole", "path", "path") if side else ("whole", "path", "item", "inner item")
    if side and operand.column is not None and operand.column.spec["kind"] == "list":
        ways = ("path", "path", "path")  # items of an endpoint's list cannot be asked for
    how = draw(st.sampled_from(ways))
    if how in ("path", "inner item"):
        operand = draw(st.sampled_from(_places(operand.path, STEPS)))
    if how in ("item", "inner item"):
        operand = draw(st.sampled_from(_places(operand.any_path, ("", *STEPS))))
    return operand


def _places(lead: Callable[[str], FieldExpr[Any]], ways: Iterable[str]) -> list[FieldExpr[Any]]:
    """Where these ways lead; a `TypedDict` refuses those that it does not declare."""
    found = []
    for way in ways:
        with suppress(ValueError):
            found.append(lead(way))
    return found


def _comparisons(kind: Kind) -> st.SearchStrategy[tuple[str, Any]]:
    nulls = st.tuples(st.sampled_from(("is_null", "is_not_null")), st.none())
    truths = st.tuples(st.sampled_from(("is_true", "is_false")), st.none())
    scalar = kind.name.removesuffix(" | None") if kind.scalar else None
    probes = _probes(kind, scalar)
    among = st.tuples(st.just("in_"), st.lists(probes, max_size=5))
    if scalar == "bool":
        return nulls | truths | among
    tests = nulls | among | st.tuples(st.sampled_from(ORDERED), probes)
    if scalar in ("str", None):
        tests |= st.tuples(st.sampled_from(MATCHES), st.sampled_from(("", "a", "A", "%", "_", "'", "💡", "\n")))
    return tests | truths if scalar is None else tests


def _probes(kind: Kind, scalar: str | None) -> st.SearchStrategy[Any]:
    if scalar is None:
        return JSON_PROBES
    values = kind.values.filter(lambda value: value is not None)
    if scalar == "int":
        return values | st.sampled_from((0.5, nan, inf, -inf, 2**70, -(2**64)))
    return values


def predicates(item: RandomType) -> st.SearchStrategy[tuple[str, Predicate]]:
    """Conditions combined with and, or, not; on a relation also of its endpoints' fields, see `endpoint_conditions`."""
    return _combine(conditions(item))


def _combine(leaves: st.SearchStrategy[tuple[str, Predicate]]) -> st.SearchStrategy[tuple[str, Predicate]]:
    def extend(inner: st.SearchStrategy[tuple[str, Predicate]]) -> st.SearchStrategy[tuple[str, Predicate]]:
        both = st.tuples(inner, inner)
        return (
            inner.map(lambda part: (f"~({part[0]})", ~part[1]))
            | both.map(lambda parts: (f"({parts[0][0]} & {parts[1][0]})", parts[0][1] & parts[1][1]))
            | both.map(lambda parts: (f"({parts[0][0]} | {parts[1][0]})", parts[0][1] | parts[1][1]))
        )

    return st.recursive(leaves, extend, max_leaves=4)


def endpoint_conditions(model: RandomModel, item: RandomType) -> st.SearchStrategy[tuple[str, Predicate]]:
    """Conditions on the fields of a relation and of the entities it joins."""
    by_class = {entity.cls: entity for entity in model.entities}
    first, second = item.cls.__declaration__.endpoints
    return conditions(item) | conditions(by_class[first], "left") | conditions(by_class[second], "right")


# --- queries ---


@st.composite
def queries(draw: st.DrawFn, model: RandomModel, head: int) -> RandomQuery:
    """A query with any ending; `head` is the last commit there is."""
    item = draw(st.sampled_from(model.types))
    is_entity = item in model.entities
    leaves = conditions(item) if is_entity else endpoint_conditions(model, item)
    filters = draw(st.lists(_combine(leaves), max_size=2))
    window, windowed = draw(_windows(head))
    start = "entities" if is_entity else "relations"
    text = f"{item}{''.join(f'.where({said})' for said, _ in filters)}{window}"

    def query(root: QueryRoot) -> Any:
        return windowed(getattr(root, start)(item.cls).where(*(predicate for _, predicate in filters)))

    endings = [_list_rows, _list_rows, _reduce, _group]
    if is_entity and _relations_of(model, item.cls):
        endings.append(_traverse)
    ending = draw(st.sampled_from(endings))
    said, end, numbers = ending(draw, model, item)
    return RandomQuery(text + said, lambda root: end(query(root)), tuple(numbers))


Ending = tuple[str, Callable[[Any], Any], Iterable[FieldExpr[Any]]]


def _windows(head: int) -> st.SearchStrategy[tuple[str, Callable[[Any], Any]]]:
    commit = st.integers(0, head + 1)
    return (
        st.just(("", lambda query: query))
        | commit.map(lambda c: (f".as_of({c})", lambda query: query.as_of(c)))
        | st.just((".with_history()", lambda query: query.with_history()))
        | commit.map(lambda c: (f".history_since({c})", lambda query: query.history_since(c)))
    )


def _draw_operand(draw: st.DrawFn, item: RandomType, fits: Callable[[Kind], bool] = lambda kind: True) -> Any:
    names = [name for name in sorted(item.kinds) if fits(item.kinds[name])]
    if not names:
        return None
    name = draw(st.sampled_from(names))
    operand = getattr(item.cls, name)
    if not item.kinds[name].scalar and draw(st.booleans()):
        return draw(st.sampled_from(_places(operand.path, STEPS)))
    return operand


def _list_rows(draw: st.DrawFn, model: RandomModel, item: RandomType) -> Ending:
    orders = [(_draw_operand(draw, item), draw(st.booleans())) for _ in range(draw(st.integers(0, 2)))]
    limit = draw(st.none() | st.integers(0, 4))
    offset = draw(st.none() | st.integers(0, 3))
    said = "".join(f".order_by({operand}, {descending})" for operand, descending in orders)
    return f"{said}[{offset}:+{limit}]", lambda query: _page(_sort(query, orders), limit, offset).collect(), ()


def _sort(query: Any, orders: Iterable[tuple[FieldExpr[Any], bool]]) -> Any:
    for operand, descending in orders:
        query = query.order_by(operand, descending)
    return query


def _page(query: Any, limit: int | None, offset: int | None) -> Any:
    query = query if limit is None else query.limit(limit)
    return query if offset is None else query.offset(offset)


def _is_number(kind: Kind) -> bool:
    return not kind.scalar or kind.name.removesuffix(" | None") in ("int", "float")


def _has_length(kind: Kind) -> bool:
    return not kind.scalar or kind.name.removesuffix(" | None") == "str"


def _reduce(draw: st.DrawFn, model: RandomModel, item: RandomType) -> Ending:
    function = draw(st.sampled_from(("count", "count_where", "sum", "avg", "min", "max", "avg_len")))
    if function == "count_where":
        said, predicate = draw(predicates(item))
        return f".count_where({said})", lambda query: query.count_where(predicate), ()
    fits = {"sum": _is_number, "avg": _is_number, "avg_len": _has_length}.get(function, lambda kind: True)
    operand = _draw_operand(draw, item, fits)
    is_added_up = function in ("sum", "avg")
    if function == "count" or operand is None or (is_added_up and operand.counted_as not in of.NUMERIC):
        return ".count()", lambda query: query.count(), ()
    summed = (operand,) if is_added_up else ()
    return f".{function}({operand})", lambda query: getattr(query, function)(operand), summed


def _group(draw: st.DrawFn, model: RandomModel, item: RandomType) -> Ending:
    first = _draw_operand(draw, item)
    groups = [first]
    second = _draw_operand(draw, item)
    if second is not None and str(second) != str(first) and draw(st.booleans()):
        groups.append(second)
    extreme, number = _draw_operand(draw, item), _draw_operand(draw, item, _is_number)
    chosen = {"how many": of.count(), "least": of.min(extreme), "greatest": of.max(extreme)}
    summed: tuple[FieldExpr[Any], ...] = ()
    if number is not None and number.counted_as in of.NUMERIC:
        chosen |= {"total": of.sum(number), "mean": of.avg(number)}
        summed = (number,)
    at_least = draw(st.integers(0, 2))
    said = f".group_by({', '.join(map(str, groups))}).having(count() >= {at_least}).agg({extreme}, {number})"
    return said, lambda query: query.group_by(*groups).having(of.count() >= at_least).agg(**chosen), summed


def _relations_of(model: RandomModel, cls: type[Any]) -> list[RandomType]:
    return [relation for relation in model.relations if cls in relation.cls.__declaration__.endpoints]


def _traverse(draw: st.DrawFn, model: RandomModel, item: RandomType) -> Ending:
    by_class = {entity.cls: entity for entity in model.entities}
    here, said = item, ""
    steps: list[tuple[type[Any], bool, Predicate | None]] = []
    for _ in range(draw(st.integers(1, 2))):
        relation = draw(st.sampled_from(_relations_of(model, here.cls)))
        reverse = draw(st.booleans())
        first, second = relation.cls.__declaration__.endpoints
        forward = here.cls is first and not (reverse and here.cls is second)
        here = by_class[second if forward else first]
        text, predicate = draw(st.none() | predicates(relation) | predicates(here)) or ("", None)
        said += f".via({relation}, reverse={reverse}).where({text})"
        steps.append((relation.cls, reverse, predicate))
    ends_only = draw(st.booleans())
    limit, offset = draw(st.none() | st.integers(0, 4)), draw(st.none() | st.integers(0, 3))

    def end(query: Any) -> Any:
        for relation_cls, reverse, predicate in steps:
            query = query.via(relation_cls, reverse=reverse)
            query = query if predicate is None else query.where(predicate)
        query = query.without_relations() if ends_only else query
        return _page(query, limit, offset).collect()

    return f"{said}[{offset}:+{limit}]{' ends only' if ends_only else ''}", end, ()
