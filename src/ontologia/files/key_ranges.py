"""Ranges of keys: how the rows of a type are shared out among tasks that read side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `first` up to, and without, `end`; None is open. Keys are of the first identity column."""

    first: str | None = None
    end: str | None = None

    def meets(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether keys between these two, or unknown ones, may lie in the range."""
        before = self.end is not None and low is not None and low >= self.end.encode()
        return not before and not (self.first is not None and high is not None and high < self.first.encode())

    def covers(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether all keys between these two lie in the range."""
        starts = self.first is None or (low is not None and low >= self.first.encode())
        return starts and (self.end is None or (high is not None and high < self.end.encode()))


EVERYTHING = KeyRange()


def key_ranges(cuts: Sequence[str]) -> list[KeyRange]:
    """All keys, cut at these."""
    edges = [None, *sorted(set(cuts)), None]
    return [KeyRange(first, end) for first, end in pairwise(edges)]
