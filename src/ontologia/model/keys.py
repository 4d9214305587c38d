"""Identities as callers name them: a key of the field's type, or text that spells one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any

from ontologia.errors import ValidationError
from ontologia.model.schema import TypeSchema
from ontologia.model.values import is_unicode, key_text

TYPES: dict[str, type] = {"str": str, "int": int, "date": date, "datetime": datetime}
READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}


def parse_identity(schema: TypeSchema, key: Any, entities: Iterable[TypeSchema] = ()) -> tuple[str, ...]:
    """The identity of what somebody calls by this key: a value, or for a relation its ends and instance key.

    What cannot be a key of this type is an error: it would silently name nothing. `entities` are the types that a
    relation may join, for ends that are written otherwise than they are stored.
    """
    name = schema.ref.name
    if schema.ref.kind == "entity":
        return (parse_key(name, _key_scalar(schema), key),)
    size = 3 if schema.instance_key else 2
    if not isinstance(key, (tuple, list)) or len(key) != size:
        parts = "left_key, right_key, instance_key" if size == 3 else "left_key, right_key"
        raise ValidationError(f"{name} is named by ({parts}), not by {key!r}")
    scalars = {entity.ref.name: _key_scalar(entity) for entity in entities if entity.ref.kind == "entity"}
    ends = [
        _end(name, scalars.get(end or ""), part) for end, part in zip((schema.left, schema.right), key, strict=False)
    ]
    return (*ends, parse_key(name, "str", key[2]) if size == 3 else "")


def parse_key(name: str, scalar: str, value: Any) -> str:
    """The text under which a key is stored."""
    found = value
    if isinstance(value, str) and scalar != "str":
        try:
            found = READERS[scalar](value)
        except ValueError:
            raise ValidationError(f"{value!r} is not a key of {name}, whose keys are of the type {scalar}") from None
    is_meant = isinstance(found, TYPES[scalar]) and not isinstance(found, bool)
    if not is_meant or (scalar == "date" and isinstance(found, datetime)):
        raise ValidationError(f"{value!r} is not a key of {name}, whose keys are of the type {scalar}")
    try:
        text = key_text(found)
    except OverflowError:
        raise ValidationError(f"{value!r}: this instant is outside the years 1 to 9999 in UTC") from None
    if not is_unicode(text):
        raise ValidationError(f"{value!r} is not Unicode text: it has half of a surrogate pair")
    return text


def _key_scalar(entity: TypeSchema) -> str:
    return entity.by_name[entity.primary_key or ""].scalar or "str"


def _end(name: str, scalar: str | None, value: Any) -> str:
    """The key of an end. Text that is not a key of the entity there may be stored all the same, and dangle."""
    if isinstance(value, str):
        try:
            return parse_key(name, scalar or "str", value)
        except ValidationError:
            return parse_key(name, "str", value)
    if isinstance(value, bool) or not isinstance(value, (int, date)):
        raise ValidationError(f"{value!r} is not a key of what {name} joins")
    return parse_key(name, scalar or ("datetime" if isinstance(value, datetime) else type(value).__name__), value)
