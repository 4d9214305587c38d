"""Annotations as canonical, JSON-ready type specs (RFC 0009 §5.1).

A spec is what a store remembers of an annotation. Two annotations that mean the same give equal specs, whatever the
order of their union members and wherever they were written.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions

TypeSpec = dict[str, Any]

NONE: TypeSpec = {"kind": "primitive", "name": "NoneType"}
ANY: TypeSpec = {"kind": "primitive", "name": "Any"}

SCALAR_NAMES: Mapping[type, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    datetime: "datetime",
    date: "date",
    bytes: "bytes",
}
_PRIMITIVES: Mapping[str, Any] = {name: kind for kind, name in SCALAR_NAMES.items()} | {"NoneType": None}


def build_type_spec(annotation: Any, *, names: Mapping[str, Any] | None = None) -> TypeSpec:
    """Describe an annotation as plain data.

    `names` resolves forward references that a module's globals do not know, such as types declared in a function.

    >>> build_type_spec(int | None)
    {'kind': 'union', 'members': [{'kind': 'primitive', 'name': 'NoneType'}, {'kind': 'primitive', 'name': 'int'}]}
    """
    return _spec(annotation, names or {}, ())


def annotation_of(spec: TypeSpec) -> Any:
    """The annotation that a spec describes. A reference to an enclosing type is taken as anything.

    >>> annotation_of({"kind": "list", "item": {"kind": "primitive", "name": "int"}})
    list[int]
    """
    match spec["kind"]:
        case "primitive":
            return _PRIMITIVES.get(spec["name"], Any)
        case "list":
            return list[annotation_of(spec["item"])]  # type: ignore[misc]
        case "dict":
            return dict[annotation_of(spec["key"]), annotation_of(spec["value"])]  # type: ignore[misc]
        case "union":
            return Union[tuple(annotation_of(member) for member in spec["members"])]  # noqa: UP007 — of a tuple
        case "typed_dict":
            shape = {
                name: (Required if member["required"] else NotRequired)[annotation_of(member["type"])]
                for name, member in spec["fields"].items()
            }
            make: Any = typing_extensions.TypedDict
            return make(spec["name"], shape)
    return Any


def _spec(annotation: Any, names: Mapping[str, Any], open_types: tuple[type, ...]) -> TypeSpec:
    if annotation is None or annotation is type(None):
        return NONE
    if annotation in (Any, object) or isinstance(annotation, (str, ForwardRef)):
        return ANY  # RFC 0009 §5.1 keeps an unresolved forward reference as JSON, like Any
    if annotation in SCALAR_NAMES:
        return {"kind": "primitive", "name": SCALAR_NAMES[annotation]}
    if annotation in (list, tuple):
        return {"kind": "list", "item": ANY}
    if annotation is dict:
        return {"kind": "dict", "key": ANY, "value": ANY}
    if typing_extensions.is_typeddict(annotation):
        return _typed_dict_spec(annotation, names, open_types)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Annotated, Required, NotRequired, typing_extensions.ReadOnly):
        return _spec(arguments[0], names, open_types)
    if origin is list:
        return {"kind": "list", "item": _spec(arguments[0], names, open_types)}
    if origin is tuple:  # stored as a list: what may be at which place is for the class to check
        items = [_spec(argument, names, open_types) for argument in arguments if argument is not Ellipsis]
        return {"kind": "list", "item": union_spec(items) if items else ANY}
    if origin is Literal:  # the values are for the class to check
        return union_spec([_literal_spec(annotation, value) for value in arguments])
    if origin is dict:
        key, value = (_spec(argument, names, open_types) for argument in arguments)
        return {"kind": "dict", "key": key, "value": value}
    if origin in (Union, types.UnionType):
        return union_spec([_spec(argument, names, open_types) for argument in arguments])
    raise TypeError(
        f"{annotation!r} is not supported: use str, int, float, bool, datetime, date, bytes, list, tuple, dict, "
        "TypedDict, Literal, unions of these, or Any"
    )


def _literal_spec(annotation: Any, value: Any) -> TypeSpec:
    if value is None:
        return NONE
    if type(value) not in (str, int, bool, bytes):
        raise TypeError(f"{annotation!r} is not supported: a Literal takes str, int, bool, bytes and None")
    return {"kind": "primitive", "name": SCALAR_NAMES[type(value)]}


def _typed_dict_spec(annotation: Any, names: Mapping[str, Any], open_types: tuple[type, ...]) -> TypeSpec:
    if annotation in open_types:
        return {"kind": "ref", "name": annotation.__name__}
    hints = members_of(annotation, names)
    inner = (*open_types, annotation)
    fields = {
        name: {"type": _spec(hint, names, inner), "required": is_required(annotation, name, hint)}
        for name, hint in sorted(hints.items())
    }
    return {"kind": "typed_dict", "name": annotation.__name__, "fields": fields}


def members_of(typed_dict: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a TypedDict, resolved as far as their names are known."""
    try:
        return get_type_hints(typed_dict, localns=dict(names), include_extras=True)
    except NameError:
        return dict(typed_dict.__annotations__)


def holds_tuples(annotation: Any, names: Mapping[str, Any], open_types: tuple[Any, ...] = ()) -> bool:
    """Whether a value may have a tuple in it, which JSON gives back as a list."""
    if annotation is tuple or get_origin(annotation) is tuple:
        return True
    parts = get_args(annotation)
    if typing_extensions.is_typeddict(annotation) and annotation not in open_types:
        parts, open_types = tuple(members_of(annotation, names).values()), (*open_types, annotation)
    return any(holds_tuples(part, names, open_types) for part in parts)


def is_required(typed_dict: Any, name: str, hint: Any) -> bool:
    """Whether a key must be there. `__required_keys__` cannot see a `NotRequired` that was written as a string."""
    while (origin := get_origin(hint)) in (Annotated, Required, NotRequired, typing_extensions.ReadOnly):
        if origin in (Required, NotRequired):
            return origin is Required
        hint = get_args(hint)[0]
    return name in typed_dict.__required_keys__


def union_spec(members: list[TypeSpec]) -> TypeSpec:
    distinct = {canonical_json(member): member for member in members}
    ordered = [distinct[key] for key in sorted(distinct)]
    return ordered[0] if len(ordered) == 1 else {"kind": "union", "members": ordered}


def canonical_json(value: Any) -> str:
    """The one text of a JSON value: sorted keys, no white space. Fingerprints and tokens are made of it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def scalar_of(spec: TypeSpec) -> tuple[str | None, bool]:
    """The scalar a spec always holds and whether it may be None; no scalar means the value is kept as JSON."""
    members = spec["members"] if spec["kind"] == "union" else [spec]
    rest = [member for member in members if member != NONE]
    nullable = len(rest) < len(members)
    if len(rest) == 1 and rest[0]["kind"] == "primitive" and rest[0]["name"] in SCALAR_NAMES.values():
        return rest[0]["name"], nullable
    return None, nullable or spec in (ANY, NONE)


ITEM = "[]"
"""A step of `spec_at` into the items of a list; no key is called so, since steps are identifiers."""


def spec_at(spec: TypeSpec, steps: Sequence[str]) -> TypeSpec | None:
    """What is declared of a place inside a structured value; None where several things may be there, or anything."""
    known: dict[str, TypeSpec] = {}
    found: TypeSpec | None = _only(spec, known)
    for step in steps:
        match found:
            case {"kind": "list", "item": inner} if step == ITEM:
                found = _only(inner, known)
            case {"kind": "dict", "value": inner} if step != ITEM:
                found = _only(inner, known)
            case {"kind": "typed_dict", "fields": fields} if step in fields:
                found = _only(fields[step]["type"], known)
            case _:
                return None
    return found


def _only(spec: TypeSpec, known: dict[str, TypeSpec]) -> TypeSpec | None:
    """The one type of a spec besides None, a recursive one spelled out."""
    members = [member for member in (spec["members"] if spec["kind"] == "union" else [spec]) if member != NONE]
    if len(members) != 1 or members[0] == ANY:
        return None
    if members[0]["kind"] == "typed_dict":
        known[members[0]["name"]] = members[0]
    return known.get(members[0]["name"]) if members[0]["kind"] == "ref" else members[0]


def accepts_none(spec: TypeSpec) -> bool:
    """Whether None is a value of this type. A JSON column may be null in any case; that says nothing about it."""
    return any(member in (ANY, NONE) for member in (spec["members"] if spec["kind"] == "union" else [spec]))


def has_none_inside(spec: TypeSpec) -> bool:
    """Whether a member of a dict may be None, so that one that is None is another value than one that is not there."""
    match spec["kind"]:
        case "list":
            return has_none_inside(spec["item"])
        case "dict":
            return accepts_none(spec["value"]) or has_none_inside(spec["value"])
        case "union":
            return any(has_none_inside(member) for member in spec["members"])
        case "typed_dict":
            types = [member["type"] for member in spec["fields"].values()]
            return any(accepts_none(type_) or has_none_inside(type_) for type_ in types)
    return bool(spec == ANY)


def ambiguous(spec: TypeSpec) -> bool:
    """Whether two different values may have the same JSON, such as a date and a text in `str | date`, or in `Any`."""
    match spec["kind"]:
        case "primitive":
            return bool(spec["name"] == "Any")
        case "list":
            return ambiguous(spec["item"])
        case "dict":
            return ambiguous(spec["key"]) or ambiguous(spec["value"])
        case "union":
            texts = [member for member in spec["members"] if member.get("name") in ("str", "datetime", "date", "bytes")]
            floats = any(member.get("name") == "float" for member in spec["members"])
            mixed = len(texts) > 1 or (floats and bool(texts))
            return mixed or any(ambiguous(member) for member in spec["members"])
        case "typed_dict":
            return any(ambiguous(field["type"]) for field in spec["fields"].values())
    return False  # a ref: looked at where it is spelled out


def check_spec(spec: Any) -> None:
    """Refuse what cannot be a stored type spec: a TypeError, a KeyError or a ValueError says what is wrong with it."""
    if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str):
        raise TypeError(f"a type must be an object with a kind, not {spec!r}")
    match spec["kind"]:
        case "list":
            check_spec(spec["item"])
        case "dict":
            check_spec(spec["key"])
            check_spec(spec["value"])
        case "union":
            for member in spec["members"]:
                check_spec(member)
        case "typed_dict":
            for field in spec["fields"].values():
                check_spec(field["type"])
        case _:
            if not isinstance(spec["name"], str):
                raise TypeError(f"the name of a type must be text, not {spec['name']!r}")


def json_native(spec: TypeSpec) -> bool:
    """Whether parsed JSON already is the value, so that reading it back needs no typed decoding."""
    match spec["kind"]:
        case "primitive":
            return spec["name"] in ("str", "int", "bool", "NoneType", "Any")
        case "list":
            return json_native(spec["item"])
        case "dict":
            return spec["key"] in (ANY, {"kind": "primitive", "name": "str"}) and json_native(spec["value"])
        case "union":
            return all(json_native(member) for member in spec["members"])
        case "typed_dict":
            return all(json_native(field["type"]) for field in spec["fields"].values())
    return True  # a ref: its fields were looked at where it is spelled out


def render(spec: TypeSpec) -> str:
    """A spec as a person would write it: `list[int]`, `str | None`."""
    match spec["kind"]:
        case "list":
            return f"list[{render(spec['item'])}]"
        case "dict":
            return f"dict[{render(spec['key'])}, {render(spec['value'])}]"
        case "union":
            members = [member for member in spec["members"] if member != NONE]
            text = " | ".join(render(member) for member in members)
            return f"{text} | None" if len(members) < len(spec["members"]) else text
    return "None" if spec == NONE else str(spec["name"])
