"""The caretaker: looks after the frames of a storage root while the colony is cold (contract: cold is when background
compaction runs).

It has a thread of its own: a node whose heartbeat waited for a compaction would look dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ontologia.objects import SYSTEM_CLOCK, Clock, Thread, system

ROUND_EVERY_S = 60.0
LOOK_AGAIN_AFTER_S = 600.0  #: a frame that did not change may become due by the age of its cells
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Caretaker(Generic[T]):
    """Goes round all frames once a minute, and looks at those that changed or were not looked at for a while."""

    def __init__(
        self,
        frames: Callable[[], Iterable[T]],
        version: Callable[[T], int],
        care: Callable[[T], object],
        is_cold: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._frames = frames
        self._version = version
        self._care = care
        self._is_cold = is_cold
        self._clock = clock
        self._seen: dict[T, tuple[int, float]] = {}
        self._stop = system().event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = system().start(self._run, "apiary-caretaker")

    def stop(self) -> None:
        """End after the frame it is at."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def go_round(self) -> None:
        """One round. It ends when the colony is no longer cold; a frame that cannot be cared for does not end it."""
        for frame in self._frames():
            if self._stop.is_set() or not self._is_cold():
                return
            try:
                if self._is_due(frame):
                    self._care(frame)
                    self._seen[frame] = (self._version(frame), self._clock.steady())
            except Exception as problem:  # the next round may succeed, and other frames need care, too
                _log.warning("%s was not cared for: %s", frame, problem)

    def _is_due(self, frame: T) -> bool:
        version, at = self._seen.get(frame, (-1, 0.0))
        return version != self._version(frame) or self._clock.steady() - at > LOOK_AGAIN_AFTER_S

    def _run(self) -> None:
        while not self._stop.wait(ROUND_EVERY_S):
            try:
                self.go_round()
            except Exception as problem:
                _log.warning("a round of maintenance was missed: %s", problem)
