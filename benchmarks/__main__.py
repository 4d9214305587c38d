"""`python -m benchmarks [--quick] [name...]`: run all suites, or those whose names are given."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import (
    across,
    console,
    depth,
    embedded,
    events,
    first_commit,
    frames,
    graphs,
    hops,
    memory,
    moving,
    objects,
    ordinary,
    page,
    removals,
    rows,
    spark,
)
from benchmarks.growth import Growth
from benchmarks.report import Case, Measured, facts, measure, save, show

Suite = Callable[[Path], Iterator[Case | Measured]]
Tables = Callable[[Path], Iterator[Growth]]
GROWTH: dict[str, Tables] = {
    "growth-rows-sqlite": partial(rows.rows_sqlite, sizes=(10_000, 100_000, 1_000_000, 10_000_000)),
    "growth-rows-files": partial(rows.rows_files, sizes=(10_000, 100_000, 1_000_000, 10_000_000)),
    "growth-memory": partial(memory.beside_rows, sizes=(10_000, 100_000, 1_000_000, 10_000_000), spark=True),
    "growth-commits": partial(depth.never_merged, depths=(10, 100, 1_000, 10_000)),
    "growth-commits-merged": partial(depth.merged_by_itself, depths=(50, 350, 950, 9_950)),
    "growth-types": partial(rows.types_files, counts=(1, 10, 100)),
}
QUICK_GROWTH: dict[str, Tables] = {
    "growth-rows-sqlite": partial(rows.rows_sqlite, sizes=(10_000, 100_000)),
    "growth-rows-files": partial(rows.rows_files, sizes=(10_000, 100_000, 1_000_000)),
    "growth-memory": partial(memory.beside_rows, sizes=(10_000, 100_000, 1_000_000), spark=False),
    "growth-commits": partial(depth.never_merged, depths=(10, 100, 500)),
    "growth-commits-merged": partial(depth.merged_by_itself, depths=(50, 350, 950)),
    "growth-types": partial(rows.types_files, counts=(1, 10, 30)),
}
WHOLE: dict[str, Suite] = {
    "ordinary": partial(ordinary.questions, rows=3_000_000),
    "ordinary-commits": partial(ordinary.commits, rows=1_000_000),
    **hops.SUITES,
    **first_commit.SUITES,
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
    **first_commit.SUITES,
    **hops.SUITES,
}
BUDGET_S = {True: 270.0, False: 2_000.0}
"""When a quick run and a whole one come to an end. No case begins after it, one that has begun is measured once, which
leaves minutes for the longest, and the page names what did not get its turn."""


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    wanted = [name for name in arguments if name != "--quick"]
    tables, suites = (QUICK_GROWTH, QUICK) if quick else (GROWTH, WHOLE)
    unknown = set(wanted) - set(suites) - set(tables)
    if unknown:
        known = ", ".join((*tables, *suites))
        print(f"no benchmark named {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
        return 2
    run = Run(wanted, quick=quick)
    with tempfile.TemporaryDirectory(prefix="ontologia-bench-") as folder:
        for name, table in tables.items():
            run.grow(name, partial(table, Path(folder)))
    for name, suite in suites.items():
        run.compare(name, suite)
    return run.report()


class Run:
    """Suites one after the other, until time is up. One that fails is told of, and the next one begins."""

    def __init__(self, wanted: list[str], *, quick: bool, deadline: float | None = None) -> None:
        self.wanted = wanted
        self.quick = quick
        self.deadline = time.monotonic() + BUDGET_S[quick] if deadline is None else deadline
        self.measured: list[Measured] = []
        self.growths: list[Growth] = []
        self.notes: list[str] = []
        self.failures: list[str] = []

    def grow(self, name: str, tables: Callable[[], Iterator[Growth]]) -> None:
        def work() -> None:
            self.growths += tables()

        self._suite(name, work)

    def compare(self, name: str, suite: Suite) -> None:
        def work() -> None:
            with tempfile.TemporaryDirectory(prefix="ontologia-bench-") as folder:
                for case in suite(Path(folder)):
                    if isinstance(case, Measured):
                        self.measured.append(case)
                    elif time.monotonic() > self.deadline:
                        self._ran_out(name, f"from “{case.name}” on")
                        return
                    else:
                        print(f"  {case.name} …", file=sys.stderr, flush=True)
                        self.measured.append(measure(case, self.deadline))

        self._suite(name, work)

    def _suite(self, name: str, work: Callable[[], None]) -> None:
        if self.wanted and name not in self.wanted:
            return
        if time.monotonic() > self.deadline:
            self._ran_out(name, "at all")
            return
        print(f"{name} …", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            work()
        except (Exception, SystemExit) as problem:
            traceback.print_exc()
            said = str(problem).partition("\n")[0][:300]
            self.failures.append(f"`{name}` failed: {type(problem).__name__}: {said}")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if not self.wanted:
            self._write_page()  # a run that is cut off leaves what it has measured

    def _ran_out(self, name: str, what: str) -> None:
        self.notes.append(f"`{name}` was not measured {what}: time was up. `python -m benchmarks {name}` runs it.")

    def _write_page(self) -> Path:
        return page.write(facts(quick=self.quick), self.measured, self.growths, self.notes, self.failures)

    def report(self) -> int:
        show(self.measured)
        for item in self.growths:
            red = "" if item.met is not False else "  MISSED"
            print(f"{item.name} by {item.unit}: {item.shape} ({item.exponent:+.2f}){red}")
        for failure in self.failures:
            print(failure)
        saved = save(facts(quick=self.quick), self.measured, self.growths, self.notes, self.failures)
        print(f"as JSON: {saved}")
        if not self.wanted:
            print(f"as a page: {self._write_page()}")
        met = all(item.met is not False for item in (*self.measured, *self.growths))
        return 0 if met and not self.failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
