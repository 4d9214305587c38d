"""Work that is cut off: by a fault at one of its requests, or by a kill before one of its statements."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

from ontologia.engines.parquet import paths
from ontologia.engines.sqlite.connections import Connection, Connections
from ontologia.errors import StorageBackendError
from ontologia.objects import Location, Request, requests
from ontologia.testing.stores import SimulatedCrash

KINDS = ("lost request", "lost answer", "crash before", "crash after")


class Fault:
    """One fault, at one request to any store. After a crash no further request gets through."""

    def __init__(self, number: int = 0, kind: str = "") -> None:
        self.number = number
        self.kind = kind
        self.seen = 0

    def __str__(self) -> str:
        return f"{self.kind} at request {self.number}"

    def __call__(self, request: Request, call: Callable[[], object]) -> object:
        self.seen += 1
        is_crash = self.kind.startswith("crash")
        if is_crash and self.seen > self.number:
            raise SimulatedCrash(str(request))
        if self.seen != self.number:
            return call()
        if self.kind in ("lost answer", "crash after"):
            call()
        raise SimulatedCrash(str(request)) if is_crash else TimeoutError(f"injected: {self}: {request}")

    def during(self, work: Callable[[], object], *, at: str) -> None:
        """Do work on a store with this fault. The lease that a dead writer left behind is over afterwards."""
        requests.interceptors.append(self)
        try:
            work()
        except (StorageBackendError, OSError, SimulatedCrash):
            pass
        finally:
            requests.interceptors.remove(self)
        Location.of(at).open_objects().delete(paths.lock())


def is_killed(statement: int, work: Callable[[], Any]) -> bool:
    """Work in a child process that is killed before its n-th statement to SQLite; whether it came there."""
    child = os.fork()
    if not child:
        try:
            _arm(statement)
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _arm(statement: int) -> None:
    seen = itertools.count(1)
    configured = Connections._configured

    def armed(self: Connections, address: str) -> Connection:
        connection = configured(self, address)
        connection.set_trace_callback(
            lambda _: os.kill(os.getpid(), signal.SIGKILL) if next(seen) == statement else None
        )
        return connection

    Connections._configured = armed  # type: ignore[method-assign]
