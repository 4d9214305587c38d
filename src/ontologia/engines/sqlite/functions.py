"""What SQLite's own functions cannot do, as functions of every connection.

Its JSON functions and `length()` stop at a zero byte, and a JSON path cannot name a member whose name has a quote in
it. Statements call these only where that matters, so that nothing else pays for a call into Python.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from ontologia.model import encode_json

STEPS_BETWEEN_SIGNALS = 500_000
"""Of SQLite's virtual machine: some milliseconds."""
_STEP = re.compile(r'\."([^"]*)"|\[(\d+)\]')


def register(connection: sqlite3.Connection, failures: list[BaseException]) -> None:
    """Make the functions known to a connection. What one of them raises is noted in `failures`: SQLite says only that
    something was raised."""
    known: dict[str, tuple[int, Callable[..., Any]]] = {
        "text": (2, text_at),
        "member": (2, member),
        "member_json": (2, member_json),
        "length": (1, len),
        "json": (2, json_of),
        "float": (1, float_of),
        "carried": (2, carry_document),
    }
    for name, (arguments, function) in known.items():
        noting = _note_failures(function, failures)
        connection.create_function(f"ontologia_{name}", arguments, noting, deterministic=True)
    connection.set_progress_handler(_go_on, STEPS_BETWEEN_SIGNALS)


def _go_on() -> int:
    """Called every so often while a statement runs, so that Python can call its signal handlers."""
    return 0


def _note_failures(function: Callable[..., Any], failures: list[BaseException]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as failure:
            failures.append(failure)
            raise

    return call


def has_path(name: str) -> bool:
    """Whether a JSON path of SQLite can name this member as it is."""
    return bool(name) and json.dumps(name, ensure_ascii=False) == f'"{name}"'


def json_of(value: Any, scalar: str) -> str | None:
    """The canonical JSON text of a stored scalar: what has a text of its own is that text in quotes."""
    return None if value is None else encode_json(bool(value) if scalar == "bool" else value)


def float_of(text: str) -> float | str:
    """The float that a text is, exactly; a NaN is kept as text."""
    return text if text == "NaN" else float(text)


def carry_document(document: str, sources: str) -> str:
    """A document of an earlier schema with the fields of a later one: `sources` has, by the new names, the old name of
    each that was there before, or its value."""
    before, found = json.loads(document), _parse(sources)
    return encode_json({name: before.get(old) if old is not None else value for name, (old, value) in found.items()})


def text_at(document: str, path: str) -> Any:
    """The scalar at a path, such as `$."address"."lines"[0]`, as `json_extract` gives it."""
    found = _parse(document)
    for name, number in _STEP.findall(path):
        if number:
            found = found[int(number)] if isinstance(found, list) and int(number) < len(found) else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return None if isinstance(found, (dict, list)) else found


def member(document: str, name: str) -> Any:
    """The scalar that is a member of a document."""
    found = _parse(document).get(name)
    return None if isinstance(found, (dict, list)) else found


def member_json(document: str, name: str) -> str | None:
    """The JSON text of a member of a document."""
    parsed = _parse(document)
    return encode_json(parsed[name]) if name in parsed else None


@lru_cache(maxsize=64)
def _parse(document: str) -> Any:
    return json.loads(document)
