"""How a type lies in a graph: an entity is a node table, a relation an edge table, and both note their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ontologia.engines.catalog import SchemaVersion
from ontologia.errors import GraphValidationError, ValidationError
from ontologia.model import COMMIT_ID, Column, TypeRef, TypeSchema, encode_json, parse_texts
from ontologia.omnigraph.manifest import GraphManifest, Table
from ontologia.omnigraph.names import EMPTY, table_key, table_path

KINDS = {"entity": "node", "relation": "edge"}
REFS = {"node": "entity", "edge": "relation"}
IDS = {"entity": ("id",), "relation": ("id", "src", "dst")}
RESERVED = frozenset(("id", "src", "dst", "_distance", "_score"))
_VERSION = re.compile(r'"schema_version": (\d+)')
SCHEMA_VERSION = "schema_version"  #: noted with every published version of a table


def key_of(ref: TypeRef) -> str:
    return table_key(KINDS[ref.kind], ref.name)


def ref_of(key: str) -> TypeRef:
    kind, _, name = key.partition(":")
    return TypeRef(REFS[kind], name)  # type: ignore[arg-type]


@dataclass(frozen=True)
class GraphType:
    """The columns of a type's table: ids first, then one column per field, by name."""

    schema: TypeSchema

    @cached_property
    def ref(self) -> TypeRef:
        return self.schema.ref

    @cached_property
    def key(self) -> str:
        return key_of(self.ref)

    @cached_property
    def columns(self) -> dict[str, str]:
        """Fields and the columns they lie in. A name that is taken, whatever its case, gets a number.

        Lance takes points and backticks for signs of its own: they become `~2E` and `~60`, as in paths.
        """
        names = sorted(self.schema.names) + ([self.schema.instance_key] if self.schema.instance_key else [])
        taken, found = set(RESERVED), {}
        for name in names:
            if name == "id" == self.schema.primary_key and self.schema.by_name[name].scalar == "str":
                found[name] = name  # the key is the id: it is stored once
                continue
            plain = name.replace(".", "~2E").replace("`", "~60")
            candidate, number = plain, 1
            while candidate.casefold() in taken or candidate.startswith("_row"):
                number += 1
                candidate = f"{plain.lstrip('_') if plain.startswith('_row') else plain}__{number}"
            taken.add(candidate.casefold())
            found[name] = candidate
        return found

    @cached_property
    def vectors(self) -> dict[str, int]:
        return {item.name: item.dimensions or 0 for item in self.schema.fields if item.index == "vector"}

    @cached_property
    def arrow(self) -> pa.Schema:
        fields = [pa.field(name, pa.string(), nullable=False) for name in IDS[self.ref.kind]]
        by_column = {column: name for name, column in self.columns.items()}
        for column in sorted(by_column.keys() - set(IDS[self.ref.kind])):
            fields.append(pa.field(column, self._type(by_column[column])))
        return pa.schema(fields)

    def _type(self, name: str) -> pa.DataType:
        if name in self.vectors:
            return pa.list_(pa.field("item", pa.float32()), self.vectors[name])
        if name == self.schema.instance_key and name not in self.schema.by_name:
            return pa.string()
        return self.schema.by_name[name].arrow_type

    @cached_property
    def indexes(self) -> dict[str, str]:
        """Columns with a declared index, and its kind."""
        unique: dict[str, Any] = dict.fromkeys(self.schema.unique, "btree")
        declared = unique | {item.name: item.index for item in self.schema.fields if item.index}
        return {self.columns[name]: "btree" if kind is True else str(kind) for name, kind in declared.items()}

    # --- notes in the manifest ---

    def table(self, versions: Sequence[Mapping[str, Any]]) -> Table:
        """The registration of this type, with all versions of its schema."""
        notes: dict[str, Any] = {"schemas": list(versions), "indexes": self.indexes}
        if self.schema.unique:
            notes["unique"] = [self.columns[name] for name in self.schema.unique]
        if self.schema.left is not None and self.schema.right is not None:
            notes["endpoints"] = [table_key("node", name) for name in (self.schema.left, self.schema.right)]
        return Table(self.key, table_path(self.key), notes)

    # --- rows, there and back ---

    def to_graph(self, rows: pa.Table) -> pa.Table:
        """Rows as an engine is handed them (identity and fields) in the columns of the table."""
        arrays = dict(zip(IDS[self.ref.kind], self._ids(rows), strict=True))
        for name, column in self.columns.items():
            if column in arrays:
                continue
            if name == self.schema.instance_key and name not in self.schema.by_name:
                arrays[column] = rows.column("instance_key")
            elif name in self.vectors:
                arrays[column] = self._vectors(name, rows)
            else:
                arrays[column] = rows.column(self.schema.by_name[name].physical)
        return pa.table([_one_type(arrays[field.name], field.type) for field in self.arrow], schema=self.arrow)

    def _ids(self, rows: pa.Table) -> list[Any]:
        if self.ref.kind == "entity":
            return [rows.column("entity_key")]
        keys = [rows.column(name) for name in ("left_key", "right_key")]
        parts = [*keys, rows.column("instance_key")] if self.schema.instance_key else keys
        texts = [edge_id(values) for values in zip(*(part.to_pylist() for part in parts), strict=True)]
        return [pa.array(texts, pa.string()), *keys]

    def ids_of(self, keys: pa.Table) -> list[str]:
        """The ids of identities."""
        found: list[str] = self._ids(keys)[0].to_pylist()
        return found

    def _vectors(self, name: str, rows: pa.Table) -> pa.Array:
        size = self.vectors[name]
        texts = rows.column(self.schema.by_name[name].physical).to_pylist()
        values = parse_texts(texts)
        lengths = [size if value is None else len(value) for value in values]
        wrong = [place for place, length in enumerate(lengths) if length != size]
        if wrong:
            ids = self._ids(rows)[0]
            problems = [f"{ids[place].as_py()!r} has one of {lengths[place]}" for place in wrong]
            raise GraphValidationError(f"{self.ref}.{name} has vectors of {size} numbers", problems)
        return pa.array(values, self._type(name))

    def from_graph(self, rows: pa.Table, commits: pa.Array | None = None) -> pa.Table:
        """Rows of the table under the names that an engine gives back; only the columns that were read."""
        names = {"id": "entity_key"} if self.ref.kind == "entity" else {"src": "left_key", "dst": "right_key"}
        arrays: dict[str, Any] = {name: rows.column(column) for column, name in names.items()}
        if self.ref.kind == "relation":
            keyed = self.schema.instance_key
            empty = pa.array([""] * rows.num_rows, pa.string())
            arrays["instance_key"] = rows.column(self.columns[keyed]) if keyed else empty
        if commits is not None:
            arrays[COMMIT_ID] = commits
        for column in self.schema.columns:
            stored = self.columns[column.name]
            if stored in rows.column_names:
                arrays[column.physical] = _as_declared(rows.column(stored), column)
        return pa.table(arrays)

    def needed(self, columns: Sequence[Column] | None) -> list[str]:
        """What to read for some fields: identity and those columns."""
        ids = ["id"] if self.ref.kind == "entity" else ["src", "dst"]
        keyed = [self.columns[self.schema.instance_key]] if self.schema.instance_key else []
        fields = self.schema.columns if columns is None else columns
        return list(dict.fromkeys([*ids, *keyed, *(self.columns[column.name] for column in fields)]))


def edge_id(identity: Sequence[str]) -> str:
    """The id of an edge: its ends, and the instance key where there is one, as JSON, which no text can forge."""
    return json.dumps(list(identity), ensure_ascii=False, separators=(",", ":"))


def _one_type(values: Any, kind: pa.DataType) -> Any:
    return values if values.type == kind else values.cast(kind)


def _as_declared(values: pa.ChunkedArray, column: Column) -> Any:
    """Stored values in the type that a field has here; another writer may store it in a narrower one."""
    if values.type == column.arrow_type:
        return values
    if pa.types.is_nested(values.type):
        return _texts(values)
    if pa.types.is_date64(values.type):
        values = values.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    try:
        return values.cast(column.arrow_type)
    except pa.ArrowInvalid as problem:
        raise ValidationError(
            f"{column.name} holds a value that {column.describe()} has no room for: {problem}"
        ) from problem


def _texts(vectors: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else encode_json(value) for value in vectors.to_pylist()], pa.string())


# --- schema versions, as the manifest notes them ---


def version_note(version: SchemaVersion) -> dict[str, Any]:
    return {"id": version.schema_version_id, "schema": version.schema.to_json(), "created_at": version.created_at}


def pin_version(text: str) -> int | None:
    """The schema version of a published table version, from its note. There is one per commit, so it is not parsed."""
    found = _VERSION.search(text)
    return None if found is None else int(found[1])


def carry_notes(table: Table, known: Table | None) -> Table:
    """A registration with what another writer said of the type, as long as it is about the same version of it."""
    ir = None if known is None else known.notes.get("ir")
    if known is None or ir is None or ir["version"] != table.notes["schemas"][-1]["id"]:
        return table
    since = {version["id"]: version["since"] for version in known.notes["schemas"] if "since" in version}
    schemas = [it | ({"since": since[it["id"]]} if it["id"] in since else {}) for it in table.notes["schemas"]]
    kept = {name: known.notes[name] for name in ("ir", "allowed", "barred") if name in known.notes}
    return replace(table, notes={**table.notes, "schemas": schemas, **kept})


def versions_of(manifest: GraphManifest, key: str) -> list[SchemaVersion]:
    """Every version of a type's schema, with the commit since which it is, or was, in force."""
    table, ref, pins = manifest.tables[key], ref_of(key), manifest.history.get(key, ())
    notes = table.notes.get("schemas", ())
    # There is a pin per commit: look from the front up to the last activation, and from the back to the first note.
    activated: dict[int, int] = {
        note["id"]: next(max(0, pin.published_at - EMPTY) for pin in pins if pin.version >= note["since"])
        for note in notes
        if "since" in note  # which another writer brought in, and did not note with its pins
    }
    for pin in pins:
        if len(activated) == len(notes):
            break
        found = pin_version(pin.text)
        if found is not None:
            activated.setdefault(found, pin.published_at - EMPTY)
    current = next((found for pin in reversed(pins) if (found := pin_version(pin.text)) is not None), None)
    current = notes[-1]["id"] if table.derived else current
    live = key in manifest.pins
    return [
        SchemaVersion(
            ref,
            note["id"],
            TypeSchema.from_json(note["schema"]),
            note["created_at"],
            activated.get(note["id"]),
            live and note["id"] == current,
        )
        for note in notes
    ]
