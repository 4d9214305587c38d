"""Pins: which files of a cache directory are in use, by any process of this machine.

A process that uses files writes their names into a pin file and holds a lock on it; the operating system
gives the lock up when the process ends, however it ends, so a pin without a lock is left over from a dead
one. One handle per pin, whatever the number of files: a query over thousands of files must not run out of
handles.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Pins:
    """The pins of one cache directory. Sweeps and new pins exclude each other, so that no file is removed
    between being pinned and being opened."""

    def __init__(self, directory: Path) -> None:
        self._pins = directory / ".pins"
        self._sweeping = directory / ".sweep.lock"

    @contextmanager
    def pin(self, names: Iterable[str]) -> Iterator[None]:
        """Keep the files of these names from being swept while in the block."""
        self._pins.mkdir(parents=True, exist_ok=True)
        path = self._pins / uuid.uuid4().hex
        with self._hold(fcntl.LOCK_SH):
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
            fcntl.flock(handle, fcntl.LOCK_EX)
            with open(handle, "w", closefd=False) as file:
                file.write("\n".join(names))
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)

    @contextmanager
    def sweeping(self) -> Iterator[frozenset[str] | None]:
        """The names that must stay; None if another process is sweeping just now."""
        self._pins.mkdir(parents=True, exist_ok=True)
        with self._hold(fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
            yield self._names() if alone else None

    def _names(self) -> frozenset[str]:
        names: set[str] = set()
        for path in self._pins.iterdir():
            try:
                with path.open("r+") as file:
                    if _flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB):
                        path.unlink(missing_ok=True)  # its process is dead
                    else:
                        names.update(file.read().split("\n"))
            except FileNotFoundError:
                continue
        return frozenset(names)

    @contextmanager
    def _hold(self, how: int) -> Iterator[bool]:
        handle = os.open(self._sweeping, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            yield _flock(handle, how)
        finally:
            os.close(handle)


def _flock(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return False
    return True
