"""What the operating system gives a process: time, randomness, threads and locks, in one object that can be replaced.

Everything that decides when and in which order our code runs is asked for here, so that a simulation can decide it
instead, and a seed replays a failure (`ontologia.testing.simulation`). The object is the process's: replacing it holds
for every thread.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Lock(Protocol):
    """What we use of `threading.Lock`."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...

    def release(self) -> None: ...

    def locked(self) -> bool: ...

    def __enter__(self) -> bool: ...

    def __exit__(self, *problem: Any) -> None: ...


class Event(Protocol):
    """What we use of `threading.Event`."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = ...) -> bool: ...


class Thread(Protocol):
    """What we use of a thread that runs."""

    def join(self, timeout: float | None = ...) -> None: ...

    def is_alive(self) -> bool: ...


class System:
    """The operating system itself."""

    random: random.Random = random.SystemRandom()

    def wall(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def lock(self) -> Lock:
        return threading.Lock()

    def rlock(self) -> AbstractContextManager[Any]:
        """A lock that its holder can take again."""
        return threading.RLock()

    def event(self) -> Event:
        return threading.Event()

    def start(self, work: Callable[[], object], name: str, *, daemon: bool = True) -> Thread:
        """Run something beside the caller."""
        thread = threading.Thread(target=work, name=name, daemon=daemon)
        thread.start()
        return thread

    def run_all(self, function: Callable[[T], R], items: Iterable[T], at_once: int, name: str) -> list[R]:
        """Call a function for all items, so many at once; results in the order of the items. All calls settle before
        the first error, in item order, is raised: nothing runs on behind the caller's back."""
        work = list(items)
        if len(work) < 2:
            return [function(item) for item in work]
        with ThreadPoolExecutor(min(len(work), at_once), thread_name_prefix=name) as pool:
            futures = [pool.submit(function, item) for item in work]
        return [future.result() for future in futures]


_system = System()


def system() -> System:
    """The system of this process, as it is now: ask anew instead of keeping it."""
    return _system


@contextmanager
def using(replacement: System) -> Iterator[None]:
    """Put another system in its place while in the block."""
    global _system
    before, _system = _system, replacement
    try:
        yield
    finally:
        _system = before


def new_uuid() -> uuid.UUID:
    """A random UUID (version 4)."""
    return uuid.UUID(bytes=_system.random.randbytes(16), version=4)


def new_token(count: int) -> str:
    """So many random bytes, in hexadecimal digits."""
    return _system.random.randbytes(count).hex()
