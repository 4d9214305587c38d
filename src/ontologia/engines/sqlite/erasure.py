"""Erasing identities from a SQLite file: rows, then every page that was ever written with them.

`secure_delete` overwrites what a deletion frees, VACUUM writes the file anew, without free pages and without what lies
between rows, and a checkpoint empties the log into which it was written. A note in the file says that this is still to
be done, until it is. Bytes are left over if the file has a key more often than a copy of what is alive in it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Commit
from ontologia.engines.erasure import (
    ERASURE,
    Eraser,
    FoundIdentities,
    Trace,
    Wanted,
    as_bytes,
    copy_comes_first,
    count_in_file,
    is_in_file,
    is_in_texts,
    needles_of,
)
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.control import COPY
from ontologia.engines.sqlite.transaction import clear_abandoned_spools
from ontologia.errors import ErasureIncompleteError
from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, instant_text

if TYPE_CHECKING:
    from ontologia.engines.sqlite.connections import Connection
    from ontologia.engines.sqlite.engine import SqliteEngine

KEYS_AT_ONCE = 500


class SqliteEraser(Eraser):
    """Takes identities out of one file."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    def find(self, wanted: Sequence[Wanted]) -> list[FoundIdentities]:
        with self._engine.connections.snapshot(), self._engine.connections.use() as connection:
            return [_find(self._engine, connection, item) for item in wanted]

    def erase(self, wanted: Sequence[Wanted], metadata: Mapping[str, Any]) -> int:
        """Take the rows away and note it in the log; then the bytes."""
        engine = self._engine
        with engine.connections.use() as connection:
            connection.execute("PRAGMA secure_delete = ON")
        with engine.change() as connection:
            if control.read_note(connection, COPY) is not None:
                raise copy_comes_first(engine.path)
            for item in wanted:
                for table, where, values in list(_conditions(engine, connection, item)):
                    connection.execute(f"DELETE FROM {table} WHERE {where}", values)
            commit_id = control.head(connection) + 1
            control.add_commit(connection, Commit(commit_id, instant_text(control.now()), engine.runtime_id, metadata))
            control.note(connection, ERASURE, str(commit_id))
        clean(engine)
        return commit_id

    def is_pending(self, wanted: Sequence[Wanted]) -> bool:
        with self._engine.connections.use() as connection:
            if control.read_note(connection, ERASURE) is not None:
                return True
        return not any(item.rows for item in self.find(wanted)) and bool(_leftovers(self._engine, wanted))

    def finish(self, wanted: Sequence[Wanted]) -> None:
        clean(self._engine)

    def traces(self, wanted: Sequence[Wanted]) -> list[Trace]:
        """In the file, its log and what is staged beside it."""
        needles, file = needles_of(wanted), _file(self._engine)
        found: list[Trace] = [Trace("row", str(item.ref)) for item in self.find(wanted) if item.rows]
        with self._engine.connections.use() as connection:
            for table in sorted(_tables(connection)):
                if _mentions(connection, table, needles):
                    found.append(Trace("mention", f"table {table}"))
        raw = as_bytes(needles)
        left = _leftovers(self._engine, wanted)
        if not left and is_in_file(file, raw):
            found.append(Trace("mention", str(file)))
        beside = (path for path in sorted(self._engine.staging_folder.rglob("*")) if path.is_file())
        mentioning = (path for path in beside if is_in_file(path, raw) or is_in_texts(path, needles))
        return found + left + [Trace("mention", str(path)) for path in mentioning]


def _find(engine: SqliteEngine, connection: Connection, wanted: Wanted) -> FoundIdentities:
    versions: set[tuple[Any, ...]] = set()
    names = ", ".join((*wanted.ref.identity, COMMIT_ID))
    for table, where, values in _conditions(engine, connection, wanted):
        versions |= set(connection.execute(f"SELECT {names} FROM {table} WHERE {where}", values))
    return FoundIdentities(wanted.ref, len({version[:-1] for version in versions}), len(versions))


def _conditions(
    engine: SqliteEngine, connection: Connection, wanted: Wanted
) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Where rows that are meant lie: tables, and what to ask of them, so many values at once."""
    same = " AND ".join(f"{name} = ?" for name in wanted.ref.identity)
    for table, of_type, fixed in engine.places_of(connection, wanted.ref):
        for name, keys in wanted.columns:
            ordered = sorted(keys)
            for start in range(0, len(ordered), KEYS_AT_ONCE):
                some = ordered[start : start + KEYS_AT_ONCE]
                yield table, f"{of_type}{name} IN ({', '.join('?' for _ in some)})", (*fixed, *some)
        for identity in sorted(wanted.rows_by_identity):
            yield table, f"{of_type}{same}", (*fixed, *identity)


def clean(engine: SqliteEngine) -> None:
    """Leave no page that had a row which is gone: in the log, among the free ones, or staged beside the file."""
    engine.connections.let_go()
    with engine.connections.use() as connection:
        try:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("VACUUM")
            _empty_log(connection, engine.path)
            connection.execute("BEGIN IMMEDIATE")
            clear_abandoned_spools(engine)
            control.note(connection, ERASURE, None)
            connection.execute("COMMIT")
            _empty_log(connection, engine.path)
        except sqlite3.OperationalError as problem:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise _in_use(engine.path) from problem


def _empty_log(connection: sqlite3.Connection, path: str) -> None:
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise _in_use(path)


def _in_use(path: str) -> ErasureIncompleteError:
    return ErasureIncompleteError(
        f"{path}: the rows are gone, but another process reads the file, so that bytes of them are still in its log: "
        "end that process or wait for it, then preview and erase again, which finishes this",
        [Trace("bytes", f"{path}-wal")],
    )


def _leftovers(engine: SqliteEngine, wanted: Sequence[Wanted]) -> list[Trace]:
    """The file and its logs, where their bytes have a key that belongs to nothing: in free pages, in what a page has
    between its rows, in pages of the log that were overwritten since."""
    raw, file = as_bytes(needles_of(wanted)), _file(engine)
    with engine.connections.use() as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what a reader keeps from going is looked at as it is
    logs = (Path(f"{file}{suffix}") for suffix in ("-wal", "-journal"))
    found = [Trace("bytes", str(log)) for log in logs if log.exists() and is_in_file(log, raw)]
    count = count_in_file(file, raw)
    if count and count > _count_alive(engine, raw):
        found.append(Trace("bytes", str(file)))
    return found


def _count_alive(engine: SqliteEngine, raw: Sequence[bytes]) -> int:
    """How often the keys are in what is alive in the file, by a copy that has nothing else."""
    file = _file(engine)
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as folder:
        copy = Path(folder, "alive.db")
        with engine.connections.use() as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        return count_in_file(copy, raw)


def _file(engine: SqliteEngine) -> Path:
    return Path(engine.location.uri)


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _mentions(connection: sqlite3.Connection, table: str, needles: Sequence[str]) -> bool:
    """Whether some value of a table is one of the keys, or has it as a value inside its JSON."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({quote_name(table)})")]
    for key in needles:
        same = " OR ".join(f"{quote_name(name)} = :key OR instr({quote_name(name)}, :token)" for name in columns)
        values = {"key": key, "token": f'"{key}"'}
        if connection.execute(f"SELECT 1 FROM {quote_name(table)} WHERE {same} LIMIT 1", values).fetchone():
            return True
    return False
