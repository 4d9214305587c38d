"""Answers from lists of rows. Written from the documentation; shares no code with builder, plan, compiler or engines.

A row is its type's name, its identity as texts, the commit that wrote it, and its values as they were given. What is
kept as JSON is looked at as JSON: instants and dates are ISO texts, bytes are hexadecimal, NaN is a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from math import fsum, isinf, isnan
from typing import Any

from ontologia.testing.differential.questions import Filter, Hop, Not, Number, Operand, Question, Several, is_field
from ontologia.testing.differential.worlds import Subject, World, declared_at

NOTHING: Any = object()  # no such place
Truth = bool | None


@dataclass(frozen=True)
class Row:
    """One version of a thing."""

    type_name: str
    identity: tuple[str, ...]
    commit: int
    values: dict[str, Any]
    removed: bool = False


class Oracle:
    """A history, and the answers to questions about it."""

    def __init__(self, world: World) -> None:
        self.history: list[Row] = []
        self.head = 0
        for number, objects in enumerate(world.commits):
            self._commit(objects, world.removed[number] if world.removed else ())

    def _commit(self, objects: Iterable[Any], removed: Iterable[Any]) -> None:
        """The last word on a thing in a commit counts; what is as it was is not written, and what is not there does
        not go. Removals come after all else, and keep the values that were there."""
        wanted: dict[tuple[str, tuple[str, ...]], Row] = {}
        for obj in objects:
            row = _row_of(obj, self.head + 1)
            wanted[row.type_name, row.identity] = row
        for obj in removed:
            row = _row_of(obj, self.head + 1)
            wanted[row.type_name, row.identity] = replace(row, removed=True)
        changed = []
        for row in wanted.values():
            same = [old for old in self.history if (old.type_name, old.identity) == (row.type_name, row.identity)]
            before = None if not same or same[-1].removed else same[-1]
            if row.removed and before is not None:
                changed.append(replace(before, commit=row.commit, removed=True))
            elif not row.removed and (before is None or not _equal(before.values, row.values)):
                changed.append(row)
        if changed:
            self.head += 1
            self.history += changed

    # --- which rows ---

    def rows(self, subject: Subject, window: tuple[str, int]) -> list[Row]:
        mode, commit = window
        found = [row for row in self.history if row.type_name == _stored_name(subject)]
        if mode == "since":
            return [row for row in found if row.commit > commit]
        if mode == "history":
            return found
        newest: dict[tuple[str, ...], Row] = {}
        for row in found:
            if mode == "latest" or row.commit <= commit:
                newest[row.identity] = row
        return [row for row in newest.values() if not row.removed]

    def there(self, subject: Subject, window: tuple[str, int]) -> list[Row]:
        """The rows that say that a thing is there: paths lead over those, and ends are among them."""
        return [row for row in self.rows(subject, window) if not row.removed]

    def answer(self, question: Question) -> Any:
        """Rows, paths, a number, or groups, in the form that `shown` gives to the engine's answers."""
        found = [
            row
            for row in (self.there if question.hops else self.rows)(question.subject, question.window)
            if all(self.holds(part, row, question.subject, question.window) for part in question.where)
        ]
        if question.groups:
            return self._groups(question, found)
        if question.number is not None:
            return self.number(question.number, found, question.subject, question.window)
        paths: list[tuple[Row, ...]] = [(row,) for row in found]
        for hop in question.hops:
            paths = self._follow(hop, paths, question.window)
        ordered = self._ends(question, paths) if question.ends_only else self._order(question, paths)
        start = question.offset or 0
        return ordered[start : None if question.limit is None else start + question.limit]

    def _follow(self, hop: Hop, paths: Sequence[tuple[Row, ...]], window: tuple[str, int]) -> list[Any]:
        relations, reached = self.there(hop.relation, window), self.there(hop.reached, window)
        if hop.where is not None and hop.about_relation:
            relations = [row for row in relations if self.holds(hop.where, row, hop.relation, window)]
        elif hop.where is not None:
            reached = [row for row in reached if self.holds(hop.where, row, hop.reached, window)]
        near, far = (0, 1) if hop.forward else (1, 0)
        return [
            (*path, relation, entity)
            for path in paths
            for relation in relations
            for entity in reached
            if relation.identity[near] == path[-1].identity[0] and relation.identity[far] == entity.identity[0]
        ]

    # --- filters: true, false, or unknown ---

    def holds(self, part: Filter, row: Row, subject: Subject, window: tuple[str, int], wanted: bool = True) -> bool:
        """Whether a filter is certainly true; with `wanted` False, whether it is certainly false."""
        if isinstance(part, Not):
            return self.holds(part.part, row, subject, window, not wanted)
        if isinstance(part, Several):
            every = (part.op == "and") is wanted
            found = [self.holds(inner, row, subject, window, wanted) for inner in part.parts]
            return all(found) if every else any(found)
        operand = part.operand
        if operand.side is None:
            return _truth(part.op, part.value, _look_up(operand, row), operand) is wanted
        ends = self._versions_of_end(operand, row, subject, window)
        values = [_look_up(operand, end) for end in ends] or [NOTHING]
        return any(_truth(part.op, part.value, value, operand) is wanted for value in values)

    def _versions_of_end(self, operand: Operand, row: Row, subject: Subject, window: tuple[str, int]) -> list[Row]:
        assert subject.ends is not None
        number = 0 if operand.side == "left" else 1
        return [end for end in self.there(subject.ends[number], window) if end.identity[0] == row.identity[number]]

    # --- order ---

    def _order(self, question: Question, paths: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
        versions = question.window[0] in ("history", "since")
        paths = sorted(paths, key=lambda path: [(row.commit if versions else 0, row.identity) for row in path])
        for operand, descending in reversed(question.orders):
            for key in reversed(_sort_keys(operand)):
                paths.sort(key=lambda path, key=key: key(path[0]), reverse=descending)  # type: ignore[misc]
        return paths

    def _ends(self, question: Question, paths: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
        by_end: dict[Any, list[tuple[Row, ...]]] = {}
        for path in paths:
            by_end.setdefault((path[-1].identity, path[-1].commit), []).append(path)
        versions = question.window[0] in ("history", "since")
        ends = sorted(by_end, key=lambda end: (end[1] if versions else 0, end[0]))
        for operand, descending in reversed(question.orders):
            place = -1 if is_field(operand, question.hops[-1].reached) else 0
            for key in reversed(_sort_keys(operand)):
                greatest = {end: max(key(path[place]) for path in found) for end, found in by_end.items()}
                ends.sort(key=lambda end, greatest=greatest: greatest[end], reverse=descending)  # type: ignore[misc]
        return [(by_end[end][0][-1],) for end in ends]

    # --- numbers ---

    def number(self, number: Number, rows: Sequence[Row], subject: Subject, window: tuple[str, int]) -> Any:
        if number.where is not None:
            return sum(self.holds(number.where, row, subject, window) for row in rows)
        if number.operand is None:
            return len(rows)
        kind = subject.kinds.get(number.operand.field)
        declared = None if kind is None else declared_at(kind.annotation, number.operand.steps)
        values = [value for row in rows if (value := _look_up(number.operand, row)) is not NOTHING]
        values = [value for value in values if value is not None]
        if number.operand.scalar is None:
            values = _count(values, declared, lengths=number.function == "avg_len")
        elif number.function == "avg_len":
            values = [len(value) for value in values]
        if not values:
            return None
        match number.function:
            case "min":
                return min(values, key=_rank)
            case "max":
                return max(values, key=_rank)
            case "sum":
                return _sum(values)
        return _mean(values)

    def _groups(self, question: Question, rows: Sequence[Row]) -> list[Any]:
        subject, window = question.subject, question.window
        members: dict[Any, list[Row]] = {}
        keys: dict[Any, list[Any]] = {}
        for row in rows:
            values = []
            for group in question.groups:
                owner = row
                if group.side is not None:
                    ends = self._versions_of_end(group, row, subject, window)
                    owner = ends[0] if ends else Row("", (), 0, {})
                values.append(_look_up(group, owner) if owner.identity else None)
            place = tuple(_group_rank(value, group) for value, group in zip(values, question.groups, strict=True))
            members.setdefault(place, []).append(row)
            keys.setdefault(place, [None if value is NOTHING else value for value in values])
        found = []
        for place in sorted(members):
            if question.having is not None:
                number, op, value = question.having
                if not _compare(op, self.number(number, members[place], subject, window), value):
                    continue
            number = question.number or Number("count")
            found.append((*keys[place], self.number(number, members[place], subject, window)))
        return found


# --- values ---


def _stored_name(subject: Subject) -> str:
    return ("relation " if subject.ends else "entity ") + subject.name


def _row_of(obj: Any, commit: int) -> Row:
    declaration = type(obj)
    values = dict(obj.__dict__)
    if hasattr(declaration, "__entity_name__"):
        key = next(name for name, options in declaration.__entity_fields__.items() if options.primary_key)
        return Row(f"entity {declaration.__entity_name__}", (as_key(values[key]),), commit, values)
    identity = values["left_key"], values["right_key"], obj.instance_key
    return Row(f"relation {declaration.__relation_name__}", identity, commit, values)


def as_key(value: Any) -> str:
    """A key as text."""
    found = as_json(value)
    return found if isinstance(found, str) else str(found)


def as_json(value: Any) -> Any:
    """A value as JSON remembers it."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def as_text(value: Any) -> str:
    """Canonical JSON."""
    return json.dumps(as_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _equal(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return all(
        as_text(value) == as_text(new[name]) if isinstance(value, (dict, list, tuple)) else _same(value, new[name])
        for name, value in old.items()
    )


def _same(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    return bool(old == new) or (isinstance(old, float) and isnan(old) and isnan(new))


def _look_up(operand: Operand, row: Row) -> Any:
    value = row.values.get(operand.field, NOTHING)
    if operand.scalar is not None:
        return value
    return walk(as_json(value) if value is not NOTHING else NOTHING, operand.steps)


def walk(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        document = document.get(step, NOTHING) if isinstance(document, dict) else NOTHING
    return document


def _truth(op: str, wanted: Any, value: Any, operand: Operand) -> Truth:
    if operand.items is not None:
        items = value if isinstance(value, list) else []
        inner = Operand(operand.field, None)
        return any(_truth(op, wanted, walk(item, operand.items), inner) is True for item in items)
    missing = value is None or value is NOTHING
    if op in ("is_null", "is_not_null"):
        return missing is (op == "is_null")
    if op == "in_" and not wanted:
        return False
    if missing:
        return None
    if op in ("is_true", "is_false"):
        return value is (op == "is_true") if isinstance(value, bool) else None
    if op == "in_":
        return any(_compare("eq", value, item, operand) for item in wanted)
    if op == "contains" and isinstance(value, list):
        return any(item is not None and _compare("eq", item, wanted, operand) for item in value)
    if op in ("startswith", "endswith", "contains"):
        if not isinstance(value, str) or not isinstance(wanted, str):
            return False
        return {"startswith": value.startswith, "endswith": value.endswith, "contains": value.__contains__}[op](wanted)
    return _compare(op, value, wanted, operand)


def _compare(op: str, value: Any, wanted: Any, operand: Operand | None = None) -> bool:
    if operand is not None and operand.scalar is None:
        number = isinstance(wanted, (int, float))
        if number is not _is_number(value) or (not number and not isinstance(value, str)):
            return op == "ne"  # of another kind
        wanted = wanted if number else as_json(wanted)
    order = _order(value, wanted)
    return {"eq": order == 0, "ne": order != 0, "lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0}[
        op
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _exact(value: Any) -> Any:
    """A number that compares exactly with any other, NaN above all."""
    if isinstance(value, float):
        if isnan(value):
            return (2, Fraction(0))
        return (1 if value > 0 else -1, Fraction(0)) if isinf(value) else (0, Fraction(value))
    return (0, Fraction(value))


def _order(one: Any, other: Any) -> int:
    if _is_number(one) and _is_number(other):
        one, other = _exact(_narrow(one)), _exact(other)
    return int(one > other) - int(one < other)


def _narrow(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _rank(value: Any) -> Any:
    """A sort key: nothing before everything, numbers by value."""
    if value is None or value is NOTHING:
        return (0,)
    return (1, _exact(_narrow(value)) if _is_number(value) else value)


def _sort_keys(operand: Operand) -> list[Callable[[Row], Any]]:
    """Inside JSON: numbers by value, then texts; everything else counts as nothing."""
    if operand.scalar is not None:
        return [lambda row: _rank(_look_up(operand, row))]
    return [
        lambda row: _rank(value if _is_number(value := _look_up(operand, row)) else None),
        lambda row: _rank(value if isinstance(value := _look_up(operand, row), str) else None),
    ]


def _group_rank(value: Any, group: Operand) -> Any:
    if value is None or value is NOTHING:
        return (0, "")
    return (1, as_text(value)) if group.scalar is None else _rank(value)


# --- adding up ---


def _count(values: Sequence[Any], declared: Any, *, lengths: bool) -> list[Any]:
    if lengths:
        return [len(value) for value in values if isinstance(value, (list, str))]
    if declared is str:
        return [value for value in values if isinstance(value, str)]
    if declared is int:
        return [value for value in values if _is_number(value) and -(2**63) <= value < 2**63]
    if declared in (datetime, date):
        return [declared.fromisoformat(value) for value in values if isinstance(value, str)]
    return [float(value) for value in values if _is_number(value)]


def _sum(values: Sequence[Any]) -> Any:
    return _float_sum(values) if isinstance(values[0], float) else sum(values)


def _float_sum(values: Sequence[float]) -> float:
    try:
        return fsum(values)
    except OverflowError:
        return float(sum(values))
    except ValueError:  # infinities of both signs
        return float("nan")


def _mean(values: Sequence[Any]) -> float:
    return _float_sum([value / len(values) for value in values])


def sizes(operand: Operand, subject: Subject, oracle: Oracle) -> float:
    """The sum of the sizes of all finite numbers that a field ever had."""
    values = [_look_up(operand, row) for row in oracle.rows(subject, ("history", 0))]
    return float(sum(abs(Fraction(value)) for value in values if _is_number(value) and abs(value) < float("inf")))
