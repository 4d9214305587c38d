"""Stores that misbehave on purpose: requests lost, answers lost, repeated, delayed, and writers that die in
between.

`FaultyObjects` wraps any store and is one. What it does is said by rules; a rule picks requests by operation,
by key (with `*`), or by number, and is used up after `times` requests.

    faulty = FaultyObjects(objects)
    faulty.lose_response(operation="put_if_match", key="meta/head.json")
    session.commit()      # the swap was applied, its answer was lost: it must find out

To meet every step of an operation, record them once and then inject a fault at each:

    steps = faulty.steps_of(lambda: commit(fresh_store()))
    for step in steps: …; faulty.crash(at=step.number, when="after")

Leases go by clocks, so a clock that can be wrong is here too: `ManualClock`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from ontologia.objects import Objects, Request

T = TypeVar("T")
R = TypeVar("R")
When = Literal["before", "after"]
Effect = Callable[[Request, Callable[[], Any]], Any]

_numbers = itertools.count(1)


class SimulatedCrash(BaseException):
    """The writer died here. Not an `Exception`: no handler for errors may live through it."""


@dataclass(frozen=True)
class Step:
    """One request of an operation: its number, counted from 1, and what was asked."""

    number: int
    request: Request

    def __str__(self) -> str:
        return f"{self.number}: {self.request}"


class Which(TypedDict, total=False):
    """Which requests a rule is for: all of them, unless said. `at` counts requests from 1, `times=None` is for ever."""

    operation: str | None
    key: str | None
    at: int | None
    times: int | None


@dataclass
class Rule:
    """Which requests an effect is for, and how often it still applies."""

    effect: Effect
    operation: str | None = None
    key: str | None = None
    at: int | None = None
    times: int | None = 1
    used: int = field(default=0)

    def takes(self, request: Request, number: int) -> bool:
        if self.times is not None and self.used >= self.times:
            return False
        matches = (
            (self.operation is None or fnmatchcase(request.operation, self.operation))
            and (self.key is None or fnmatchcase(request.key, self.key))
            and (self.at is None or self.at == number)
        )
        self.used += matches
        return matches


class Faults:
    """The rules and the count of requests, shared by all objects made with `under`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rules: list[Rule] = []
        self.requests = 0
        self.recorders: list[list[Step]] = []
        self.dead = False

    def next(self, request: Request) -> Rule | None:
        """Count a request and find the first rule for it."""
        with self.lock:
            self.requests += 1
            for recorder in self.recorders:
                recorder.append(Step(len(recorder) + 1, request))
            return next((rule for rule in self.rules if rule.takes(request, self.requests)), None)


class FaultyObjects(Objects):
    """A store with faults. Without rules it behaves like the one it wraps.

    `serial` runs `map` one by one, so that the numbers of requests are the same in every run.
    """

    def __init__(self, inner: Objects, *, serial: bool = True) -> None:
        super().__init__(inner.backend, inner.prefix, concurrency=inner.concurrency)
        self.serial = serial
        self.faults = Faults()
        self._identity = f"{inner.identity} with faults {next(_numbers)}"

    @property
    def identity(self) -> str:
        """Its own: what was proven of the wrapped store says nothing about this one."""
        return self._identity

    # --- rules ----------------------------------------------------------------------------------------------

    def lose_request(self, **which: Unpack[Which]) -> Rule:
        """The request never arrives; the caller sees a timeout."""

        def lose(request: Request, call: Callable[[], Any]) -> Any:
            raise TimeoutError(f"injected: the request was lost: {request}")

        return self.inject(lose, **which)

    def lose_response(self, **which: Unpack[Which]) -> Rule:
        """The store does what was asked; the caller sees a timeout."""

        def lose(request: Request, call: Callable[[], Any]) -> Any:
            call()
            raise TimeoutError(f"injected: the response was lost: {request}")

        return self.inject(lose, **which)

    def repeat(self, **which: Unpack[Which]) -> Rule:
        """The request arrives twice, as with a proxy that retries; the caller sees the second answer."""

        def twice(request: Request, call: Callable[[], Any]) -> Any:
            call()
            return call()

        return self.inject(twice, **which)

    def delay(self, seconds: float, **which: Unpack[Which]) -> Rule:
        """The request arrives late."""

        def later(request: Request, call: Callable[[], Any]) -> Any:
            time.sleep(seconds)
            return call()

        return self.inject(later, **which)

    def fail(self, error: Exception, **which: Unpack[Which]) -> Rule:
        """The store answers with this error and does nothing."""

        def refuse(request: Request, call: Callable[[], Any]) -> Any:
            raise error

        return self.inject(refuse, **which)

    def call(self, hook: Callable[[Request], object], *, when: When = "before", **which: Unpack[Which]) -> Rule:
        """Something else happens just before or after the request: another writer, a check, a clock that
        moves."""

        def with_hook(request: Request, call: Callable[[], Any]) -> Any:
            if when == "before":
                hook(request)
                return call()
            answer = call()
            hook(request)
            return answer

        return self.inject(with_hook, **which)

    def crash(self, *, when: When = "before", **which: Unpack[Which]) -> Rule:
        """The writer dies: `SimulatedCrash` here, and again at every later request, so that nothing is tidied
        up."""

        def die(request: Request) -> None:
            self.faults.dead = True
            raise SimulatedCrash(f"injected: crash {when} {request}")

        return self.call(die, when=when, **which)

    def ignore_conditions(self) -> None:
        """Behave like a gateway that drops `If-None-Match` and `If-Match`: conditional puts overwrite."""
        self._ignores_conditions = True

    _ignores_conditions = False

    def inject(self, effect: Effect, **which: Unpack[Which]) -> Rule:
        """Any effect: it gets the request and the way to send it."""
        rule = Rule(effect, **which)
        self.faults.rules.append(rule)
        return rule

    def heal(self) -> None:
        """No more faults; requests are counted from 1 again."""
        self.faults.rules.clear()
        self.faults.requests = 0
        self.faults.dead = False

    # --- recording ------------------------------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[list[Step]]:
        """The requests made while in the block, numbered from 1."""
        steps: list[Step] = []
        self.faults.recorders.append(steps)
        try:
            yield steps
        finally:
            self.faults.recorders.remove(steps)

    def steps_of(self, operation: Callable[[], object]) -> list[Step]:
        """Run the operation and say which requests it made."""
        with self.recording() as steps:
            operation()
        return steps

    # --- how requests pass ----------------------------------------------------------------------------------

    def put_if_absent(self, key: str, data: bytes, *, after: Iterable[str] = ()) -> str:
        if self._ignores_conditions:
            return self._send("put_if_absent", key, partial(self.backend.put, self._path(key), data))
        return super().put_if_absent(key, data, after=after)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        if self._ignores_conditions:
            return self._send("put_if_match", key, partial(self.backend.put, self._path(key), data))
        return super().put_if_match(key, data, etag)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return [function(item) for item in items] if self.serial else super().map(function, items)

    def _send(self, operation: str, key: str, call: Callable[[], T]) -> T:
        request = Request(operation, self._folder + key)
        if self.faults.dead:
            raise SimulatedCrash(f"the writer is dead: {request}")
        rule = self.faults.next(request)
        faulty: Callable[[], T] = call if rule is None else partial(rule.effect, request, call)
        return super()._send(operation, key, faulty)


class ManualClock:
    """A clock that moves when it is told to and when somebody sleeps on it; `skew_s` is how far its wall is
    ahead of true time."""

    def __init__(self, now: float = 1_000_000.0, skew_s: float = 0.0) -> None:
        self.now = now
        self.skew_s = skew_s
        self.slept = 0.0

    def wall(self) -> float:
        return self.now + self.skew_s

    def steady(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds


class SharedTime(ManualClock):
    """Another machine's clock: the same true time as `other`, with its own skew."""

    def __init__(self, other: ManualClock, skew_s: float = 0.0) -> None:
        self.other = other
        super().__init__(other.now, skew_s)

    @property
    def now(self) -> float:
        return self.other.now

    @now.setter
    def now(self, value: float) -> None:
        self.other.now = value
