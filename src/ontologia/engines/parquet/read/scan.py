"""The files of a type in a window, and what is known of the rows in them (RFC 0004 §2.3, §4.1).

This is the one statement of which row of an identity is in force. It is plain data: `file_rows` renders it for DuckDB,
`lookup` and `rows_in_force` for Arrow, and a reader elsewhere may render it for something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ontologia.engines.base import SUPERSEDED_BY
from ontologia.engines.parquet.log.records import Head, IndexEntry
from ontologia.files.data_files import DataFile
from ontologia.files.key_ranges import KeyRange
from ontologia.files.reading import FileReader, rows_between
from ontologia.query.plan import Window

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Scan:
    """The files of one type in one window.

    `snapshot` is compacted: every row knows the commit that superseded it. `tail` are the commits after it, whose
    rows must be deduplicated. `upper` bounds the commits that count, where files may hold later ones.
    """

    snapshot: IndexEntry | None
    tail: tuple[IndexEntry, ...]
    upper: int | None

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        return self.tail if self.snapshot is None else (self.snapshot, *self.tail)

    @property
    def files(self) -> list[DataFile]:
        return [file for entry in self.entries for file in entry.files]

    @property
    def base(self) -> list[DataFile]:
        """The files of the snapshot."""
        return [] if self.snapshot is None else list(self.snapshot.files)

    @property
    def tail_files(self) -> list[DataFile]:
        return [file for entry in self.tail for file in entry.files]

    @property
    def inside_snapshot(self) -> bool:
        """Whether the window ends within the snapshot, so that later rows of it are not superseding yet."""
        return self.snapshot is not None and self.upper is not None and self.upper < self.snapshot.max_commit_id


def scan(entries: Sequence[IndexEntry], window: Window, head: Head) -> Scan:
    """Prune the files of a type to a window."""
    bound = head.commit_id
    if window.mode == "as_of" and window.commit is not None:
        bound = min(window.commit, bound)
    kept = [entry for entry in entries if entry.min_commit_id <= bound]
    if window.mode == "since" and window.commit is not None:
        kept = [entry for entry in kept if entry.max_commit_id > window.commit]
    beyond = any(entry.max_commit_id > bound for entry in kept)
    snapshot = next((entry for entry in kept if entry.is_snapshot), None) if window.deduplicated else None
    if snapshot is not None and kept[0] is not snapshot:
        snapshot = None  # something lies before it, so that it is no base to build on
    tail = tuple(entry for entry in kept if entry is not snapshot)
    return Scan(snapshot, tail, bound if beyond else None)


def rows_in_force(
    reader: FileReader, scan: Scan, names: Sequence[str], keys: KeyRange, key: str
) -> Iterator[pa.Table] | None:
    """The rows in force in a range, as files have them; None unless one commit or one snapshot has them all."""
    if len(scan.entries) != 1 or scan.upper is not None:
        return None
    settled = None if scan.snapshot is None else SUPERSEDED_BY
    return (rows for file in scan.files for rows in rows_between(reader, file, names, keys, key, where_null=settled))
