"""How the files of a type are read in this process: large ones where they lie, small ones as one table in memory.

A store is a few large loads and many small commits. A load's file has each identity once, so that its rows are right as
they are, but for those that a later commit superseded; of a load of millions these are few, and known by their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ontologia.engines.parquet.log.records import IndexEntry

LARGE_ROWS, LARGE_BYTES = 50_000, 4 << 20
MOST_ROWS, MOST_BYTES = 200_000, 32 << 20
"""What small commits may have together to be kept in memory."""
END_BYTES = 4 << 10
"""Of a file of few rows about so much says what is in it, and is not kept: ten thousand files of one row are small."""
MOST_LARGE_OVERLAPPING = 4


@dataclass(frozen=True, slots=True)
class Layers:
    """The entries of a type, oldest first. `later` has, of each large one, the later large ones that may have some of
    its identities."""

    large: tuple[IndexEntry, ...]
    small: tuple[IndexEntry, ...]
    later: tuple[tuple[IndexEntry, ...], ...]


def layers(entries: Sequence[IndexEntry]) -> Layers | None:
    """Sort entries into large and small ones; None where the small ones are too many for memory, or large ones
    supersede each other again and again."""
    rows, size = 0, 0
    large, small = [], []
    for entry in entries:
        if is_large(entry):
            large.append(entry)
            continue
        small.append(entry)
        rows += entry.row_count or 0
        size += max((entry.size or 0) - END_BYTES, 0)
    if rows > MOST_ROWS or size > MOST_BYTES:
        return None
    later = tuple(
        tuple(other for other in large[number + 1 :] if _may_share(entry, other)) for number, entry in enumerate(large)
    )
    if any(len(others) >= MOST_LARGE_OVERLAPPING for others in later):
        return None
    return Layers(tuple(large), tuple(small), later)


def is_large(entry: IndexEntry) -> bool:
    if entry.row_count is None or entry.size is None:
        return True
    return entry.row_count > LARGE_ROWS or entry.size > LARGE_BYTES


def _may_share(entry: IndexEntry, other: IndexEntry) -> bool:
    """Whether two entries may have an identity in common."""
    return entry.keys is None or other.keys is None or entry.keys.overlaps(other.keys)
