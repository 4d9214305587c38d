"""The shape of the reference model's answers: their numbers, their order and their columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from ontologia.model import COMMIT_ID, FieldExpr, encode_json
from ontologia.model.columns import SCALARS, arrow_type
from ontologia.query.compiler import REMOVED
from ontologia.query.plan import Plan, group_names
from ontologia.testing.reference.filters import ABSENT, Version, as_number, is_number, rank

Joined = tuple[Version, ...]


def numbers_of(operand: FieldExpr[Any], rows: Sequence[Version], *, lengths: bool = False) -> list[Any]:
    """The values an aggregate is made of: no nulls, and inside JSON only what it is declared to be, else numbers."""
    if operand.scalar is not None:
        values = [value for row in rows if (value := row.value(operand)) is not None]
        return [len(value) for value in values] if lengths else values
    places = [row.inside(operand) for row in rows]
    if lengths:
        return [len(place) for place in places if isinstance(place, (list, str))]
    match operand.counted_as:
        case "int":
            return [place for place in places if is_number(place)]
        case "str":
            return [place for place in places if isinstance(place, str)]
        case "datetime":
            return [datetime.fromisoformat(place) for place in places if isinstance(place, str)]
        case "date":
            return [date.fromisoformat(place) for place in places if isinstance(place, str)]
    return [float(place) for place in places if is_number(place)]


def sum_floats(values: Iterable[float]) -> float:
    kept = list(values)
    try:
        return math.fsum(kept)
    except OverflowError:
        return float(sum(kept))
    except ValueError:  # infinities of both signs
        return math.nan


def group_key(row: Version, group: FieldExpr[Any]) -> Any:
    """A scalar as it is; a place inside JSON as its text, which also says how groups are ordered."""
    if group.scalar is not None:
        return row.value(group)
    place = row.inside(group)
    return None if place is ABSENT or place is None else encode_json(place)


def sort_paths(plan: Plan, joined: list[Joined]) -> list[Joined]:
    """The order asked for, then identity; where rows are versions, commit and identity (RFC 0004 §4.3)."""

    def ties(path: Joined) -> list[Any]:
        return [row.identity if plan.window.deduplicated else (row.commit_id, row.identity) for row in path]

    joined = sorted(joined, key=ties)
    for order in reversed(plan.order):
        for part in reversed(range(1 if order.operand.scalar is not None else 2)):
            joined.sort(key=_sort_key(order.operand, part), reverse=order.descending)
    return joined


def keep_ends(plan: Plan, joined: list[Joined]) -> list[Joined]:
    """Each end once. By what it was reached from it is placed by the greatest value, of each thing sorted by."""
    paths: dict[Any, list[Joined]] = {}
    for path in joined:
        paths.setdefault((path[-1].identity, path[-1].commit_id), []).append(path)
    ends = sort_paths(plan.change(order=()), [(path[-1],) for path, *_ in paths.values()])
    for order in reversed(plan.order):
        place = -1 if order.operand.owner == plan.hops[-1].entity else 0
        for part in reversed(range(1 if order.operand.scalar is not None else 2)):
            key = _sort_key(order.operand, part, place)
            greatest = {identity: max(map(key, found)) for identity, found in paths.items()}
            ends.sort(key=lambda end: greatest[end[0].identity, end[0].commit_id], reverse=order.descending)
    return ends


def _sort_key(operand: FieldExpr[Any], part: int, place: int = 0) -> Callable[[Joined], Any]:
    """Inside JSON, numbers sort by value and texts after them; everything else counts as null."""

    def key(path: Joined) -> Any:
        if operand.scalar is not None:
            return rank(path[place].value(operand))
        found = path[place].inside(operand)
        if part == 0:
            return rank(as_number(found) if is_number(found) else None)
        return rank(found if isinstance(found, str) else None)

    return key


def columns_of(plan: Plan, path: Joined) -> tuple[Any, ...]:
    columns: list[Any] = []
    for row in path:
        columns.append(row.commit_id)
        if row.ref.kind == "relation":
            columns += row.identity
        for column in plan.schemas[row.ref].columns:
            value = row.values[column.name]
            columns.append(encode_json(value) if column.scalar is None and value is not None else value)
    return (*columns, path[0].removed) if plan.shows_removals else tuple(columns)


def output_fields(plan: Plan) -> list[pa.Field]:
    if plan.aggregates:
        groups = list(zip(group_names(plan.groups), (group.scalar for group in plan.groups), strict=True))
        numbers = [(name, aggregate.scalar) for name, aggregate in plan.aggregates]
        return [
            pa.field(name, pa.string() if scalar is None else arrow_type(SCALARS[scalar].arrow))
            for name, scalar in (*groups, *numbers)
        ]
    hops = [ref for hop in plan.hops for ref in (hop.relation, hop.entity)]
    refs = [plan.hops[-1].entity] if plan.ends_only else [plan.source, *hops]
    fields = []
    for ref in refs:
        fields.append(pa.field(COMMIT_ID, pa.int64()))
        if ref.kind == "relation":
            fields += [pa.field(name, pa.string()) for name in ref.identity]
        fields += [pa.field(column.name, column.arrow_type) for column in plan.schemas[ref].columns]
    return [*fields, pa.field(REMOVED, pa.bool_())] if plan.shows_removals else fields
