"""Bytes in the making: in memory while they are few, then in a file, so that memory does not grow with a commit."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

from ontologia.files.hashes import hash_of_file
from ontologia.files.scratch import Scratch
from ontologia.objects import Objects

SPOOLED_BYTES = 32 << 20


class Spool(io.RawIOBase):
    """A file to write to, and then to put into a store."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._memory = io.BytesIO()
        self._folder: Scratch | None = None
        self._sink: Any = self._memory

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._folder is None and self.size + len(data) > SPOOLED_BYTES:
            self._folder = Scratch("commit")
            self._sink = self.path.open("wb")
            self._sink.write(self._memory.getbuffer())
            self._memory = io.BytesIO()
        written: int = self._sink.write(data)
        self.size += written
        return written

    def tell(self) -> int:
        return self.size

    @property
    def path(self) -> Path:
        """Where the bytes are, once they are many."""
        assert self._folder is not None
        return Path(self._folder.name, "rows")

    @property
    def in_memory(self) -> bytes | None:
        """The bytes, where they are few."""
        return self._memory.getvalue() if self._folder is None else None

    def complete(self) -> str:
        """All is written; the hash of it."""
        if self._folder is None:
            return hashlib.sha256(self._memory.getbuffer()).hexdigest()
        self._sink.close()
        return hash_of_file(self.path)

    def put(self, objects: Objects, key: str) -> None:
        """Write the object."""
        if self._folder is None:
            objects.put(key, self._memory.getvalue())
        else:
            objects.put_file(key, self.path)

    def discard(self) -> None:
        """Remove what is on disk."""
        if self._folder is not None:
            self._sink.close()
            self._folder.cleanup()
