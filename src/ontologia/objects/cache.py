"""One bounded cache of immutable files on local disk, for every engine over an object store.

Several processes may share a directory. A file gets into place by one rename under a name that tells what it
is (a hash of its URL, its size, its suffix), so there is no index to keep, and a file cut short by a crash of
the machine is known by its size. The least recently used go first; use is kept in the access time, set here,
not by the mount.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ontologia.errors import StorageBackendError
from ontologia.objects.failures import ObjectNotFound
from ontologia.objects.pins import Pins
from ontologia.objects.store import Objects
from ontologia.objects.system import Lock, system

CHUNK_BYTES = 8 << 20  #: what is asked for at once; larger files come in several requests side by side
PART = ".part-"
HASHED_IN_PLACE_BYTES = 64 << 20  #: files of a directory up to this size are compared with their hash when first used
_STALE_PART_S = 3600.0


class _Entry(NamedTuple):
    used: int
    size: int
    path: Path


class FileCache:
    """Local copies of objects that never change.

        cache = FileCache(directory, max_bytes=2 << 30)
        with cache.pinned(objects, keys) as paths:      # for readers that open by path, as DuckDB does
            duckdb.read_parquet([str(path) for path in paths])

    The bound is for what is not pinned. One process keeps it; each further one may exceed it by an eighth,
    because the directory is measured again after so many new bytes, not after every file. With `background`, eviction
    runs beside the reader that made it necessary, who does not wait for it. Stores that are directories are not
    copied: their own files are returned.
    """

    def __init__(self, directory: str | Path, max_bytes: int, *, background: bool = False) -> None:
        if max_bytes <= 0:
            raise ValueError(f"a cache needs room: max_bytes must be above 0, not {max_bytes}")
        self.directory = Path(directory).expanduser().absolute()
        self.max_bytes = max_bytes
        self.background = background
        self._pins = Pins(self.directory)
        self._lock = threading.Lock()
        self._downloads: dict[str, Lock] = {}
        self._proven: dict[Path, tuple[int, int, int]] = {}
        """Files of directories that have the hash they should have, by what would tell that they were replaced."""
        self._released = 0  # how many pins of this process have been given up
        self._unmeasured = max_bytes  # bytes added since the directory was last measured: at first, unknown

    def path(self, objects: Objects, key: str, *, size: int | None = None, content_sha256: str | None = None) -> Path:
        """A local file with the bytes of the object, downloaded if need be. Raises `ObjectNotFound`.

        Good for opening at once: an open file survives eviction. Who opens later or again needs `pinned`.
        `size`, if known (a manifest has it), saves a look into the directory. Like the hash, which is compared once,
        it catches an object that is not what was written.
        """
        local = objects.local_path(key)
        if local is not None:
            self._check_in_place(objects, key, local, size, content_sha256)
            return local
        name = _name(objects, key)
        found = self._find(name, size)
        if found is None:
            with self._downloading(name):
                found = self._find(name, size) or self._download(objects, key, name, size, content_sha256)
            self._make_room(for_=name)
        return found

    @contextmanager
    def pinned(
        self,
        objects: Objects,
        keys: Iterable[str],
        *,
        sizes: Mapping[str, int] | None = None,
        hashes: Mapping[str, str] | None = None,
    ) -> Iterator[list[Path]]:
        """Local files for all keys, in order, that stay where they are while in the block. Misses come side
        by side."""
        wanted = list(keys)
        known, content = sizes or {}, hashes or {}

        def local(key: str) -> Path:
            return self.path(objects, key, size=known.get(key), content_sha256=content.get(key))

        if not wanted or objects.local_path(wanted[0]) is not None:
            yield [local(key) for key in wanted]
            return
        names = {key: _name(objects, key) for key in wanted}
        try:
            with self._pins.pin(name.partition(".")[0] for name in names.values()):
                here = {key: self._find(name, known.get(key)) for key, name in names.items()}
                missing = [key for key, path in here.items() if path is None]
                paths = objects.map(local, missing)
                there = dict(zip(missing, paths, strict=True))
                yield [here[key] or there[key] for key in wanted]
        finally:
            with self._lock:
                self._released += 1
            self._make_room()  # an eviction that found everything pinned left it to this

    def kept(self, objects: Objects, key: str) -> bytes | None:
        """The bytes of an object if a copy is here, without asking the store. Directories are asked themselves."""
        if objects.local_path(key) is not None:
            return None
        found = self._find(_name(objects, key), None)
        try:
            return None if found is None else found.read_bytes()
        except OSError:
            return None

    def keep(self, objects: Objects, key: str, data: bytes) -> None:
        """Have a copy of bytes that were just written, without asking for them."""
        name = _name(objects, key)
        if objects.local_path(key) is None and self._find(name, len(data)) is None:
            self._place(objects.url(key), name, lambda part: part.write_bytes(data))
            self._make_room(for_=name)

    def contains(self, objects: Objects, key: str) -> bool:
        """Whether a whole copy is here now. Planners ask this to send work where the files are."""
        return objects.local_path(key) is not None or self._find(_name(objects, key), None, touch=False) is not None

    def combined(self, objects: Objects, name: str = "") -> list[Path]:
        """Files that were made here of several objects of a store: those of a name, or all of them."""
        stem = _stem_of_combined(objects, name)
        with suppress(OSError):  # a folder that another user may read, and we may not
            return [path for path in (self.directory / stem[:2]).glob(f"{stem}*-*") if self._is_whole(path)]
        return []

    def combine(self, objects: Objects, name: str, data: bytes) -> None:
        """Keep what was made here of several objects, in place of what had its name. Whoever reads it has to know from
        what is in it whether it is what they look for; what is evicted is made again."""
        stem = _stem_of_combined(objects, name)
        older = self.combined(objects, name)
        place = self._place(objects.uri, f"{stem}.parquet", lambda part: part.write_bytes(data))
        for path in older:
            if path != place:
                path.unlink(missing_ok=True)
        self._make_room(for_=stem)

    def drop_combined(self, objects: Objects) -> None:
        """Remove all that was made of objects of a store."""
        for path in self.combined(objects):
            path.unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """All copies that are here, of any store."""
        return sorted(entry.path for entry in self._entries())

    def used_bytes(self) -> int:
        return sum(entry.size for entry in self._entries())

    def evict(self, down_to: int | None = None) -> int:
        """Remove the least recently used files that nobody has pinned until `down_to` bytes remain; bytes
        removed."""
        return self._evict(self.max_bytes if down_to is None else down_to, frozenset())

    def _evict(self, target: int, keep: frozenset[str]) -> int:
        removed = 0
        while True:
            released = self._released
            with self._pins.sweeping() as pinned:
                if pinned is None:
                    return removed  # another process is at it
                stay = pinned | keep
                entries = sorted(self._entries())
                left = sum(entry.size for entry in entries)
                for entry in entries:
                    if left <= target:
                        break
                    if entry.path.name.partition("-")[0] not in stay:
                        entry.path.unlink(missing_ok=True)
                        removed += entry.size
                        left -= entry.size
            with self._lock:
                if left <= target:
                    return removed
                if released == self._released:  # whoever gives up the next pin has to look again
                    self._unmeasured = max(self._unmeasured, self.max_bytes)
                    return removed

    # --- finding --------------------------------------------------------------------------------------------

    def _find(self, name: str, size: int | None, *, touch: bool = True) -> Path | None:
        stem, _, suffix = name.partition(".")
        folder = self.directory / stem[:2]
        if size is not None:
            candidates = [folder / _file_name(name, size)]
        else:
            candidates = [path for path in folder.glob(f"{stem}-*") if path.suffix == (f".{suffix}" if suffix else "")]
        return next((path for path in candidates if self._is_whole(path, touch=touch)), None)

    def _is_whole(self, path: Path, *, touch: bool = True) -> bool:
        """Whether a file is there with the size that it should have; one that was cut short is removed."""
        try:
            stat = path.stat()
            if stat.st_size != _size_in(path):
                path.unlink(missing_ok=True)
                return False
        except OSError:  # it is gone, or another user's
            return False
        if touch:
            with suppress(OSError):
                os.utime(path, ns=(time.time_ns(), stat.st_mtime_ns))  # readers go by mtime: it stays
        return True

    def _entries(self) -> list[_Entry]:
        entries = []
        for path in self.directory.glob("??/*"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            if not path.name.startswith(PART):
                entries.append(_Entry(stat.st_atime_ns, stat.st_size, path))
            elif stat.st_mtime < time.time() - _STALE_PART_S:
                path.unlink(missing_ok=True)
        return entries

    def _check_in_place(
        self, objects: Objects, key: str, local: Path, size: int | None, content_sha256: str | None
    ) -> None:
        """Whether the file of a directory is what was written: its size each time, its hash when it is first used."""
        try:
            found = os.stat(local)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectNotFound(objects.url(key)) from None
        if size not in (None, found.st_size):
            raise _wrong_size(objects, key, found.st_size, size)
        if content_sha256 is None or found.st_size > HASHED_IN_PLACE_BYTES:
            return
        identity = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._proven.get(local) != identity:
            _check_hash(objects, key, local, content_sha256)
            self._proven[local] = identity

    # --- downloading ----------------------------------------------------------------------------------------

    @contextmanager
    def _downloading(self, name: str) -> Iterator[None]:
        """One download of a file at a time in this process; two processes may both fetch it, and both are
        right."""
        with self._lock:
            lock = self._downloads.setdefault(name, system().lock())
        try:
            with lock:
                yield
        finally:
            with self._lock:
                self._downloads.pop(name, None)

    def _download(self, objects: Objects, key: str, name: str, size: int | None, content_sha256: str | None) -> Path:
        def fetch(part: Path) -> int:
            written = _fetch(objects, key, part, size)
            if content_sha256 is not None:
                _check_hash(objects, key, part, content_sha256)
            return written

        return self._place(objects.url(key), name, fetch)

    def _place(self, url: str, name: str, fill: Callable[[Path], int]) -> Path:
        """Let a part file be filled with what is at an address, and put it into place under its size."""
        folder = self.directory / name[:2]
        part = folder / f"{PART}{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = fill(part)
            place = folder / _file_name(name, written)
            part.rename(place)
        except OSError as cause:
            raise StorageBackendError(
                f"could not cache {url} in {self.directory}: {cause}",
                context={"operation": "cache", "url": url, "directory": str(self.directory)},
            ) from cause
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        with self._lock:
            self._unmeasured += written
        return place

    def _make_room(self, for_: str = "") -> None:
        """Measure and evict once an eighth of the room has filled since the last time, by our own count: then
        what comes in until the next time still fits."""
        step = self.max_bytes // 8
        with self._lock:
            if self._unmeasured < step:
                return
            self._unmeasured = 0
        evict = partial(self._evict, self.max_bytes - step, frozenset({for_.partition(".")[0]}))
        if self.background:
            threading.Thread(target=evict, name="cache-eviction", daemon=True).start()
        else:
            evict()


def _fetch(objects: Objects, key: str, part: Path, size: int | None) -> int:
    """Write the object to `part` and return its size. One request if it is small, else ranges side by
    side."""
    with part.open("xb", buffering=0) as file:
        first = objects.get_range(key, 0, CHUNK_BYTES)
        _write_at(file.fileno(), first, 0)
        if size is None:
            size = len(first) if len(first) < CHUNK_BYTES else _size(objects, key)

        def copy(start: int) -> int:
            data = objects.get_range(key, start, CHUNK_BYTES)
            _write_at(file.fileno(), data, start)
            return len(data)

        written = len(first) + sum(objects.map(copy, range(CHUNK_BYTES, size, CHUNK_BYTES)))
    if written != size:
        raise _wrong_size(objects, key, written, size)
    return size


def _check_hash(objects: Objects, key: str, file: Path, content_sha256: str) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != content_sha256:
        raise damage_error(objects, key)


def damage_error(objects: Objects, key: str) -> StorageBackendError:
    """What is said of an object that is not what was written."""
    return StorageBackendError(
        f"{objects.url(key)} is damaged: it is not what was written, by its hash. `onto check` tells what else is, and "
        "what can still be read",
        context={"operation": "read", "url": objects.url(key), "kind": "damaged"},
    )


def _wrong_size(objects: Objects, key: str, found: int, expected: int | None) -> StorageBackendError:
    return StorageBackendError(
        f"{objects.url(key)} has {found} bytes and should have {expected}: it was cut short or replaced",
        context={"operation": "read", "url": objects.url(key), "kind": "wrong_size"},
    )


def _size(objects: Objects, key: str) -> int:
    info = objects.head(key)
    if info is None:
        raise ObjectNotFound(objects.url(key))
    return info.size


def _write_at(handle: int, data: bytes, start: int) -> None:
    rest = memoryview(data)
    while rest:
        done = os.pwrite(handle, rest, start)
        rest, start = rest[done:], start + done


def _name(objects: Objects, key: str) -> str:
    """Where a copy is found: a hash of the whole address, and the suffix, which some readers go by."""
    address = f"{objects.identity} {objects.store_id or ''} {objects.url(key)}"
    return hashlib.sha256(address.encode()).hexdigest()[:40] + PurePosixPath(key).suffix


def _stem_of_combined(objects: Objects, name: str) -> str:
    """How the files begin that were made of objects of a store, and among them those of a name. A store that was moved
    is the same one."""
    known = objects.store_id or f"{objects.identity} {objects.uri}"
    store = hashlib.sha256(known.encode()).hexdigest()[:24]
    return store + (hashlib.sha256(name.encode()).hexdigest()[:16] if name else "")


def _file_name(name: str, size: int) -> str:
    stem, dot, suffix = name.partition(".")
    return f"{stem}-{size}{dot}{suffix}"


def _size_in(path: Path) -> int:
    return int(path.name.partition("-")[2].partition(".")[0])
