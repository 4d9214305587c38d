"""Where a data file is read: in place when the store is a directory, from the cache, or by range over the network."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.config import OntologiaConfig
from ontologia.errors import StorageBackendError
from ontologia.files.data_files import DataFile
from ontologia.files.duck import Duck
from ontologia.files.footers import Footer
from ontologia.files.hashes import hash_of_object
from ontologia.files.key_ranges import KeyRange
from ontologia.files.quoting import exact_path
from ontologia.objects import FileCache, Location, ObjectNotFound, Objects, damage_error

WHOLE_FILE_BYTES = 64 << 20
"""Files up to this size are fetched whole, once, into the cache; larger ones are read by range."""


class FileReader:
    """Gives the data files of one store to DuckDB and to pyarrow."""

    def __init__(
        self, objects: Objects, duck: Duck, config: OntologiaConfig, *, background_eviction: bool = False
    ) -> None:
        self.objects = objects
        self.duck = duck
        self.config = config
        self.cache = FileCache(_directory(config), config.cache_max_bytes, background=background_eviction)

    def directories(self) -> list[str]:
        """Where all that DuckDB reads for this store lies: the directory it is, or the cache, and the bucket."""
        local = self.objects.local_path("any")
        return [str(local.parent)] if local is not None else [str(self.cache.directory), f"{self.objects.uri}/"]

    @contextmanager
    def places(self, files: Iterable[DataFile]) -> Iterator[Mapping[str, str]]:
        """Where DuckDB reads each file, and no other, by its path; good while in the block."""
        wanted = {file.path: file for file in files}
        sizes = {path: file.size for path, file in wanted.items()}
        by_range = {path for path, size in sizes.items() if self._by_range(path, size)}
        whole = [path for path in sizes if path not in by_range]
        known = {path: size for path in whole if (size := sizes[path]) is not None}
        hashes = {path: digest for path in whole if (digest := wanted[path].content_sha256) is not None}
        with _none_missing(), self.cache.pinned(self.objects, whole, sizes=known, hashes=hashes) as found:
            local = {path: str(place) for path, place in zip(whole, found, strict=True)}
            with self._errors_naming(local):
                places = local | {path: self.objects.url(path) for path in by_range}
                yield {path: exact_path(place) for path, place in places.items()}

    @contextmanager
    def open(self, file: DataFile) -> Iterator[Any]:
        """One file for pyarrow: its local copy, or, where it is large and not here, the object itself by range."""
        url = self.objects.url(file.path)
        try:
            with _none_missing():
                if file.size is None or self.comes_whole(file):
                    yield str(
                        self.cache.path(self.objects, file.path, size=file.size, content_sha256=file.content_sha256)
                    )
                else:
                    yield pa.PythonFile(RangeFile(self.objects, file.path, file.size), mode="r")
        except (pa.ArrowException, OSError) as problem:
            raise StorageBackendError(
                f"{url} cannot be read: {str(problem).partition(chr(10))[0]}",
                context={"operation": "read", "url": url},
            ) from problem

    def comes_whole(self, file: DataFile) -> bool:
        """Whether a file is read from a local copy, fetched if need be; others are read by range."""
        return file.size is None or file.size <= WHOLE_FILE_BYTES or self.cache.contains(self.objects, file.path)

    def check_large(self, files: Iterable[DataFile]) -> None:
        """Compare files that are read by range, or in place without a look at all of them, with their hashes.

        Smaller ones are compared when they are first opened.
        """
        large = [file for file in files if (file.size or 0) > WHOLE_FILE_BYTES and file.content_sha256 is not None]
        with _none_missing():
            for file, found in zip(
                large, self.objects.map(lambda file: hash_of_object(self.objects, file.path), large), strict=True
            ):
                if found != file.content_sha256:
                    raise damage_error(self.objects, file.path)

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
                text = text.replace(exact_path(place), place).replace(place, self.objects.url(path))
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
        secret = s3_secret(self.objects)
        if secret is None:
            return False
        self.duck.allow_s3(f"ontologia {urlsplit(self.objects.uri).netloc}", secret)
        return True


def s3_secret(objects: Objects) -> dict[str, str] | None:
    """How DuckDB reaches a bucket as we do; None where it cannot: it needs keys, and knows no endpoint with a path."""
    connector: Any = getattr(objects.backend, "connect", None)
    found = connector.plain_credentials()
    endpoint = urlsplit(connector.endpoint or "")
    if not found or endpoint.path.strip("/"):
        return None
    secret = {"KEY_ID": found["access_key_id"], "SECRET": found["secret_access_key"]}
    secret["REGION"] = connector.chosen_region
    if "session_token" in found:
        secret["SESSION_TOKEN"] = found["session_token"]
    if endpoint.netloc:
        secret |= {"ENDPOINT": endpoint.netloc, "USE_SSL": str(endpoint.scheme == "https").lower()}
    if connector.path_style:
        secret["URL_STYLE"] = "path"
    secret["SCOPE"] = f"s3://{connector.bucket}"
    return secret


def rows_between(
    reader: FileReader,
    file: DataFile,
    names: Sequence[str],
    keys: KeyRange,
    key: str,
    *,
    where_null: str | None = None,
) -> Iterator[pa.Table]:
    """The rows of a range of keys in one file, from the row groups that may have them.

    With `where_null`, only those that have no value in that column: row groups without such rows are not read.
    """
    columns = {*names} if where_null is None else {*names, where_null}
    with reader.open(file) as source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
        for group in Footer.of(parquet.metadata, *({key} if where_null is None else {key, where_null})).groups:
            within = group.ranges[key]
            none_left = where_null is not None and group.ranges[where_null].null_count == 0
            if none_left or not keys.meets(within.low, within.high):
                continue
            is_cut = not keys.covers(within.low, within.high)
            rows = parquet.read_row_group(group.number, list(columns | {key} if is_cut else columns), use_threads=False)
            if is_cut:
                rows = _within(rows, keys, key)
            if where_null is not None:
                rows = rows.filter(pc.is_null(rows.column(where_null)))
            yield rows.select(names)


def _within(rows: pa.Table, keys: KeyRange, key: str) -> pa.Table:
    """The rows that lie in the range."""
    if keys.first is not None:
        rows = rows.filter(pc.greater_equal(rows.column(key), keys.first))
    return rows if keys.end is None else rows.filter(pc.less(rows.column(key), keys.end))


@lru_cache(maxsize=8)
def reader_at(location: Location, store_id: str | None) -> FileReader:
    """One reader per store in a process that works for others, and lives for many tasks."""
    objects, settings = location.open_objects(), location.settings
    objects.store_id = store_id
    return FileReader(objects, Duck(settings.s3_duckdb_memory_limit), settings)


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
    return cache_folder()


def cache_folder(*inner: str) -> Path:
    """The folder for what can be made again, where a user's programs keep such things."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().joinpath("ontologia", *inner)
