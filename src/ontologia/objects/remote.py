"""A bucket behind HTTP, through obstore (the Python face of the `object_store` crate).

Two clients per bucket: one that repeats reads and plain puts after passing failures, within the request
timeout, and one that sends everything once, for conditional puts. Both are made on first use, per process:
the library's threads do not survive a fork, and a store that is pickled to an executor finds its own
credentials there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError

from ontologia.objects.backend import PAGE, Blob, Info
from ontologia.objects.failures import ConditionFailed, ObjectNotFound, kind_of

if TYPE_CHECKING:
    from datetime import timedelta

    from obstore import PutMode
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

PART_BYTES = 8 << 20  #: larger plain puts go up in parts of this size, so that each request stays short


class Connector(Protocol):
    """How to reach a bucket: settings that can be pickled, and one call that makes a client of them."""

    def __call__(self, *, retries: bool) -> ObjectStore: ...


@dataclass
class RemoteBackend:
    """One bucket. `version_field` is what the store's conditions go by: the etag, or on GCS the
    generation."""

    root: str
    identity: str
    connect: Connector
    version_field: Literal["e_tag", "version"] = "e_tag"
    bulk_delete: bool = True

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: tuple[int, ObjectStore, ObjectStore] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "_clients")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def get(self, path: str) -> Blob:
        try:
            answer = obstore.get(self._repeating, path)
            return Blob(bytes(answer.bytes()), self._version(answer.meta))
        except FileNotFoundError as error:
            raise self._missing(path, error) from None

    def get_if_changed(self, path: str, etag: str) -> Blob | None:
        if self.version_field != "e_tag":  # the condition goes by etags, and these versions are none
            found = self.get(path)
            return None if found.etag == etag else found
        try:
            answer = obstore.get(self._repeating, path, options={"if_none_match": etag})
            found = Blob(bytes(answer.bytes()), self._version(answer.meta))
        except NotModifiedError:
            return None
        except FileNotFoundError as error:
            raise self._missing(path, error) from None
        return None if found.etag == etag else found  # some servers ignore the condition

    def get_range(self, path: str, start: int, length: int) -> bytes:
        try:
            return bytes(obstore.get_range(self._repeating, path, start=start, length=length))
        except FileNotFoundError as error:
            raise self._missing(path, error) from None
        except Exception as error:
            if "416 Range Not Satisfiable" in str(error):
                return b""
            raise

    def put(self, path: str, data: bytes) -> str:
        result = obstore.put(
            self._repeating,
            path,
            data,
            use_multipart=len(data) > PART_BYTES,
            chunk_size=PART_BYTES,
            max_concurrency=4,
        )
        return self._version(result)

    def put_ahead(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def sync(self, paths: Sequence[str]) -> None:
        """A put that was answered is durable."""

    def put_if_absent(self, path: str, data: bytes, after: Sequence[str] = ()) -> str:
        return self._put_once(path, data, "create", None)

    def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        mode: PutMode = {"e_tag": etag} if self.version_field == "e_tag" else {"version": etag}
        return self._put_once(path, data, mode, etag)

    def head(self, path: str) -> Info | None:
        try:
            return self._info(obstore.head(self._repeating, path))
        except FileNotFoundError:
            return None

    def pages(self, folder: str, start_after: str | None) -> Iterator[list[Info]]:
        for page in obstore.list(self._repeating, folder or None, offset=start_after, chunk_size=PAGE):
            yield [self._info(meta) for meta in page]

    def delete(self, path: str) -> None:
        self._delete(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        if self.bulk_delete:
            self._delete(list(paths))
        else:
            for path in paths:
                self._delete(path)

    def local_path(self, path: str) -> Path | None:
        return None

    def sweep(self, older_than_s: float) -> int:
        return 0  # unfinished multipart uploads are for a lifecycle rule of the bucket

    # --- how requests are sent ------------------------------------------------------------------------------

    @property
    def _repeating(self) -> ObjectStore:
        return self._connect()[1]

    @property
    def _once(self) -> ObjectStore:
        return self._connect()[2]

    def _connect(self) -> tuple[int, ObjectStore, ObjectStore]:
        clients = self._clients
        if clients is None or clients[0] != os.getpid():
            with self._lock:
                clients = self._clients
                if clients is None or clients[0] != os.getpid():
                    clients = (os.getpid(), self.connect(retries=True), self.connect(retries=False))
                    self._clients = clients
        return clients

    def _put_once(self, path: str, data: bytes, mode: PutMode, expected: str | None) -> str:
        try:
            return self._version(obstore.put(self._once, path, data, mode=mode, use_multipart=False))
        except (AlreadyExistsError, PreconditionError) as error:
            if kind_of(error) == "no_such_bucket":
                raise
            # 409 ConditionalRequestConflict comes as AlreadyExists too, also for a replace: another
            # conditional write to this key was under way and this one was not applied.
            raise ConditionFailed(f"{self.root}/{path}", expected) from None

    def _delete(self, paths: str | list[str]) -> None:
        try:
            obstore.delete(self._repeating, paths)
        except FileNotFoundError as error:
            if kind_of(error) == "no_such_bucket":
                raise

    def _missing(self, path: str, error: FileNotFoundError) -> Exception:
        """A missing bucket also answers 404, and is another trouble than a missing object."""
        return error if kind_of(error) == "no_such_bucket" else ObjectNotFound(f"{self.root}/{path}")

    def _version(self, meta: Any) -> str:
        version = meta[self.version_field]
        if not version:
            raise OSError(f"the store gave no {self.version_field} for an object, so conditions cannot work on it")
        return str(version)

    def _info(self, meta: Any) -> Info:
        return Info(meta["path"], meta["size"], meta[self.version_field], meta["last_modified"])


def client_options(request_timeout_s: float, *, retries: bool, allow_http: bool = False) -> ClientConfig:
    """Silence ends a request after the timeout. Only requests sent once have it as their total time: a large
    object may take longer to read than a small answer may take to come."""
    from datetime import timedelta

    silence = timedelta(seconds=request_timeout_s)
    total = timedelta(seconds=max(300.0, 30 * request_timeout_s)) if retries else silence
    return {
        "allow_http": allow_http,
        "connect_timeout": min(silence, timedelta(seconds=5)),
        "read_timeout": silence,
        "timeout": total,
    }


def retry_config(request_timeout_s: float, *, retries: bool) -> RetryConfig:
    from datetime import timedelta

    def milliseconds(number: int) -> timedelta:
        return timedelta(milliseconds=number)

    return {
        "max_retries": 10 if retries else 0,
        "retry_timeout": timedelta(seconds=request_timeout_s),
        "backoff": {"init_backoff": milliseconds(50), "max_backoff": milliseconds(1000), "base": 2},
    }
