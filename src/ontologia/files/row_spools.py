"""Rows in the making: in memory while they are few, then in a local file that is mapped into it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from ontologia.files.scratch import Scratch

HELD_BYTES = 64 << 20


class RowSpool:
    """Takes tables of one schema, gives one table of all their rows. The file is gone when the table is."""

    def __init__(self, schema: pa.Schema, held_bytes: int = HELD_BYTES) -> None:
        self.schema = schema
        self._held_bytes = held_bytes
        self._held: list[pa.Table] = []
        self._size = 0
        self._folder: Scratch | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._held.append(rows)
        self._size += rows.nbytes
        if self._size > self._held_bytes:
            self._write()

    def extend(self, tables: Iterable[pa.Table]) -> RowSpool:
        for rows in tables:
            self.add(rows)
        return self

    def _write(self) -> None:
        if self._folder is None:
            self._folder = Scratch("rows")
            self._writer = pa.ipc.new_file(str(self._path), self.schema)
        assert self._writer is not None
        for rows in self._held:
            self._writer.write_table(rows.cast(self.schema))
        self._held, self._size = [], 0

    @property
    def _path(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, "rows.arrow")

    def table(self) -> pa.Table:
        """All rows. Nothing can be added afterwards."""
        if self._folder is None:
            return pa.concat_tables(self._held) if self._held else self.schema.empty_table()
        self._write()
        assert self._writer is not None
        self._writer.close()
        mapped = pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()
        self._folder.cleanup()  # the mapping keeps the bytes for as long as the table lives
        return mapped
