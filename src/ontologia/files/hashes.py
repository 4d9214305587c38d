"""The hash by which a file is known to be the one that was written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ontologia.objects import ObjectNotFound, Objects

CHUNK = 8 << 20


def hash_of_file(path: Path) -> str:
    """The SHA-256 of a local file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def hash_of_object(objects: Objects, key: str) -> str:
    """The SHA-256 of an object, read in parts."""
    digest = hashlib.sha256()
    for chunk in chunks(objects, key):
        digest.update(chunk)
    return digest.hexdigest()


def chunks(objects: Objects, key: str) -> Iterator[bytes]:
    """The bytes of an object, so many at a time. Raises `ObjectNotFound`."""
    info = objects.head(key)
    if info is None:
        raise ObjectNotFound(objects.url(key))
    for start in range(0, info.size, CHUNK):
        yield objects.get_range(key, start, CHUNK)
