"""The files that a task writes for a commit. They are local until they are complete, and of bounded size.

So memory does not grow with a task's share, whatever the width of its rows.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ontologia.engines.base import TypeLayout
from ontologia.engines.parquet.write.row_files import RowFile
from ontologia.files.data_files import DataFile
from ontologia.files.writing import RowGroups
from ontologia.objects import open_objects

if TYPE_CHECKING:
    import pyarrow as pa

PART_BYTES = 256 << 20
PART = {"path": "string", "size": "bigint", "rows": "bigint"}
"""How a task tells the driver of a part."""


def put_part(uri: str, folder: str, file: Path, rows: int) -> DataFile:
    """Put a local file into a folder of the store, under a name of its own."""
    path = f"{folder}part-{uuid.uuid4().hex}.parquet"
    open_objects(uri).put_file(path, file)
    return DataFile(path, file.stat().st_size, rows)


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

    def finish(self) -> list[DataFile]:
        """Put what is left, and say which parts there are."""
        self._groups.finish()
        self._put()
        return self._done


def told(parts: Iterable[DataFile]) -> list[dict[str, Any]]:
    """Parts as rows of a message."""
    return [{"path": part.path, "size": part.size, "rows": part.row_count} for part in parts]


def parts_of(messages: Iterable[Any]) -> list[DataFile]:
    """The parts that messages tell of."""
    return [DataFile(row.path, row["size"], row.rows) for row in messages if row.path is not None]
