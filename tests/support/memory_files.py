"""Where tests keep their files: in memory, if the machine has room.

Every commit waits until the disk has it. Tests make tens of thousands of commits, and a disk takes milliseconds for
each; what they show does not depend on it, because a process that is killed loses nothing of a file in memory either.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

IN_MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # a whole run needs one


def keep_files_in_memory() -> None:
    """Let temporary folders be made in memory, by pytest, by tests and by the servers they start, unless someone has
    said where."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None  # it is looked up again


def _has_room() -> bool:
    if not os.access(IN_MEMORY, os.W_OK):
        return False  # no Linux, or a container without it
    return min(shutil.disk_usage(IN_MEMORY).free, psutil.virtual_memory().available) > ROOM
