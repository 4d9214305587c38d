"""Rows that others write for a commit: where, in which form, and how many went where.

A `Staging` is small and can be sent to executors. Its writer gathers rows in local files of bounded size and puts them
into the store; the commit adopts what the tasks report.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.catalog import TypeLayout
from ontologia.engines.row_files import RowFile
from ontologia.engines.transaction import Transaction
from ontologia.files.data_files import DataFile, KeySpan
from ontologia.files.hashes import hash_of_file
from ontologia.files.scratch import Scratch
from ontologia.files.writing import ROW_GROUP_ROWS, RowGroups
from ontologia.objects import Location, Objects, new_uuid

PART_BYTES = 256 << 20
BESIDE = ".staging"
"""Behind the name of an embedded file: the folder in which rows wait for it."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Where rows of one type go for one commit. `document` asks for the whole row as JSON beside its columns."""

    location: Location
    folder: str
    layout: TypeLayout
    commit_id: int
    document: bool = False

    def writer(self) -> PartWriter:
        """A writer of rows, in the order of their identity. Use it as a context manager."""
        return PartWriter(self)


def remove_if_empty(area: Location) -> None:
    """Remove the folder beside an embedded file, as far as it holds nothing: rows that were set aside stay, and so does
    what others put there meanwhile."""
    place = urlsplit(area.uri)
    if place.scheme == "file" and place.path.endswith(BESIDE):
        for folder, _, _ in os.walk(unquote(place.path), topdown=False):
            with suppress(OSError):
                os.rmdir(folder)


def put_part(
    objects: Objects,
    folder: str,
    file: Path,
    rows: int,
    keys: KeySpan | None,
    rows_in_force: int | None = None,
    removals: int = 0,
) -> DataFile:
    """Put a local file into a folder of a store, under a name of its own."""
    path = f"{folder}part-{new_uuid().hex}.parquet"
    objects.put_file(path, file)
    return DataFile(path, file.stat().st_size, rows, hash_of_file(file), keys, rows_in_force, removals)


def append_parts(transaction: Transaction, layout: TypeLayout, parts: Sequence[DataFile], objects: Objects) -> None:
    """Adopt parts by appending their rows, where a commit takes no files of others."""
    names = [*layout.ref.identity, *(column.physical for column in layout.schema.columns)]
    for part in parts:
        local = objects.local_path(part.path)
        source = io.BytesIO(objects.get(part.path).data) if local is None else local
        with pq.ParquetFile(source) as file:
            for batch in file.iter_batches(columns=names, batch_size=ROW_GROUP_ROWS):
                transaction.append(layout, pa.Table.from_batches([batch]))


class PartWriter:
    """Rows of one type as parts. They are local until they are complete, so that memory does not grow with them."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self._objects = staging.location.open_objects()
        self._local = Scratch("part")
        self._file: RowFile | None = None
        self._groups = RowGroups(self._write)
        self._done: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._local.cleanup()

    @property
    def _path(self) -> Path:
        return Path(self._local.name, "part.parquet")

    def add(self, rows: pa.Table) -> None:
        self._groups.add(rows)

    def remove(self, tables: Sequence[pa.Table]) -> None:
        """Add rows that are removals, as a part of their own."""
        self._groups.finish()
        self._put()
        for rows in tables:
            if rows.num_rows:
                self._row_file(removals=True).add(rows, removed=True)
        self._put()

    def _row_file(self, *, removals: bool = False) -> RowFile:
        if self._file is None:
            staging = self.staging
            self._file = RowFile(
                staging.layout, staging.commit_id, document=staging.document, sink=self._path, removals=removals
            )
        return self._file

    def _write(self, rows: pa.Table) -> None:
        self._row_file().add(rows)
        if self._path.stat().st_size >= PART_BYTES:
            self._put()

    def _put(self) -> None:
        if self._file is not None:
            self._file.close()
            file = self._file
            folder = self.staging.folder
            part = put_part(self._objects, folder, self._path, file.count, file.keys, removals=file.removals)
            self._done.append(part)
            self._file = None

    def finish(self) -> list[DataFile]:
        """Put what is left, and say which parts there are."""
        self._groups.finish()
        self._put()
        return self._done
