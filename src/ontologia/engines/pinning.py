"""One state for several reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Pinned(Generic[T]):
    """In a block, the reads of a thread go by the state that the first of them saw; outside, by the newest."""

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def block(self) -> Iterator[None]:
        local = self._local
        local.depth = getattr(local, "depth", 0) + 1
        try:
            yield
        finally:
            local.depth -= 1
            if not local.depth:
                local.state = None

    def state(self, read: Callable[[], T]) -> T:
        """The pinned state; `read` finds the newest."""
        pinned: T | None = getattr(self._local, "state", None)
        if pinned is not None:
            return pinned
        found = read()
        if getattr(self._local, "depth", 0):
            self._local.state = found
        return found
