"""SQLite engine v2: one table per type and schema version, one column per field (RFC 0009 §3, §5, §6, §8, §9)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ontologia.engines.capabilities import Capabilities
from ontologia.engines.catalog import Catalog, TypeLayout, summarize_layouts
from ontologia.engines.changes import VersionRows, changed_rows_sql
from ontologia.engines.features import REMOVALS
from ontologia.engines.forgetting import Forgotten, Superseded
from ontologia.engines.sqlite import control, forgetting
from ontologia.engines.sqlite.columnar import encode
from ontologia.engines.sqlite.connections import Connection
from ontologia.engines.sqlite.engine import SqliteEngine, tables
from ontologia.engines.sqlite.history import TableHistory
from ontologia.engines.sqlite.windows import SqliteRows, Versions
from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, SCHEMA_VERSION_ID, SUPERSEDED_BY, Column, TypeRef, TypeSchema
from ontologia.query.carried_rows import HeldRows
from ontologia.query.plan import Plan, Window
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    import pyarrow as pa


class SqliteEngineV2(SqliteEngine):
    """Typed columns, no `fields_json`; only rows of the current schema version are read."""

    engine_version = "v2"
    past_of = TableHistory
    capabilities = Capabilities(removals=True, forgetting=True, erasure=True)
    data_tables = """
CREATE TABLE type_layout_catalog (
    type_kind             TEXT NOT NULL,  -- 'entity' or 'relation'
    type_name             TEXT NOT NULL,
    schema_version_id     INTEGER NOT NULL,
    table_name            TEXT NOT NULL,
    activation_commit_id  INTEGER NOT NULL,
    is_current            INTEGER NOT NULL DEFAULT 0,
    created_at            TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (type_kind, type_name, schema_version_id)
);
"""

    def rows_of_layout(self, layout: TypeLayout) -> StoredRows:
        return TableRows(layout)

    def layouts(self, connection: sqlite3.Connection) -> Mapping[TypeRef, TypeLayout]:
        schemas = {(v.ref, v.schema_version_id): v.schema for v in control.schema_versions(connection)}
        rows = connection.execute(
            "SELECT type_kind, type_name, schema_version_id, activation_commit_id, table_name "
            "FROM type_layout_catalog WHERE is_current = 1"
        )
        found, removing = {}, _tables_with_removals(connection)
        for kind, name, version, activation, table_name in rows:
            ref = TypeRef(kind, name)
            has_removals = table_name in removing
            found[ref] = TypeLayout(ref, schemas[ref, version], version, activation, table_name, has_removals)
        return found

    def layouts_of(self, ref: TypeRef, catalog: Catalog) -> list[TypeLayout]:
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT schema_version_id, activation_commit_id, table_name FROM type_layout_catalog "
                "WHERE type_kind = ? AND type_name = ? ORDER BY schema_version_id",
                (ref.kind, ref.name),
            ).fetchall()
            schemas = {v.schema_version_id: v.schema for v in control.schema_versions(connection, ref)}
            removing = _tables_with_removals(connection)
        return [
            TypeLayout(ref, schemas[version], version, since, table, table in removing)
            for version, since, table in rows
        ]

    def create_partition(self, connection: sqlite3.Connection, layout: TypeLayout) -> TypeLayout:
        ref = layout.ref
        layout = replace(layout, table_name=_free_name(connection, ref, layout.schema_version_id))
        keys = [f"{quote_name(name)} TEXT NOT NULL" for name in ref.identity]
        system = [f"{name} INTEGER NOT NULL" for name in (COMMIT_ID, SCHEMA_VERSION_ID)]
        fields = [_definition(column) for column in layout.schema.columns]
        primary_key = f"PRIMARY KEY ({', '.join((*ref.identity, COMMIT_ID))})"
        body = ", ".join((*keys, *system, *fields, primary_key))
        connection.execute(f"CREATE TABLE {quote_name(layout.table_name)} ({body}) WITHOUT ROWID")
        _create_index(connection, layout.table_name, COMMIT_ID)
        if ref.kind == "relation":
            _create_index(connection, layout.table_name, "right_key")
        connection.execute(
            "UPDATE type_layout_catalog SET is_current = 0 WHERE type_kind = ? AND type_name = ?", (ref.kind, ref.name)
        )
        connection.execute(
            "INSERT INTO type_layout_catalog "
            "(type_kind, type_name, schema_version_id, table_name, activation_commit_id, is_current) "
            "VALUES (?, ?, ?, ?, ?, 1)",
            (ref.kind, ref.name, layout.schema_version_id, layout.table_name, layout.activation_commit_id),
        )
        return layout

    def table_of(self, connection: sqlite3.Connection, ref: TypeRef, schema_version_id: int) -> str:
        row = connection.execute(
            "SELECT table_name FROM type_layout_catalog "
            "WHERE type_kind = ? AND type_name = ? AND schema_version_id = ?",
            (ref.kind, ref.name, schema_version_id),
        ).fetchone()
        return "" if row is None else str(row[0])

    def ensure_indexes(self, connection: sqlite3.Connection, layout: TypeLayout, schema: TypeSchema) -> None:
        for column in schema.indexed:
            _create_index(connection, layout.table_name, column.physical)

    def insert(self, connection: sqlite3.Connection, layout: TypeLayout, commit_id: int, rows: pa.Table) -> None:
        _insert(connection, layout, rows, {COMMIT_ID: commit_id, SCHEMA_VERSION_ID: layout.schema_version_id})

    def insert_removals(
        self, connection: sqlite3.Connection, layout: TypeLayout, commit_id: int, rows: pa.Table
    ) -> None:
        """A table has the column that marks them from its first removal on."""
        if layout.table_name not in _tables_with_removals(connection):
            connection.execute(f"ALTER TABLE {quote_name(layout.table_name)} ADD COLUMN {SUPERSEDED_BY} INTEGER")
            control.use_feature(connection, REMOVALS)
        system = {COMMIT_ID: commit_id, SCHEMA_VERSION_ID: layout.schema_version_id, SUPERSEDED_BY: commit_id}
        _insert(connection, layout, rows, system)

    @contextmanager
    def held(self, name: str, schema: TypeSchema, rows: pa.Table) -> Iterator[StoredRows]:
        marks = [SUPERSEDED_BY] if SUPERSEDED_BY in rows.column_names else []
        columns = (*schema.ref.identity, COMMIT_ID, *(column.physical for column in schema.columns), *marks)
        values = zip(*(encode(rows.column(column)) for column in columns), strict=True)
        with self.temporary(name, columns, values) as table:
            yield TemporaryRows(schema.ref, table, has_removals=bool(marks))

    def stored_versions(self, connection: Connection, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        layout = self.catalog_seen_by(connection).layouts.get(ref)
        if layout is None:
            return
        plan = Plan.of(layout.schema, stored=True)
        yield layout.schema_version_id, self.table(plan)

    def places_of(self, connection: sqlite3.Connection, ref: TypeRef) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        for table in self._tables_of(connection, ref):
            yield quote_name(table), "", ()

    def drop_rows(self, connection: sqlite3.Connection, ref: TypeRef, *, purge: bool) -> None:
        names = self._tables_of(connection, ref)
        connection.execute(
            "UPDATE type_layout_catalog SET is_current = 0 WHERE type_kind = ? AND type_name = ?", (ref.kind, ref.name)
        )
        if purge:
            for name in names:
                connection.execute(f"DROP TABLE {quote_name(name)}")
            connection.execute(
                "DELETE FROM type_layout_catalog WHERE type_kind = ? AND type_name = ?", (ref.kind, ref.name)
            )

    def _tables_of(self, connection: sqlite3.Connection, ref: TypeRef) -> list[str]:
        rows = connection.execute(
            "SELECT table_name FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? "
            "ORDER BY schema_version_id",
            (ref.kind, ref.name),
        )
        return [name for (name,) in rows]

    def changed_rows(
        self, connection: sqlite3.Connection, commit_id: int
    ) -> Iterator[tuple[TypeRef, tuple[str, ...], str]]:
        removing = _tables_with_removals(connection)
        types = connection.execute("SELECT DISTINCT type_kind, type_name FROM type_layout_catalog ORDER BY 1, 2")
        for kind, name in types.fetchall():
            ref = TypeRef(kind, name)
            versions = [VersionRows(quote_name(table), table in removing) for table in self._tables_of(connection, ref)]
            for own in versions:
                sql = changed_rows_sql(ref.identity, own, versions, ":commit")
                for *identity, operation in connection.execute(sql, {"commit": commit_id}):
                    yield ref, tuple(identity), operation

    def find_superseded(self, base: int) -> list[Superseded]:
        return forgetting.find(self, base)

    def forget(self, base: int, head: int, metadata: Mapping[str, Any]) -> Forgotten:
        return forgetting.forget(self, base, head, metadata)

    def storage_info(self) -> dict[str, Any]:
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT type_kind, type_name, schema_version_id, activation_commit_id, is_current "
                "FROM type_layout_catalog ORDER BY type_kind, type_name, schema_version_id"
            ).fetchall()
            base = self.catalog_seen_by(connection).base
        begins = {"history_begins_at": base} if base else {}
        return super().storage_info() | begins | {"type_layouts": summarize_layouts(rows)}


class TableRows(SqliteRows):
    """The rows of a type in its own table."""

    def __init__(self, layout: TypeLayout) -> None:
        self.ref = layout.ref
        self.table = layout.table_name
        self.has_removals = layout.has_removals
        self.key = (layout.table_name, layout.has_removals)

    def versions(self, window: Window, columns: Sequence[Column]) -> Versions:
        fields = {self.name_of(column): exp.column(column.physical, table="t", quoted=True) for column in columns}
        return Versions(self.table, fields)


class TemporaryRows(HeldRows, SqliteRows):
    """Rows in a temporary table."""

    name_of = SqliteRows.name_of
    rows_of_keys = StoredRows.rows_of_keys

    def versions(self, window: Window, columns: Sequence[Column]) -> Versions:
        raise TypeError("a temporary table has no versions")


def _definition(column: Column) -> str:
    return f"{quote_name(column.physical)} {column.sqlite_type}{'' if column.nullable else ' NOT NULL'}"


def _free_name(connection: sqlite3.Connection, ref: TypeRef, version: int) -> str:
    """The table's name as RFC 0009 §3.2 has it. Names that differ only in case are one name to SQLite."""
    taken = {name.casefold() for name in tables(connection)}
    plain = f"{ref.kind}_{ref.name}_v{version}"
    name, number = plain, 1
    while name.casefold() in taken:
        number += 1
        name = f"{plain}__{number}"
    return name


def _create_index(connection: sqlite3.Connection, table: str, column: str) -> None:
    control.create_index(connection, f"index_{table}_{column}", f"ON {quote_name(table)} ({quote_name(column)})")


def _insert(connection: sqlite3.Connection, layout: TypeLayout, rows: pa.Table, system: Mapping[str, int]) -> None:
    names = [*layout.ref.identity, *(column.physical for column in layout.schema.columns)]
    # In key order, so that the tree grows at its edge and is not split at random.
    ordered = rows.select(names)
    if rows.num_rows > 1:
        ordered = ordered.sort_by([(name, "ascending") for name in layout.ref.identity])
    columns = ", ".join(quote_name(name) for name in (*names, *system))
    values = ", ".join((*("?" for _ in names), *(str(int(value)) for value in system.values())))
    connection.executemany(
        f"INSERT INTO {quote_name(layout.table_name)} ({columns}) VALUES ({values})",
        zip(*(encode(column) for column in ordered.columns), strict=True),
    )


def _tables_with_removals(connection: sqlite3.Connection) -> set[str]:
    """The tables that have a column for them. Looked for where the stamp says that there may be some."""
    stamp = control.stamp(connection)
    if stamp is None or REMOVALS not in stamp.features:
        return set()
    rows = connection.execute(
        "SELECT t.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' AND c.name = ?",
        (SUPERSEDED_BY,),
    )
    return {name for (name,) in rows}
