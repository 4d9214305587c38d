"""A data file, as whoever wrote it recorded it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

LONGEST_KEY = 256
"""Longer keys are not worth writing down beside every file."""


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The first and the last key of some rows, of the first identity column; what is between may be there or not."""

    low: str
    high: str

    @classmethod
    def of(cls, spans: Iterable[KeySpan | None]) -> Self | None:
        """What several files span together; None where that of one is not known."""
        found = list(spans)
        known = [span for span in found if span is not None]
        if not found or len(known) < len(found):
            return None
        return cls(min(span.low for span in known), max(span.high for span in known))

    def join(self, other: KeySpan | None) -> KeySpan:
        """Both spans as one."""
        return self if other is None else KeySpan(min(self.low, other.low), max(self.high, other.high))

    def overlaps(self, other: KeySpan) -> bool:
        return self.low <= other.high and other.low <= self.high

    @property
    def is_short(self) -> bool:
        return max(len(self.low), len(self.high)) <= LONGEST_KEY


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file in a store: its path, and what somebody wrote down of it: its size, its rows, its hash, between
    which keys the rows lie, how many of them, in a snapshot, nothing superseded, and how many say that something was
    removed."""

    path: str
    size: int | None = None
    row_count: int | None = None
    content_sha256: str | None = None
    keys: KeySpan | None = field(default=None, compare=False)
    rows_in_force: int | None = field(default=None, compare=False)
    removals: int = field(default=0, compare=False)


class SpansApart:
    """Spans that do not overlap, in the order of their keys."""

    def __init__(self) -> None:
        self._lows: list[str] = []
        self._highs: list[str] = []

    def add(self, span: KeySpan) -> bool:
        """Take a span in, unless it overlaps one that is here."""
        place = bisect_left(self._lows, span.low)
        if place < len(self._lows) and self._lows[place] <= span.high:
            return False
        if place and self._highs[place - 1] >= span.low:
            return False
        self._lows.insert(place, span.low)
        self._highs.insert(place, span.high)
        return True
