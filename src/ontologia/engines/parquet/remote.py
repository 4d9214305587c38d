"""Where DuckDB reads a file: in place when the store is a directory, from the cache, or by range over the network."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ontologia.config import OntologiaConfig
from ontologia.engines.parquet.duck import Duck
from ontologia.engines.parquet.records import IndexEntry
from ontologia.errors import StorageBackendError
from ontologia.objects import FileCache, ObjectNotFound, Objects

WHOLE_FILE_BYTES = 64 << 20
"""Files up to this size are fetched whole, once, into the cache; larger ones are read by range."""


class Reading:
    """Gives local paths, or URLs that DuckDB can read, for data files."""

    def __init__(self, objects: Objects, duck: Duck, config: OntologiaConfig) -> None:
        self.objects = objects
        self.duck = duck
        self.config = config
        self.cache = FileCache(_directory(config), config.cache_max_bytes)

    @contextmanager
    def places(self, entries: Sequence[IndexEntry]) -> Iterator[Mapping[str, str]]:
        """Where each file can be read, by its path; good while in the block."""
        files = dict(file for entry in entries for file in entry.files)
        by_range = {path for path, size in files.items() if self._by_range(path, size)}
        whole = [path for path in files if path not in by_range]
        sizes = {path: size for path in whole if (size := files[path]) is not None}
        with _none_missing(), self.cache.pinned(self.objects, whole, sizes=sizes) as found:
            places = {path: str(place) for path, place in zip(whole, found, strict=True)}
            with self._errors_naming(places):
                yield places | {path: self.objects.url(path) for path in by_range}

    @contextmanager
    def opened(self, path: str, size: int | None) -> Iterator[Any]:
        """One file for pyarrow: its local copy, or, where it is large and not here, the object itself by range."""
        import pyarrow as pa

        url = self.objects.url(path)
        try:
            with _none_missing():
                if size is None or size <= WHOLE_FILE_BYTES or self.cache.contains(self.objects, path):
                    yield str(self.cache.path(self.objects, path, size=size))
                else:
                    yield pa.PythonFile(RangeFile(self.objects, path, size), mode="r")
        except (pa.ArrowException, OSError) as problem:
            raise StorageBackendError(
                f"{url} cannot be read: {str(problem).partition(chr(10))[0]}",
                context={"operation": "read", "url": url},
            ) from problem

    @contextmanager
    def _errors_naming(self, places: Mapping[str, str]) -> Iterator[None]:
        """DuckDB speaks of local copies, if of any file at all; an operator needs the object."""
        try:
            yield
        except StorageBackendError as problem:
            if problem.context.get("operation") != "query":
                raise
            text = str(problem)
            for path, place in places.items():
                text = text.replace(place, self.objects.url(path))
            if self.objects.uri not in text:
                text = f"a query of {self.objects.uri} failed: {text}"
            raise StorageBackendError(text, context={**problem.context, "url": self.objects.uri}) from problem

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Put files that were just written into the cache: whoever writes a type will soon read it again."""
        for path, data in files.items():
            if len(data) <= WHOLE_FILE_BYTES:
                self.cache.keep(self.objects, path, data)

    def _by_range(self, path: str, size: int | None) -> bool:
        if size is None or size <= WHOLE_FILE_BYTES or not self.objects.uri.startswith("s3://"):
            return False
        if self.cache.contains(self.objects, path):
            return False
        secret = self._secret()
        if secret is None:
            return False
        self.duck.allow_s3(f"ontologia {urlsplit(self.objects.uri).netloc}", secret)
        return True

    def _secret(self) -> dict[str, str] | None:
        """The settings of the store for DuckDB; None without static credentials, which it would need."""
        key, password = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        if not key or not password:
            return None
        connector = getattr(self.objects.backend, "connect", None)
        secret = {"KEY_ID": key, "SECRET": password, "REGION": getattr(connector, "region", None) or "us-east-1"}
        if token := os.environ.get("AWS_SESSION_TOKEN"):
            secret["SESSION_TOKEN"] = token
        endpoint = getattr(connector, "endpoint", None)
        if endpoint:
            parts = urlsplit(endpoint)
            secret |= {"ENDPOINT": parts.netloc, "USE_SSL": str(parts.scheme == "https").lower()}
        if getattr(connector, "path_style", False):
            secret["URL_STYLE"] = "path"
        secret["SCOPE"] = f"s3://{urlsplit(self.objects.uri).netloc}"
        return secret


class RangeFile(io.RawIOBase):
    """An object as a file that is read in parts."""

    def __init__(self, objects: Objects, path: str, size: int) -> None:
        super().__init__()
        self._objects = objects
        self._path = path
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = start + offset
        return self._place

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._place if size < 0 else min(size, self._size - self._place)
        data = self._objects.get_range(self._path, self._place, length) if length > 0 else b""
        self._place += len(data)
        return data


@contextmanager
def _none_missing() -> Iterator[None]:
    try:
        yield
    except ObjectNotFound as missing:
        raise StorageBackendError(
            f"a data file is part of the history, and it is gone: {missing.url}",
            context={"operation": "read", "url": missing.url},
        ) from missing


def _directory(config: OntologiaConfig) -> Path:
    if config.cache_directory is not None:
        return Path(config.cache_directory)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "ontologia"
