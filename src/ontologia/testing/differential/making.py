"""Random questions about a world, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from math import inf, nan
from random import Random
from typing import Any

from ontologia.testing.differential.questions import (
    COMPARISONS,
    MATCHES,
    Filter,
    Hop,
    Not,
    Number,
    Operand,
    Orders,
    Question,
    Several,
    Side,
    Test,
    expression_of,
)
from ontologia.testing.differential.worlds import (
    BYTES,
    DATES,
    INSTANTS,
    STEPS,
    TEXTS,
    Kind,
    Subject,
    World,
    declared_at,
    make_float,
    make_int,
)

ODD = (2**63, -(2**63) - 1, 2**64 + 1, 10**400, 0.5, nan, inf)
SCALARS = (str, int, float, datetime, date, bytes)


def make_question(rng: Random, world: World) -> Question:
    """A question about some type of a world."""
    return _Maker(rng, world).question()


class _Maker:
    """Draws the parts of one question. Half of the values that things are compared with occur, or nearly occur."""

    def __init__(self, rng: Random, world: World) -> None:
        self.rng = rng
        self.world = world

    def question(self) -> Question:
        world = self.world
        subject = self.rng.choice(world.subjects)
        windows = ("latest", "latest", "as_of", "history", "since")
        window = self.rng.choice(windows), self.rng.randrange(len(world.commits) + 2)
        question = Question(subject, window, tuple(self._filter(subject) for _ in range(self.rng.choice((0, 1, 1, 2)))))
        touching = [relation for relation in world.relations if relation.ends and subject in relation.ends]
        match self.rng.randrange(5):
            case 0:
                return replace(question, number=self._number(subject))
            case 1:
                return self._group(question)
            case 2 if touching:
                return self._travelling(question, world)
        return self._page(replace(question, orders=self._orders(subject)))

    def _page(self, question: Question) -> Question:
        limit, offset = (self.rng.choice((None, None, self.rng.randrange(5))) for _ in range(2))
        return replace(question, limit=limit, offset=offset)

    def _orders(self, subject: Subject) -> Orders:
        return tuple((self._operand(subject), self.rng.random() < 0.5) for _ in range(self.rng.choice((0, 0, 1, 2))))

    def _operand(self, subject: Subject, *, items: bool = False, side: Side | None = None) -> Operand:
        names = list(subject.kinds)
        if subject.ends is not None:
            names += ["left_key", "right_key", *([subject.instance_key] if subject.instance_key else [])]
        names += [name for name, kind in subject.kinds.items() if kind.scalar is None] * 2
        name = self.rng.choice(names)
        kind = subject.kinds.get(name)
        operand = Operand(name, "str" if kind is None else kind.scalar, side=side)
        if kind is None or kind.scalar is not None:
            return operand
        value = self._occurring(operand, subject)
        if self.rng.random() < 0.6:
            operand = replace(operand, steps=self._steps(value, 1, 1, 2))
            value = walk(value, operand.steps)
        if items and side is None and self.rng.random() < (0.6 if isinstance(value, (list, tuple)) else 0.2):
            item = self.rng.choice(value) if isinstance(value, (list, tuple)) and value else None
            operand = replace(operand, items=self._steps(item, 0, 1, 1, 2))
        try:
            expression_of(replace(operand, side=None), subject)
        except ValueError:  # a step that is not declared
            return replace(operand, steps=(), items=None)
        return operand

    def _steps(self, value: Any, *lengths: int) -> tuple[str, ...]:
        """A way into a value: mostly one that leads somewhere."""
        steps: list[str] = []
        for _ in range(self.rng.choice(lengths)):
            known = [name for name in value if name.isidentifier()] if isinstance(value, dict) else []
            steps.append(self.rng.choice(known if known and self.rng.random() < 0.8 else STEPS))
            value = walk(value, steps[-1:])
        return tuple(steps)

    def _filter(self, subject: Subject, depth: int = 2, *, sides: bool = True) -> Filter:
        shape = self.rng.randrange(6) if depth else 5
        if shape == 0:
            return Not(self._filter(subject, depth - 1, sides=sides))
        if shape <= 2:
            parts = tuple(self._filter(subject, depth - 1, sides=sides) for _ in range(2))
            return Several("and" if shape == 1 else "or", parts if self.rng.random() < 0.9 else parts[:1] * 2)
        if sides and subject.ends is not None and self.rng.random() < 0.4:
            number = self.rng.randrange(2)
            side: Side = "right" if number else "left"
            return self._test(self._operand(subject.ends[number], side=side), subject.ends[number])
        return self._test(self._operand(subject, items=True), subject)

    def _test(self, operand: Operand, subject: Subject) -> Test:
        ops = ["is_null", "is_not_null", "in_", *COMPARISONS]
        match operand.scalar:
            case "bool":
                ops = ["is_null", "is_not_null", "is_true", "is_false", "in_"]
            case "str":
                ops += MATCHES
            case None:
                ops += [*MATCHES, "is_true", "is_false"]
        op = self.rng.choice(ops)
        if op.startswith("is_"):
            return Test(operand, op)
        if op == "in_":
            return Test(operand, op, tuple(self._likely(operand, subject) for _ in range(self.rng.randrange(4))))
        if op == "contains" and operand.scalar is None and not _is_text_by_declaration(operand):
            return Test(operand, op, self._likely(operand, subject))
        value = self._likely(operand, subject)
        if op in MATCHES and not isinstance(value, str):
            value = self.rng.choice(TEXTS)
        return Test(operand, op, value)

    def _likely(self, operand: Operand, subject: Subject) -> Any:
        """A value to compare with: half of the time one that is there, or a neighbour of it."""
        value = self._there(operand, subject) if self.rng.random() < 0.5 else None
        fits = isinstance(value, SCALARS) and isinstance(value, bool) is (operand.scalar == "bool")
        if not fits:
            return self._value(operand.scalar)
        match value:
            case str() if self.rng.random() < 0.4:
                return self.rng.choice((value.partition("\0")[0], value[:-1], value[1:], value + "\0"))
            case int() if self.rng.random() < 0.4 and operand.scalar != "bool":
                return self.rng.choice((value + 1, value - 1, float(value)))
            case float() if value.is_integer() and self.rng.random() < 0.4:
                return self.rng.choice((int(value), int(value) + 1))
        return value

    def _there(self, operand: Operand, subject: Subject) -> Any:
        """What some object has at a place; of a list, some item of it."""
        value = walk(self._occurring(operand, subject), operand.steps)
        for steps in ((), operand.items or ()):
            value = walk(value, steps)
            if isinstance(value, (list, tuple)) and value:
                value = self.rng.choice(value)
        return value

    def _occurring(self, operand: Operand, subject: Subject) -> Any:
        """What some object has in a field."""
        objects = [obj for objects in self.world.commits for obj in objects if type(obj) is subject.cls]
        return self.rng.choice(objects).__dict__[operand.field] if objects else None

    def _value(self, scalar: str | None) -> Any:
        match scalar:
            case "str":
                return self.rng.choice(TEXTS)
            case "int" | "float":
                return self.rng.choice((make_int(self.rng), make_float(self.rng), *self.rng.sample(ODD, 2)))
            case "bool":
                return self.rng.random() < 0.5
            case "datetime":
                return self.rng.choice(INSTANTS)
            case "date":
                return self.rng.choice(DATES)
            case "bytes":
                return self.rng.choice(BYTES)
        return self._value(self.rng.choice(("str", "str", "int", "float", "datetime", "date", "bytes")))

    def _number(self, subject: Subject) -> Number:
        function = self.rng.choice(("count", "count_where", "sum", "avg", "min", "max", "avg_len"))
        if function == "count_where":
            return Number(function, where=self._filter(subject, sides=False))
        operand = self._operand(subject)
        if function == "count" or not _takes(function, operand, subject.kinds.get(operand.field)):
            return Number("count")
        return Number(function, operand)

    def _group(self, question: Question) -> Question:
        subject = question.subject
        groups = [self._operand(subject)]
        if subject.ends is not None and question.window[0] in ("latest", "as_of") and self.rng.random() < 0.5:
            groups = [self._operand(subject.ends[1], side="right")]
        if self.rng.random() < 0.4:
            second = self._operand(subject)
            groups += [second] if (second.field, second.steps) != (groups[0].field, groups[0].steps) else []
        having = None
        if self.rng.random() < 0.5:
            having = (Number("count"), self.rng.choice(COMPARISONS), self.rng.choice((0, 1, 2, 1.5, nan, 2**70)))
        return replace(question, groups=tuple(groups), number=self._number(subject), having=having)

    def _travelling(self, question: Question, world: World) -> Question:
        here, hops = question.subject, []
        for _ in range(self.rng.choice((1, 1, 2))):
            ways = [relation for relation in world.relations if relation.ends and here in relation.ends]
            relation = self.rng.choice(ways)
            assert relation.ends is not None
            reverse = self.rng.random() < 0.3
            forward = here is relation.ends[0] and not (reverse and here is relation.ends[1])
            reached = relation.ends[1] if forward else relation.ends[0]
            about_relation = self.rng.random() < 0.5
            where = None
            if self.rng.random() < 0.5:
                where = self._filter(relation if about_relation else reached, 1, sides=False)
            hops.append(Hop(relation, reached, forward, reverse, where, about_relation))
            here = reached
        ends_only = self.rng.random() < 0.5
        orders = self._orders(here if ends_only and self.rng.random() < 0.5 else question.subject)
        return self._page(replace(question, hops=tuple(hops), ends_only=ends_only, orders=orders))


def _is_text_by_declaration(operand: Operand) -> bool:
    """Where a place is declared to be one plain value, `contains` takes text alone: those are asked for text."""
    return bool(operand.steps) or operand.items is not None


def _takes(function: str, operand: Operand, kind: Kind | None) -> bool:
    if operand.scalar is None:
        declared = None if kind is None else declared_at(kind.annotation, operand.steps)
        return function not in ("sum", "avg") or declared not in (str, datetime, date)
    fitting = {"sum": ("int", "float"), "avg": ("int", "float"), "avg_len": ("str",)}
    return operand.scalar in fitting.get(function, (operand.scalar,))


def walk(value: Any, steps: Sequence[str]) -> Any:
    """What lies at a place, or None."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value
