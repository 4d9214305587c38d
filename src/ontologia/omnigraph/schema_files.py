"""`_schema.pg`, `_schema.ir.json`, `__schema_state.json`: what main's tables are, for people and for other readers.

They are made from `__manifest`, which is the authority for types of ours: a commit that changes a type writes them
after its commit point, and the next open for writing sees to it that they agree. What another writer said of its types
stays as it is, entry by entry.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ontologia.errors import OntologiaError
from ontologia.objects import ObjectNotFound, Objects
from ontologia.omnigraph.manifest import GraphManifest, Pin, Table

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
_DECLARATION = re.compile(r"^(node|edge|interface)[ \t]+(\w+)", re.MULTILINE)
_log = logging.getLogger(__name__)


def refresh(objects: Objects, manifest: GraphManifest) -> None:
    """Bring the three files to what main's tables are, if they are not; best effort, since nothing depends on them."""
    before = _read(objects, IR)
    ir = ir_of(manifest, before)
    state = {"format_version": 1, "schema_ir_hash": ir_hash(ir), "schema_identity_version": 1}
    try:
        if _read(objects, STATE) != state:
            source = _read_text(objects, SOURCE) if before is not None else ""
            objects.put(SOURCE, splice_source(source, before or {}, ir).encode())
            objects.put(IR, _pretty(ir))
            objects.put(STATE, _pretty(state))
    except OntologiaError as problem:
        _log.warning("the schema files of %s are not up to date, the next open does it: %s", objects.uri, problem)


def _read(objects: Objects, name: str) -> dict[str, Any] | None:
    try:
        found = json.loads(objects.get(name).data)
    except (ObjectNotFound, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read_text(objects: Objects, name: str) -> str:
    try:
        return objects.get(name).data.decode(errors="replace")
    except ObjectNotFound:
        return ""


def _pretty(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def ir_hash(ir: Mapping[str, Any]) -> str:
    """Over the IR as compact JSON, in the order of its fields."""
    text = json.dumps(ir, ensure_ascii=False, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# --- the IR ---


def ir_of(manifest: GraphManifest, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The live types of a catalog, sorted by name; interfaces are none of ours and stay."""
    tables = sorted((manifest.tables[key] for key in manifest.pins), key=lambda table: table.name)
    described = [(table.kind, entry_of(table, manifest.history[table.key])) for table in tables]
    return {
        "ir_version": 1,
        "interfaces": (before or {}).get("interfaces", []),
        "nodes": [entry for kind, entry in described if kind == "node"],
        "edges": [entry for kind, entry in described if kind == "edge"],
    }


def entry_of(table: Table, pins: Sequence[Pin]) -> dict[str, Any]:
    """What the IR says of a type: the entry that another writer made for this version of it, else one of ours."""
    versions = table.notes.get("schemas", ())
    noted = (pin.metadata.get("schema_version") for pin in reversed(pins))  # other writers note none with theirs
    current = versions[-1]["id"] if table.derived else next((it for it in noted if it is not None), None)
    kept = table.notes.get("ir")
    if kept is not None and kept["version"] == current:
        return dict(kept["entry"])
    found = [note["schema"] for note in versions if note["id"] == current]
    return make_entry(table, found[0] if found else {"fields": []})


def make_entry(table: Table, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a type of ours."""
    return (_node if table.kind == "node" else _edge)(table, schema)


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


def splice_source(source: str, before: Mapping[str, Any], ir: Mapping[str, Any]) -> str:
    """The source of an IR: what it says of types that stay as they are is kept to the letter, since it can say more
    than we know of; the others are written anew, and new ones follow."""
    blocks = {(kind, name): text for kind, name, text in _split_source(source)}
    known = dict(_entries_of(before))
    first = _DECLARATION.search(source)
    parts = ["" if first is None else source[: first.start()].rstrip("\n")]
    wanted = dict(_entries_of(ir))
    for place, text in blocks.items():
        if place[0] == "interface" or (place in wanted and known.get(place) == wanted[place]):
            parts.append(text.rstrip() + "\n")
        elif place in wanted:
            parts.append(_declare(*place, wanted[place]))
    parts += [_declare(*place, entry) for place, entry in wanted.items() if place not in blocks]
    return "\n".join(part for part in parts if part)


def _split_source(source: str) -> list[tuple[str, str, str]]:
    """The declarations of a source: kind, name and text."""
    starts = list(_DECLARATION.finditer(source))
    ends = [*(found.start() for found in starts), len(source)][1:]
    return [(it[1], it[2], source[it.start() : end]) for it, end in zip(starts, ends, strict=False)]


def _entries_of(ir: Mapping[str, Any]) -> list[tuple[tuple[str, str], Mapping[str, Any]]]:
    kinds = (("node", "nodes"), ("edge", "edges"))
    return [((kind, entry["name"]), entry) for kind, name in kinds for entry in ir.get(name, ())]


def _declare(kind: str, name: str, entry: Mapping[str, Any]) -> str:
    ends = f": {entry['from_type']} -> {entry['to_type']}" if kind == "edge" else ""
    return _block(f"{kind} {name}{ends}", entry["properties"])


def _block(head: str, properties: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"    {item['name']}: {_encode(item)}\n" for item in properties]
    return f"{head} {{\n{''.join(lines)}}}\n"


def _encode(item: Mapping[str, Any]) -> str:
    kind = item["prop_type"]
    scalar = f"Vector({kind['scalar']['Vector']})" if isinstance(kind["scalar"], dict) else kind["scalar"]
    return " ".join([scalar + ("?" if kind["nullable"] else ""), *(f"@{note['name']}" for note in item["annotations"])])
