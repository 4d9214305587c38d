"""`--filter PATH OP JSON` as a predicate, with the value turned into what the field holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from ontologia.cli.exits import UsageError
from ontologia.model import FieldExpr, Predicate, TypeRef, TypeSchema, field_at

OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "is_null", "is_missing")
_COMPARE: dict[str, Callable[[FieldExpr[Any], Any], Any]] = {
    "eq": lambda field, value: field == value,
    "ne": lambda field, value: field != value,
    "gt": lambda field, value: field > value,
    "gte": lambda field, value: field >= value,
    "lt": lambda field, value: field < value,
    "lte": lambda field, value: field <= value,
    "in": lambda field, value: field.in_(value),
}

_FLAG, _JOINT = "--filter", "\x1f"


def join_filters(arguments: Sequence[str]) -> list[str]:
    """The command line with the three words after every `--filter` as one, for a parser that has no such options."""
    found: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        found.append(word)
        is_glued = word.startswith(f"{_FLAG}=")
        if is_glued or (word == _FLAG and not {"--help", "-h"} & set(rest[:3])):
            words, rest = rest[:3], rest[3:]
            if is_glued or len(words) < 3 or any(each.startswith("--") for each in words):
                raise UsageError("--filter takes three words: PATH OP JSON, as in --filter '$.tier' eq '\"Gold\"'")
            found.append(_JOINT.join(words))
    return found


def parts(text: str) -> tuple[str, str, str]:
    """The three words of a filter."""
    path, op, value = text.split(_JOINT, 2)
    return path, op, value


Schemas = Callable[[TypeRef], TypeSchema]


def predicate(schemas: Schemas, ref: TypeRef, path: str, op: str, text: str) -> Predicate:
    """One filter. A mistake in it is one line that quotes the filter."""
    said = f"--filter {path!r} {op} {text!r}"
    if op not in OPERATORS:
        raise UsageError(f"{said}: the operator is one of {' '.join(OPERATORS)}")
    try:
        value = json.loads(text)
    except RecursionError:
        raise UsageError(f"--filter {path!r} {op}: the value is nested too deeply") from None
    except ValueError:
        hint = f"; for the text {text} write '{json.dumps(text)}'" if '"' not in text else ""
        raise UsageError(f"{said}: the value is not JSON{hint}") from None
    try:
        if op == "is_missing":
            return _missing(schemas, ref, path, value)
        return _compare(field(schemas, ref, path), op, value)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"{said}: {problem}") from None


def field(schemas: Schemas, ref: TypeRef, path: str) -> FieldExpr[Any]:
    """A field by its path: `$.f`, `$.a.b`, and for a relation `$.left.f` and `$.right.f`."""
    if not path.startswith("$."):
        raise ValueError(f"a path starts with $. as in $.name, and {path!r} does not")
    steps = path[2:].split(".")
    if ref.kind == "relation" and steps[0] in ("left", "right") and len(steps) > 1:
        schema = schemas(ref)
        end = TypeRef("entity", str(schema.left if steps[0] == "left" else schema.right))
        return replace(_own(schemas(end), steps[1:]), side=steps[0])  # type: ignore[arg-type]
    return _own(schemas(ref), steps)


def _missing(schemas: Schemas, ref: TypeRef, path: str, value: Any) -> Predicate:
    """Whether an end of a relation is not there: of what is, the key has a value."""
    if ref.kind != "relation" or path not in ("$.left", "$.right"):
        raise ValueError("is_missing is about an end of a relation, $.left or $.right")
    return _compare(field(schemas, ref, f"{path}.entity_key"), "is_null", value)


def _own(schema: TypeSchema, steps: list[str]) -> FieldExpr[Any]:
    if steps[0] == "entity_key" and schema.primary_key is not None:  # by its own type, not as the text it is stored as
        steps = [schema.primary_key, *steps[1:]]
    return field_at(schema, ".".join(steps))


def _compare(place: FieldExpr[Any], op: str, value: Any) -> Predicate:
    if op == "is_null":
        if not isinstance(value, bool):
            raise ValueError("is_null and is_missing take true or false")
        return place.is_null() if value else place.is_not_null()
    if op == "in":
        if not isinstance(value, list):
            raise ValueError("in takes a list, as in '[1, 2]'")
        return place.in_([_python(place, item) for item in value])
    if value is None:
        raise ValueError("compare with null by is_null true or is_null false")
    if isinstance(value, bool):
        if op not in ("eq", "ne"):
            raise ValueError(f"true and false are compared with eq or ne, not {op}")
        return place.is_true() if value == (op == "eq") else place.is_false()
    found: Predicate = _COMPARE[op](place, _python(place, value))
    return found


def _python(place: FieldExpr[Any], value: Any) -> Any:
    """A JSON value as the field's own kind of value: instants and dates are ISO text, bytes are hex."""
    if not isinstance(value, str):
        return value
    match place.scalar:
        case "datetime":
            return datetime.fromisoformat(value)
        case "date":
            return date.fromisoformat(value)
        case "bytes":
            return bytes.fromhex(value)
        case "float" if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
    return value
