"""`Objects`: one store and one prefix, and the only way this library talks to storage.

Synchronous and safe to use from many threads. Everything passes through `_send`, where requests are counted,
where failures get their names, and where tests put their faults.
"""

from __future__ import annotations

import builtins
import copy
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from ontologia.errors import StorageBackendError, without_passwords
from ontologia.objects.backend import ASIDE, PAGE, Backend, Blob, Info
from ontologia.objects.failures import ConditionFailed, ObjectNotFound, storage_error
from ontologia.objects.requests import Request, RequestCount, interceptors
from ontologia.objects.system import system

T = TypeVar("T")
R = TypeVar("R")


class Objects:
    """The objects under one prefix of one store. Keys are relative to the prefix.

    >>> objects = open_objects("memory://example")
    >>> etag = objects.put("meta/head.json", b"{}")
    >>> objects.put_if_match("meta/head.json", b'{"commit_id": 1}', etag)  # a new etag, or ConditionFailed

    Reads and plain puts may be repeated by the client after a passing failure. Conditional puts are sent
    once: a repeated create can meet its own first write. Settle those with `conditional_put`.
    """

    def __init__(
        self, backend: Backend, prefix: str = "", *, concurrency: int = 16, address: str | None = None
    ) -> None:
        if prefix:
            check_key(prefix)
        self.backend = backend
        self.prefix = prefix
        self.concurrency = concurrency
        self._address = address
        self.store_id: str | None = None
        """Who lives here, where somebody said: cached files are named by it, since a place can be laid out anew."""
        self._folder = ""  # what `under` added to the prefix that was opened
        self._counts: list[RequestCount] = []

    # --- one object -----------------------------------------------------------------------------------------

    def get(self, key: str) -> Blob:
        """The bytes and their version. Raises `ObjectNotFound`."""
        return self._send("get", key, partial(self.backend.get, self._path(key)))

    def get_if_changed(self, key: str, etag: str) -> Blob | None:
        """The bytes and their version; None where that still is this one, and nothing was sent. Raises
        `ObjectNotFound`."""
        return self._send("get", key, partial(self.backend.get_if_changed, self._path(key), etag))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`: fewer where the object ends, none beyond its end. Raises
        `ObjectNotFound`."""
        if start < 0 or length <= 0:
            raise ValueError(f"a range starts at 0 or later and has a length above 0, not {start=}, {length=}")
        return self._send("get_range", key, partial(self.backend.get_range, self._path(key), start, length))

    def put(self, key: str, data: bytes) -> str:
        """Write, replacing what is there. Returns the etag. For objects that one writer owns, or that never
        change."""
        return self._send("put", key, partial(self.backend.put, self._path(key), data))

    def put_file(self, key: str, path: Path) -> str:
        """Write the content of a local file, without reading it into memory as a whole."""
        with path.open("rb") as file:
            mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Left to the garbage collector: to close it while the traceback of a failed put still refers to its bytes is an
        # error of its own, and would hide the first one.
        return self.put(key, memoryview(mapped))  # type: ignore[arg-type]

    def put_ahead(self, key: str, data: bytes) -> None:
        """Write an object under a name that nobody knows yet, ahead of one that will name it.

        Need not survive a power failure before `put_if_absent(…, after=[key])` has returned, or `sync([key])`: a
        directory makes all of them durable at once, together with the one that names them.
        """
        self._send("put", key, partial(self.backend.put_ahead, self._path(key), data))

    def sync(self, keys: Iterable[str]) -> None:
        """Make durable what was put ahead. Sends nothing where a put that was answered is durable."""
        self._with_name("sync", "", partial(self.backend.sync, [self._path(key) for key in keys]))

    def put_if_absent(self, key: str, data: bytes, *, after: Iterable[str] = ()) -> str:
        """Create. Raises `ConditionFailed` if there is an object already. Sent once, never repeated.

        Objects that were put ahead, and that this one names, are durable before it is there."""
        ahead = [self._path(name) for name in after]
        return self._send("put_if_absent", key, partial(self.backend.put_if_absent, self._path(key), data, ahead))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace exactly this version. Raises `ConditionFailed` if it is another or gone. Sent once.

        Etags are content hashes on most stores: a body that can come back must carry a nonce.
        """
        if not etag:
            raise ValueError("put_if_match needs an etag: an empty one would be no condition at all")
        return self._send("put_if_match", key, partial(self.backend.put_if_match, self._path(key), data, etag))

    def head(self, key: str) -> Info | None:
        """What the object is without reading it, or None. (S3 answers the same for a bucket that does not
        exist.)"""
        found = self._send("head", key, partial(self.backend.head, self._path(key)))
        return found and Info(key, found.size, found.etag, found.modified)

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def delete(self, key: str) -> None:
        """Remove. No error if it is not there."""
        self._send("delete", key, partial(self.backend.delete, self._path(key)))

    def local_path(self, key: str) -> Path | None:
        """The file that is this object, if the store is a directory of this machine. It may not exist."""
        return self.backend.local_path(self._path(key))

    # --- several objects ------------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[Info]:
        """All objects whose key begins with the string `prefix`, at any depth.

        `list("commits/1")` finds `commits/1-ab/…` and `commits/12-cd/…`: end the prefix with a slash to mean
        a folder, which is also what the store itself can prune by. Within a folder the order is that of the
        keys; how folders and objects are interleaved differs between S3 servers.
        """
        return self._list(prefix, None)

    def tail(self, folder: str, after: str) -> Iterator[Info]:
        """The objects directly in `folder` whose name sorts after `after`, in order. The end of a long log
        costs what the end costs: the server skips the rest.

        Only direct ones, because S3 servers disagree on where a folder sorts among objects.
        """
        inside = folder.removesuffix("/") + "/"
        for info in self._list(inside, inside + after):
            if "/" not in info.key[len(inside) :]:
                yield info

    def names(self, folder: str) -> builtins.list[str]:
        """The names of the objects directly in a folder, in no order. A directory gives them without looking at the
        files, and those of its folders, too."""
        place = self.local_path(folder)
        if place is None:
            inside = folder + "/"
            keys = (info.key.removeprefix(inside) for info in self.list(inside))
            return [name for name in keys if "/" not in name]
        return self._send("list", folder, partial(_file_names, place))

    def existing(self, folder: str, names: Iterable[str]) -> builtins.list[str]:
        """Those of the names that are objects in a folder. A directory answers at once, a bucket name by name."""
        place = self.local_path(folder)
        if place is None:
            wanted = list(names)
            found = self.map(lambda name: self.exists(f"{folder}/{name}"), wanted)
            return [name for name, there in zip(wanted, found, strict=True) if there]
        return self._send("exists", folder, lambda: [name for name in names if os.access(f"{place}/{name}", os.F_OK)])

    def _list(self, prefix: str, start_after: str | None) -> Iterator[Info]:
        if prefix.strip("/"):
            check_key(prefix.removesuffix("/"))
        path = f"{self.prefix}/{prefix}" if self.prefix else prefix
        folder = path.rpartition("/")[0]
        after = None if start_after is None else self._path(start_after)
        skip = len(self.prefix) + 1 if self.prefix else 0
        pages: Iterator[builtins.list[Info]] | None = None

        def next_page() -> builtins.list[Info]:
            nonlocal pages
            if pages is None:
                pages = iter(self.backend.pages(folder, after))
            return next(pages, [])

        while page := self._send("list", prefix, next_page):
            for info in page:
                if info.key.startswith(path):
                    yield Info(info.key[skip:], info.size, info.etag, info.modified)
            if len(page) < PAGE:
                return

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove all of them, in as few requests as the store allows. Missing ones are not an error."""
        wanted = list(keys)
        batches = [wanted[first : first + PAGE] for first in range(0, len(wanted), PAGE)]

        def remove(batch: list[str]) -> None:
            paths = [self._path(key) for key in batch]
            self._send("delete_many", batch[0], partial(self.backend.delete_many, paths))

        self.map(remove, batches)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> builtins.list[R]:
        """Run the requests of one operation side by side; results in the order of the items.

        All of them settle before the first error, in item order, is raised: nothing runs on behind the
        caller's back.
        """
        return system().run_all(function, items, self.concurrency, "objects")

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        """Remove what writers that crashed left half-written beside the objects (directories only); how
        many."""
        return self.backend.sweep(older_than_s)

    # --- places ---------------------------------------------------------------------------------------------

    def under(self, folder: str) -> Self:
        """The same store, one folder down: `objects.under("a").get("b")` is `objects.get("a/b")`. Counted
        together."""
        check_key(folder)
        inner = copy.copy(self)
        inner.prefix = f"{self.prefix}/{folder}" if self.prefix else folder
        inner._folder = f"{self._folder}{folder}/"
        if self._address is not None:
            parts = urlsplit(self._address)
            inner._address = parts._replace(path=f"{parts.path.rstrip('/')}/{folder}").geturl()
        return inner

    @property
    def uri(self) -> str:
        return f"{self.backend.root}/{self.prefix}" if self.prefix else self.backend.root

    @property
    def address(self) -> str:
        """What opens this store again, in another process, too: the URI, with the server and the region that it was
        opened with."""
        return self._address or self.uri

    @property
    def identity(self) -> str:
        """Tells stores apart, whatever the prefix."""
        return self.backend.identity

    def url(self, key: str) -> str:
        """The full address of an object, for messages and for engines that read by URL."""
        return f"{self.backend.root}/{self._path(key)}"

    @contextmanager
    def counting(self) -> Iterator[RequestCount]:
        """Count the requests made through this object, and through all made from it by `under`, while in the
        block."""
        count = RequestCount()
        self._counts.append(count)
        try:
            yield count
        finally:
            self._counts.remove(count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process counts for itself."""
        return {**self.__dict__, "_counts": []}

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    # --- the one way to the store ---------------------------------------------------------------------------

    def _send(self, operation: str, key: str, call: Callable[[], T]) -> T:
        request = Request(operation, self._folder + key)
        for count in tuple(self._counts):
            count.add(request)
        for intercept in interceptors:
            call = partial(intercept, request, call)  # type: ignore[assignment]
        return self._with_name(operation, key, call)

    def _with_name(self, operation: str, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (ObjectNotFound, ConditionFailed, StorageBackendError):
            raise
        except Exception as cause:
            place = {"bucket": urlsplit(self.backend.root).netloc, "prefix": self.prefix, "key": key}
            url = f"{self.uri}/{key}".rstrip("/")
            problem = storage_error(operation, url, cause, place)
            origin = cause if without_passwords(str(cause)) == str(cause) else None
        raise problem from origin  # out here, what quotes a password is no context of it either

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self.prefix}/{key}" if self.prefix else key


def _file_names(place: Path) -> list[str]:
    try:
        return [name for name in os.listdir(place) if not name.startswith(ASIDE)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def check_key(key: str) -> None:
    """Keys mean the same object on every store: no empty, `.` or `..` parts, nothing that a shell would not
    print."""
    if not all(part not in ("", ".", "..") for part in key.split("/")) or "\\" in key or not key.isprintable():
        raise ValueError(f"not a key: {key!r} (parts between slashes, none empty, none '.' or '..', printable)")
