"""The benchmarks' own arithmetic: exponents, what is missed, shares of time, and the page that says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import page
from benchmarks.__main__ import Pages
from benchmarks.growth import Growth, Table
from benchmarks.plan import SECONDS, SUITES
from benchmarks.report import Case, Measured, compared, facts, measure
from benchmarks.run import Outcome, Run, Suite, load

SIZES = [10, 100, 1_000]


def growth(*times: float, name: str = "count", **goals: float | None) -> Growth:
    return Growth(name, "rows", SIZES, list(times), [(time, time) for time in times], **goals)  # type: ignore[arg-type]


def case(name: str) -> Case:
    return Case(name, "ours", "peer", None, lambda: None, lambda: None, runs=1)


def run_all(*suites: Suite, seconds: float = 60) -> list[Outcome]:
    return list(Run(quick=True, seconds=seconds).outcomes(suites))


@pytest.fixture(autouse=True)
def _pages_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGES", tmp_path)
    monkeypatch.setattr(page, "DATA", tmp_path / "results.json")


@pytest.mark.parametrize(
    ("times", "shape"),
    [((1.0, 1.0, 1.0), "flat"), ((1.0, 10**0.5, 10.0), "n^0.5"), ((1.0, 10.0, 100.0), "n"), ((1.0, 100.0, 1e4), "n²")],
)
def test_the_exponent_is_fitted_on_logarithmic_axes(times: tuple[float, ...], shape: str) -> None:
    assert growth(*times).shape == shape
    assert growth(*times).met is (shape == "flat")


def test_what_grows_only_at_the_end_shows_in_the_last_step() -> None:
    late = growth(1.0, 1.0, 1.9)

    assert late.shape == "flat"
    assert late.last_step == pytest.approx(0.279, abs=0.001)


def test_a_goal_may_also_be_the_most_that_work_takes_at_any_size() -> None:
    assert growth(1.0, 1.1, 1.0, most=1.1).met is True
    assert growth(1.0, 1.1, 1.0, most=1.0).met is False
    assert growth(1.0, 10.0, 100.0, limit=None, most=100.0).met is True
    assert growth(1.0, 10.0, 100.0, limit=None).met is None


def test_the_page_shows_what_is_missed_and_what_did_not_run(tmp_path: Path) -> None:
    slow = compared("count: many rows", "query", "DuckDB", 1.5, [0.3] * 3, [0.1] * 3)
    ordinary = Outcome("ordinary", "Questions", "now", 1.0, [slow], [growth(0.001, 0.01, 0.1)])
    spark = Outcome("spark", "Loads", "now", left_out=["all of it"])

    text = page.write(facts(quick=True), [ordinary, spark]).read_text()

    assert "**2 of 2 goals are missed.**" in text
    assert text.count("🔴 missed") == 2
    assert "- 🔴 count: many rows (query): 3.00 x DuckDB, wanted ≤ 1.5" in text
    assert "- `spark`, not measured: all of it; no time was left." in text
    assert "n (+1.00)" in text
    assert (tmp_path / "growth-by-rows.svg").read_text().startswith("<svg")


def test_a_suite_that_fails_is_told_on_the_page_beside_what_the_others_measured(tmp_path: Path) -> None:
    def broken(folder: Path) -> Iterator[Case]:
        yield case("first")
        raise RuntimeError("the disk is full")

    outcomes = run_all(Suite("broken", broken), Suite("whole", lambda folder: iter([case("second")])))

    text = page.write(facts(quick=True), outcomes).read_text()
    assert "- 🔴 `broken` failed: RuntimeError: the disk is full" in text
    assert "| first | ours | peer |" in text
    assert "| second | ours | peer |" in text


def test_no_case_begins_in_the_time_of_the_suites_to_come() -> None:
    slow = Suite("slow", lambda folder: iter([case("late")]), quick_seconds=10)
    last = Suite("last", lambda folder: iter([case("in time")]), quick_seconds=30)

    first, second = run_all(slow, last, seconds=20)

    assert (first.measured, first.left_out) == ([], ["all of it"])
    assert ([item.name for item in second.measured], second.left_out) == (["in time"], [])


def test_past_the_deadline_a_suite_ends_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(folder: Path) -> Iterator[Case]:
        yield case("in time")
        now = time.monotonic() + 3_600
        monkeypatch.setattr(time, "monotonic", lambda: now)
        yield case("late")

    (outcome,) = run_all(Suite("slow", passes))

    assert [item.name for item in outcome.measured] == ["in time"]
    assert outcome.left_out == ["“late” (ours) and what comes after it"]


def test_past_its_share_of_the_time_short_work_still_has_all_its_turns_and_long_work_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def taking(seconds: float) -> Case:
        def work() -> None:
            nonlocal now
            now += seconds

        return Case("work", "ours", "peer", None, work, work)

    monkeypatch.setattr(time, "monotonic", lambda: now)

    assert [measure(taking(seconds), deadline=0.0).runs for seconds in (0.01, 10.0)] == [5, 1]


def test_a_size_that_would_take_too_long_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 7))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))

    def table(folder: Path, sizes: Iterator[int]) -> Iterator[Growth]:
        found = Table("rows")
        for size in sizes:
            found.add("count", size, [1.0])
        yield from found.growths()

    (outcome,) = run_all(Suite("growth", table, quick={"sizes": (10, 20, 10_000, 100_000)}), seconds=600)

    assert outcome.growths[0].sizes == [10, 20]
    assert outcome.left_out == ["the size 10,000, 100,000"]


@pytest.mark.parametrize("quick", [True, False])
def test_the_shares_of_all_suites_fit_into_the_time_of_a_run(quick: bool) -> None:
    assert sum(suite.share(quick=quick) for suite in SUITES) <= SECONDS[quick]


def test_what_is_measured_again_replaces_what_the_page_had_of_it() -> None:
    def outcome(name: str, value: float) -> Outcome:
        return Outcome(name, "Title", "now", 1.0, [compared(name, "ours", "peer", None, [value], [1.0])])

    pages = Pages(facts(quick=False), [], on_page=True)
    pages.add(outcome("ordinary", 1.0))
    pages.add(outcome("hops", 2.0))
    about, before = load(page.DATA)
    Pages(about, before, on_page=True).add(outcome("ordinary", 3.0))

    measured: list[Measured] = [item for outcome in load(page.DATA)[1] for item in outcome.measured]
    assert [(item.name, item.ratio) for item in measured] == [("ordinary", 3.0), ("hops", 2.0)]
