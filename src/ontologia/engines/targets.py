"""Paths and URIs, and the store that each means (RFC 0009 §1)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ontologia.errors import ValidationError

DEFAULT_PATH = "onto.db"
OBJECT_SCHEMES = ("s3", "gs", "file", "memory")


@dataclass(frozen=True, slots=True)
class StorageTarget:
    """A parsed target: the backend (`sqlite` or `s3`, which is any object store), and where it is."""

    backend: str
    location: str

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.location}" if self.backend == "sqlite" else self.location

    def __str__(self) -> str:
        return self.location


def parse_storage_target(
    db_path: str | os.PathLike[str] | None = None, *, storage_uri: str | None = None
) -> StorageTarget:
    """Resolve the two ways to name a target; giving both is fine when they mean the same file.

    >>> parse_storage_target("onto.db")
    StorageTarget(backend='sqlite', location='onto.db')
    """
    if db_path is not None and not os.fspath(db_path):
        raise ValidationError("db_path is empty: give the path of a file, or leave it out for onto.db")
    path = None if db_path is None else os.fspath(db_path)
    if path is not None and "://" in path and storage_uri is None:
        path, storage_uri = None, path  # a URI is a URI wherever it is given
    by_path = None if path is None else _sqlite(path)
    by_uri = None if storage_uri is None else _parse_uri(storage_uri)
    if by_path is not None and by_uri is not None:
        same = by_uri.backend == "sqlite" and resolve_path(by_uri.location) == resolve_path(by_path.location)
        if not same:
            raise ValidationError(f"db_path {by_path.location!r} and storage_uri {storage_uri!r} are different targets")
    return by_uri or by_path or StorageTarget("sqlite", DEFAULT_PATH)


def _parse_uri(uri: str) -> StorageTarget:
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    if scheme == "sqlite":
        rest = uri.removeprefix("sqlite:")
        if not rest.startswith("///") or len(rest) == 3:
            raise ValidationError(f"{uri!r}: write sqlite:///relative/path.db or sqlite:////absolute/path.db")
        return _sqlite(unquote(rest[3:]))
    if scheme in OBJECT_SCHEMES and "://" in uri:
        from ontologia.objects import check_uri

        check_uri(uri)
        return StorageTarget("s3", uri.rstrip("/"))
    raise ValidationError(
        f"{uri!r} is not a storage URI: write sqlite:///path.db, s3://bucket/prefix, gs://bucket/prefix or file:///folder"
    )


def _sqlite(path: str) -> StorageTarget:
    if "\0" in path:
        raise ValidationError(f"{path!r} has a zero byte, which no path has")
    return StorageTarget("sqlite", path)


def resolve_path(path: str) -> str:
    return path if path == ":memory:" else str(Path(path).resolve())
