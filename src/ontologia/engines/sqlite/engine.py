"""What the two SQLite engines share: opening, reading, the write transaction, the commit log.

`v1` and `v2` differ only in where the rows of a type lie and how they look there.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ontologia.config import OntologiaConfig
from ontologia.engines.base import PART_ROWS, Engine
from ontologia.engines.catalog import Catalog, Commit, SchemaVersion, TypeLayout
from ontologia.engines.changes import change_entry
from ontologia.engines.features import FORGOTTEN, KNOWN_IN_FILES
from ontologia.engines.locks import WRITE_LOCK
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.asked_keys import FEW_KEYS, fill_asked_keys, name_keys
from ontologia.engines.sqlite.columnar import PLAIN, decode, select_arrow, select_rows
from ontologia.engines.sqlite.connections import Connection, Connections, Use
from ontologia.engines.sqlite.control import BASE
from ontologia.engines.sqlite.erasure import SqliteEraser
from ontologia.engines.sqlite.history import SqliteHistory
from ontologia.engines.sqlite.locks import SqliteLocks, lock_holder
from ontologia.engines.sqlite.sums import in_halves
from ontologia.engines.sqlite.transaction import MEMORY, SqliteTransaction
from ontologia.engines.sqlite.windows import NoRows
from ontologia.engines.transaction import Transaction, removals_refused
from ontologia.errors import EngineVersionError, LockContentionError, SumOverflowError, ValidationError
from ontologia.files.quoting import quote_name
from ontologia.model import TypeRef, TypeSchema
from ontologia.objects import Location
from ontologia.query.compiler import Statement
from ontologia.query.dialects import SQLITE
from ontologia.query.plan import Plan
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.history import Declared

T = TypeVar("T")


class SqliteEngine(Engine):
    """An ontology in one SQLite file, in WAL mode: many readers beside one writer, in many threads and processes."""

    backend = "sqlite"
    dialect = SQLITE
    data_tables: ClassVar[str]
    past_of: ClassVar[type[SqliteHistory]]
    """How its past is read."""

    def __init__(self, path: str, config: OntologiaConfig | None = None, *, awaited: bool = False) -> None:
        absolute = path if path == MEMORY else os.path.abspath(path)
        super().__init__(Location(absolute, config or OntologiaConfig()))
        self.path = path
        self._address = f"{MEMORY} {uuid.uuid4()}" if path == MEMORY else os.path.realpath(path)
        layout = AwaitedLayout(self.engine_version, self.data_tables) if awaited else None
        self.connections = Connections(path, self.config.lock_timeout_ms, layout)

    @property
    def address(self) -> str:
        return self._address

    @classmethod
    def awaiting(cls, path: str, config: OntologiaConfig | None = None) -> SqliteEngine:
        """A store whose file the first write makes. Until then it reads as empty, and leaves no file behind."""
        engine = cls(path, config, awaited=True)
        with engine.connections.use():  # a folder that is not there is an error now, not at the first write
            return engine

    @property
    def exists(self) -> bool:
        return self.connections.layout is None

    def ensure_exists(self) -> None:
        layout = self.connections.layout
        if layout is None:
            return
        made = type(self).create(self.connections.absolute, self.config)
        with made.connections.use() as connection:
            layout.is_there(connection, self.path)  # somebody may have been first, with another engine
        made.close()
        self.connections.layout = None

    @classmethod
    def create(
        cls, path: str, config: OntologiaConfig | None = None, notes: Mapping[str, str] | None = None
    ) -> SqliteEngine:
        """Lay out a new store, or open the one that another process laid out first. `notes` are what it says of
        itself, besides or instead of the usual."""
        repository = cls(path, config)
        with repository.connections.use() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not tables(connection):
                    control.create(connection, cls.engine_version, cls.data_tables)
                    for key, value in (notes or {}).items():
                        control.note(connection, key, value)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        return repository

    @classmethod
    def reset(cls, path: str, config: OntologiaConfig | None, check: Callable[[Connection], None]) -> None:
        """Empty a store and lay it out anew, in one transaction of the same file.

        Processes that have it open are in no other file afterwards, as they would be if it were deleted. `check` may
        refuse, under the write lock, when the store is no longer what was to be emptied.
        """
        repository = cls(path, config)
        try:
            with repository.change() as connection:
                check(connection)
                control.drop_everything(connection)
                control.create(connection, cls.engine_version, cls.data_tables)
            repository.give_space_back()
        finally:
            repository.close()

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """A write transaction that is not a commit of the log: done when the block ends, undone when it fails."""
        with self.connections.use() as connection:
            _check_free(connection)
            connection.own()
            try:
                self._begin(connection)
                yield connection
                self.connections.commit(connection)
            finally:
                connection.catalog = None
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                connection.owner = None

    def give_space_back(self) -> bool:
        """Make the file as small as its content; False where it is not yet, because somebody is reading."""
        with self.connections.use() as connection, suppress(sqlite3.Error):
            connection.execute("VACUUM")  # into the log, past those who read
            busy, logged, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return not busy and logged == moved
        return False

    # --- what v1 and v2 say differently ---

    @abstractmethod
    def rows_of_layout(self, layout: TypeLayout) -> StoredRows:
        """A type's rows, for the compiler."""

    @abstractmethod
    def layouts(self, connection: sqlite3.Connection) -> Mapping[TypeRef, TypeLayout]:
        """The current layout of every type that is not dropped."""

    @abstractmethod
    def create_partition(self, connection: sqlite3.Connection, layout: TypeLayout) -> TypeLayout:
        """Make a place for the rows of a type's new version."""

    def table_of(self, connection: sqlite3.Connection, ref: TypeRef, schema_version_id: int) -> str:
        """The table of a type's version, where it has one of its own."""
        return ""

    @abstractmethod
    def ensure_indexes(self, connection: sqlite3.Connection, layout: TypeLayout, schema: TypeSchema) -> None:
        """Create the indexes that `Field(index=True)` asks for and that are not there yet."""

    @abstractmethod
    def insert(self, connection: sqlite3.Connection, layout: TypeLayout, commit_id: int, rows: pa.Table) -> None:
        """Append rows."""

    def insert_removals(
        self, connection: sqlite3.Connection, layout: TypeLayout, commit_id: int, rows: pa.Table
    ) -> None:
        """Append rows that say that something went, with the values it had."""
        raise removals_refused(str(layout.ref))

    @abstractmethod
    def stored_versions(self, connection: Connection, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        """The latest rows of a type, by the schema version they were written under."""

    @abstractmethod
    def places_of(self, connection: sqlite3.Connection, ref: TypeRef) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """The tables that have rows of a type, of any version: their names, and conditions with their values before
        any others."""

    @abstractmethod
    def drop_rows(self, connection: sqlite3.Connection, ref: TypeRef, *, purge: bool) -> None: ...

    @abstractmethod
    def changed_rows(
        self, connection: sqlite3.Connection, commit_id: int
    ) -> Iterator[tuple[TypeRef, tuple[str, ...], str]]:
        """Every row of a commit: its type, its identity, and the operation."""

    # --- reading ---

    def catalog(self) -> Catalog:
        with self.connections.use() as connection:
            return self.catalog_seen_by(connection)

    def catalog_seen_by(self, connection: Connection) -> Catalog:
        """The catalog this connection sees.

        SQLite tells with one cheap number whether another connection changed the file since we last looked; our own
        commits renew the cached catalog themselves.
        """
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        known = connection.catalog
        if known is not None and known.version == version:
            return known
        return self._read_catalog(connection, version)

    def _read_catalog(self, connection: Connection, version: Any) -> Catalog:
        stamped = control.stamp(connection)
        if stamped is not None:
            if stamped.version != self.engine_version:
                raise EngineVersionError(
                    f"{self.path}: this store was laid out anew with engine version {stamped.version} since it was "
                    f"opened, with {self.engine_version}: open it again"
                )
            stamped.check(self.path, KNOWN_IN_FILES)
        base = (
            int(control.read_note(connection, BASE) or 0)
            if stamped is not None and FORGOTTEN in stamped.features
            else 0
        )
        head, dropped = control.head(connection), control.read_dropped(connection)
        catalog = Catalog(head, self.layouts(connection), dropped, version, base=base)
        connection.catalog = catalog
        return catalog

    def stored_rows(
        self, plan: Plan, catalog: Catalog, diagnostics: list[dict[str, Any]]
    ) -> AbstractContextManager[Mapping[TypeRef, StoredRows]]:
        layouts = {ref: catalog.layouts.get(ref) for ref in plan.schemas}
        return nullcontext(
            {ref: NoRows(ref) if layout is None else self.rows_of_layout(layout) for ref, layout in layouts.items()}
        )

    def snapshot(self) -> AbstractContextManager[None]:
        """One state for all reads in the block: a migration in between could give rows that the catalog denies."""
        return self.connections.snapshot()

    def reading(self) -> Use:
        """A connection to read with, in a block."""
        return self.connections.use()

    @contextmanager
    def asking(
        self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None
    ) -> Iterator[tuple[Connection, str, Mapping[str, Any]]]:
        """A connection, and a statement for it with its parameters. The table of identities is part of the statement
        where they are few, and else a temporary one."""
        with self.connections.use() as connection:
            if keys is None:
                yield connection, statement.sql, parameters
            elif keys.num_rows <= FEW_KEYS:
                named, values = name_keys(keys)
                yield connection, f"{named} {statement.sql}", {**parameters, **values}
            else:
                with self.snapshot(), fill_asked_keys(connection, keys):
                    yield connection, statement.sql, parameters

    @contextmanager
    def temporary(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
        """A table of this thread's connection alone, filled with rows, in a block; what it is called."""
        table, names = quote_name(name), ", ".join(map(quote_name, columns))
        with self.connections.use() as connection:
            connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
            connection.execute(f"CREATE TEMP TABLE {table} ({names})")
            try:
                marks = ", ".join("?" for _ in columns)
                connection.executemany(f"INSERT INTO temp.{table} VALUES ({marks})", rows)
                yield name
            finally:
                with suppress(sqlite3.Error):  # it is dropped before it is made again, too
                    connection.execute(f"DROP TABLE IF EXISTS temp.{table}")

    def run(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> list[Sequence[Any]]:
        def ask(statement: Statement) -> list[Sequence[Any]]:
            with self.asking(statement, parameters, keys) as (connection, sql, values):
                rows = connection.execute(sql, values).fetchall()
            return self.columns_of(statement, rows)

        return self._adding_up(statement, ask)

    def _adding_up(self, statement: Statement, ask: Callable[[Statement], T]) -> T:
        """An answer; where a sum left 64 bits on its way, it is asked for again in halves that do not."""
        try:
            return ask(statement)
        except SumOverflowError:
            return ask(replace(statement, sql=SQLITE.render(in_halves(statement.tree))))

    def run_in_parts(self, statement: Statement, parameters: Mapping[str, Any]) -> Iterator[list[Sequence[Any]]]:
        with self.connections.use() as connection:
            cursor = connection.execute(statement.sql, parameters)
            while rows := cursor.fetchmany(PART_ROWS):
                yield self.columns_of(statement, rows)

    def columns_of(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Rows of a statement as columns of Python values."""
        if not rows:
            return [() for _ in statement.outputs]
        return [
            values if output.scalar in PLAIN else decode(output, values)
            for output, values in zip(statement.outputs, zip(*rows, strict=True), strict=True)
        ]

    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        def ask(statement: Statement) -> pa.Table:
            with self.asking(statement, parameters, keys) as (connection, sql, values):
                if keys is not None and keys.num_rows <= FEW_KEYS:
                    return select_rows(connection.execute(sql, values), statement)
                return select_arrow(connection, replace(statement, sql=sql), values)

        return self._adding_up(statement, ask)

    def explain_statement(self, statement: Statement, parameters: Mapping[str, Any]) -> str:
        sql = statement.sql
        with self.reading() as connection:
            steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
        depth = {0: -1}
        lines = []
        for number, parent, _, text in steps:
            depth[number] = depth.get(parent, -1) + 1
            lines.append("  " * depth[number] + text)
        return "\n".join(lines)

    # --- writing ---

    @property
    def staging_area(self) -> Location:
        """A folder beside the file, which has one writer: rows wait there, and the commit appends them."""
        return self.location.at(self.staging_folder.as_uri())

    @property
    def staging_folder(self) -> Path:
        from ontologia.engines.staging import BESIDE

        return Path(f"{self.location.uri}{BESIDE}")

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        self.ensure_exists()
        with self.connections.use() as connection:
            _check_free(connection)
            connection.own()
            transaction = None
            try:
                self._begin(connection)
                transaction = SqliteTransaction(self, connection)
                yield transaction
            finally:
                if connection.in_transaction:
                    connection.catalog = None
                    connection.execute("ROLLBACK")
                connection.owner = None
                if transaction is not None:
                    transaction.clear_spool()

    def _begin(self, connection: Connection) -> None:
        """Start a write, after waiting for whoever has taken the write lock by name."""
        deadline = time.monotonic() + self.config.lock_timeout_ms / 1000
        while True:
            connection.execute("BEGIN IMMEDIATE")
            holder = lock_holder(connection, WRITE_LOCK, self.runtime_id)
            if holder is None:
                return
            connection.execute("ROLLBACK")
            if time.monotonic() > deadline:
                raise LockContentionError(f"{self.path}: {holder}")
            time.sleep(0.01)

    # --- the log ---

    def commits(self, *, limit: int | None = None, since: int | None = None) -> list[Commit]:
        with self.reading() as connection:
            return control.list_commits(connection, limit, since)

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        with self.reading() as connection:
            found = control.get_commit(connection, commit_id)
        return None if found is None else found.to_dict()

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        with self.snapshot(), self.reading() as connection:
            self.catalog_seen_by(connection).check_remembers_changes(commit_id)
            return [change_entry(*change) for change in self.changed_rows(connection, min(commit_id, control.LARGEST))]

    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        with self.reading() as connection:
            return control.schema_versions(connection, ref)

    def history(self, declared: Declared | None = None) -> SqliteHistory:
        return self.past_of(self)

    @property
    def locks(self) -> SqliteLocks:
        return SqliteLocks(self)

    # --- about the store ---

    def eraser(self) -> SqliteEraser:
        return SqliteEraser(self)

    def features(self) -> frozenset[str]:
        with self.reading() as connection:
            stamp = control.stamp(connection)
        return frozenset() if stamp is None else stamp.features

    def event_place(self) -> Connections:
        return self.connections

    def storage_info(self) -> dict[str, Any]:
        found: dict[str, Any] = {"backend": self.backend, "engine_version": self.engine_version, "db_path": self.path}
        features = sorted(self.features())
        return found | ({"features": features} if features else {})

    def sizes_of(self, layout: TypeLayout) -> list[int] | None:
        """The size of a type's own table, where SQLite was built to tell."""
        if not layout.table_name:
            return None
        try:
            with self.reading() as connection:
                (found,) = connection.execute(
                    "SELECT sum(pgsize) FROM dbstat WHERE name = ?", (layout.table_name,)
                ).fetchone()
        except sqlite3.OperationalError:
            return None
        return None if found is None else [int(found)]

    def close(self) -> None:
        self.connections.close()


class AwaitedLayout:
    """What a file becomes when the first write makes it."""

    def __init__(self, engine_version: str, data_tables: str) -> None:
        self._engine_version = engine_version
        self._data_tables = data_tables

    def create(self, connection: sqlite3.Connection) -> None:
        control.create(connection, self._engine_version, self._data_tables)

    def is_there(self, connection: sqlite3.Connection, path: str) -> bool:
        found = tables(connection)
        if not found:
            return False
        stamp = control.stamp(connection) if "storage_meta" in found else None
        if stamp is None or stamp.version != self._engine_version:
            raise EngineVersionError(
                f"{path} was made by somebody else meanwhile, as another kind of store: open it again"
            )
        return True


def _check_free(connection: Connection) -> None:
    connection.roll_back_what_was_abandoned()
    if connection.in_transaction:
        raise ValidationError("this thread has a transaction open already: commit it or roll it back first")


def tables(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {name for (name,) in rows}
