"""Counting requests: what an operation asks of the store, so that tests can hold it to a number.

Costs that grow with history are the slow death of a store like this. They are seen here first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

#: Something that stands between `Objects` and the store: it gets the request and the way to send it.
Interceptor = Callable[["Request", Callable[[], T]], T]


@dataclass(frozen=True)
class Request:
    """One request to the store. `key` is relative to the URI that was opened; a page of a listing is one
    request."""

    operation: str
    key: str

    def __str__(self) -> str:
        return f"{self.operation} {self.key}"


class RequestCount:
    """The requests made while counting, from every thread.

    with objects.counting() as count:
        session.commit()
    assert count.total <= 8, count.log
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log: list[Request] = []

    def add(self, request: Request) -> None:
        with self._lock:
            self._log.append(request)

    @property
    def log(self) -> list[Request]:
        """Every request, in the order they were sent."""
        with self._lock:
            return list(self._log)

    @property
    def total(self) -> int:
        return len(self.log)

    @property
    def by_operation(self) -> dict[str, int]:
        return dict(Counter(request.operation for request in self.log))

    @property
    def by_key(self) -> dict[str, int]:
        return dict(Counter(request.key for request in self.log))

    def count(self, operation: str | None = None, key: str | None = None) -> int:
        """How many requests were of this operation, for this key, or both."""
        return sum(
            (operation is None or request.operation == operation) and (key is None or request.key == key)
            for request in self.log
        )

    def __repr__(self) -> str:
        return f"RequestCount(total={self.total}, {self.by_operation})"


#: Interceptors of every store of this process. Empty but in tests that end the process at a request.
interceptors: list[Callable[[Request, Callable[[], object]], object]] = []
