"""Whose turn it is to write in this process, when an interrupt can end a call between any two of its steps.

Nobody relies on having given a turn back: one whose call has ended was abandoned, and whoever comes next takes it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from types import FrameType
from typing import Literal, NamedTuple

from ontologia.objects import system

SLICE_S = 0.05


def calling(frame: FrameType, *own: str) -> FrameType:
    """The function that a block runs in. Generators are suspended meanwhile, so it is who uses them.

    Modules in `own` belong to the block, too.
    """
    inner = (*own, "contextlib")
    while frame.f_back is not None and (
        frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_globals["__name__"] in inner
    ):
        frame = frame.f_back
    return frame


def is_running(thread: int, call: FrameType) -> bool:
    """Whether a call is still under way in a thread."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not call:
        frame = frame.f_back
    return frame is not None


class _Holder(NamedTuple):
    thread: int
    call: FrameType | Literal["kept"]


class Turn:
    """A lock for the threads of a process that survives interrupted calls."""

    def __init__(self) -> None:
        self._lock = system().lock()
        self._mending = system().lock()
        self._holder: _Holder | None = None

    def take(self, timeout_s: float) -> bool:
        """Wait for the turn; False when it did not come. Call it from the block that uses it."""
        holder = _Holder(threading.get_ident(), calling(sys._getframe(1), __name__))
        deadline = system().steady() + timeout_s
        unclaimed = False
        while not self._lock.acquire(timeout=SLICE_S):
            seen = self._holder
            if seen is None and not unclaimed:
                unclaimed = True  # somebody has it this very moment, or was interrupted before saying so
            elif not self.is_wanted():
                self._take_away(seen)
                unclaimed = False
            elif system().steady() > deadline:
                return False
        self._holder = holder
        return True

    def keep(self) -> None:
        """Stay with the turn when the call that took it returns."""
        self._holder = _Holder(threading.get_ident(), "kept")

    def is_wanted(self) -> bool:
        """Whether the call that took the turn is still under way."""
        holder = self._holder
        return holder is not None and (holder.call == "kept" or is_running(holder.thread, holder.call))

    def give_back(self) -> None:
        with self._mending:
            if self._holder is not None and self._holder.thread == threading.get_ident():
                self._holder = None
                self._lock.release()

    def _take_away(self, seen: _Holder | None) -> None:
        with self._mending:
            if self._holder is seen and self._lock.locked():
                self._holder = None
                self._lock.release()
