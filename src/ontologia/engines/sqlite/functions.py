"""What SQLite's own functions cannot do, as functions of every connection.

Its JSON functions and `length()` stop at a zero byte, and a JSON path cannot name a member whose name has a quote in
it. Statements call these only where that matters, so that nothing else pays for a call into Python.
"""

from __future__ import annotations

import json
import re
import sqlite3
from functools import lru_cache
from typing import Any

from ontologia.model import encode_json

_STEP = re.compile(r'\."([^"]*)"|\[(\d+)\]')


def register(connection: sqlite3.Connection) -> None:
    """Make the functions known to a connection."""
    connection.create_function("ontologia_text", 2, text_at, deterministic=True)
    connection.create_function("ontologia_member", 2, member, deterministic=True)
    connection.create_function("ontologia_member_json", 2, member_json, deterministic=True)
    connection.create_function("ontologia_length", 1, len, deterministic=True)
    connection.create_function("ontologia_json", 2, json_of, deterministic=True)
    connection.create_function("ontologia_float", 1, float_of, deterministic=True)
    connection.create_function("ontologia_carried", 2, carry_document, deterministic=True)


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
