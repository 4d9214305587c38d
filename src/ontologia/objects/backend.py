"""What a kind of store has to do: ten requests on whole paths, without prefixes, counting or hints.

A new kind of store is one file with one class of this shape, one line in `opening.py` and one in the
conformance suite. Conditions must be atomic across processes; readers must never see half an object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

ASIDE = ".aside-"  #: how files of a directory that are not in place yet are named; never listed
PAGE = 1000  #: objects in one page of a listing and in one bulk delete, as S3 has it


@dataclass(frozen=True)
class Blob:
    """The bytes of an object and the version they were read at."""

    data: bytes
    etag: str


@dataclass(frozen=True)
class Info:
    """What is known of an object without reading it.

    `etag` may be None in a listing: a directory has none to give without reading each file. `head` always has
    it.
    """

    key: str
    size: int
    etag: str | None
    modified: datetime


class Backend(Protocol):
    """One store, addressed by whole paths. Raises `ObjectNotFound`, `ConditionFailed` or what the library
    raises."""

    @property
    def root(self) -> str:
        """The URL of the store, without a trailing slash."""

    @property
    def identity(self) -> str:
        """Tells two stores apart: the URL, and the endpoint where there is one."""

    def get(self, path: str) -> Blob: ...

    def get_if_changed(self, path: str, etag: str) -> Blob | None:
        """As `get`, and None where the object still is at this version."""

    def get_range(self, path: str, start: int, length: int) -> bytes: ...

    def put(self, path: str, data: bytes) -> str: ...

    def put_ahead(self, path: str, data: bytes) -> None:
        """Write under a name that nobody knows yet. Need not survive a power failure before a `put_if_absent` that
        comes `after` it has returned, or a `sync` of it."""

    def put_if_absent(self, path: str, data: bytes, after: Sequence[str] = ()) -> str:
        """Create. The paths in `after`, which were put ahead, are durable before this one can be."""

    def sync(self, paths: Sequence[str]) -> None:
        """Make durable what was put ahead."""

    def put_if_match(self, path: str, data: bytes, etag: str) -> str: ...

    def head(self, path: str) -> Info | None: ...

    def pages(self, folder: str, start_after: str | None) -> Iterator[list[Info]]:
        """All objects under `folder/`, in pages of `PAGE`; only the last page may be shorter. `start_after`
        is the path of an object directly in the folder, and may leave out or keep objects in deeper
        folders."""

    def delete(self, path: str) -> None: ...

    def delete_many(self, paths: Sequence[str]) -> None:
        """At most `PAGE` paths; missing ones are not an error."""

    def local_path(self, path: str) -> Path | None:
        """The file that is this object, if the store is a directory of this machine."""

    def sweep(self, older_than_s: float) -> int:
        """Remove what crashed writers left beside the objects; how many."""


def content_etag(data: bytes) -> str:
    """An etag from the content, as most S3 servers have it: equal bodies have equal etags, on every store.

    Our own stores could do better, but then a body without a nonce would work in tests and fail on S3.
    """
    return f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'
