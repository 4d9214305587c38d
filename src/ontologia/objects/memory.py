"""A store in the memory of this process, for tests and examples: `memory://name` is shared by name."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ontologia.objects.backend import PAGE, Blob, Info, content_etag
from ontologia.objects.clock import SYSTEM_CLOCK, Clock
from ontologia.objects.failures import ConditionFailed, ObjectNotFound

_stores: dict[str, MemoryBackend] = {}
_stores_lock = threading.Lock()


def memory_backend(name: str) -> MemoryBackend:
    """The store of this name, made on first use. It lives as long as the process."""
    with _stores_lock:
        return _stores.setdefault(name, MemoryBackend(name))


class MemoryBackend:
    """A dict under a lock. Versions are content hashes on purpose, see `content_etag`."""

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.clock = clock
        self.root = f"memory://{name}"
        self.identity = self.root
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, datetime]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return memory_backend, (self.name,)

    def get(self, path: str) -> Blob:
        data = self._data(path)
        return Blob(data, content_etag(data))

    def get_if_changed(self, path: str, etag: str) -> Blob | None:
        found = self.get(path)
        return None if found.etag == etag else found

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._data(path)[start : start + length]

    def put(self, path: str, data: bytes) -> str:
        with self._lock:
            return self._write(path, data)

    def put_ahead(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def sync(self, paths: Sequence[str]) -> None:
        """Nothing here outlives the process."""

    def put_if_absent(self, path: str, data: bytes, after: Sequence[str] = ()) -> str:
        with self._lock:
            if path in self._objects:
                raise ConditionFailed(f"{self.root}/{path}", None)
            return self._write(path, data)

    def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        with self._lock:
            if path not in self._objects or content_etag(self._objects[path][0]) != etag:
                raise ConditionFailed(f"{self.root}/{path}", etag)
            return self._write(path, data)

    def head(self, path: str) -> Info | None:
        with self._lock:
            return self._info(path) if path in self._objects else None

    def pages(self, folder: str, start_after: str | None) -> Iterator[list[Info]]:
        inside = f"{folder}/" if folder else ""
        with self._lock:
            paths = sorted(path for path in self._objects if path.startswith(inside))
            infos = [self._info(path) for path in paths[bisect_right(paths, start_after or "") :]]
        for first in range(0, len(infos), PAGE):
            yield infos[first : first + PAGE]

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(path, None)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def local_path(self, path: str) -> Path | None:
        return None

    def sweep(self, older_than_s: float) -> int:
        return 0

    def _data(self, path: str) -> bytes:
        with self._lock:
            if path not in self._objects:
                raise ObjectNotFound(f"{self.root}/{path}")
            return self._objects[path][0]

    def _write(self, path: str, data: bytes) -> str:
        kept = bytes(data)  # a caller may hand over a view of a file that it closes afterwards
        self._objects[path] = (kept, datetime.fromtimestamp(self.clock.wall(), UTC))
        return content_etag(kept)

    def _info(self, path: str) -> Info:
        data, modified = self._objects[path]
        return Info(path, len(data), content_etag(data), modified)
