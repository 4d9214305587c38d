"""The rows of many small files, packed into one file of this machine's cache, which the next process opens instead.

Opening and decoding a file of one row takes half a millisecond and more, whatever is in it. So whoever has read many of
them leaves their rows together, with a hash of their hashes: files never change, and only who looks for the very same
ones, and perhaps more after them, takes the rows from there. What is damaged, or of files that are not looked for any
more, is removed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.parquet.read.shapes import row_shape, to_shape
from ontologia.errors import StorageBackendError
from ontologia.files.arrays import empty_table
from ontologia.files.data_files import DataFile
from ontologia.files.reading import FileReader
from ontologia.files.writing import parquet_writer, write_rows
from ontologia.model import TypeSchema

PACKED_AFTER = 32
"""So many files that were opened one by one are packed, with those that were packed before."""
COUNT, DIGEST, ROWS = b"ontologia:files", b"ontologia:sha256", b"ontologia:rows"

_log = logging.getLogger(__name__)


class Packed(NamedTuple):
    """The rows of the first of some files, and how many these are."""

    files: int
    rows: pa.Table


class SmallFiles:
    """Reads the small files of one store."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader

    def rows(self, schema: TypeSchema, files: Sequence[DataFile], *, are_all: bool) -> pa.Table:
        """All rows of some files; with `superseded_by` where there are removals. Packed are those of all small files of
        a type, not those that came after some."""
        removals = any(file.removals for file in files)
        name = f"{schema.ref} {schema.fingerprint}{' with removals' if removals else ''}"
        shape = row_shape(schema, removals=removals)
        packed = (self._unpack(name, shape, files) if are_all else None) or Packed(0, empty_table(shape))
        others = files[packed.files :]
        rows = pa.concat_tables([packed.rows, *self._read_files(schema, others, removals=removals)]).combine_chunks()
        if are_all and len(others) >= PACKED_AFTER:
            self._pack(name, rows, files)
        return rows

    def _read_files(self, schema: TypeSchema, files: Sequence[DataFile], *, removals: bool) -> list[pa.Table]:
        """Read side by side, one by one."""
        wanted = row_shape(schema, removals=removals).names

        def read(file: DataFile) -> pa.Table:
            with self._reader.open(file) as source, pq.ParquetFile(source) as parquet:
                there = set(parquet.metadata.schema.names)
                return parquet.read([name for name in wanted if name in there], use_threads=False)

        alike: dict[pa.Schema, list[pa.Table]] = {}
        for rows in self._reader.objects.map(read, files):
            alike.setdefault(rows.schema, []).append(rows)
        # Shaped together: of a file of a few rows, that takes as long as reading it.
        return [to_shape(schema, pa.concat_tables(tables), removals=removals) for tables in alike.values()]

    def _unpack(self, name: str, shape: pa.Schema, files: Sequence[DataFile]) -> Packed | None:
        """What was packed of the first of these files."""
        if len(files) < PACKED_AFTER:
            return None
        for path in self._reader.cache.combined(self._reader.objects, name):
            try:
                packed = _read(path, shape, files)
            except (pa.ArrowException, OSError, ValueError) as problem:
                _log.debug("%s is not used: %s", path, problem)
                with suppress(OSError):  # another user's
                    path.unlink(missing_ok=True)
            else:
                if packed is not None:
                    return packed
        return None

    def _pack(self, name: str, rows: pa.Table, files: Sequence[DataFile]) -> None:
        """Leave rows for the next process. Without room or permission for it, that one opens the files again."""
        digest = _digest(files)
        if digest is None:
            return
        marked = rows.replace_schema_metadata({COUNT: str(len(files)), DIGEST: digest, ROWS: str(rows.num_rows)})
        sink = pa.BufferOutputStream()
        with parquet_writer(sink, marked.schema, dictionary=False) as writer:
            write_rows(writer, marked)
        try:
            self._reader.cache.combine(self._reader.objects, name, sink.getvalue().to_pybytes())
        except (OSError, StorageBackendError) as problem:
            _log.debug("%d small files were not packed: %s", len(files), problem)


def _read(path: Path, shape: pa.Schema, files: Sequence[DataFile]) -> Packed | None:
    """What a file has of the first of these files; None where it is of more than these. Raises `ValueError` where it is
    of others."""
    with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
        marks = parquet.schema_arrow.metadata or {}
        count = int(marks.get(COUNT, b"0"))
        if count > len(files):
            return None
        if count == 0 or marks.get(DIGEST) != _digest(files[:count]) or not parquet.schema_arrow.equals(shape):
            raise ValueError("it is of other files")
        rows = parquet.read(use_threads=False).replace_schema_metadata()
        if rows.num_rows != int(marks.get(ROWS, b"-1")):
            raise ValueError("it is damaged")
        return Packed(count, rows)


def _digest(files: Sequence[DataFile]) -> bytes | None:
    """A hash that only the same files have in the same order; None where one has no hash."""
    hashes = [file.content_sha256 for file in files]
    known = [found for found in hashes if found is not None]
    return hashlib.sha256("".join(known).encode()).hexdigest().encode() if len(known) == len(hashes) else None
