"""Folders for what does not fit into memory: readable by their owner alone, and gone when the process is.

A process that is killed cleans nothing up. So each folder is locked for as long as its process lives, on the directory
itself as the stores do it, and the first folder of a process takes those away whose lock nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress

_NAMES = re.compile(r"ontologia-[a-z]+-\d+-\w{8}")
_sweeping = threading.Lock()
_swept: set[str] = set()


class Scratch:
    """A new folder for one purpose, which its name says beside the number of the process."""

    def __init__(self, purpose: str) -> None:
        place = tempfile.gettempdir()
        _sweep_once(place)
        self.name, lock = _new_folder(place, f"ontologia-{purpose}-{os.getpid()}-")
        self._end = weakref.finalize(self, _remove, self.name, lock, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *problem: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove the folder with all that is in it; it is removed at the end of the process, too."""
        self._end()


def _new_folder(place: str, prefix: str) -> tuple[str, int | None]:
    """A folder, and the handle that holds its lock; None where the file system has no locks, and nothing is swept."""
    while True:
        path = tempfile.mkdtemp(prefix=prefix, dir=place)
        try:
            handle = _lock(path)
        except FileNotFoundError:
            continue
        except OSError:
            return path, None
        if handle is not None:  # else another process came between the two steps to sweep it away
            return path, handle


def _lock(path: str) -> int | None:
    """A handle that holds the lock of a folder; None where another process does, or the folder is gone."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    is_locked = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_locked = os.path.samestat(os.fstat(handle), os.stat(path))
    except BlockingIOError:
        pass
    finally:
        if not is_locked:
            os.close(handle)
    return handle if is_locked else None


def _remove(path: str, lock: int | None, owner: int) -> None:
    """Take a folder away. A child that was forked has its parent's folders, too, and leaves them alone."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _sweep_once(place: str) -> None:
    with _sweeping:
        if place in _swept:
            return
        _swept.add(place)
    with suppress(OSError):
        _sweep(place)


def _sweep(place: str) -> None:
    """Remove what dead processes of this user left."""
    with os.scandir(place) as entries:
        left = [entry.path for entry in entries if _NAMES.fullmatch(entry.name) and _is_ours(entry)]
    for path in left:
        with suppress(OSError):
            handle = _lock(path)
            if handle is not None:
                _remove(path, handle, os.getpid())


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
