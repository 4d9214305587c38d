"""A SQLite file of 0.3. Its v1 and v2 keep rows alike: in one table per kind, each row a JSON document."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ontologia.engines.catalog import Commit
from ontologia.engines.changes import VersionRows, changed_rows_sql
from ontologia.engines.ontologia_03.rows import StoredRow, once_per_commit
from ontologia.engines.ontologia_03.source import Change, Source, StoredVersion, drops_of, read_schema
from ontologia.engines.sqlite.connections import Connections
from ontologia.files.json_objects import parse
from ontologia.model import Kind, TypeRef

ROWS_AT_ONCE = 10_000
HISTORY = {"id": "NULL", "commit_id": "NULL", "fields_json": "NULL", "schema_version_id": "NULL"}
COLUMNS: dict[str, dict[str, str]] = {
    "entity_history": HISTORY | {"entity_type": "NULL", "entity_key": "NULL"},
    "relation_history": HISTORY
    | {"relation_type": "NULL", "left_key": "NULL", "right_key": "NULL", "instance_key": "''"},
    "schema_registry": dict.fromkeys(("type_kind", "type_name", "schema_json"), "NULL"),
    "schema_versions": dict.fromkeys(
        ("id", "type_kind", "type_name", "schema_version_id", "schema_json", "created_at", "reason"), "NULL"
    ),
}
"""The columns that are read, with what stands for one that a file does not have."""
KINDS: tuple[Kind, ...] = ("entity", "relation")


class SqliteFile(Source):
    """A file, through a connection per thread that cannot write."""

    backend = "sqlite"

    def __init__(self, path: str, engine_version: str, lock_timeout_ms: int) -> None:
        self.where = path
        self.engine_version = engine_version
        self._connections = Connections(path, lock_timeout_ms)
        self._lock_timeout_ms = lock_timeout_ms

    def event_place(self) -> Connections:
        return Connections(self.where, self._lock_timeout_ms)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._connections.use() as connection:
            connection.execute("PRAGMA query_only = ON")
            yield connection

    def _all(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        with self._reading() as connection:
            return connection.execute(sql, values).fetchall()

    def _table(self, name: str) -> str:
        """A table in SQL, with all columns that it has today: releases before 0.3 had fewer, and not all tables."""
        there = {row[1] for row in self._all(f"PRAGMA table_info({name})")}
        if there >= COLUMNS[name].keys():
            return name
        columns = (
            f"{column if column in there else stand_in} AS {column}" for column, stand_in in COLUMNS[name].items()
        )
        return f"(SELECT {', '.join(columns)}{f' FROM {name}' if there else ' WHERE 0'})"

    def state(self) -> Any:
        versions, registry = self._table("schema_versions"), self._table("schema_registry")
        newest = f"(SELECT max(id) FROM commits), (SELECT max(id) FROM {versions})"
        return self._all(f"SELECT {newest}, (SELECT count(*) FROM {registry})")[0]

    def head(self) -> int:
        return int(self._all("SELECT coalesce(max(id), 0) FROM commits")[0][0])

    def versions(self) -> list[StoredVersion]:
        declared = {
            TypeRef(kind, name): read_schema(self.where, text)
            for kind, name, text in self._all(
                f"SELECT type_kind, type_name, schema_json FROM {self._table('schema_registry')}"
            )
        }
        found: list[StoredVersion] = []
        for kind, name, number, text, created_at, reason in self._all(
            "SELECT type_kind, type_name, schema_version_id, schema_json, created_at, reason "
            f"FROM {self._table('schema_versions')}"
        ):
            schema, ref = read_schema(self.where, text), TypeRef(kind, name)
            in_order = declared.get(ref)  # only the registry keeps fields in the order of the class
            if in_order is not None and in_order.fingerprint == schema.fingerprint:
                schema = in_order
            found.append(StoredVersion(ref, number, schema, created_at, reason or ""))
        known = {version.ref for version in found}
        return found + [StoredVersion(ref, 1, schema, "", "") for ref, schema in declared.items() if ref not in known]

    def first_commit(self, ref: TypeRef, versions: Sequence[int]) -> int:
        chosen = ", ".join("?" for _ in versions)
        sql = (
            f"SELECT coalesce(min(commit_id), 0) FROM {self._table(f'{ref.kind}_history')} "
            f"WHERE {ref.kind}_type = ? AND coalesce(schema_version_id, 1) IN ({chosen})"
        )
        return int(self._all(sql, (ref.name, *versions))[0][0])

    def dropped(self) -> frozenset[TypeRef]:
        rows = self._all(f"SELECT type_kind, type_name FROM {self._table('schema_registry')}")
        declared = {TypeRef(kind, name) for kind, name in rows}
        return frozenset(ref for commit in self.commits() for ref in drops_of(commit)) - declared

    def rows(self, ref: TypeRef, versions: Sequence[int], after: int, head: int) -> Iterator[StoredRow]:
        names, chosen = ", ".join(ref.identity), ", ".join("?" for _ in versions)
        sql = (
            f"SELECT {names}, commit_id, fields_json FROM {self._table(f'{ref.kind}_history')} "
            f"WHERE {ref.kind}_type = ? AND coalesce(schema_version_id, 1) IN ({chosen}) "
            f"AND commit_id > ? AND commit_id <= ? ORDER BY {names}, commit_id, id"
        )
        with self._reading() as connection:
            cursor = connection.execute(sql, (ref.name, *versions, after, head))
            cursor.arraysize = ROWS_AT_ONCE
            yield from once_per_commit(StoredRow(tuple(keys), commit, text) for *keys, commit, text in cursor)

    def commits(self) -> Iterator[Commit]:
        return map(_commit, self._all("SELECT id, created_at, metadata_json FROM commits ORDER BY id DESC"))

    def commit(self, commit_id: int) -> Commit | None:
        rows = self._all("SELECT id, created_at, metadata_json FROM commits WHERE id = ?", (commit_id,))
        return _commit(rows[0]) if rows else None

    def changes(self, commit_id: int) -> Iterable[Change]:
        for kind in KINDS:
            names, table = (f"{kind}_type", *TypeRef(kind, "").identity), VersionRows(self._table(f"{kind}_history"))
            rows = self._all(changed_rows_sql(names, table, [table], ":commit"), {"commit": commit_id})
            for name, *identity, operation in dict.fromkeys(rows):  # a commit may have an identity twice
                yield TypeRef(kind, name), tuple(identity), operation

    def facts(self) -> dict[str, Any]:
        return {"db_path": self.where}

    def close(self) -> None:
        self._connections.close()


def _commit(row: Sequence[Any]) -> Commit:
    number, created_at, metadata = row
    notes = {} if metadata is None else parse(metadata, f"the metadata of commit {number}", dict)
    return Commit(number, created_at, "", notes)
