"""Questions as plain data, and the one place that says how the builder is asked them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ontologia.model import Endpoint, FieldExpr, Predicate
from ontologia.query import aggregates
from ontologia.query.builder import QueryRoot
from ontologia.testing.differential.worlds import Subject

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
MATCHES = ("startswith", "endswith", "contains")
Side = Literal["left", "right"]


@dataclass(frozen=True)
class Operand:
    """A field, a place inside it (`steps`), or a place inside the items of the list there (`items`)."""

    field: str
    scalar: str | None
    steps: tuple[str, ...] = ()
    items: tuple[str, ...] | None = None
    side: Side | None = None


@dataclass(frozen=True)
class Test:
    """One comparison."""

    operand: Operand
    op: str
    value: Any = None


@dataclass(frozen=True)
class Several:
    """Filters of which all must hold, or any."""

    op: Literal["and", "or"]
    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Not:
    """The opposite of a filter."""

    part: Filter


Filter = Test | Several | Not
Orders = tuple[tuple[Operand, bool], ...]


@dataclass(frozen=True)
class Hop:
    """One step of a traversal, and a filter on the relation or on the entity reached."""

    relation: Subject
    reached: Subject
    forward: bool
    reverse: bool
    where: Filter | None = None
    about_relation: bool = False


@dataclass(frozen=True)
class Number:
    """An aggregate; `where` is for `count_where`."""

    function: str
    operand: Operand | None = None
    where: Filter | None = None


@dataclass(frozen=True)
class Question:
    """What is asked: of one type, in a window, with filters; then rows, ends of a traversal, a number or groups."""

    subject: Subject
    window: tuple[str, int]
    where: tuple[Filter, ...] = ()
    orders: Orders = ()
    limit: int | None = None
    offset: int | None = None
    hops: tuple[Hop, ...] = ()
    ends_only: bool = False
    number: Number | None = None
    groups: tuple[Operand, ...] = ()
    having: tuple[Number, str, Any] | None = None


# --- asking the builder ---


def ask(question: Question, root: QueryRoot) -> Any:
    """Put a question to whatever answers queries."""
    subject = question.subject
    query: Any = root.entities(subject.cls) if subject.ends is None else root.relations(subject.cls)
    mode, commit = question.window
    match mode:
        case "as_of":
            query = query.as_of(commit)
        case "history":
            query = query.with_history()
        case "since":
            query = query.history_since(commit)
    for part in question.where:
        query = query.where(_predicate(part, subject))
    if question.groups:
        grouped = query.group_by(*(expression_of(group, subject) for group in question.groups))
        if question.having is not None:
            number, op, value = question.having
            grouped = grouped.having(getattr(_aggregate(number, subject), f"__{op}__")(value))
        return grouped.agg(**{"the number": _aggregate(question.number or Number("count"), subject)})
    if question.number is not None:
        return _ask_number(question.number, query, subject)
    for hop in question.hops:
        query = query.via(hop.relation.cls, reverse=hop.reverse)
        if hop.where is not None:
            query = query.where(_predicate(hop.where, hop.relation if hop.about_relation else hop.reached))
    query = query.without_relations() if question.ends_only else query
    for operand, descending in question.orders:
        query = query.order_by(expression_of(operand, _owner(question, operand)), descending)
    query = query if question.limit is None else query.limit(question.limit)
    return (query if question.offset is None else query.offset(question.offset)).collect()


def _owner(question: Question, operand: Operand) -> Subject:
    """The type that a field is sorted by: of the entities reached, if they have such a field."""
    reached = question.hops[-1].reached if question.hops and question.ends_only else question.subject
    return reached if is_field(operand, reached) else question.subject


def is_field(operand: Operand, subject: Subject) -> bool:
    kind = subject.kinds.get(operand.field)
    return kind is not None and kind.scalar == operand.scalar


def _ask_number(number: Number, query: Any, subject: Subject) -> Any:
    if number.where is not None:
        return query.count_where(_predicate(number.where, subject))
    if number.operand is None:
        return query.count()
    return getattr(query, number.function)(expression_of(number.operand, subject))


def _aggregate(number: Number, subject: Subject) -> aggregates.Aggregate:
    if number.where is not None:
        return aggregates.Aggregate("count_where", where=_predicate(number.where, subject))
    if number.operand is None:
        return aggregates.count()
    operand = expression_of(number.operand, subject)
    if number.function == "avg_len":
        return aggregates.Aggregate("avg_len", operand)
    made: aggregates.Aggregate = getattr(aggregates, number.function)(operand)
    return made


def _predicate(part: Filter, subject: Subject) -> Predicate:
    if isinstance(part, Not):
        return ~_predicate(part.part, subject)
    if isinstance(part, Several):
        first, second = (_predicate(inner, subject) for inner in part.parts)
        return first & second if part.op == "and" else first | second
    operand = expression_of(part.operand, subject)
    method = getattr(operand, f"__{part.op}__" if part.op in COMPARISONS else part.op)
    made: Predicate = method() if part.op.startswith("is_") else method(part.value)
    return made


def expression_of(operand: Operand, subject: Subject) -> FieldExpr[Any]:
    """The operand of a filter. A `ValueError` where a `TypedDict` does not declare a step."""
    found: Any = subject.cls if operand.side is None else Endpoint(subject.cls, operand.side)
    expression: FieldExpr[Any] = getattr(found, operand.field)
    for step in operand.steps:
        expression = expression[step]
    return expression if operand.items is None else expression.any_path(".".join(operand.items))
