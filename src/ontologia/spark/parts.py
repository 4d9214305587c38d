"""The files that a task writes for a commit. They are local until they are complete, and of bounded size.

So memory does not grow with a task's share, whatever the width of its rows.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ontologia.engines.base import TypeLayout
from ontologia.engines.parquet.commit import ROW_GROUP_ROWS, RowFile
from ontologia.engines.parquet.records import Part
from ontologia.objects import open_objects
from ontologia.spark.sorting import ROW_GROUP_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

PART_BYTES = 256 << 20
PART = {"path": "string", "size": "bigint", "rows": "bigint"}
"""How a task tells the driver of a part."""


class RowGroups:
    """Gathers rows to whole row groups: a chunk in which little changed would make a small one."""

    def __init__(self, write: Callable[[pa.Table], None]) -> None:
        self._write = write
        self._held: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0

    def add(self, rows: pa.Table) -> None:
        import pyarrow as pa

        if rows.num_rows:
            self._hold(rows)
        if self._rows >= ROW_GROUP_ROWS:
            held = pa.concat_tables(self._held)
            whole = held.num_rows - held.num_rows % ROW_GROUP_ROWS
            self._held, self._rows, self._bytes = [], 0, 0
            self._write(held.slice(0, whole))
            if whole < held.num_rows:
                self._hold(held.slice(whole))
        if self._bytes >= ROW_GROUP_BYTES:
            self.finish()

    def _hold(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes

    def finish(self) -> None:
        import pyarrow as pa

        if self._held:
            self._write(pa.concat_tables(self._held))
            self._held, self._rows, self._bytes = [], 0, 0


def put_part(uri: str, folder: str, file: Path, rows: int) -> Part:
    """Put a local file into a folder of the store, under a name of its own."""
    path = f"{folder}part-{uuid.uuid4().hex}.parquet"
    open_objects(uri).put_file(path, file)
    return Part(path, file.stat().st_size, rows)


class Parts:
    """Rows of one type, in the order of their identity, as parts in a folder of the store."""

    def __init__(self, uri: str, folder: str, layout: TypeLayout, commit_id: int, *, document: bool) -> None:
        self.uri = uri
        self.folder = folder
        self.layout = layout
        self.commit_id = commit_id
        self.document = document
        self._local = tempfile.TemporaryDirectory(prefix="ontologia-part-")
        self._file: RowFile | None = None
        self._groups = RowGroups(self._write)
        self._done: list[Part] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._local.cleanup()

    @property
    def _path(self) -> Path:
        return Path(self._local.name, "part.parquet")

    def add(self, rows: pa.Table) -> None:
        self._groups.add(rows)

    def _write(self, rows: pa.Table) -> None:
        if self._file is None:
            self._file = RowFile(self.layout, self.commit_id, document=self.document, sink=self._path)
        self._file.add(rows)
        if self._path.stat().st_size >= PART_BYTES:
            self._put()

    def _put(self) -> None:
        if self._file is not None:
            self._file.close()
            self._done.append(put_part(self.uri, self.folder, self._path, self._file.count))
            self._file = None

    def finish(self) -> list[Part]:
        """Put what is left, and say which parts there are."""
        self._groups.finish()
        self._put()
        return self._done


def told(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Parts as rows of a message."""
    return [{"path": part.path, "size": part.size, "rows": part.row_count} for part in parts]


def parts_of(messages: Iterable[Any]) -> list[Part]:
    """The parts that messages tell of."""
    return [Part(row.path, row["size"], row.rows) for row in messages if row.path is not None]
