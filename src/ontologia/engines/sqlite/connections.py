"""Connections to one SQLite file: one per thread, configured once, errors in our tree."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol, TypeVar

from ontologia.engines.catalog import Catalog
from ontologia.engines.sqlite import functions
from ontologia.engines.turns import calling
from ontologia.errors import LockContentionError, StorageBackendError, SumOverflowError

T = TypeVar("T")

CACHE_KIB = 64 * 1024


class Connection(sqlite3.Connection):
    """A connection, the catalog it saw last, and who opened the transaction that it is in.

    An interrupt can come between any two steps, also on the way out of a block. So nobody relies on having closed a
    transaction: one whose owner has gone was abandoned, and whoever comes next rolls it back.
    """

    catalog: Catalog | None = None
    stands_in = False
    """Whether this is an empty store in memory, for a file that is not there yet."""
    owner: FrameType | Literal["kept"] | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.failures: list[BaseException] = []
        """What functions of ours raised inside a statement, of which SQLite says only that it failed."""

    def interruption(self, problem: BaseException | None) -> BaseException | None:
        """What a signal handler raised inside a statement that failed for this reason. Python calls handlers before the
        first step of a function, where nothing can note what they raise: then it was Ctrl-C."""
        noted = next((failure for failure in self.failures if not isinstance(failure, Exception)), None)
        unexplained = isinstance(problem, sqlite3.OperationalError) and not self.failures
        self.failures.clear()
        if noted is None and unexplained and str(problem) in ("interrupted", "user-defined function raised exception"):
            return KeyboardInterrupt()
        return noted

    def own(self) -> None:
        """Note, before a transaction begins, that it is the caller's."""
        self.owner = calling(sys._getframe(1), __name__)

    def keep(self) -> None:
        """Leave the transaction open when the call that began it returns."""
        self.owner = "kept"

    def roll_back_what_was_abandoned(self) -> None:
        """Roll back a transaction that nobody who is still running has opened."""
        if self.in_transaction and not self._is_owned(sys._getframe(1)):
            self.execute("ROLLBACK")
            self.catalog = None

    def _is_owned(self, frame: FrameType | None) -> bool:
        if self.owner == "kept":
            return True
        while frame is not None and frame is not self.owner:
            frame = frame.f_back
        return frame is not None


class FileLayout(Protocol):
    """What a file is to be when it is made."""

    def create(self, connection: sqlite3.Connection) -> None: ...

    def is_there(self, connection: sqlite3.Connection, path: str) -> bool:
        """Whether somebody has made the file. One that was made to be another thing is an error."""


def _identity(path: str) -> tuple[int, int] | None:
    """Which file a path names, whatever it is called and whatever is in it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


class Connections:
    """Opens a connection for every thread that asks, closes it when the thread ends, and survives a fork.

    `:memory:` has one connection for all threads, behind a lock, because it exists only inside that connection.
    With `layout`, a file that is not there is not made: it is read as an empty store until somebody has made it.
    """

    def __init__(self, path: str, lock_timeout_ms: int, layout: FileLayout | None = None) -> None:
        self.path = path
        self.absolute = path if path == ":memory:" else os.path.abspath(path)
        """Where the file is, whatever the working directory becomes."""
        self.layout = layout
        self.in_memory = path == ":memory:"
        self._lock_timeout_ms = lock_timeout_ms
        self.forget_threads()
        self._shared = _Held() if self.in_memory else None
        self._held: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._closed = False
        self._file: tuple[int, int] | None = None  # the one that was opened first
        _everywhere.add(self)

    def use(self) -> Use:
        """This thread's connection, in a block; what SQLite raises in there becomes an error of ours."""
        return Use(self, self._shared or self._of_this_thread())

    def snapshot(self) -> ReadTransaction:
        """A block in which all reads of this thread see one state."""
        return ReadTransaction(self.use())

    def open(self, held: _Held) -> Connection:
        if self._closed:
            raise StorageBackendError.closed(self.path)
        connection = held.connection
        if connection is None or (
            connection.stands_in and not connection.in_transaction and _has_content(self.absolute)
        ):
            connection = held.connection = self._connect()
        return connection

    def commit(self, connection: Connection) -> None:
        """Commit, unless the file has lost its name: what is written to it then is gone when it is closed."""
        self._check_in_place()
        connection.execute("COMMIT")

    def _check_in_place(self) -> None:
        if self._file is not None and _identity(self.absolute) != self._file:
            raise self._lost()

    def _lost(self) -> StorageBackendError:
        happened = "replaced by another file" if os.path.exists(self.absolute) else "deleted or moved"
        return StorageBackendError(
            f"{self.path} was {happened} since this store was opened, and nothing was committed: put the file back, or "
            "close the store and open it again",
            context={"path": self.path},
        )

    def replace(self, held: _Held) -> None:
        """Leave a connection whose use was interrupted: a statement may be open on it for as long as the traceback
        lives."""
        connection = held.connection
        if connection is None or self.in_memory or connection.owner == "kept":
            return
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        held.connection = None

    def _of_this_thread(self) -> _Held:
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            held = self._local.held = _Held()
            self._held.add(held)
        return held

    def _connect(self) -> Connection:
        if not self.in_memory and not Path(self.absolute).parent.is_dir():
            raise StorageBackendError(f"{self.path}: the folder does not exist; create it first")
        self._check_in_place()  # else SQLite would make an empty file where one was deleted
        if self.layout is None or _has_content(self.absolute):
            connection = self._configure(self._address())
            if self.layout is None or self.layout.is_there(connection, self.path):
                self._file = self._file or (None if self.in_memory else _identity(self.absolute))
                return connection
            connection.close()
        connection = self._configure(":memory:")
        connection.stands_in = True
        self.layout.create(connection)
        return connection

    def _configure(self, address: str) -> Connection:
        connection = sqlite3.connect(
            address,
            uri=True,
            timeout=self._lock_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
            cached_statements=256,
        )
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        # In WAL mode this loses no commit when a process dies, and none when the machine does either.
        connection.execute("PRAGMA synchronous = FULL")
        functions.register(connection, connection.failures)
        return connection

    def _address(self) -> str:
        """The file for SQLite. One that nobody can write to, such as on read-only media, is opened without locks.

        A log beside it has commits that only a writer could bring back; then it is opened as any other, and refused.
        """
        if self.in_memory:
            return self.path
        place = Path(self.absolute)
        fixed = place.exists() and not os.access(place, os.W_OK) and not os.access(place.parent, os.W_OK)
        log = Path(f"{place}-wal")
        is_whole = not log.exists() or not log.stat().st_size
        return f"{place.as_uri()}?immutable=1" if fixed and is_whole else place.as_uri()

    def close(self) -> None:
        """Close every connection that is not in use; one that is closes with its thread."""
        self._closed = True
        self.let_go()
        if self._shared is not None:
            self._shared.close()

    def let_go(self) -> None:
        """Close the connections to the file that are idle; they open again when they are asked for."""
        for held in _members(self._held):
            if held.process == os.getpid():
                held.close()

    def forget_threads(self) -> None:
        """Let every thread open a connection anew, as after a fork."""
        self._local = threading.local()

    def explain(self, problem: sqlite3.Error) -> Exception:
        """An error of SQLite in our words."""
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
            case sqlite3.SQLITE_READONLY if code == sqlite3.SQLITE_READONLY_DBMOVED:  # seen without a log only
                return self._lost()
            case sqlite3.SQLITE_READONLY:
                return StorageBackendError(f"{self.path}: this file is read-only; nothing was written", context=context)
            case sqlite3.SQLITE_FULL:
                return StorageBackendError(f"{self.path}: the disk is full; nothing was written", context=context)
            case sqlite3.SQLITE_CANTOPEN:
                return StorageBackendError(f"{self.path}: the file cannot be opened ({problem})", context=context)
            case sqlite3.SQLITE_CORRUPT:
                return StorageBackendError(f"{self.path}: the file is damaged ({problem})", context=context)
            case sqlite3.SQLITE_ERROR if str(problem) == "integer overflow":
                return SumOverflowError()
        return StorageBackendError(f"{self.path}: SQLite says: {problem}", context=context)


# Two blocks that every query enters: as classes they cost a fraction of what generators do.


class Use:
    """A connection in use by this thread."""

    __slots__ = ("_connections", "_held")

    def __init__(self, connections: Connections, held: _Held) -> None:
        self._connections = connections
        self._held = held

    def __enter__(self) -> Connection:
        self._held.lock.acquire()
        try:
            return self._connections.open(self._held)
        except BaseException as problem:
            self._held.lock.release()
            if isinstance(problem, sqlite3.Error):
                raise self._connections.explain(problem) from problem
            raise

    def __exit__(self, kind: object, problem: BaseException | None, traceback: object) -> None:
        connection = self._held.connection
        interrupt = None if connection is None else connection.interruption(problem)
        if interrupt or (problem is not None and not isinstance(problem, (Exception, GeneratorExit))):
            self._connections.replace(self._held)
        self._held.lock.release()
        if interrupt is not None:
            raise interrupt.with_traceback(None) from None
        if isinstance(problem, sqlite3.Error):
            raise self._connections.explain(problem) from problem


class ReadTransaction:
    """A read transaction, unless the thread is in one already."""

    __slots__ = ("_began", "_use")

    def __init__(self, use: Use) -> None:
        self._use = use

    def __enter__(self) -> None:
        with self._use as connection:
            connection.roll_back_what_was_abandoned()
            self._began = None if connection.in_transaction else connection
            if self._began is not None:
                connection.own()
                connection.execute("BEGIN")
        self._use.__enter__()

    def __exit__(self, kind: object, problem: BaseException | None, traceback: object) -> None:
        try:
            if self._began is not None:
                if self._began.in_transaction:  # some errors end it
                    self._began.execute("COMMIT")
                self._began.owner = None
        finally:
            self._use.__exit__(kind, problem, traceback)


class _Held:
    """What a thread holds: its connection, closed when the thread ends, and a lock that says whether it is in use."""

    __slots__ = ("__weakref__", "connection", "lock", "process")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.lock = threading.RLock()
        self.process = os.getpid()

    def close(self) -> None:
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.connection is not None and not self.connection.in_transaction:
                self.connection.close()
                self.connection = None
        finally:
            self.lock.release()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:  # at the end of a process modules may be gone
        if self.connection is None:
            return
        if self.process == getpid():
            self.connection.close()
        else:
            _inherited.append(self.connection)


# A connection must not be carried over a fork: SQLite would believe in locks on the file that the child does not
# have, and the parent, thinking itself alone, would delete the log the child writes to. So idle connections are closed
# before a fork. One that another thread was using at that moment is kept by the child, untouched, until it ends.
_everywhere: weakref.WeakSet[Connections] = weakref.WeakSet()
_inherited: list[sqlite3.Connection] = []


def _members(group: weakref.WeakSet[T]) -> list[T]:
    """What a set holds, while other threads come and go. A lock could be held by one of them when a fork comes."""
    while True:
        try:
            return list(group)
        except RuntimeError:  # it changed while it was listed
            continue


def _before_fork() -> None:
    for connections in _members(_everywhere):
        with suppress(sqlite3.Error):
            connections.let_go()


def _after_fork_in_child() -> None:
    for connections in _members(_everywhere):
        connections.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
