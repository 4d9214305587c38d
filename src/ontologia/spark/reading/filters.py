"""Typed filters as the text of an option, so that tasks filter where the rows lie.

A filter travels with the read it belongs to. It is never handed to a reader that another question uses as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

from ontologia.errors import ValidationError
from ontologia.model import Combination, Condition, FieldExpr, Negation, Predicate, TypeRef, TypeSchema


def to_text(where: Iterable[Predicate]) -> str:
    """Filters on the fields of one type, as JSON."""
    return json.dumps([_encode_predicate(predicate) for predicate in where])


def from_text(text: str, schema: TypeSchema) -> tuple[Predicate, ...]:
    """The filters of `to_text`."""
    try:
        return tuple(_decode_predicate(item, schema) for item in json.loads(text))
    except (ValueError, KeyError, TypeError) as problem:
        raise ValidationError(
            "the option where is written by ontologia.spark.read(…, where=…), and is not meant to be written by hand: "
            f"filter the DataFrame ({problem})"
        ) from problem


def check_filter(where: Any, ref: TypeRef) -> None:
    """Refuse what is not a filter on the fields of this type: another may have a field of the same name."""
    if not isinstance(where, Predicate):
        raise TypeError(f"where takes a filter, such as Customer.age > 30, not {where!r}: filter the DataFrame by text")
    for condition in where.conditions():
        operand = condition.operand
        if operand.side is not None:
            raise ValueError(f"{operand} is a field of an endpoint: filter in a query, and take its to_spark()")
        if operand.owner != ref:
            raise ValueError(f"{operand} is a field of another type; this read is about {ref.name}")


def is_of_one_type(where: Iterable[Predicate]) -> bool:
    """Whether filters look at nothing but the fields of the rows themselves."""
    return all(condition.operand.side is None for predicate in where for condition in predicate.conditions())


def _encode_predicate(predicate: Predicate) -> dict[str, Any]:
    match predicate:
        case Condition(operand=operand, op=op, value=value):
            place = {"field": operand.name, "steps": operand.steps, "item": operand.item_path}
            return {"op": op, **place, "value": _encode(value)}
        case Combination(op=op, parts=parts):
            return {op: [_encode_predicate(part) for part in parts]}
        case Negation(part=part):
            return {"not": _encode_predicate(part)}
    raise TypeError(f"{predicate!r} is not a filter")


def _decode_predicate(item: dict[str, Any], schema: TypeSchema) -> Predicate:
    match item:
        case {"and": parts}:
            return Combination("and", tuple(_decode_predicate(part, schema) for part in parts))
        case {"or": parts}:
            return Combination("or", tuple(_decode_predicate(part, schema) for part in parts))
        case {"not": part}:
            return Negation(_decode_predicate(part, schema))
    path = item["item"]
    operand: FieldExpr[Any] = FieldExpr(
        schema.ref,
        item["field"],
        schema.by_name.get(item["field"]),
        tuple(item["steps"]),
        None if path is None else tuple(path),
    )
    return Condition(operand, item["op"], _decode(item["value"]))


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return {"all": [_encode(item) for item in value]}
    return value


def _decode(value: Any) -> Any:
    match value:
        case {"datetime": text}:
            return datetime.fromisoformat(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"all": items}:
            return tuple(_decode(item) for item in items)
    return value
