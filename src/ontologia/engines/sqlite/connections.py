"""Connections to one SQLite file: one per thread, configured once, errors in our tree."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ontologia.errors import LockContentionError, StorageBackendError

CACHE_KIB = 64 * 1024


class Connections:
    """Opens a connection for every thread that asks, and again after a fork.

    `:memory:` has one connection for all threads, behind a lock, because it exists only inside that connection.
    """

    def __init__(self, path: str, lock_timeout_ms: int) -> None:
        self.path = path
        self.in_memory = path == ":memory:"
        self._lock_timeout_ms = lock_timeout_ms
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._guard = threading.RLock()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; what SQLite raises while it is used becomes an error of ours."""
        with self.translated():
            if self.in_memory:
                with self._guard:
                    yield self._connection()
            else:
                yield self._connection()

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise StorageBackendError(f"{self.path}: this store is closed")
        holder = self if self.in_memory else self._local
        known = getattr(holder, "_held", None)
        if known is not None and known[0] == os.getpid():
            connection: sqlite3.Connection = known[1]
            return connection
        connection = self._connect()
        holder._held = (os.getpid(), connection)  # type: ignore[union-attr]
        with self._guard:
            self._open.append(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        if not self.in_memory and not Path(self.path).parent.exists():
            raise StorageBackendError(f"{self.path}: the folder does not exist; create it first")
        connection = sqlite3.connect(
            self.path,
            timeout=self._lock_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        # In WAL mode this loses no commit when a process dies, and none when the machine does either.
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def close(self) -> None:
        with self._guard:
            self._closed = True
            for connection in self._open:
                connection.close()
            self._open.clear()

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            raise self._explained(problem) from problem

    def _explained(self, problem: sqlite3.Error) -> Exception:
        code = getattr(problem, "sqlite_errorcode", None) or 0
        context = {"path": self.path, "sqlite_error": getattr(problem, "sqlite_errorname", None)}
        match code & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return LockContentionError(
                    f"{self.path}: another writer held the lock for more than {self._lock_timeout_ms} ms; "
                    "try again, or raise OntologiaConfig.lock_timeout_ms"
                )
            case sqlite3.SQLITE_NOTADB:
                return StorageBackendError(f"{self.path}: this file is not a SQLite database", context=context)
            case sqlite3.SQLITE_READONLY:
                return StorageBackendError(f"{self.path}: this file is read-only; nothing was written", context=context)
            case sqlite3.SQLITE_FULL:
                return StorageBackendError(f"{self.path}: the disk is full; nothing was written", context=context)
            case sqlite3.SQLITE_CANTOPEN:
                return StorageBackendError(f"{self.path}: the file cannot be opened ({problem})", context=context)
            case sqlite3.SQLITE_CORRUPT:
                return StorageBackendError(f"{self.path}: the file is damaged ({problem})", context=context)
        return StorageBackendError(f"{self.path}: SQLite says: {problem}", context=context)
