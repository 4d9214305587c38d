"""A commit of a SQLite store."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ontologia.engines.catalog import Commit, SchemaVersion, TypeLayout, version_number
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.connections import Connection
from ontologia.engines.transaction import Transaction, dropped_type_error, written_twice
from ontologia.errors import ValidationError
from ontologia.files.identity import find_repeated
from ontologia.model import TypeRef, TypeSchema, instant_text
from ontologia.query.plan import Plan

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.sqlite.engine import SqliteEngine
    from ontologia.engines.staging import Staging
    from ontologia.files.data_files import DataFile

MEMORY = ":memory:"
SPOOL = "spool/"


class SqliteTransaction(Transaction):
    """A commit inside one `BEGIN IMMEDIATE`."""

    def __init__(self, engine: SqliteEngine, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection
        self._spool: str | None = None
        """Where others stage rows for this commit: a folder of its own, which goes after the next writer has begun."""
        self._keeps_layouts = True
        self.catalog = engine.catalog_seen_by(connection)

    @property
    def commit_id(self) -> int:
        return self.catalog.head + 1

    def keep(self) -> None:
        self._connection.keep()

    def current(self, schema: TypeSchema, keys: pa.Table) -> pa.Table:
        plan = Plan.of(schema, keyed=True, stored=True)
        return self._engine.table(plan, keys, self.catalog)

    def scan(self, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        return self._engine.stored_versions(self._connection, ref)

    def recorded(self, ref: TypeRef) -> list[SchemaVersion]:
        return control.schema_versions(self._connection, ref)

    def record(self, schema: TypeSchema, schema_version_id: int | None = None) -> int:
        if schema.ref in self.catalog.dropped:
            raise dropped_type_error(schema.ref)
        self._keeps_layouts = False
        if schema_version_id is None:
            schema_version_id = version_number(schema, self.recorded(schema.ref))
        control.add_schema_version(self._connection, schema, schema_version_id)
        return schema_version_id

    def activate(self, schema: TypeSchema, schema_version_id: int | None = None) -> TypeLayout:
        version = self.record(schema, schema_version_id)
        control.activate_schema_version(self._connection, schema.ref, version, self.commit_id)
        layout = TypeLayout(schema.ref, schema, version, self.commit_id)
        layout = self._engine.create_partition(self._connection, layout)
        self._engine.ensure_indexes(self._connection, layout, schema)
        return layout

    def append(self, layout: TypeLayout, rows: pa.Table) -> None:
        if rows.num_rows:
            with self._each_once(layout, rows):
                self._engine.insert(self._connection, layout, self.commit_id, rows)

    def remove(self, layout: TypeLayout, rows: pa.Table) -> None:
        if rows.num_rows:
            self._keeps_layouts = self._keeps_layouts and layout.has_removals
            with self._each_once(layout, rows):
                self._engine.insert_removals(self._connection, layout, self.commit_id, rows)

    @contextmanager
    def _each_once(self, layout: TypeLayout, rows: pa.Table) -> Iterator[None]:
        """Say what the primary key of a table refuses: identity and commit."""
        try:
            yield
        except sqlite3.IntegrityError as problem:
            if problem.sqlite_errorname != "SQLITE_CONSTRAINT_PRIMARYKEY":
                raise
            raise written_twice(layout.ref, find_repeated(rows, layout.ref.identity)) from problem

    def staging(self, layout: TypeLayout) -> Staging:
        from ontologia.engines.staging import Staging

        if self._engine.path == MEMORY:
            raise ValidationError("a store in memory cannot be loaded by others: use a file")
        if self._spool is None:
            clear_abandoned_spools(self._engine)
            self._spool = f"{SPOOL}{uuid.uuid4().hex}/"
            (self._engine.staging_folder / self._spool).mkdir(parents=True)
        folder = f"{self._spool}{layout.ref.kind}-{quote(layout.ref.name, safe='')}/"
        return Staging(self._engine.staging_area, folder, layout, self.commit_id)

    def adopt(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None:
        from ontologia.engines.staging import append_parts

        append_parts(self, layout, parts, self._engine.staging_area.open_objects())

    def clear_spool(self) -> None:
        """Remove what others staged for this commit; a folder that holds nothing else goes, too."""
        if self._spool is not None:
            from ontologia.engines.staging import remove_if_empty

            shutil.rmtree(self._engine.staging_folder / self._spool, ignore_errors=True)
            remove_if_empty(self._engine.staging_area)

    def ensure_indexes(self, layout: TypeLayout, schema: TypeSchema) -> None:
        self._engine.ensure_indexes(self._connection, layout, schema)

    def drop(self, ref: TypeRef, *, purge: bool) -> None:
        self._keeps_layouts = False
        control.mark_dropped(self._connection, ref, self.commit_id)
        self._engine.drop_rows(self._connection, ref, purge=purge)

    def publish(self, metadata: Mapping[str, Any]) -> int:
        commit_id = self.commit_id
        made = Commit(commit_id, instant_text(control.now()), self._engine.runtime_id, metadata)
        control.add_commit(self._connection, made)
        self._connection.catalog = None
        self._engine.connections.commit(self._connection)
        if self._keeps_layouts:
            self._connection.catalog = replace(self.catalog, head=commit_id)
        return commit_id


def clear_abandoned_spools(engine: SqliteEngine) -> None:
    """Remove what killed writers staged. The caller holds the write lock, so nobody else is staging."""
    shutil.rmtree(engine.staging_folder / SPOOL, ignore_errors=True)
