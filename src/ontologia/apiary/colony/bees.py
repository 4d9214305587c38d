"""Bees: one worker per core, each in a chamber of its own with a memory budget, a scratch directory and a timeout.

A task that fails for a reason that may pass is tried up to three times, then abandoned with an error that lists every
attempt. What will not pass (data that does not fit, an object that is corrupt, a full disk) is raised at once.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ontologia.apiary.colony.temperature import Load
from ontologia.errors import OntologiaError, StorageBackendError, TaskAbandonedError
from ontologia.files.scratch import Scratch
from ontologia.objects import SYSTEM_CLOCK, Clock, is_transient, new_uuid, system

T = TypeVar("T")
ATTEMPTS = 3
TASK_TIMEOUT_S = 600.0


class ChamberError(Exception):
    """A task outgrew its chamber: too much memory, or too long. Tried again, since another time may suit better."""


@dataclass
class Chamber:
    """Where one task works."""

    memory_budget: int
    deadline: float
    clock: Clock
    _root: Callable[[], Path]
    memory_used: int = 0
    _scratch: Path | None = None

    @property
    def scratch(self) -> Path:
        """A directory for this task alone, made when it is asked for and removed with the chamber."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(dir=self._root()))
        return self._scratch

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - self.clock.steady())

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Account for bytes that the task keeps in memory, and see that time and memory are not used up."""
        if self.memory_used + size > self.memory_budget:
            raise ChamberError(
                f"it needs {self.memory_used + size:,} bytes, and a bee's budget is {self.memory_budget:,}"
            )
        if self.clock.steady() > self.deadline:
            raise ChamberError("it took longer than its timeout")
        self.memory_used += size
        try:
            yield
        finally:
            self.memory_used -= size


Task = Callable[[Chamber], T]


@dataclass
class Bee:
    """One worker. `chamber` is None while it is idle."""

    bee_id: str
    memory_budget: int
    task_id: str | None = None
    chamber: Chamber | None = None

    def status(self) -> dict[str, str | int | float]:
        used = self.chamber.memory_used if self.chamber else 0
        return {
            "bee_id": self.bee_id,
            "state": "idle" if self.task_id is None else f"busy({self.task_id})",
            "memory_budget": self.memory_budget,
            "memory_used": used,
            "utilisation": used / self.memory_budget if self.memory_budget else 0.0,
        }


class Bees:
    """The bees of a node."""

    def __init__(
        self,
        count: int,
        memory_per_bee: int,
        node_id: str,
        *,
        timeout_s: float = TASK_TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.bees = [Bee(f"bee-{number}", memory_per_bee) for number in range(count)]
        self.node_id = node_id
        self.timeout_s = timeout_s
        self.clock = clock
        self.abandoned = 0
        self._idle = list(reversed(self.bees))
        self._waiting = 0
        self._changed = threading.Condition()
        self._root: Scratch | None = None

    def run(self, what: str, tasks: Sequence[Task[T]]) -> list[T]:
        """Let the bees do these tasks, side by side; results in order. All settle before the first error is raised."""
        return system().run_all(lambda task: self._do(what, task), tasks, len(self.bees), "bee")

    def _do(self, what: str, task: Task[T]) -> T:
        attempts: list[BaseException] = []
        while True:
            with self._chamber() as chamber:
                try:
                    return task(chamber)
                except OntologiaError as error:
                    if not isinstance(error, StorageBackendError) or not is_transient(error):
                        raise
                    attempts.append(error)
                except Exception as error:
                    attempts.append(error)
            if len(attempts) == ATTEMPTS:
                self.abandoned += 1
                raise TaskAbandonedError(_obituary(what, attempts)) from attempts[-1]

    @contextmanager
    def _chamber(self) -> Iterator[Chamber]:
        bee = self._take()
        chamber = Chamber(bee.memory_budget, self.clock.steady() + self.timeout_s, self.clock, self._scratch_root)
        bee.chamber, bee.task_id = chamber, f"{self.node_id}_{new_uuid()}"
        try:
            yield chamber
        finally:
            if chamber._scratch is not None:
                shutil.rmtree(chamber._scratch, ignore_errors=True)
            with self._changed:
                bee.chamber = bee.task_id = None
                self._idle.append(bee)
                self._changed.notify()

    def _take(self) -> Bee:
        with self._changed:
            self._waiting += 1
            try:
                while not self._idle:
                    self._changed.wait()
                return self._idle.pop()
            finally:
                self._waiting -= 1

    def _scratch_root(self) -> Path:
        with self._changed:
            if self._root is None:
                self._root = Scratch("apiary")
            return Path(self._root.name)

    @property
    def idle(self) -> int:
        return len(self._idle)

    def load(self, memory_pressure: float) -> Load:
        with self._changed:
            return Load(len(self.bees), len(self.bees) - len(self._idle), self._waiting, memory_pressure)

    def status(self) -> list[dict[str, str | int | float]]:
        with self._changed:
            return [bee.status() for bee in self.bees]

    def close(self) -> None:
        """Remove the scratch directories."""
        with self._changed:
            if self._root is not None:
                self._root.cleanup()
                self._root = None


def _obituary(what: str, attempts: Sequence[BaseException]) -> str:
    lines = "; ".join(f"attempt {number}: {error or type(error).__name__}" for number, error in enumerate(attempts, 1))
    last = attempts[-1]
    if isinstance(last, ChamberError | MemoryError):
        advice = "give it less at once, or run it with engine='spark'"
    elif isinstance(last, StorageBackendError):
        advice = "see whether the store can be reached, and try again"
    else:
        advice = "this is likely a bug: please report it with this message"
    return f"{what} was given up after {len(attempts)} attempts ({lines}): {advice}"
