"""Values as text: keys, instants and JSON in their one canonical form."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from ontologia.errors import ValidationError

MOST_LEVELS = 200
"""How deep the lists and dicts of a value may lie in each other: Pydantic's reader of JSON takes no more."""
TOO_DEEP = f"lists and dicts may lie in each other at most {MOST_LEVELS} deep, and never inside themselves"


def key_text(value: Any) -> str:
    """The text under which a primary key is stored: text as it is, numbers in digits, dates in ISO form."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def is_unicode(text: str) -> bool:
    """Whether text can be written as UTF-8: Python also allows half a surrogate pair, which no store can hold."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_utc(value: datetime) -> datetime:
    """A datetime as an instant. One without a zone is taken to be UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def instant_text(value: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds, so that the order of the texts is the order of time."""
    return to_utc(value).isoformat(timespec="microseconds")


def encode_json(value: Any) -> str:
    """Canonical JSON: sorted keys, instants and dates in ISO form, bytes in hex, NaN and infinities as strings."""
    try:
        return _encode(value)
    except (TypeError, ValueError):  # a key that is not a string, or a float that JSON cannot say
        return _encode(plain(value))


def field_text(value: Any) -> str:
    """A value of a structured field as stores keep it: canonical JSON. What cannot be read back from that is a
    TypeError or a ValueError."""
    try:
        text = encode_json(value)
        deep = may_be_too_deep(text) and is_too_deep(json.loads(text))
    except RecursionError:
        deep = True
    if deep:
        raise ValueError(TOO_DEEP)
    return text


def field_texts(where: str, values: Iterable[Any]) -> list[str | None]:
    """Values of a structured field as stores keep them; `where` names the field in what is said of a wrong one."""
    try:
        return [None if value is None else field_text(value) for value in values]
    except (TypeError, ValueError) as problem:
        raise ValidationError(f"{where}: {problem}") from None


def may_be_too_deep(text: str) -> bool:
    """Whether JSON has brackets enough for that: most has not, and needs no closer look."""
    return len(text) > MOST_LEVELS and text.count("[") + text.count("{") > MOST_LEVELS


def is_too_deep(value: Any, above: int = 0) -> bool:
    """Whether lists and dicts lie in each other deeper than stores take, not counting those `above`."""
    level: list[Any] = [[value]]
    for _ in range(MOST_LEVELS + above + 1):
        inner = (item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer))
        level = [item for item in inner if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


@cache
def json_decoder() -> Callable[[str], Any]:
    """A function from JSON to the value it says. Keys and short texts that come again are the same objects, in a third
    of the time of `json.loads`, which takes what is nested deeper."""
    from pydantic_core import from_json

    def decode(text: str) -> Any:
        try:
            return from_json(text)
        except (TypeError, ValueError):  # also half a surrogate pair, of which another place complains
            return json.loads(text)

    return decode


def parse_texts(texts: Iterable[str | None]) -> list[Any]:
    """Values of a structured field, from the JSON that stores keep of them."""
    return [None if text is None else json.loads(text) for text in texts]


def copy_nested(value: Any) -> Any:
    """A value whose lists and dicts are its own, all the way down. One that is too deep stays as it is: no store takes
    it."""
    try:
        return _copy(value)
    except RecursionError:
        return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    if type(value) is tuple:
        return tuple(_copy(item) for item in value)
    return value


def abridge(value: Any) -> str:
    """A value for a message: of a list or a dict, which may be large or deep, the beginning."""
    return reprlib.repr(value) if isinstance(value, (dict, list, tuple, set)) else repr(value)


def plain(value: Any) -> Any:
    """A value as JSON can say it, in the form that stores use."""
    if isinstance(value, Mapping):
        return {_plain_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (str, int, float)):
        return value
    return _plain_scalar(value)


def _plain_key(key: Any) -> str:
    found = plain(key)
    return found if isinstance(found, str) else json.dumps(found)


def _plain_scalar(value: Any) -> str:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} {value!r} cannot be stored as JSON")


def _make_encode() -> Callable[[Any], str]:
    """What `JSONEncoder.encode` does, with one encoder for all values: it makes another for each, which takes as long
    as to encode a small one. What is inside itself is a `RecursionError`."""
    encoder = json.JSONEncoder(
        sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain_scalar
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # not CPython
        return encoder.encode
    parts = make(None, _plain_scalar, json.encoder.encode_basestring, None, ":", ",", True, False, False)
    return lambda value: "".join(parts(value, 0))


_encode = _make_encode()
