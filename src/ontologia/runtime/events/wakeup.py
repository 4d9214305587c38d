"""Waiting that can be ended from another thread or a signal, at once."""

from __future__ import annotations

import logging
import math
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_log = logging.getLogger(__name__)


class Wakeup:
    """A stop that is asked for once and noticed wherever somebody waits.

    `threading.Event` would not do: a signal handler that sets it while its own thread is inside `wait` can block for
    ever on the lock in there. A byte in a socket needs no lock.
    """

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self.stopping = False

    def stop(self) -> None:
        self.stopping = True
        with suppress(OSError):  # closed, or full of such bytes already
            self._write.send(b".")

    def wait(self, seconds: float) -> None:
        """Sleep, unless a stop was asked for or comes meanwhile."""
        if not self.stopping:
            waiting = select.poll()  # select() fails in a process with more than 1,024 open files
            waiting.register(self._read, select.POLLIN)
            waiting.poll(math.ceil(max(seconds, 0.0) * 1_000))

    def close(self) -> None:
        self._read.close()
        self._write.close()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """While in the block, the first Ctrl-C or SIGTERM asks for a stop; the second does what it always does."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may say what a signal does
            return
        earlier: dict[int, Any] = {}

        def ask(number: int, frame: FrameType | None) -> None:
            signal.signal(number, earlier[number])
            self.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            earlier[number] = signal.getsignal(number)
            signal.signal(number, ask)
        try:
            yield
        finally:
            for known, handler in earlier.items():
                signal.signal(known, handler)
