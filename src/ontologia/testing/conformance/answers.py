"""Answers as plain data that can be compared: with metadata, endpoints and types, NaN equal to itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ontologia.errors import HistoryForgottenError, MetadataUnavailableError
from ontologia.model import Declared, Relation, meta
from ontologia.query.results import Path


def make_plain(answer: Any) -> Any:
    """Objects, paths, rows and numbers as tuples, lists and dicts.

    Scalars carry the name of their type, since `True == 1 == 1.0` would hide an engine that forgets what a field is.
    """
    if isinstance(answer, Path):
        return ("path", make_plain(answer.source), make_plain(answer.relations), make_plain(answer.entities))
    if isinstance(answer, Declared):
        return _plain_object(answer)
    if isinstance(answer, Mapping):
        return {key: make_plain(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [make_plain(item) for item in answer]
    if isinstance(answer, float):
        return ("float", "NaN" if math.isnan(answer) else answer + 0.0)
    return (type(answer).__name__, answer)


def take_answer(ask: Callable[[], Any]) -> Any:
    """An answer; where history was given up, what is said of that."""
    try:
        return ask()
    except HistoryForgottenError as problem:
        return str(problem)


def _plain_object(obj: Declared) -> Any:
    values = (type(obj).__name__, _read_origin(obj), {name: make_plain(value) for name, value in obj.__dict__.items()})
    if not isinstance(obj, Relation):
        return values
    return (*values, obj.left and _plain_object(obj.left), obj.right and _plain_object(obj.right))


def _read_origin(obj: Any) -> Any:
    try:
        return meta(obj)
    except MetadataUnavailableError:
        return None


def plain_values(answer: Any) -> Any:
    """Like `make_plain`, but only the values of objects: what was written, wherever it was read."""
    if isinstance(answer, Declared):
        return {name: make_plain(value) for name, value in answer.__dict__.items()}
    return [plain_values(item) for item in answer]


def are_close(found: Any, expected: Any, tolerance: float) -> bool:
    """Whether two plain answers are the same, up to rounding in floats."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and [*found] == [*expected]
            and are_close([*found.values()], [*expected.values()], tolerance)
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(are_close(a, b, tolerance) for a, b in zip(found, expected, strict=True))
        )
    if found == expected:
        return True
    floats = isinstance(found, tuple) and isinstance(expected, tuple) and found[0] == expected[0] == "float"
    if not floats or "NaN" in (found[1], expected[1]):
        return False
    return math.isclose(found[1], expected[1], rel_tol=1e-9, abs_tol=tolerance)
