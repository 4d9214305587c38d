"""The schemas of 0.3 as ours, and whether a class of today means the same.

0.3 describes a union written `A | B` by its text alone, so that nothing is known of a TypedDict inside it but its name,
and forgets `NotRequired`. Where a store has forgotten something, a class may say it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ontologia.engines.catalog import Catalog
from ontologia.model import FieldSchema, TypeRef, TypeSchema, diff
from ontologia.model.columns import SCALARS
from ontologia.model.typespec import ANY, NONE, TypeSpec, scalar_of, union_spec

_CLASS = re.compile(r"<class '(.+)'>")
_KNOWN = {*SCALARS, "NoneType", "Any"}


def type_schema(body: Mapping[str, Any]) -> TypeSchema:
    """A stored schema. The instance key, which 0.3 lists among the fields, is not a field of ours."""
    instance_key = body.get("instance_key_field")
    fields = tuple(
        FieldSchema(name, _spec_of(about), bool(about.get("primary_key")), bool(about.get("index")))
        for name, about in body["fields"].items()
        if name != instance_key
    )
    if "entity_name" in body:
        return TypeSchema(TypeRef("entity", body["entity_name"]), fields)
    ref = TypeRef("relation", body["relation_name"])
    return TypeSchema(ref, fields, body["left_type"], body["right_type"], instance_key)


def _spec_of(about: Mapping[str, Any]) -> TypeSpec:
    spec = about.get("type_spec")
    return _from_text(str(about["type"])) if spec is None else _translate(spec)


def _translate(spec: Mapping[str, Any]) -> TypeSpec:
    match spec["kind"]:
        case "union":
            return union_spec([_translate(member) for member in spec["members"]])
        case "list":
            return {"kind": "list", "item": _translate(spec["item"])}
        case "dict":
            return {"kind": "dict", "key": _translate(spec["key"]), "value": _translate(spec["value"])}
        case "typed_dict":
            fields = {
                name: {"type": _translate(inside), "required": bool(spec.get("total", True))}
                for name, inside in sorted(spec["fields"].items())
            }
            return {"kind": "typed_dict", "name": spec["name"], "fields": fields}
        case "ref":
            return {"kind": "ref", "name": spec["name"]}
    return _from_text(str(spec["name"]))


def _from_text(text: str) -> TypeSpec:
    """A type from how Python prints it: `str | int`, `typing.Optional[str]`, `<class 'models.Address'>`."""
    plain = _CLASS.sub(r"\1", text).replace(".<locals>.", ".")
    try:
        return _parse(ast.parse(plain, mode="eval").body)
    except SyntaxError:
        return ANY


def _parse(node: ast.expr) -> TypeSpec:
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            return union_spec([*_members(_parse(left)), *_members(_parse(right))])
        case ast.Subscript(value, inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return _generic(_last_name(value), [_parse(part) for part in parts])
        case ast.Constant(None):
            return NONE
        case ast.Name() | ast.Attribute():
            name = _last_name(node)
            if name in ("list", "List", "dict", "Dict"):
                return _generic(name, [])
            return {"kind": "primitive", "name": {"any": "Any", "None": "NoneType"}.get(name, name)}
    return ANY


def _generic(name: str, parts: list[TypeSpec]) -> TypeSpec:
    match name.lower():
        case "optional":
            return union_spec([NONE, *(member for part in parts for member in _members(part))])
        case "union":
            return union_spec([member for part in parts for member in _members(part)])
        case "list":
            return {"kind": "list", "item": parts[0] if parts else ANY}
        case "dict":
            key, value = parts if len(parts) == 2 else (ANY, ANY)
            return {"kind": "dict", "key": key, "value": value}
    return ANY


def _members(spec: TypeSpec) -> list[TypeSpec]:
    return list(spec["members"]) if spec["kind"] == "union" else [spec]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


# --- a class beside a stored schema ---


def agrees(stored: TypeSchema, code: TypeSchema) -> bool:
    """Whether a class means what is stored, as far as 0.3 remembered it."""
    if stored.fingerprint == code.fingerprint:
        return True
    about = [
        (schema.ref, schema.left, schema.right, schema.instance_key, schema.primary_key) for schema in (stored, code)
    ]
    if about[0] != about[1] or set(stored.names) != set(code.names):
        return False
    specs = ((column.spec, code.by_name[column.name].spec) for column in stored.columns)
    return all(_same(before, now) and scalar_of(before) == scalar_of(now) for before, now in specs)


def _same(stored: TypeSpec, code: TypeSpec) -> bool:
    if stored == code:
        return True
    if stored["kind"] == "primitive" and stored["name"] not in _KNOWN:  # a TypedDict of which the name is left
        return code["kind"] == "typed_dict" and bool(code["name"] == stored["name"])
    if stored["kind"] != code["kind"]:
        return False
    match stored["kind"]:
        case "list":
            return _same(stored["item"], code["item"])
        case "dict":
            return _same(stored["key"], code["key"]) and _same(stored["value"], code["value"])
        case "union":
            return len(stored["members"]) == len(code["members"]) and all(
                any(_same(before, now) for now in code["members"]) for before in stored["members"]
            )
        case "typed_dict":
            inside, other = stored["fields"], code["fields"]
            return inside.keys() == other.keys() and all(
                _same(inside[name]["type"], other[name]["type"]) for name in inside
            )
    return False


@dataclass(frozen=True, slots=True)
class Catalog03(Catalog):
    """A catalog that takes a class at its word where 0.3 forgot what a type looks like inside."""

    def outdated(self, schemas: Mapping[TypeRef, TypeSchema]) -> list[Any]:
        stored = {ref: self.layouts[ref].schema for ref in schemas if ref in self.layouts}
        return [diff(before, schemas[ref]) for ref, before in stored.items() if not agrees(before, schemas[ref])]
