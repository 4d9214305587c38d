"""Writes stores as Ontologia 0.3 laid them out: SQLite files and buckets, v1 and v2."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

AT = "2026-01-{:02d}T10:00:00+00:00"
STR, INT, FLOAT, BOOL = ({"kind": "primitive", "name": name} for name in ("str", "int", "float", "bool"))
NONE = {"kind": "primitive", "name": "NoneType"}
FORMS = ["sqlite-unstamped", "sqlite-v1", "sqlite-v2", "bucket-v1", "bucket-v2"]


def optional(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "union", "members": [NONE, spec]}


def as_text(text: str) -> dict[str, Any]:
    """A union that was written `A | B`, of which 0.3 kept the text."""
    return {"kind": "primitive", "name": text}


def entity(name: str, key: str, /, **fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "entity_name": name,
        "fields": {
            field: {"primary_key": field == key, "index": False, "type": "…", "type_spec": spec}
            for field, spec in fields.items()
        },
    }


def relation(name: str, left: str, right: str, instance_key: str | None = None, /, **fields: Any) -> dict[str, Any]:
    return {
        "relation_name": name,
        "left_type": left,
        "right_type": right,
        "instance_key_field": instance_key,
        "fields": {field: {"index": False, "type": "…", "type_spec": spec} for field, spec in fields.items()},
    }


@dataclass
class Row:
    kind: str
    type_name: str
    identity: tuple[str, ...]
    version: int
    fields: dict[str, Any]


@dataclass
class Store03:
    """What is to be written: schema versions by type, and commits with their rows."""

    versions: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    commits: list[tuple[dict[str, Any] | None, list[Row]]] = field(default_factory=list)
    dropped: set[tuple[str, str]] = field(default_factory=set)
    reasons: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def declare(self, schema: dict[str, Any], *, reason: str | None = None) -> None:
        kind = "entity" if "entity_name" in schema else "relation"
        name = schema[f"{kind}_name"]
        self.dropped.discard((kind, name))
        known = self.versions.setdefault((kind, name), [])
        known.append(schema)
        self.reasons[kind, name, len(known)] = reason or ("initial" if len(known) == 1 else "migration")

    def commit(self, *rows: Row, metadata: dict[str, Any] | None = None) -> int:
        self.commits.append((metadata, list(rows)))
        return len(self.commits)

    def entity(self, type_name: str, key: str, /, **fields: Any) -> Row:
        return Row("entity", type_name, (key,), len(self.versions["entity", type_name]), fields)

    def relation(self, type_name: str, left: str, right: str, instance: str = "", /, **fields: Any) -> Row:
        version = len(self.versions["relation", type_name])
        return Row("relation", type_name, (left, right, instance), version, fields)

    def migrate(self, schema: dict[str, Any], *rows: dict[str, Any]) -> int:
        """Declare the next version of an entity, with all of its rows written anew."""
        self.declare(schema)
        name, version = schema["entity_name"], len(self.versions["entity", schema["entity_name"]])
        about = {
            "type_kind": "entity",
            "type_name": name,
            "from_schema_version_id": version - 1,
            "to_schema_version_id": version,
            "rows_rewritten": len(rows),
        }
        written = [Row("entity", name, (str(row["id"]),), version, row) for row in rows]
        return self.commit(*written, metadata={"kind": "migration", "migrated_types": [about]})

    def drop(self, kind: str, name: str) -> int:
        self.dropped.add((kind, name))
        self.versions[kind, name] = []
        affected = json.dumps([{"kind": kind, "type_name": name}])
        return self.commit(
            metadata={"operation": "schema_drop", "target_kind": kind, "target_type": name, "affected_types": affected}
        )

    @property
    def declared(self) -> list[tuple[str, str]]:
        return [ref for ref, versions in self.versions.items() if versions]

    def activation(self, kind: str, name: str, version: int) -> int | None:
        rows = [
            number
            for number, (_, rows) in enumerate(self.commits, 1)
            if any((row.kind, row.type_name, row.version) == (kind, name, version) for row in rows)
        ]
        return min(rows, default=None)


def write(store: Store03, folder: Path, form: str) -> str:
    """A store in one of its forms; what opens it."""
    place, _, version = form.partition("-")
    if place == "bucket":
        return write_bucket(store, folder / "bucket", version).as_uri()
    stamped = version != "unstamped"
    return str(write_sqlite(store, folder / "old.db", version if stamped else "v1", stamped=stamped))


# --- SQLite ---

TABLES = """
CREATE TABLE commits (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL, metadata_json TEXT);
CREATE TABLE entity_history (id INTEGER PRIMARY KEY AUTOINCREMENT, entity_type TEXT NOT NULL, entity_key TEXT NOT NULL,
    fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL REFERENCES commits(id), schema_version_id INTEGER);
CREATE TABLE relation_history (id INTEGER PRIMARY KEY AUTOINCREMENT, relation_type TEXT NOT NULL, left_key TEXT NOT NULL,
    right_key TEXT NOT NULL, fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL REFERENCES commits(id),
    schema_version_id INTEGER, instance_key TEXT NOT NULL DEFAULT '');
CREATE TABLE schema_registry (type_kind TEXT NOT NULL, type_name TEXT NOT NULL, schema_json TEXT NOT NULL,
    PRIMARY KEY (type_kind, type_name));
CREATE TABLE schema_versions (id INTEGER PRIMARY KEY AUTOINCREMENT, type_kind TEXT NOT NULL, type_name TEXT NOT NULL,
    schema_version_id INTEGER NOT NULL, schema_json TEXT NOT NULL, schema_hash TEXT NOT NULL, created_at TEXT NOT NULL,
    runtime_id TEXT, reason TEXT, UNIQUE (type_kind, type_name, schema_version_id));
CREATE TABLE locks (lock_name TEXT PRIMARY KEY, owner_id TEXT NOT NULL, acquired_at TEXT NOT NULL, expires_at TEXT NOT NULL);
CREATE INDEX idx_entity_history_lookup ON entity_history (entity_type, entity_key, commit_id DESC);
CREATE INDEX idx_relation_history_lookup
    ON relation_history (relation_type, left_key, right_key, instance_key, commit_id DESC);
"""
STAMP = "CREATE TABLE storage_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
LAYOUTS = """
CREATE TABLE type_layout_catalog (type_kind TEXT, type_name TEXT, schema_version_id INTEGER, table_name TEXT,
    activation_commit_id INTEGER NOT NULL, is_current INTEGER NOT NULL DEFAULT 0,
    created_at TEXT DEFAULT (datetime('now')), PRIMARY KEY (type_kind, type_name, schema_version_id));
"""


def write_sqlite(store: Store03, path: Path, version: str = "v2", *, stamped: bool = True) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(TABLES + (STAMP if stamped else "") + (LAYOUTS if version == "v2" else ""))
    if stamped:
        stamps = {"engine_version": version, "backend": "sqlite"}
        connection.executemany("INSERT INTO storage_meta VALUES (?, ?)", stamps.items())
    for kind, name in store.declared:
        versions = store.versions[kind, name]
        connection.execute("INSERT INTO schema_registry VALUES (?, ?, ?)", (kind, name, json.dumps(versions[-1])))
        for number, schema in enumerate(versions, 1):
            connection.execute(
                "INSERT INTO schema_versions (type_kind, type_name, schema_version_id, schema_json, schema_hash, "
                "created_at, runtime_id, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    kind,
                    name,
                    number,
                    _sorted(schema),
                    _hash(schema),
                    AT.format(1),
                    "writer",
                    store.reasons[kind, name, number],
                ),
            )
            activation = store.activation(kind, name, number)
            if version == "v2" and activation is not None:
                connection.execute(
                    "INSERT INTO type_layout_catalog VALUES (?, ?, ?, ?, ?, ?, '2026-01-01 10:00:00')",
                    (kind, name, number, f"{kind}_{name}_v{number}", activation, number == len(versions)),
                )
    append_sqlite(store, connection, 0)
    connection.close()
    return path


def append_sqlite(store: Store03, connection: sqlite3.Connection, done: int) -> None:
    """Write the commits after the first ones."""
    for number, (metadata, rows) in list(enumerate(store.commits, 1))[done:]:
        text = None if metadata is None else json.dumps(metadata)
        connection.execute("INSERT INTO commits VALUES (?, ?, ?)", (number, AT.format(number), text))
        for row in rows:
            names = ["entity_key"] if row.kind == "entity" else ["left_key", "right_key", "instance_key"]
            columns = [f"{row.kind}_type", *names, "fields_json", "commit_id", "schema_version_id"]
            values = [row.type_name, *row.identity, json.dumps(row.fields), number, row.version]
            connection.execute(
                f"INSERT INTO {row.kind}_history ({', '.join(columns)}) VALUES ({', '.join('?' for _ in columns)})",
                values,
            )
    connection.commit()


# --- buckets ---

FOLDERS = {"entity": "entities", "relation": "relations"}


def write_bucket(store: Store03, folder: Path, version: str = "v2") -> Path:
    put = lambda key, body: _put(folder / key, json.dumps(body, sort_keys=True, separators=(",", ":")).encode())  # noqa: E731
    put("meta/engine.json", {"backend": "s3", "engine_version": version, "created_at": AT.format(1)})
    registry: dict[str, Any] = {"entity": {}, "relation": {}, "updated_at": AT.format(1)}
    for kind, name in store.declared:
        registry[kind][name] = store.versions[kind, name][-1]
    put("meta/schema/registry.json", registry)
    put(
        "meta/schema/types.json",
        {"entities": sorted(registry["entity"]), "relations": sorted(registry["relation"]), "updated_at": AT.format(1)},
    )
    for (kind, name), versions in store.versions.items():
        records = [
            {
                "schema_version_id": number,
                "schema_json": _sorted(schema),
                "schema_hash": _hash(schema),
                "created_at": AT.format(1),
                "runtime_id": "writer",
                "reason": store.reasons[kind, name, number],
            }
            for number, schema in enumerate(versions, 1)
        ]
        put(f"meta/schema/versions/{kind}/{name}.json", {"type_kind": kind, "type_name": name, "versions": records})
    parent = None
    for number, (metadata, rows) in enumerate(store.commits, 1):
        place = f"commits/{number}-{number:08x}"
        files = []
        for kind, name in sorted({(row.kind, row.type_name) for row in rows}):
            own = [row for row in rows if (row.kind, row.type_name) == (kind, name)]
            inside = f"{FOLDERS[kind]}/{name}" + ("" if version == "v1" else f"/v{own[0].version}")
            data = _parquet(number, own)
            _put(folder / place / f"{inside}.parquet", data)
            files.append(
                {
                    "kind": kind,
                    "type_name": name,
                    "path": f"{place}/{inside}.parquet",
                    "row_count": len(own),
                    "schema_version_id": own[0].version,
                    "content_sha256": hashlib.sha256(data).hexdigest(),
                }
            )
        manifest = {
            "commit_id": number,
            "parent_commit_id": number - 1,
            "parent_manifest_path": parent,
            "created_at": AT.format(number),
            "runtime_id": "writer",
            "metadata": metadata or {},
            "files": files,
        }
        parent = f"{place}/manifest.json"
        put(parent, manifest)
    put(
        "meta/head.json",
        {"commit_id": len(store.commits), "manifest_path": parent, "updated_at": AT.format(1), "runtime_id": "writer"},
    )
    return folder


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _parquet(commit_id: int, rows: list[Row]) -> bytes:
    """A file as 0.3 made it: system columns, the document, then a column per key, typed by what happens to be there."""
    names = ["entity_key"] if rows[0].kind == "entity" else ["left_key", "right_key", "instance_key"]
    columns: dict[str, list[Any]] = {
        "commit_id": [commit_id] * len(rows),
        f"{rows[0].kind}_type": [row.type_name for row in rows],
    }
    columns |= {name: [row.identity[place] for row in rows] for place, name in enumerate(names)}
    columns["schema_version_id"] = [row.version for row in rows]
    columns["fields_json"] = [_sorted(row.fields, compact=True) for row in rows]
    for name in sorted({name for row in rows for name in row.fields}):
        columns.setdefault(name, [row.fields.get(name) for row in rows])
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out)
    return bytes(out.getvalue())


def _sorted(body: dict[str, Any], *, compact: bool = False) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":") if compact else None)


def _hash(schema: dict[str, Any]) -> str:
    return hashlib.sha256(_sorted(schema, compact=True).encode()).hexdigest()
