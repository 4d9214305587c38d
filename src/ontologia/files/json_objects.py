"""Small JSON objects that control a store: read with checks that say what is wrong, and written.

Whoever reads one declares its shape with the functions below, inside `parse`: a value of another kind, a missing key or
nesting without end is a `StorageBackendError` that names the object, and never an error of Python's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ontologia.errors import StorageBackendError
from ontologia.objects import utc_now

T = TypeVar("T")

LARGEST = 2**63 - 1
WRONG_SHAPE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""What comes of reading JSON that is not what it should be."""


def now() -> str:
    return utc_now().isoformat()


def load(data: bytes | str) -> Any:
    """The JSON value in a text. What is nested deeper than 200 levels is a ValueError, as is what is no JSON."""
    from pydantic_core import from_json

    return from_json(data)


def parse(
    data: bytes | str, url: str, read: Callable[[Mapping[str, Any]], T], advice: str = "Nothing was changed"
) -> T:
    """Read an object, or say which one is malformed, how, and what to do about it."""
    try:
        return read(_an_object(load(data), "a control object"))
    except WRONG_SHAPE as problem:
        reason = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
        raise StorageBackendError(
            f"{url} is malformed: {reason}. {advice}", context={"operation": "read", "url": url}
        ) from problem


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def whole(body: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise ValueError(f"{name} must be a whole number of at least {least} and of 64 bits, not {_short(value)}")
    return value


def optional_whole(body: Mapping[str, Any], name: str, *, least: int = 0) -> int | None:
    return None if body.get(name) is None else whole(body, name, least=least)


def text(body: Mapping[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {_short(value)}")
    return value


def optional_text(body: Mapping[str, Any], name: str) -> str | None:
    return None if body.get(name) is None else text(body, name)


def flag(body: Mapping[str, Any], name: str) -> bool:
    """Whether something is said; not saying it is False."""
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, not {_short(value)}")
    return value


def record(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside this one."""
    return _an_object(body[name], name)


def records(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects; one that is left out is a KeyError."""
    return [_an_object(item, f"an item of {name}") for item in _a_list(body[name], name)]


def texts(body: Mapping[str, Any], name: str) -> list[str]:
    items = _a_list(body[name], name)
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"{name} must be a list of texts, and has {_short(item)}")
    return items


def _a_list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{name} must be a list, not {_short(value)}")
    return value


def _an_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a JSON object, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    """A value as a message shows it: a whole index in one would help nobody."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:60]}… ({type(value).__name__})"


def rest(body: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in known}
