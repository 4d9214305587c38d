"""`python -m benchmarks [--quick] [--update] [name...]`: run all suites, or those whose names are given.

A run of all writes the page in `docs/benchmarks/` and its JSON, anew after every suite. A run of some prints what it
found, and with `--update` puts it into the page as well, in the place of what was there of them.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import page
from benchmarks.plan import SECONDS, SUITES
from benchmarks.report import facts, show
from benchmarks.run import Outcome, Run, Suite, load, save

RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str]) -> int:
    quick, update = "--quick" in arguments, "--update" in arguments
    wanted = [name for name in arguments if name not in ("--quick", "--update")]
    known = [suite.name for suite in SUITES]
    unknown = [name for name in wanted if name not in known]
    if unknown or (update and not wanted):
        said = f"no benchmark named {', '.join(unknown)}" if unknown else "--update wants the names of suites"
        print(f"{said}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if update:
        if not page.DATA.exists():
            print(f"{page.DATA} is not there: a run of all suites makes it", file=sys.stderr)
            return 2
        about, before = load(page.DATA)
        if about["quick"] is not quick:
            print("a quick run and a whole one do not belong on one page", file=sys.stderr)
            return 2
    else:
        about, before = facts(quick=quick), []
    some = [suite for suite in SUITES if not wanted or suite.name in wanted]
    seconds = math.inf if wanted else SECONDS[quick]  # who asks for one wants all of it
    return run_all(some, Pages(about, before, on_page=update or not wanted), Run(quick=quick, seconds=seconds))


class Pages:
    """Where results go: with those from before that were not measured again, in the order of the suites."""

    def __init__(self, about: dict[str, object], before: Sequence[Outcome], *, on_page: bool) -> None:
        self.about = about
        self.outcomes = {outcome.suite: outcome for outcome in before}
        self.on_page = on_page
        self.data = page.DATA if on_page else RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.suite] = outcome
        ordered = [self.outcomes[suite.name] for suite in SUITES if suite.name in self.outcomes]
        save(self.data, self.about, ordered)
        if self.on_page:
            page.write(self.about, ordered)


def run_all(suites: Sequence[Suite], pages: Pages, run: Run) -> int:
    """Every suite that time allows; 0 if none failed and all goals are met."""
    found = []
    for outcome in run.outcomes(suites):
        found.append(outcome)
        pages.add(outcome)
    show([item for outcome in found for item in outcome.measured])
    for line in page.summarize(found):
        print(line)
    print(f"as JSON: {pages.data}")
    missed = [item for outcome in found for item in (*outcome.measured, *outcome.growths) if item.met is False]
    return 1 if missed or any(outcome.failure for outcome in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
