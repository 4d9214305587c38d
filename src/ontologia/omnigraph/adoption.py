"""Tables that another writer of the format made or changed, and what their types are.

Ours note the type with the table and its version with every published pin. The original does neither: its types are in
the schema files. What follows from them is noted in memory, under the same names, and stays with the table from our
first write to it on; the entry of the schema file is kept as it is, so that nothing it says gets lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontologia.errors import RecoveryPendingError, StorageBackendError
from ontologia.objects import ObjectNotFound, Objects
from ontologia.omnigraph.manifest import GraphManifest, Pin, Table
from ontologia.omnigraph.names import MANIFEST, SCHEMA_APPLY_LOCK
from ontologia.omnigraph.schema_files import IR, SOURCE, STATE, entry_of
from ontologia.omnigraph.sidecars import Sidecar

if TYPE_CHECKING:
    from ontologia.omnigraph.datasets import Datasets

IDS = {"node": ("id",), "edge": ("id", "src", "dst")}
NOTED = '"schema_version"'  #: in what is noted with a pin of ours
PRIMITIVES = {
    "String": "str",
    "Bool": "bool",
    **dict.fromkeys(("I32", "I64", "U32", "U64"), "int"),
    **dict.fromkeys(("F32", "F64"), "float"),
    "Date": "date",
    "DateTime": "datetime",
}
_NONE = {"kind": "primitive", "name": "NoneType"}
Columns = Callable[[Pin], "pa.Schema | None"]


class Adoption:
    """Describes tables of other writers. What columns a version has never changes, so it is looked up once."""

    def __init__(self, datasets: Datasets) -> None:
        self.datasets = datasets
        self._columns: dict[tuple[str, str | None, int], pa.Schema | None] = {}

    def describe(self, manifest: GraphManifest) -> GraphManifest:
        """The catalog, with a type for every table whose newest version another writer published."""
        foreign = [key for key, pin in manifest.pins.items() if NOTED not in pin.text]
        if not foreign:
            return manifest
        entries = dict(_entries(read_ir(self.datasets.objects)))
        tables = dict(manifest.tables)
        for key in foreign:
            tables[key] = self._describe(manifest, tables[key], entries.get(key))
        return replace(manifest, tables=tables)

    def _describe(self, manifest: GraphManifest, table: Table, entry: Mapping[str, Any] | None) -> Table:
        table = table if table.stored is None else Table(table.key, table.path, table.stored)
        pins = manifest.history[table.key]
        columns = self._columns_of(pins[-1])
        noted = [pin for pin in pins if NOTED in pin.text]
        if columns is None or (table.notes and not table.notes.get("schemas")):
            return table
        if noted and table.notes.get("schemas"):
            same = _same_columns(self._columns_of(noted[-1]), columns)
            if same and entry in (None, entry_of(table, noted)):
                return table
        versions = list(table.notes.get("schemas", ()))
        number = max((version["id"] for version in versions), default=0) + 1
        since = self._find_first(pins[len(noted) and pins.index(noted[-1]) + 1 :], columns)
        described = notes_of(table, columns, entry)
        version = {"id": number, "schema": described.pop("schema"), "created_at": "", "since": since}
        kept = {"ir": {"version": number, "entry": entry}} if entry is not None else {}
        return Table(table.key, table.path, {"schemas": [*versions, version], **described, **kept}, table.notes)

    def _find_first(self, pins: Sequence[Pin], columns: pa.Schema) -> int:
        """The first of these versions from which on the columns are what they are now."""
        if _same_columns(self._columns_of(pins[0]), columns):
            return pins[0].version
        first = pins[-1].version
        for pin in reversed(pins):
            if not _same_columns(self._columns_of(pin), columns):
                break
            first = pin.version
        return first

    def _columns_of(self, pin: Pin) -> pa.Schema | None:
        if pin.place not in self._columns:
            found = self.datasets.find(pin.path, pin.branch, pin.version)
            self._columns[pin.place] = None if found is None else found.schema
        return self._columns[pin.place]


def _same_columns(left: pa.Schema | None, right: pa.Schema) -> bool:
    return left is not None and left.remove_metadata().equals(right.remove_metadata())


def read_ir(objects: Objects) -> Mapping[str, Any] | None:
    """The schema file that other writers go by; None where there is none."""
    try:
        found = json.loads(objects.get(IR).data)
    except ObjectNotFound:
        return None
    except (ValueError, RecursionError) as problem:
        raise StorageBackendError(
            f"{objects.url(IR)} is not JSON ({problem}), so the types of tables that another writer made are unknown: "
            "restore it from a backup"
        ) from problem
    if not isinstance(found, dict) or found.get("ir_version") != 1:
        said = found.get("ir_version") if isinstance(found, dict) else found
        raise StorageBackendError(f"{objects.url(IR)} has the ir_version {said!r}, and this release knows 1")
    return found


def _entries(ir: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind, name in (("node", "nodes"), ("edge", "edges")):
        for entry in (ir or {}).get(name, ()):
            yield f"{kind}:{entry['name']}", entry


# --- a type from its entry and its columns ---


def notes_of(table: Table, columns: pa.Schema, entry: Mapping[str, Any] | None) -> dict[str, Any]:
    """What we would have noted with the table; `schema` is that of the type."""
    try:
        return _Described(table, columns, entry or {}).notes()
    except (KeyError, TypeError, AttributeError) as problem:
        raise StorageBackendError(
            f"the entry of {table.key} in {IR} has not the shape that it should have ({problem!r}): restore the file "
            "from a backup"
        ) from problem


class _Described:
    """One type: every column that has a counterpart here, and what stands in the way of writing rows of it."""

    def __init__(self, table: Table, columns: pa.Schema, entry: Mapping[str, Any]) -> None:
        self.table = table
        self.entry = entry
        self.properties = {item["name"]: item["prop_type"] for item in entry.get("properties", ())}
        self.columns = [field for field in columns if field.name not in IDS[table.kind]]
        self.key: str | None = None
        self.unique: list[str] = []
        self.indexed: list[str] = []
        self.allowed: dict[str, dict[str, Any]] = {}  #: per column, the values that the original takes
        self.barred: list[str] = []

    def notes(self) -> dict[str, Any]:
        for constraint in self.entry.get("constraints", ()):
            self._constrain(*next(iter(constraint.items())))
        cardinality = self.entry.get("cardinality") or {"min": 0, "max": None}
        if (cardinality["min"], cardinality["max"]) != (0, None):
            most = "any number" if cardinality["max"] is None else cardinality["max"]
            self.barred.append(f"a cardinality of {cardinality['min']} to {most}")
        fields = [field for column in self.columns if (field := self._field(column)) is not None]
        schema: dict[str, Any] = {"kind": "entity", "name": self.table.name, "fields": fields}
        if self.table.kind == "edge":
            ends = {"left": self.entry.get("from_type"), "right": self.entry.get("to_type")}
            schema |= {"kind": "relation", **ends, "instance_key": None}
        elif self.key is None:
            fields.insert(0, {"name": "id", "type": _primitive("str"), "primary_key": True, "index": False})
        indexes = {field["name"]: field["index"] for field in fields if field["index"]}
        notes: dict[str, Any] = {"schema": schema, "indexes": dict.fromkeys(self.unique, "btree") | indexes}
        if self.unique:
            notes["unique"] = self.unique
        if self.table.kind == "edge" and self.entry.get("from_type"):
            notes["endpoints"] = [f"node:{self.entry[end]}" for end in ("from_type", "to_type")]
        if self.allowed:
            notes["allowed"] = self.allowed
        if self.barred:
            notes["barred"] = self.barred
        return notes

    def _constrain(self, kind: str, said: Any) -> None:
        if kind == "Key":
            self.key = min(said)  # of several columns, the first by name is the id
        elif kind == "Unique" and len(said) == 1:
            self.unique += said
        elif kind == "Index":
            self.indexed += said if len(said) == 1 else []
        elif kind == "Range":
            bounds = {name: next(iter(said[name].values())) for name in ("min", "max") if said.get(name) is not None}
            self.allowed.setdefault(said["property"], {}).update(bounds)
        else:
            about = said if isinstance(said, list) else [said["property"]]
            self.barred.append(f"a {kind.lower()} constraint on {', '.join(about)}")

    def _field(self, column: pa.Field) -> dict[str, Any] | None:
        said = self.properties.get(column.name)
        scalar = _scalar_of(column) if said is None else said["scalar"]
        if said is not None and said.get("enum_values"):
            self.allowed.setdefault(column.name, {})["enum"] = said["enum_values"]
        vector = scalar.get("Vector") if isinstance(scalar, dict) else None
        if vector is None and scalar not in PRIMITIVES:
            self.barred.append(f"{column.name}, which is a {scalar}")
            return None
        spec = _primitive("float" if vector is not None else PRIMITIVES[scalar])
        if vector is not None or (said["list"] if said is not None else _is_list(column)):
            spec = {"kind": "list", "item": spec}
        if said["nullable"] if said is not None else column.nullable:
            members = [spec, _NONE] if spec["kind"] == "list" else [_NONE, spec]
            spec = {"kind": "union", "members": members}
        field: dict[str, Any] = {
            "name": column.name,
            "type": spec,
            "primary_key": column.name == self.key,
            "index": "fts" if column.name in self.indexed and scalar == "String" else False,
        }
        if vector is not None:
            field |= {"index": "vector", "dimensions": vector}
        return field | ({"unique": True} if column.name in self.unique else {})


def _primitive(name: str) -> dict[str, Any]:
    return {"kind": "primitive", "name": name}


def _is_list(column: pa.Field) -> bool:
    return bool(pa.types.is_list(column.type))


def _scalar_of(column: pa.Field) -> Any:
    """What the schema file would say of a column that it does not know (any more)."""
    kind = column.type.value_type if _is_list(column) else column.type
    if pa.types.is_fixed_size_list(kind):
        return {"Vector": kind.list_size}
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return "DateTime"
    names = {
        pa.string(): "String",
        pa.bool_(): "Bool",
        pa.int32(): "I32",
        pa.int64(): "I64",
        pa.uint32(): "U32",
        pa.uint64(): "U64",
        pa.float32(): "F32",
        pa.float64(): "F64",
        pa.date32(): "Date",
    }
    return names.get(kind, str(kind))


def check_not_in_progress(datasets: Datasets, pending: Sequence[Sidecar]) -> None:
    """Refuse to write while the original changes the schema, or died while it did: only its own recovery can tell which
    of its files count."""
    objects = datasets.objects
    names = [f"{name}.staging" for name in (SOURCE, IR, STATE) if objects.exists(f"{name}.staging")]
    names += [sidecar.key for sidecar in pending if sidecar.foreign and sidecar.writer_kind == "SchemaApply"]
    names += [f"the branch {name}" for name in datasets.branch_names(MANIFEST) if name == SCHEMA_APPLY_LOCK]
    if names:
        raise RecoveryPendingError(
            f"OmniGraph has not finished a schema change of {objects.uri}, there is {names[0]}: open it once with "
            "OmniGraph, which finishes or undoes it; it can be read meanwhile"
        )
