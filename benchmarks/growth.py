"""How costs grow: the same small piece of work beside more and more rows, commits and types.

The exponent is fitted to the medians on a logarithmic scale: 0 is flat, 1 grows as the store does.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.report import Spread, Takes, quartiles

FLAT = 0.15
RUNS = 15


@dataclass(frozen=True, slots=True)
class Growth:
    """What one piece of work takes at several sizes: time, `requests`, `files`, `kB` written or `MiB` of memory.

    The goal is an exponent that it stays under, the most it may take at any size, or both.
    """

    name: str
    unit: str
    sizes: list[int]
    medians: list[float]
    spreads: list[Spread]
    limit: float | None = FLAT
    takes: Takes = "time"
    most: float | None = None

    @property
    def exponent(self) -> float:
        """The slope of the medians, both axes logarithmic."""
        return self._slope(0)

    @property
    def last_step(self) -> float:
        """The slope between the two largest sizes: what begins to grow only there, all sizes together may hide."""
        return self._slope(-2)

    def _slope(self, first: int) -> float:
        if len(self.sizes) < 2:
            return 0.0
        xs, ys = [math.log(size) for size in self.sizes[first:]], [math.log(value) for value in self.medians[first:]]
        return statistics.linear_regression(xs, ys).slope

    @property
    def shape(self) -> str:
        steps = {"flat": 0.15, "n^0.25": 0.375, "n^0.5": 0.75, "n": 1.5}
        return next((name for name, most in steps.items() if self.exponent <= most), "n²")

    @property
    def met(self) -> bool | None:
        if self.limit is None and self.most is None:
            return None
        grows_less = self.limit is None or self.exponent <= self.limit
        return grows_less and (self.most is None or max(self.medians) <= self.most)


Timed = Callable[[], object]


def timed(work: Timed, runs: int = RUNS, *, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    work()
    found = []
    for _ in range(runs):
        started = clock()
        work()
        found.append(clock() - started)
    return sorted(found)


class Table:
    """Collects what the same works take at several sizes."""

    def __init__(
        self,
        unit: str,
        limits: dict[str, float | None] | None = None,
        takes: Takes = "time",
        prefix: str = "",
        most: dict[str, float] | None = None,
    ) -> None:
        self.unit = unit
        self.takes = takes
        self.limits = limits or {}
        self.most = most or {}
        self.prefix = prefix
        self.found: dict[str, list[tuple[int, list[float]]]] = {}

    def add(self, name: str, size: int, times: list[float]) -> None:
        self.found.setdefault(name, []).append((size, times))

    def growths(self) -> Iterator[Growth]:
        for name, points in self.found.items():
            yield Growth(
                f"{self.prefix}{name}",
                self.unit,
                [size for size, _ in points],
                [statistics.median(times) for _, times in points],
                [quartiles(times) for _, times in points],
                self.limits.get(name, FLAT),
                self.takes,
                self.most.get(name),
            )
