"""Holds the answers of an engine against those of the oracle."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from random import Random
from typing import Any

from ontologia.errors import CommitAfterHeadWarning
from ontologia.model import Declared, Relation, meta
from ontologia.query.builder import QueryRoot
from ontologia.query.results import Path
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import EngineCase, StoreUnderTest, directory, graph, sqlite
from ontologia.testing.differential.making import make_question
from ontologia.testing.differential.oracle import Oracle, Row, sizes
from ontologia.testing.differential.questions import Question, ask
from ontologia.testing.differential.worlds import World, make_world, with_removals

LARGEST_EXACT_SUM = 2**62
QUESTIONS_PER_HISTORY = 40


class Disagreement(AssertionError):
    """An engine and the oracle gave different answers. The seed brings both back."""


@dataclass(frozen=True)
class WrittenHistory:
    """A world in a store: what is asked of it, and what it should answer."""

    world: World
    oracle: Oracle
    session: Session


@contextmanager
def write_history(case: EngineCase, seed: int) -> Iterator[WrittenHistory]:
    """A random history in a new store; half of the histories have removals, and half are compacted on the way, where
    there is such a thing."""
    rng = Random(f"world {seed}")
    world = make_world(rng)
    with case.create_store() as store:
        if store.capabilities.removals and seed % 2:
            world = with_removals(Random(f"removals {seed}"), world)
        oracle = Oracle(world)
        session = store.session(*(subject.cls for subject in world.subjects))
        compacted_at = rng.randrange(len(world.commits) * 2) if _compacts(store) else -1
        written = 0
        for number, objects in enumerate(world.commits):
            session.ensure(objects)
            for obj in world.removed[number] if world.removed else ():
                session.remove(obj)
            written = session.commit() or written
            if number == compacted_at:
                session.repository.compact(apply=True)
        if written != oracle.head:
            raise Disagreement(f"{case}, seed {seed}: the head is {written}, and should be {oracle.head}")
        yield WrittenHistory(world, oracle, session)


def _compacts(store: StoreUnderTest) -> bool:
    return store.capabilities.object_storage


def check_seed(
    case: EngineCase, seed: int, questions: int, source: Callable[[Session], QueryRoot] = Session.query
) -> int:
    """Ask questions of one world; `source` says who answers. Returns how many were asked."""
    asked = 0
    with write_history(case, seed) as known, warnings.catch_warnings():
        warnings.simplefilter("ignore", CommitAfterHeadWarning)
        root = source(known.session)
        for number in range(questions):
            question = make_question(Random(f"question {seed} {number}"), known.world)
            if overflows(question, known.oracle):
                continue
            _check(f"{case}, seed {seed}, question {number}", question, known.oracle, root)
            asked += 1
    return asked


def soak_seed(seed: int) -> int:
    """One seed on every embedded engine. Returns how many questions were asked."""
    cases = [sqlite("v1"), sqlite("v2"), directory("v1"), directory("v2"), graph()]
    return sum(check_seed(case, seed, QUESTIONS_PER_HISTORY) for case in cases)


def _check(where: str, question: Question, oracle: Oracle, root: QueryRoot) -> None:
    expected = make_comparable(oracle.answer(question))
    try:
        answer = ask(question, root)
    except Exception as problem:
        raise Disagreement(f"{where}: {question}\n\n{type(problem).__name__}: {problem}") from problem
    found = make_comparable([tuple(group.values()) for group in answer] if question.groups else answer)
    added_up = question.number is not None and question.number.function in ("sum", "avg", "avg_len")
    tolerance = max(magnitude(question, oracle) * 1e-9, 1e-12) if added_up else 0.0
    if not alike(found, expected, tolerance):
        raise Disagreement(f"{where}: {question}\n\nfound    {found}\n\nexpected {expected}")
    for obj in answer if isinstance(answer, list) else ():
        if isinstance(obj, Relation):
            _check_ends(where, obj, question, oracle)


def _check_ends(where: str, relation: Relation[Any, Any], question: Question, oracle: Oracle) -> None:
    """Collected relations carry their ends: of the state that was read, or, of a version, as of its commit."""
    assert question.subject.ends is not None
    mode, commit = question.window
    if mode in ("history", "since"):
        mode, commit = "as_of", meta(relation).commit_id
    ends = zip(
        question.subject.ends, (relation.left_key, relation.right_key), (relation.left, relation.right), strict=True
    )
    for subject, key, end in ends:
        rows = [row for row in oracle.rows(subject, (mode, commit)) if row.identity[0] == key]
        expected = make_comparable(rows[0]) if rows else None
        if (None if end is None else make_comparable(end)) != expected:
            raise Disagreement(f"{where}: {question}\n\nan end is {end!r}, and should be {expected}")


def overflows(question: Question, oracle: Oracle) -> bool:
    """Whether a sum might leave 64 bits on its way, which engines may refuse."""
    number = question.number
    return number is not None and number.function in ("sum", "avg") and magnitude(question, oracle) > LARGEST_EXACT_SUM


def magnitude(question: Question, oracle: Oracle) -> float:
    """The sum of the sizes of all numbers that may be added up: rounding is relative to that."""
    number = question.number
    if number is None or number.operand is None or number.function not in ("sum", "avg"):
        return 0.0

    return sizes(number.operand, question.subject, oracle)


# --- answers in one form ---


def make_comparable(answer: Any) -> Any:
    """Rows, objects, paths, groups and numbers in one form. Scalars carry their type: `True == 1 == 1.0` hides much."""
    match answer:
        case Row():
            name = answer.type_name.partition(" ")[2]
            return (name, answer.commit, answer.identity, answer.removed, make_comparable(answer.values))
        case Path():
            steps = zip(answer.relations, answer.entities[1:], strict=True)
            return [make_comparable(answer.source), *(make_comparable(item) for step in steps for item in step)]
        case Declared():
            return _object(answer)
        case dict():
            return {key: make_comparable(value) for key, value in sorted(answer.items())}
        case list() | tuple():
            return [make_comparable(item) for item in answer]
        case float():
            return ("float", "NaN" if math.isnan(answer) else answer + 0.0)
        case datetime():
            return ("datetime", (answer.replace(tzinfo=UTC) if answer.tzinfo is None else answer).astimezone(UTC))
        case date() | bytes() | str() | int() | None:
            return (type(answer).__name__, answer)
    raise TypeError(f"{answer!r} is no answer")


def _object(obj: Declared) -> Any:
    found = meta(obj)  # type: ignore[arg-type]
    identity = (found.key,) if found.key is not None else (found.left_key, found.right_key, found.instance_key or "")
    return (found.type_name, found.commit_id, identity, found.removed, make_comparable(obj.__dict__))


def alike(found: Any, expected: Any, tolerance: float) -> bool:
    """The same, up to rounding where numbers were added up. A list of one row is a path of one row."""
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(
            alike(one, other, tolerance) for one, other in zip(_spread(found), _spread(expected), strict=True)
        )
    if found == expected:
        return True
    if not tolerance or not _is_float(found) or not _is_float(expected):
        return False
    return math.isclose(found[1], expected[1], rel_tol=1e-9, abs_tol=tolerance)


def _spread(rows: Sequence[Any]) -> list[Any]:
    return [row[0] if isinstance(row, list) and len(row) == 1 and isinstance(row[0], tuple) else row for row in rows]


def _is_float(value: Any) -> bool:
    return isinstance(value, tuple) and value[0] == "float" and value[1] != "NaN"
