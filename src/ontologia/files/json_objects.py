"""Small JSON objects that control a store: read with checks that say what is wrong, and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from ontologia.errors import StorageBackendError

T = TypeVar("T")


def now() -> str:
    return datetime.now(UTC).isoformat()


def parse(data: bytes, url: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Read an object, or say which one is malformed and how."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            raise TypeError(f"a JSON object is needed, not {type(body).__name__}")
        return read(body)
    except (ValueError, TypeError, KeyError) as problem:
        reason = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
        raise StorageBackendError(
            f"{url} is malformed: {reason}. Nothing was changed", context={"operation": "read", "url": url}
        ) from problem


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def whole(body: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def text(body: Mapping[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {value!r}")
    return value


def optional_text(body: Mapping[str, Any], name: str) -> str | None:
    return None if body.get(name) is None else text(body, name)


def rest(body: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in known}
