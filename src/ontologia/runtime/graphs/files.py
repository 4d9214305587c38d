"""Graphs in and out as lines of JSON: nodes `{type, data}`, edges `{edge, from, to, data}`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import new_class
from typing import TYPE_CHECKING, Any

import pydantic

from ontologia.errors import GraphValidationError, ValidationError
from ontologia.model import Declaration, Declared, Entity, Field, Relation, TypeRef, TypeSchema, encode_json
from ontologia.model.typespec import annotation_of

if TYPE_CHECKING:
    from ontologia.runtime.graphs.omnigraph import Omnigraph

Types = Mapping[Any, Declaration]  #: by kind and name


def read_lines(path: Path, types: Types) -> Iterator[Declared]:
    """The objects of a file. Every line that does not fit is named."""
    problems: list[str] = []
    if not path.is_file():
        raise ValidationError(f"there is no file {path}: a load takes a file of JSON lines, as export() writes them")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield _object(json.loads(line), types)
                except (ValueError, KeyError, TypeError, ValidationError, pydantic.ValidationError) as problem:
                    problems.append(f"line {number}: {_describe(problem)}")
    if problems:
        raise GraphValidationError(f"{path} was refused", problems)


def _object(content: Any, types: Types) -> Declared:
    if not isinstance(content, dict) or not isinstance(content.get("data", {}), dict):
        raise ValueError("it is not an object with data; a node has type and data, an edge has edge, from, to and data")
    data = dict(content.get("data", {}))
    if "type" in content:
        declaration = _declaration(types, ("entity", content["type"]))
    else:
        declaration = _declaration(types, ("relation", content["edge"]))
        data |= {"left_key": content["from"], "right_key": content["to"]}
    data = {name: value for name, value in data.items() if name != "id" or name in declaration.options}
    return declaration.cls(**data)


def _declaration(types: Types, ref: tuple[str, str]) -> Declaration:
    if ref not in types:
        raise ValidationError(f"the graph has no {ref[0]} {ref[1]!r}; open it with types= that have it")
    return types[ref]


def _describe(problem: Exception) -> str:
    if isinstance(problem, KeyError):
        return f"it has no {problem.args[0]!r}; a node has type and data, an edge has edge, from, to and data"
    return " ".join(str(problem).split())


def declare_stored(schemas: Iterable[TypeSchema]) -> dict[TypeRef, Declaration]:
    """Classes for stored types, for callers that gave none. A relation without its ends among them is left out."""
    found: dict[str, type[Entity]] = {}
    declared: dict[TypeRef, Declaration] = {}
    for schema in sorted(schemas, key=lambda it: it.ref):  # entities first
        base: Any = Entity
        if schema.ref.kind == "relation":
            if schema.left not in found or schema.right not in found:
                continue
            generic: Any = Relation
            base = generic[found[schema.left], found[schema.right]]
        cls = _make_class(base, schema)
        declared[schema.ref] = cls.__declaration__
        if schema.ref.kind == "entity":
            found[schema.ref.name] = cls
    return declared


def _make_class(base: Any, schema: TypeSchema) -> Any:
    annotations: dict[str, Any] = {item.name: Field[annotation_of(item.spec)] for item in schema.fields}  # type: ignore[misc]
    body: dict[str, Any] = {}
    for item in schema.fields:
        wishes: dict[str, Any] = {"index": item.index, "unique": item.unique, "dimensions": item.dimensions}
        nullable: dict[str, Any] = {"default": None} if schema.by_name[item.name].nullable else {}
        body[item.name] = Field(primary_key=item.primary_key, **nullable, **wishes)
    if schema.instance_key is not None and schema.instance_key not in annotations:
        annotations[schema.instance_key], body[schema.instance_key] = Field[str], Field(instance_key=True)
    content = {"__module__": __name__, "__annotations__": annotations, **body}
    return new_class(schema.ref.name, (base,), {"name": schema.ref.name}, lambda space: space.update(content))


def write_lines(graph: Omnigraph, path: Path, branch: str) -> int:
    """All objects of a branch, by type and key; how many. The file is whole or not there."""
    aside = path.with_name(f"{path.name}.part")
    count = 0
    with aside.open("w", encoding="utf-8") as lines:
        for declaration in sorted(graph.known_types(branch).values(), key=lambda item: item.ref):
            for obj in _objects(graph, declaration, branch):
                lines.write(_line(declaration, obj) + "\n")
                count += 1
    aside.rename(path)
    return count


def _objects(graph: Omnigraph, declaration: Declaration, branch: str) -> list[Any]:
    root = graph.query(branch=branch)
    if declaration.ref.kind == "entity":
        return root.entities(declaration.cls).collect()  # type: ignore[type-var]
    return root.relations(declaration.cls).collect()  # type: ignore[type-var]


def _line(declaration: Declaration, obj: Any) -> str:
    data = {name: obj.__dict__[name] for name in declaration.options}
    if declaration.ref.kind == "entity":
        return encode_json({"type": declaration.ref.name, "data": data})
    ends = {"from": obj.left_key, "to": obj.right_key}
    return encode_json({"edge": declaration.ref.name, **ends, "data": data})
