"""The control tables both SQLite engines share: commits, schema versions, locks, engine stamp (RFC 0009 §3.1)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.features import Stamp
from ontologia.files.json_objects import parse
from ontologia.files.quoting import quote_name
from ontologia.model import TypeRef, TypeSchema, canonical_json, instant_text

COPY = "copy"
"""In `storage_meta`: what the file is in the middle of becoming."""
BASE = "history_base"
"""In `storage_meta`: the commit at which history begins, if what was before it was given up."""
DAMAGED = "Nothing was changed: put a copy of the file in its place"
LARGEST = 2**63 - 1  # a number SQLite can compare with; no commit has it

CONTROL_TABLES = """
CREATE TABLE storage_meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE commits (
    id            INTEGER PRIMARY KEY,
    created_at    TEXT NOT NULL,
    runtime_id    TEXT NOT NULL,
    metadata_json TEXT NOT NULL
);
CREATE TABLE schema_registry (
    type_kind            TEXT NOT NULL,
    type_name            TEXT NOT NULL,
    schema_version_id    INTEGER NOT NULL,
    dropped_at_commit_id INTEGER,
    PRIMARY KEY (type_kind, type_name)
);
CREATE TABLE schema_versions (
    type_kind            TEXT NOT NULL,
    type_name            TEXT NOT NULL,
    schema_version_id    INTEGER NOT NULL,
    schema_json          TEXT NOT NULL,
    fingerprint          TEXT NOT NULL,
    created_at           TEXT NOT NULL,
    activation_commit_id INTEGER,
    PRIMARY KEY (type_kind, type_name, schema_version_id)
);
CREATE TABLE locks (
    name         TEXT PRIMARY KEY,
    owner_id     TEXT NOT NULL,
    acquired_at  TEXT NOT NULL,
    expires_at   TEXT NOT NULL,
    lease_ttl_ms INTEGER NOT NULL
);
"""


def now() -> datetime:
    return datetime.now(UTC)


def statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the open transaction."""
    for statement in script.split(";"):
        if statement.strip():
            yield statement


def create(connection: sqlite3.Connection, engine_version: str, script: str) -> None:
    """Lay out an empty store, stamped. Called inside a transaction."""
    for statement in statements(CONTROL_TABLES + script):
        connection.execute(statement)
    stamps = [("backend", "sqlite"), ("engine_version", engine_version), ("created_at", instant_text(now()))]
    connection.executemany("INSERT INTO storage_meta (key, value) VALUES (?, ?)", stamps)


def drop_everything(connection: sqlite3.Connection) -> None:
    """Empty the file. Called inside a transaction."""
    listed = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    for kind, name in connection.execute(listed).fetchall():
        connection.execute(f"DROP {kind} {quote_name(name)}")


def stamp(connection: sqlite3.Connection) -> Stamp | None:
    """What the store is stamped with; None for files older than stamps."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'storage_meta'").fetchone() is None:
        return None
    row = connection.execute("SELECT value FROM storage_meta WHERE key = 'engine_version'").fetchone()
    return None if row is None else Stamp.read(str(row[0]))


def use_feature(connection: sqlite3.Connection, feature: str) -> None:
    """Stamp the store with what it is about to use. Called inside a transaction."""
    found = stamp(connection)
    if found is not None and feature not in found.features:
        text = str(found.using([feature]))
        connection.execute("UPDATE storage_meta SET value = ? WHERE key = 'engine_version'", (text,))


def read_note(connection: sqlite3.Connection, key: str) -> str | None:
    """What the store notes of itself under a key."""
    row = connection.execute("SELECT value FROM storage_meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def note(connection: sqlite3.Connection, key: str, value: str | None) -> None:
    """Write such a note down, or take it away."""
    connection.execute("DELETE FROM storage_meta WHERE key = ?", (key,))
    if value is not None:
        connection.execute("INSERT INTO storage_meta (key, value) VALUES (?, ?)", (key, value))


# --- commits ---


def head(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT coalesce(max(id), 0) FROM commits").fetchone()
    return int(found)


def add_commit(connection: sqlite3.Connection, commit: Commit) -> None:
    connection.execute(
        "INSERT INTO commits (id, created_at, runtime_id, metadata_json) VALUES (?, ?, ?, ?)",
        (commit.id, commit.created_at, commit.runtime_id, canonical_json(dict(commit.metadata))),
    )


def next_commits(connection: sqlite3.Connection, after: int, up_to: int) -> list[Commit]:
    """The commits after one and up to another, oldest first."""
    rows = connection.execute(
        "SELECT id, created_at, runtime_id, metadata_json FROM commits WHERE id > ? AND id <= ? ORDER BY id",
        (after, up_to),
    )
    file = path_of(connection)
    return [_commit(file, row) for row in rows]


def list_commits(connection: sqlite3.Connection, limit: int | None, since: int | None) -> list[Commit]:
    rows = connection.execute(
        "SELECT id, created_at, runtime_id, metadata_json FROM commits WHERE id > ? ORDER BY id DESC LIMIT ?",
        (min(since or 0, LARGEST), -1 if limit is None else min(limit, LARGEST)),
    )
    file = path_of(connection)
    return [_commit(file, row) for row in rows]


def get_commit(connection: sqlite3.Connection, commit_id: int) -> Commit | None:
    row = connection.execute(
        "SELECT id, created_at, runtime_id, metadata_json FROM commits WHERE id = ?", (min(commit_id, LARGEST),)
    ).fetchone()
    return None if row is None else _commit(path_of(connection), row)


def _commit(file: str, row: Sequence[Any]) -> Commit:
    number, created_at, runtime_id, metadata = row
    where = f"metadata_json of commit {number} in {file}"
    return Commit(number, created_at, runtime_id, parse(metadata, where, dict, DAMAGED))


def path_of(connection: sqlite3.Connection) -> str:
    """The file of a connection, for messages."""
    (found,) = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
    return found or ":memory:"


# --- schema versions ---


def schema_versions(connection: sqlite3.Connection, ref: TypeRef | None = None) -> list[SchemaVersion]:
    where, values = ("", ()) if ref is None else ("WHERE v.type_kind = ? AND v.type_name = ?", (ref.kind, ref.name))
    rows = connection.execute(
        f"""SELECT v.type_kind, v.type_name, v.schema_version_id, v.schema_json, v.created_at, v.activation_commit_id,
                   v.schema_version_id = r.schema_version_id AND r.dropped_at_commit_id IS NULL
            FROM schema_versions v LEFT JOIN schema_registry r USING (type_kind, type_name) {where}
            ORDER BY v.type_kind, v.type_name, v.schema_version_id""",
        values,
    )
    file = path_of(connection)
    return [_schema_version(file, row) for row in rows]


def _schema_version(file: str, row: Sequence[Any]) -> SchemaVersion:
    kind, name, version, schema, created, activation, current = row
    where = f"schema_json of {kind} {name} v{version} in {file}"
    read = parse(schema, where, TypeSchema.from_json, DAMAGED)
    return SchemaVersion(TypeRef(kind, name), version, read, created, activation, bool(current))


def add_schema_version(
    connection: sqlite3.Connection, schema: TypeSchema, version: int, created_at: str | None = None
) -> None:
    """Record a version; recording the same again changes nothing."""
    connection.execute(
        """INSERT INTO schema_versions (type_kind, type_name, schema_version_id, schema_json, fingerprint, created_at)
           VALUES (?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET schema_json = excluded.schema_json
           WHERE schema_versions.fingerprint = excluded.fingerprint""",
        (
            schema.ref.kind,
            schema.ref.name,
            version,
            canonical_json(schema.to_json()),
            schema.fingerprint,
            created_at or instant_text(now()),
        ),
    )


def activate_schema_version(connection: sqlite3.Connection, ref: TypeRef, version: int, commit_id: int) -> None:
    connection.execute(
        "UPDATE schema_versions SET activation_commit_id = ? "
        "WHERE type_kind = ? AND type_name = ? AND schema_version_id = ?",
        (commit_id, ref.kind, ref.name, version),
    )
    connection.execute(
        "INSERT INTO schema_registry (type_kind, type_name, schema_version_id) VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET schema_version_id = excluded.schema_version_id",
        (ref.kind, ref.name, version),
    )


def mark_dropped(connection: sqlite3.Connection, ref: TypeRef, commit_id: int) -> None:
    connection.execute(
        "UPDATE schema_registry SET dropped_at_commit_id = ? WHERE type_kind = ? AND type_name = ?",
        (commit_id, ref.kind, ref.name),
    )


def read_dropped(connection: sqlite3.Connection) -> frozenset[TypeRef]:
    return frozenset(drops(connection))


def drops(connection: sqlite3.Connection) -> dict[TypeRef, int]:
    """The commit in which each dropped type went."""
    rows = connection.execute(
        "SELECT type_kind, type_name, dropped_at_commit_id FROM schema_registry WHERE dropped_at_commit_id IS NOT NULL"
    )
    return {TypeRef(kind, name): commit_id for kind, name, commit_id in rows}


# --- indexes ---


def create_index(connection: sqlite3.Connection, name: str, definition: str) -> None:
    """Make an index unless there is one like it. `definition` is what follows the name: `ON "table" ("column")`.

    Names of types and fields run together here, and SQLite ignores case: a name that is taken gets a number.
    """
    rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    if any(sql is not None and sql.endswith(definition) for _, sql in rows):
        return
    taken = {known.casefold() for known, _ in rows}
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}__{number}"
    connection.execute(f"CREATE INDEX {quote_name(free)} {definition}")
