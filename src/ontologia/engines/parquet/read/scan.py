"""The files of a type in a window, and what is known of the rows in them (RFC 0004 §2.3, §4.1).

This is the one statement of which row of an identity is in force. It is plain data: `file_rows` renders it for DuckDB,
`lookup` and `rows_in_force` for Arrow, and a reader elsewhere may render it for something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ontologia.engines.parquet.log.records import Head, IndexEntry
from ontologia.files.data_files import DataFile, SpansApart
from ontologia.files.key_ranges import KeyRange
from ontologia.files.reading import FileReader, rows_between
from ontologia.files.spans import Spans
from ontologia.model import SUPERSEDED_BY
from ontologia.query.plan import Window

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Scan:
    """The files of one type in one window.

    The rows of `apart` need no care: a commit has each identity once, the rows of a snapshot know the commit that
    superseded them, and no two of these entries have an identity in common. `tail` is what came after them, oldest
    first: of each identity its last row counts, and supersedes the row that `apart` has. `upper` bounds the commits
    that count, where files may hold later ones.

    A row that says that something was removed is superseded by its own commit, so that it is never in force; in the
    tail it supersedes what was there all the same.
    """

    apart: tuple[IndexEntry, ...]
    tail: tuple[IndexEntry, ...]
    upper: int | None

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        return (*self.apart, *self.tail)

    @cached_property
    def files(self) -> list[DataFile]:
        return [*self.base, *self.tail_files]

    @property
    def base(self) -> list[DataFile]:
        """The files of `apart`."""
        return [file for entry in self.apart for file in entry.files]

    @property
    def tail_files(self) -> list[DataFile]:
        return [file for entry in self.tail for file in entry.files]

    @property
    def settled_paths(self) -> frozenset[str]:
        """The files whose rows have the column that says what superseded them: snapshots, and those with removals."""
        return frozenset(
            file.path for entry in self.entries for file in entry.files if entry.is_snapshot or file.removals
        )

    @property
    def tail_is_mixed(self) -> bool:
        """Whether the tail may have several rows of one identity: one commit has each once, a snapshot has not."""
        return len(self.tail) > 1 or any(entry.is_snapshot for entry in self.tail)

    @cached_property
    def has_removals(self) -> bool:
        """Whether some of the rows say that something was removed."""
        return any(entry.removals for entry in self.entries)

    @cached_property
    def spans(self) -> Spans:
        """The keys of `files`."""
        return Spans.of(
            (None, None) if file.keys is None else (file.keys.low.encode(), file.keys.high.encode())
            for file in self.files
        )

    @cached_property
    def count(self) -> int | None:
        """How many rows are in force, where entries tell."""
        return None if self.tail or self.upper is not None else in_force(self.apart)

    @cached_property
    def inside_snapshot(self) -> bool:
        """Whether the window ends within a snapshot, so that later rows of it are not superseding yet."""
        upper = self.upper
        return upper is not None and any(entry.is_snapshot and upper < entry.max_commit_id for entry in self.apart)


def in_force(entries: Iterable[IndexEntry]) -> int | None:
    """How many rows of these entries are in force by themselves; None where somebody did not count them."""
    counts = [entry.current_row_count for entry in entries]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def scan(entries: Sequence[IndexEntry], window: Window, head: Head) -> Scan:
    """Prune the files of a type, which come oldest first, to a window."""
    bound = head.commit_id
    if window.mode == "as_of" and window.commit is not None:
        bound = min(window.commit, bound)
    kept = [entry for entry in entries if entry.min_commit_id <= bound]
    if window.mode == "since" and window.commit is not None:
        kept = [entry for entry in kept if entry.max_commit_id > window.commit]
    beyond = any(entry.max_commit_id > bound for entry in kept)
    count = _apart(kept) if window.deduplicated else 0
    return Scan(tuple(kept[:count]), tuple(kept[count:]), bound if beyond else None)


def _apart(entries: Sequence[IndexEntry]) -> int:
    """How many of the first entries have no identity in common, as far as the keys they span tell."""
    seen = SpansApart()
    for number, entry in enumerate(entries):
        if entry.keys is None or not seen.add(entry.keys):
            return max(number, 1)
    return len(entries)


def rows_in_force(
    reader: FileReader, scan: Scan, names: Sequence[str], keys: KeyRange, key: str
) -> Iterator[pa.Table] | None:
    """The rows in force in a range, as files have them; None where something supersedes them, or will have."""
    if scan.tail or scan.upper is not None:
        return None
    return (
        rows
        for entry in scan.apart
        for file in entry.files
        for rows in rows_between(reader, file, names, keys, key, where_null=SUPERSEDED_BY if entry.is_settled else None)
    )
