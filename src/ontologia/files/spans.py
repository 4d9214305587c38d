"""Ranges of texts, many at once: which of them may have a text, or meet another range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Texts = npt.NDArray[np.bytes_]


@dataclass(frozen=True, slots=True)
class Spans:
    """Ranges in the order of their bytes, both ends included; they are known by their number.

    numpy takes no notice of zeros at the end, which makes a range no smaller.
    """

    lows: Texts
    highs: Texts
    open_above: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, ranges: Iterable[tuple[bytes | None, bytes | None]]) -> Spans:
        """Ranges by their ends; one that is None is open."""
        ends = list(ranges)
        return cls(
            np.array([low or b"" for low, _ in ends], np.bytes_),
            np.array([high or b"" for _, high in ends], np.bytes_),
            np.array([high is None for _, high in ends], np.bool_),
        )

    def meeting(self, low: bytes, high: bytes) -> list[int]:
        """Those that have something in common with a range."""
        return _numbers((self.lows <= np.bytes_(high)) & (self.open_above | (self.highs >= np.bytes_(low))))

    def having(self, texts: Texts) -> list[int]:
        """Those that have one of these texts, which come sorted."""
        if len(texts) <= 1:
            return self.meeting(texts[0], texts[0]) if len(texts) else []
        start = np.searchsorted(texts, self.lows, "left")
        end = np.where(self.open_above, len(texts), np.searchsorted(texts, self.highs, "right"))
        return _numbers(start < end)


def _numbers(are_meant: npt.NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.flatnonzero(are_meant).tolist()
    return found
