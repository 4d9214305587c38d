"""A SQLite file that becomes the copy of another store: a new file, or the same one on the way from v1 to v2.

A new file is stamped as a copy in the making, so that nobody opens it, and the last transaction sets the stamp right.
In place, the tables of v2 grow beside those of v1, which stay in force until the transaction that drops them. Either
way the file itself notes how far it has come, in the transaction that brings it there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ontologia.engines.catalog import SchemaVersion, TypeLayout
from ontologia.engines.features import Stamp
from ontologia.engines.history import COPYING, CopyNote, CopyTarget, PastCommit, without_removals
from ontologia.engines.locks import WRITE_LOCK
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.control import COPY
from ontologia.engines.sqlite.engine import tables
from ontologia.engines.sqlite.forgetting import begin_history_at
from ontologia.engines.sqlite.history import SqliteHistory
from ontologia.engines.sqlite.locks import lock_holder
from ontologia.errors import ConcurrentWriteError, LeaseExpiredError, LockContentionError
from ontologia.model import TypeRef

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.config import OntologiaConfig
    from ontologia.engines.sqlite.engine import SqliteEngine

COPIED = "copied"
"""In `storage_meta`: the last commit that is there."""
LOCK_MS = 120_000


def unfinished_copy(connection: sqlite3.Connection) -> CopyNote | None:
    """The copy that a file is in the middle of becoming."""
    if "storage_meta" not in tables(connection):
        return None
    found = control.read_note(connection, COPY)
    return None if found is None else CopyNote.read(json.loads(found))


class SqliteCopy(CopyTarget):
    """Takes commits into a file, many in one transaction."""

    def __init__(self, engine: SqliteEngine, note: CopyNote) -> None:
        self.engine = engine
        self.note = note
        self._layouts: dict[tuple[TypeRef, int], TypeLayout] = {}

    @classmethod
    def begin(cls, kind: type[SqliteEngine], path: str, config: OntologiaConfig | None, note: CopyNote) -> SqliteCopy:
        """Note in the file what it is to become."""
        notes = {COPY: json.dumps(note.body()), COPIED: "0"}
        if not note.in_place:
            engine = kind.create(path, config, {**notes, "engine_version": f"{COPYING}{kind.engine_version}"})
            with engine.connections.use() as connection:
                if unfinished_copy(connection) != note:
                    raise ConcurrentWriteError(f"{path} was made by somebody else just now: look again")
            return cls(engine, note)
        engine = kind(path, config)
        with engine.change() as connection:
            for statement in control.statements(kind.data_tables):
                connection.execute(statement)
            for key, value in notes.items():
                control.note(connection, key, value)
        return cls(engine, note)

    @property
    def done(self) -> int:
        with self.engine.connections.use() as connection:
            return int(control.read_note(connection, COPIED) or 0)

    def write(self, commits: Iterable[PastCommit]) -> None:
        if self.note.in_place:
            self._renew_lock()
        with self.engine.change() as connection:
            for past in commits:
                self._write(connection, past)
                control.note(connection, COPIED, str(past.commit.id))

    def _write(self, connection: sqlite3.Connection, past: PastCommit) -> None:
        for version in past.recorded:
            self._record(connection, version)
        for version, rows in past.rows:
            self._append(connection, self._layout(connection, version), past.commit.id, rows)
        for ref, purge in past.dropped.items():
            if not self.note.in_place:
                control.mark_dropped(connection, ref, past.commit.id)
            self.engine.drop_rows(connection, ref, purge=purge)
        if not self.note.in_place:
            control.add_commit(connection, past.commit)

    def _record(self, connection: sqlite3.Connection, version: SchemaVersion) -> None:
        number, activation = version.schema_version_id, version.activation_commit_id
        if not self.note.in_place:
            control.add_schema_version(connection, version.schema, number, version.created_at)
        if activation is None:
            return
        if not self.note.in_place:
            control.activate_schema_version(connection, version.ref, number, activation)
        layout = TypeLayout(version.ref, version.schema, number, activation)
        layout = self.engine.create_partition(connection, layout)
        self.engine.ensure_indexes(connection, layout, version.schema)
        self._layouts[version.ref, number] = layout

    def _layout(self, connection: sqlite3.Connection, version: SchemaVersion) -> TypeLayout:
        key = version.ref, version.schema_version_id
        if key not in self._layouts:  # made before this copy was cut off
            layout = TypeLayout(version.ref, version.schema, key[1], version.activation_commit_id or 0)
            name = self.engine.table_of(connection, version.ref, key[1])
            self._layouts[key] = replace(layout, table_name=name)
        return self._layouts[key]

    def _append(self, connection: sqlite3.Connection, layout: TypeLayout, commit_id: int, rows: pa.Table) -> None:
        kept, removed = without_removals(rows)
        if removed.num_rows:
            self.engine.insert_removals(connection, layout, commit_id, removed)
        self.engine.insert(connection, layout, commit_id, kept)

    def history(self) -> SqliteHistory:
        return self.engine.history()

    def begin_history_at(self, base: int) -> None:
        with self.engine.change() as connection:
            begin_history_at(connection, base)

    def finish(self) -> None:
        if self.note.in_place:
            self._renew_lock()
        with self.engine.change() as connection:
            if self.note.in_place:
                for name in ("entity_history", "relation_history"):
                    connection.execute(f"DROP TABLE {name}")
            stamped = control.stamp(connection)
            features = frozenset() if stamped is None else stamped.features
            control.note(connection, "engine_version", str(Stamp(self.engine.engine_version, features)))
            control.note(connection, COPY, None)
            control.note(connection, COPIED, None)
        if self.note.in_place:
            self.engine.give_space_back()

    @contextmanager
    def locked(self) -> Iterator[SqliteCopy]:
        """Keep others from writing, who would write to what is being replaced."""
        while not self.engine.locks.acquire(WRITE_LOCK, self.engine.runtime_id, LOCK_MS):
            with self.engine.connections.use() as connection:
                holder = lock_holder(connection, WRITE_LOCK, self.engine.runtime_id)
            if holder is not None:
                raise LockContentionError(f"{self.engine.path}: {holder}")
        try:
            yield self
        finally:
            self.engine.locks.release(WRITE_LOCK, self.engine.runtime_id)

    def _renew_lock(self) -> None:
        if not self.engine.locks.renew(WRITE_LOCK, self.engine.runtime_id, LOCK_MS):
            raise LeaseExpiredError(
                f"{self.engine.path}: the write lock ran out, so others may have written; do it again, it goes on "
                "where it was"
            )
