"""`python -m benchmarks [--quick] [name...]`: run all suites, or those whose names are given."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import (
    across,
    console,
    embedded,
    events,
    frames,
    graphs,
    growth,
    hops,
    moving,
    objects,
    ordinary,
    page,
    removals,
    spark,
)
from benchmarks.growth import Growth
from benchmarks.report import Case, Measured, facts, measure, save, show

Suite = Callable[[Path], Iterator[Case]]
WHOLE: dict[str, Suite] = {
    "ordinary": partial(ordinary.questions, rows=3_000_000),
    "ordinary-commits": partial(ordinary.commits, rows=1_000_000),
    **hops.SUITES,
    **objects.SUITES,
    **embedded.SUITES,
    **removals.SUITES,
    **across.SUITES,
    **console.SUITES,
    **events.SUITES,
    **graphs.SUITES,
    **frames.SUITES,
    **moving.SUITES,
    **spark.SUITES,
}
QUICK: dict[str, Suite] = {
    "ordinary": partial(ordinary.questions, rows=200_000),
    "ordinary-commits": partial(ordinary.commits, rows=100_000),
    **hops.SUITES,
}
BUDGET_S = {True: 300.0, False: 2_400.0}
"""How long a quick run and a whole one may take. What did not get its turn is named on the page."""


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    wanted = [name for name in arguments if name != "--quick"]
    suites = QUICK if quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="ontologia-bench-") as folder:
        tables = dict(growth.suites(Path(folder), quick=quick))
        unknown = set(wanted) - set(suites) - set(tables)
        if unknown:
            known = ", ".join((*tables, *suites))
            print(f"no benchmark named {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
            return 2
        run = Run(wanted, deadline=time.monotonic() + BUDGET_S[quick])
        for name, table in tables.items():
            run.grow(name, table)
    for name, suite in suites.items():
        run.compare(name, suite)
    return run.report(quick=quick)


class Run:
    """Suites one after the other, until time is up."""

    def __init__(self, wanted: list[str], deadline: float) -> None:
        self.wanted = wanted
        self.deadline = deadline
        self.measured: list[Measured] = []
        self.growths: list[Growth] = []
        self.notes: list[str] = []

    def _is_due(self, name: str) -> bool:
        if self.wanted and name not in self.wanted:
            return False
        if time.monotonic() > self.deadline:
            self.notes.append(f"`{name}` did not get its turn: time was up. `python -m benchmarks {name}` runs it.")
            return False
        print(f"{name} …", file=sys.stderr, flush=True)
        return True

    def grow(self, name: str, table: Callable[[], Iterator[Growth]]) -> None:
        if self._is_due(name):
            self.growths += table()

    def compare(self, name: str, suite: Suite) -> None:
        if not self._is_due(name):
            return
        with tempfile.TemporaryDirectory(prefix="ontologia-bench-") as folder:
            for case in suite(Path(folder)):
                print(f"  {case.name} …", file=sys.stderr, flush=True)
                self.measured.append(measure(case))

    def report(self, *, quick: bool) -> int:
        known = facts(quick=quick)
        show(self.measured)
        for item in self.growths:
            red = "" if item.met is not False else "  MISSED"
            print(f"{item.name} by {item.unit}: {item.shape} ({item.exponent:+.2f}){red}")
        print(f"as JSON: {save(known, self.measured, self.growths, self.notes)}")
        if not self.wanted:
            print(f"as a page: {page.write(known, self.measured, self.growths, self.notes)}")
        return 0 if all(item.met is not False for item in (*self.measured, *self.growths)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
