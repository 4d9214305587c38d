"""Work that is cut off: by a fault at one of its requests, or by a kill before one of its statements."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ontologia.engines.parquet import paths
from ontologia.engines.sqlite.connections import Connection, Connections
from ontologia.errors import StorageBackendError
from ontologia.objects import Location, Request, requests
from ontologia.testing.stores import SimulatedCrash

KINDS = ("lost request", "lost answer", "crash before", "crash after")
READS = {"get", "get_if_changed", "get_range", "head", "list", "exists"}


class Fault:
    """One fault, at one request to any store. After a crash no further request gets through."""

    def __init__(self, number: int = 0, kind: str = "") -> None:
        self.number = number
        self.kind = kind
        self.seen: list[Request] = []

    def __str__(self) -> str:
        return f"{self.kind} at request {self.number}"

    def __call__(self, request: Request, call: Callable[[], object]) -> object:
        self.seen.append(request)
        is_crash = self.kind.startswith("crash")
        if is_crash and len(self.seen) > self.number:
            raise SimulatedCrash(str(request))
        if len(self.seen) != self.number:
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


def faults_at(requests: Iterable[Request], *, kinds: int = 1) -> Iterator[Fault]:
    """A fault at every request. Who dies before a read leaves what dying before the next write leaves, and an answer
    lost is a question lost: reads are lost once. Writes meet so many of the four kinds, in turn."""
    for number, request in enumerate(requests, 1):
        if request.operation in READS:
            yield Fault(number, "lost request")
        else:
            yield from (Fault(number, KINDS[(number + 2 * turn) % 4]) for turn in range(kinds))


def is_killed(statement: int, work: Callable[[], Any]) -> bool:
    """Work in a child process that is killed before its n-th statement to SQLite; whether it came there.

    Questions do not count: dying before one leaves what dying before the next change leaves.
    """
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
    configured = Connections._configure

    def watch(text: str) -> None:
        if not text.lstrip().upper().startswith(("SELECT", "--")) and next(seen) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def armed(self: Connections, address: str) -> Connection:
        connection = configured(self, address)
        connection.set_trace_callback(watch)
        return connection

    Connections._configure = armed  # type: ignore[method-assign]
