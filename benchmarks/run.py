"""Suites one after the other, each with its share of the time, and what came of them after every one."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.growth import Growth
from benchmarks.report import Case, Measured, measure

Found = Case | Measured | Growth


@dataclass(frozen=True, slots=True)
class Suite:
    """A function that yields what it measures, with its sizes in a whole run and in a quick one.

    `seconds` is its share of the time, on an idle machine more than it needs. Past it, a case has a second, and none
    begins in the time of the suites to come. A growth table has `sizes`: one begins if it will probably end in time.
    """

    name: str
    work: Callable[..., Generator[Found]]
    whole: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 30
    quick_seconds: float = 7

    def share(self, *, quick: bool) -> float:
        return self.quick_seconds if quick else self.seconds

    @property
    def title(self) -> str:
        """What its function says of itself."""
        return (self.work.__doc__ or self.name).partition("\n")[0]


@dataclass(slots=True)
class Outcome:
    """What came of a suite."""

    suite: str
    title: str
    taken_at: str
    took_s: float = 0.0
    measured: list[Measured] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failure: str | None = None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Outcome:
        measured = [Measured(**item) for item in content.pop("measured")]
        growths = [Growth(**item) for item in content.pop("growths")]
        return cls(**content, measured=measured, growths=growths)


class Run:
    """Runs suites until time is up. One that fails is told of, and the next one begins."""

    def __init__(self, *, quick: bool, seconds: float) -> None:
        self.quick = quick
        self.ends_at = time.monotonic() + seconds

    def outcomes(self, suites: Sequence[Suite]) -> Iterator[Outcome]:
        """One after the other. What a suite leaves of its share, those after it may take."""
        for number, suite in enumerate(suites):
            to_come = sum(later.share(quick=self.quick) for later in suites[number + 1 :])
            yield self._outcome(suite, self.ends_at - to_come)

    def _outcome(self, suite: Suite, stops_at: float) -> Outcome:
        taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        outcome, started = Outcome(suite.name, suite.title, taken_at), time.monotonic()
        if started > stops_at:
            outcome.left_out.append("all of it")
            return outcome
        print(f"{suite.name} …", file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="ontologia-bench-", ignore_cleanup_errors=True) as folder:
                self._measure(suite, Path(folder), outcome, stops_at)
        except (Exception, SystemExit) as problem:
            traceback.print_exc()
            said = str(problem).partition("\n")[0][:300]
            outcome.failure = f"{type(problem).__name__}: {said}"
        gc.collect()
        outcome.took_s = round(time.monotonic() - started, 1)
        print(f"{suite.name}: {outcome.took_s:.0f} s", file=sys.stderr, flush=True)
        return outcome

    def _measure(self, suite: Suite, folder: Path, outcome: Outcome, stops_at: float) -> None:
        share = suite.share(quick=self.quick) if self.ends_at < math.inf else math.inf
        hurries_at = time.monotonic() + share
        settings = dict(suite.quick if self.quick else suite.whole)
        if "sizes" in settings:
            settings["sizes"] = _in_time(settings["sizes"], stops_at, outcome)
        with contextlib.closing(suite.work(folder, **settings)) as work:
            for found in work:
                if isinstance(found, Growth):
                    outcome.growths.append(found)
                elif isinstance(found, Measured):
                    outcome.measured.append(found)
                elif time.monotonic() > stops_at:
                    outcome.left_out.append(f"“{found.name}” ({found.ours}) and what comes after it")
                    return
                else:
                    print(f"  {found.name} …", file=sys.stderr, flush=True)
                    outcome.measured.append(measure(found, hurries_at))


def _in_time(sizes: Sequence[int], stops_at: float, outcome: Outcome) -> Iterator[int]:
    """Sizes as long as the next, which takes longer as it is larger, will probably be done in time."""
    foreseen = 0.0
    for number, size in enumerate(sizes):
        started = time.monotonic()
        if started + foreseen > stops_at:
            outcome.left_out.append(f"the size {', '.join(f'{left:,}' for left in sizes[number:])}")
            return
        print(f"  {size:,} …", file=sys.stderr, flush=True)
        yield size
        if number + 1 < len(sizes):
            foreseen = (time.monotonic() - started) * sizes[number + 1] / size


def save(path: Path, facts: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Results as JSON, for comparisons over time."""
    content = {**facts, "suites": [asdict(outcome) for outcome in outcomes]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    facts = json.loads(path.read_text())
    return facts, [Outcome.from_json(content) for content in facts.pop("suites")]
