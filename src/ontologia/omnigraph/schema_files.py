"""`_schema.pg`, `_schema.ir.json`, `__schema_state.json`: what main's tables are, for people and for other readers.

They are made from `__manifest`, which is the authority: a commit that changes a type writes them after its commit
point, and the next open for writing sees to it that they agree. Nothing here reads them to find out about a type.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ontologia.errors import OntologiaError
from ontologia.objects import ObjectNotFound, Objects
from ontologia.omnigraph.manifest import GraphManifest, Table

SOURCE, IR, STATE = "_schema.pg", "_schema.ir.json", "__schema_state.json"
SCALARS = {
    "str": "String",
    "int": "I64",
    "float": "F64",
    "bool": "Bool",
    "date": "Date",
    "datetime": "DateTime",
    "bytes": "Blob",
}
_log = logging.getLogger(__name__)


def refresh(objects: Objects, manifest: GraphManifest) -> None:
    """Bring the three files to what main's tables are, if they are not; best effort, since nothing depends on them."""
    ir = ir_of(manifest)
    state = {"format_version": 1, "schema_ir_hash": ir_hash(ir), "schema_identity_version": 1}
    try:
        if _read(objects) != state:
            objects.put(SOURCE, source_of(ir).encode())
            objects.put(IR, _pretty(ir))
            objects.put(STATE, _pretty(state))
    except OntologiaError as problem:
        _log.warning("the schema files of %s are not up to date, the next open does it: %s", objects.uri, problem)


def _read(objects: Objects) -> Any:
    try:
        return json.loads(objects.get(STATE).data)
    except (ObjectNotFound, ValueError):
        return None


def _pretty(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def ir_hash(ir: Mapping[str, Any]) -> str:
    """Over the IR as compact JSON, in the order of its fields."""
    text = json.dumps(ir, ensure_ascii=False, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# --- the IR ---


def ir_of(manifest: GraphManifest) -> dict[str, Any]:
    """The live types of a catalog, sorted by name."""
    tables = sorted((manifest.tables[key] for key in manifest.pins), key=lambda table: table.name)
    described = [(table, _schema_of(manifest, table)) for table in tables]
    return {
        "ir_version": 1,
        "interfaces": [],
        "nodes": [_node(table, schema) for table, schema in described if table.kind == "node"],
        "edges": [_edge(table, schema) for table, schema in described if table.kind == "edge"],
    }


def _schema_of(manifest: GraphManifest, table: Table) -> Mapping[str, Any]:
    """The version of a type's schema that its rows have, as the layers above noted it."""
    versions = table.notes.get("schemas", ())
    current = manifest.pins[table.key].metadata.get("schema_version")
    found = [note["schema"] for note in versions if note["id"] == current]
    return found[0] if found else {"fields": []}


def _node(table: Table, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = _properties(table, schema)
    return {
        "name": table.name,
        "type_id": fnv1a32(table.key),
        "annotations": [],
        "implements": [],
        "properties": properties,
        "constraints": _constraints(properties),
    }


def _edge(table: Table, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = _properties(table, schema)
    return {
        "name": table.name,
        "type_id": fnv1a32(table.key),
        "from_type": schema.get("left"),
        "to_type": schema.get("right"),
        "cardinality": {"min": 0, "max": None},
        "annotations": [],
        "properties": properties,
        "constraints": _constraints(properties),
    }


def _properties(table: Table, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = list(schema["fields"])
    if schema.get("instance_key"):
        fields.append({"name": schema["instance_key"], "type": {"kind": "primitive", "name": "str"}})
    return [
        {
            "name": field["name"],
            "prop_id": fnv1a32(f"{table.key}:{field['name']}"),
            "prop_type": _type_of(field),
            "annotations": [{"name": name, "value": None} for name in _annotations(field)],
        }
        for field in sorted(fields, key=lambda field: str(field["name"]))
    ]


def _annotations(field: Mapping[str, Any]) -> list[str]:
    said = {"index": field.get("index"), "key": field.get("primary_key"), "unique": field.get("unique")}
    return [name for name, value in said.items() if value]


def _constraints(properties: Sequence[Mapping[str, Any]]) -> list[dict[str, list[str]]]:
    found = [(note["name"], item["name"]) for item in properties for note in item["annotations"]]
    return [{kind.capitalize(): [name]} for kind, name in sorted(found)]


def _type_of(field: Mapping[str, Any]) -> dict[str, Any]:
    """A field's type. What has no scalar there is stored as JSON, which is text."""
    spec = field["type"]
    members = spec["members"] if spec["kind"] == "union" else [spec]
    plain = [member for member in members if member.get("name") != "NoneType"]
    nullable = len(plain) < len(members) or any(member.get("name") == "Any" for member in members)
    scalar: Any = SCALARS.get(plain[0].get("name", ""), "String") if len(plain) == 1 else "String"
    if field.get("dimensions") is not None:
        scalar = {"Vector": field["dimensions"]}
    return {"scalar": scalar, "nullable": nullable, "list": False, "enum_values": None}


def fnv1a32(text: str) -> int:
    """FNV-1a, 32 bits; 0 becomes 1, since ids begin there."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value or 1


# --- the source text ---


def source_of(ir: Mapping[str, Any]) -> str:
    """The types as a person reads them."""
    blocks = [_block(f"node {node['name']}", node["properties"]) for node in ir["nodes"]]
    for edge in ir["edges"]:
        blocks.append(_block(f"edge {edge['name']}: {edge['from_type']} -> {edge['to_type']}", edge["properties"]))
    return "\n".join(blocks)


def _block(head: str, properties: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"    {item['name']}: {_encode(item)}\n" for item in properties]
    return f"{head} {{\n{''.join(lines)}}}\n"


def _encode(item: Mapping[str, Any]) -> str:
    kind = item["prop_type"]
    scalar = f"Vector({kind['scalar']['Vector']})" if isinstance(kind["scalar"], dict) else kind["scalar"]
    return " ".join([scalar + ("?" if kind["nullable"] else ""), *(f"@{note['name']}" for note in item["annotations"])])
