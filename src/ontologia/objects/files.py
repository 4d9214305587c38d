"""A store in a directory: the same layout as in a bucket, with compare-and-swap across processes.

A file system can replace a file atomically but cannot compare first. So a file that is there is changed under
a lock on the directory that holds it (`flock` on the directory itself: nothing to clean up, released when a
process dies, and the same lock no matter at which parent the store was opened). The bytes are written aside
and synced before the lock is taken, put into place with one rename, and the directory is synced before the
lock is given up: a crash at any point leaves the old object or the new one, and readers need no lock.

A file that is not there is given its name by a hard link, which fails if the name is taken: that is a comparison,
and needs no lock. Nobody who holds the lock can be misled by it, since names vanish under the lock only.

For local file systems. Network file systems often do not pass `flock` on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ontologia.objects.backend import ASIDE, PAGE, Blob, Info, content_etag
from ontologia.objects.clock import pauses
from ontologia.objects.failures import ConditionFailed, FolderBusy, ObjectNotFound

HASHED_BYTES = 1 << 20
SYNCS_AT_ONCE = 16
FEW_SYNCS = 6
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class FileBackend:
    """Objects as plain files under one directory, which is made at the first write."""

    def __init__(self, directory: Path, lock_timeout_s: float = 10.0, *, sync_files: bool = True) -> None:
        self.directory = directory
        self.sync_files = sync_files
        self.lock_timeout_s = lock_timeout_s
        self.root = directory.as_uri().rstrip("/")
        self.identity = self.root
        self._seen: dict[str, tuple[tuple[int, ...], str]] = {}

    # --- reading --------------------------------------------------------------------------------------------

    def get(self, path: str) -> Blob:
        with self._open_folder(path) as file:
            data = _read(file, 0, os.fstat(file).st_size)
            return Blob(data, _etag(file, data))

    def get_if_changed(self, path: str, etag: str) -> Blob | None:
        """A file is replaced by another one, never written to: one that was looked at is known by its number and
        times."""
        with self._open_folder(path) as file:
            stat = os.fstat(file)
            known = ((stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns), etag)
            if self._seen.get(path) == known:
                return None
            data = _read(file, 0, stat.st_size)
            found = Blob(data, _etag(file, data))
        self._seen[path] = (known[0], found.etag)
        return None if found.etag == etag else found

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._open_folder(path) as file:
            return _read(file, start, length)

    def head(self, path: str) -> Info | None:
        try:
            with self._open_folder(path) as file:
                stat = os.fstat(file)
                return Info(path, stat.st_size, _etag(file), _modification_time(stat))
        except ObjectNotFound:
            return None

    def pages(self, folder: str, start_after: str | None) -> Iterator[list[Info]]:
        page: list[Info] = []
        for info in self._walk(folder, start_after or ""):
            page.append(info)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    def local_path(self, path: str) -> Path | None:
        return self.directory / path

    # --- writing --------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes) -> str:
        with self._aside(path, data) as (aside, etag):
            if not self._link(aside, path):
                with self._lock(aside.parent) as folder:
                    self._into_place(aside, path, folder)
            return etag

    def put_ahead(self, path: str, data: bytes) -> None:
        target = self._check(path)
        file = self._create(target, os.O_TRUNC)
        try:
            _write(file, data)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def sync(self, paths: Sequence[str]) -> None:
        if self.sync_files:
            _sync_together(self._with_folders(paths))

    def put_if_absent(self, path: str, data: bytes, after: Sequence[str] = ()) -> str:
        if os.path.lexists(self.directory / path):  # the usual refusal, without writing anything
            raise ConditionFailed(f"{self.root}/{path}", None)
        with self._aside(path, data, self._with_folders(after)) as (aside, etag):
            if self._link(aside, path):
                return etag
            with self._lock(aside.parent) as folder:
                if os.path.lexists(self.directory / path):
                    raise ConditionFailed(f"{self.root}/{path}", None)
                self._into_place(aside, path, folder)
                return etag

    def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        if not (self.directory / path).exists():
            raise ConditionFailed(f"{self.root}/{path}", etag)
        with self._aside(path, data) as (aside, new_etag), self._lock(aside.parent) as folder:
            found = self.head(path)
            if found is None or found.etag != etag:
                raise ConditionFailed(f"{self.root}/{path}", etag)
            self._into_place(aside, path, folder)
            return new_etag

    def delete(self, path: str) -> None:
        self.delete_many([path])

    def delete_many(self, paths: Sequence[str]) -> None:
        by_folder: dict[Path, list[Path]] = {}
        for path in paths:
            target = self.directory / path
            by_folder.setdefault(target.parent, []).append(target)
        for folder, targets in by_folder.items():
            with suppress(FileNotFoundError, NotADirectoryError), self._lock(folder) as handle:
                for target in targets:
                    target.unlink(missing_ok=True)
                self._fsync(handle)
                self._remove_empty(folder)

    def sweep(self, older_than_s: float) -> int:
        limit = time.time() - older_than_s
        swept = 0
        for folder, _, names in os.walk(self.directory):
            for name in names:
                aside = Path(folder, name)
                with suppress(FileNotFoundError):  # its writer has put it into place meanwhile
                    if name.startswith(ASIDE) and aside.stat().st_mtime < limit:
                        aside.unlink(missing_ok=True)
                        swept += 1
        return swept

    # --- how a file gets into place -------------------------------------------------------------------------

    @contextmanager
    def _aside(self, path: str, data: bytes, ahead: Sequence[Path] = ()) -> Iterator[tuple[Path, str]]:
        """Write and sync the bytes beside their place, together with what was written ahead. While the file is there,
        nobody can remove the directory."""
        aside = self._check(path).parent / f"{ASIDE}{uuid.uuid4().hex}"
        file = self._create(aside, os.O_EXCL)
        try:
            try:
                _write(file, data)
                if ahead and self.sync_files:
                    _sync_together([aside, *ahead])
                else:
                    self._fsync(file)
                etag = _etag(file, data)
            finally:
                os.close(file)
            yield aside, etag
        finally:
            aside.unlink(missing_ok=True)

    def _check(self, path: str) -> Path:
        target = self.directory / path
        if any(part.startswith(ASIDE) for part in target.parts):
            raise ValueError(f"keys cannot have parts that begin with {ASIDE!r}: {path!r}")
        return target

    def _with_folders(self, paths: Sequence[str]) -> list[Path]:
        files = [self.directory / path for path in paths]
        return list(dict.fromkeys([*files, *(file.parent for file in files)]))

    def _create(self, place: Path, mode: int) -> int:
        attempts = 100  # each one lost to a delete that emptied the directory and removed it in between
        while True:
            attempts -= 1
            try:
                self._make(place.parent)
                return os.open(place, os.O_CREAT | mode | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                if attempts == 0:
                    raise

    def _make(self, folder: Path) -> None:
        """Make the directory durable: each new name is synced in its parent."""
        if folder.is_dir():
            return
        self._make(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            return
        if self.sync_files:
            _sync(folder.parent)

    def _fsync(self, handle: int) -> None:
        if self.sync_files:
            os.fsync(handle)

    def _link(self, aside: Path, path: str) -> bool:
        """Give the file its name, unless that is taken, or the file system has no links."""
        folder = os.open(aside.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                os.link(aside, self.directory / path)
            except OSError as problem:
                if problem.errno == errno.EEXIST or problem.errno in _NO_LINKS:
                    return False
                raise
            with _in_place(path):
                aside.unlink()
                self._fsync(folder)
            return True
        finally:
            os.close(folder)

    def _into_place(self, aside: Path, path: str, folder: int) -> None:
        os.rename(aside, self.directory / path)
        with _in_place(path):
            self._fsync(folder)

    @contextmanager
    def _lock(self, folder: Path) -> Iterator[int]:
        """Hold the directory against other writers. Polls, since a blocking `flock` would know no timeout."""
        deadline = time.monotonic() + self.lock_timeout_s
        waits = pauses(0.001, 0.02)
        while True:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                while not _try_lock(handle):
                    if time.monotonic() > deadline:
                        raise FolderBusy(f"{folder} stayed locked for {self.lock_timeout_s:g} s")
                    time.sleep(next(waits))
                if not os.path.samestat(os.fstat(handle), os.stat(folder)):
                    continue  # removed and made again while we waited: lock the one that is there now
                yield handle
                return
            finally:
                os.close(handle)

    def _remove_empty(self, folder: Path) -> None:
        """Buckets have no empty directories, so neither has this store."""
        while folder != self.directory:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    # --- how files are found --------------------------------------------------------------------------------

    @contextmanager
    def _open_folder(self, path: str) -> Iterator[int]:
        try:
            file = os.open(self.directory / path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectNotFound(f"{self.root}/{path}") from None
        try:
            if os.path.isdir(file):
                raise ObjectNotFound(f"{self.root}/{path}")
            yield file
        finally:
            os.close(file)

    def _walk(self, folder: str, start_after: str) -> Iterator[Info]:
        inside = f"{folder}/" if folder else ""
        after = start_after.removeprefix(inside) if start_after.startswith(inside) else ""
        try:
            with os.scandir(self.directory / folder) as found:
                entries = {
                    entry.name + "/" * entry.is_dir(follow_symlinks=False): entry
                    for entry in found
                    if f"{entry.name}/" > after or after.startswith(f"{entry.name}/")  # the end of a log is short
                }
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in sorted(entries):  # a directory sorts with its slash, as its keys do
            path = inside + name
            if name.startswith(ASIDE) or (path <= start_after and not start_after.startswith(path)):
                continue
            if name.endswith("/"):
                yield from self._walk(path[:-1], start_after)
            elif path > start_after:
                try:
                    stat = entries[name].stat()
                except FileNotFoundError:
                    continue
                yield Info(path, stat.st_size, None, _modification_time(stat))


@contextmanager
def _in_place(path: str) -> Iterator[None]:
    """Whatever fails from here on, the object is there: the error must not read as if it were not."""
    try:
        yield
    except OSError as problem:
        raise OSError(f"{path} is written, but may not survive a power failure: {problem}") from problem


def _sync_together(places: Sequence[Path]) -> None:
    """Make files and directories durable. All are sent on their way before the first is waited for, so that a journal
    that commits for one does so for the others. Threads pay where there are many."""
    for place in places:
        _send_on(place)
    if len(places) <= FEW_SYNCS:
        for place in places:
            _sync(place)
        return
    with ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="sync") as threads:
        list(threads.map(_sync, places))


def _send_on(place: Path) -> None:
    """Begin to write a file out, without waiting for it. A hint: what the system makes of it is its own business."""
    if not hasattr(os, "posix_fadvise"):
        return
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _etag(file: int, data: bytes | None = None) -> str:
    """The content hash of a small object; of a large one, which is written once, its inode, time and size."""
    stat = os.fstat(file)
    if stat.st_size > HASHED_BYTES:
        return f'"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    return content_etag(_read(file, 0, stat.st_size) if data is None else data)


def _read(file: int, start: int, length: int) -> bytes:
    chunks = []
    while length > 0 and (chunk := os.pread(file, length, start)):
        chunks.append(chunk)
        start += len(chunk)
        length -= len(chunk)
    return b"".join(chunks)


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _modification_time(stat: os.stat_result) -> datetime:
    return datetime.fromtimestamp(stat.st_mtime, UTC)
