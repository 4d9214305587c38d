"""The benchmarks' own arithmetic: exponents, what is missed, and the page that says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import page, report
from benchmarks.__main__ import Run
from benchmarks.growth import Growth
from benchmarks.report import Case, Measured, facts

SIZES = [10, 100, 1_000]


def growth(*times: float, name: str = "count") -> Growth:
    return Growth(name, "rows", SIZES, list(times), [(time, time) for time in times])


@pytest.mark.parametrize(
    ("times", "shape"),
    [((1.0, 1.0, 1.0), "flat"), ((1.0, 10**0.5, 10.0), "n^0.5"), ((1.0, 10.0, 100.0), "n"), ((1.0, 100.0, 1e4), "n²")],
)
def test_the_exponent_is_fitted_on_logarithmic_axes(times: tuple[float, ...], shape: str) -> None:
    assert growth(*times).shape == shape
    assert growth(*times).met is (shape == "flat")


def test_the_page_shows_what_is_missed_and_what_did_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGES", tmp_path)
    slow = Measured("count: many rows", "query", "DuckDB", 0.3, 0.1, 3.0, 1.5, False, 3, [0.3] * 3, [0.1] * 3)

    written = page.write(facts(quick=True), [slow], [growth(0.001, 0.01, 0.1)], ["`spark` did not get its turn"])

    text = written.read_text()
    assert "**2 of 2 goals are missed.**" in text
    assert text.count("🔴 missed") == 2
    assert "> `spark` did not get its turn" in text
    assert "n (+1.00)" in text
    assert (tmp_path / "growth-by-rows.svg").read_text().startswith("<svg")


def test_a_suite_that_fails_is_told_on_the_page_beside_what_the_others_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGES", tmp_path)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    ran: list[str] = []

    def case(name: str) -> Case:
        return Case(name, "ours", "peer", None, lambda: ran.append(name), lambda: None, runs=1)

    def broken(folder: Path) -> Iterator[Case]:
        yield case("first")
        raise RuntimeError("the disk is full")

    run = Run([], quick=True)
    run.compare("broken", broken)
    run.compare("whole", lambda folder: iter([case("second")]))
    code = run.report()

    text = (tmp_path / "README.md").read_text()
    assert code == 1
    assert "> 🔴 `broken` failed: RuntimeError: the disk is full" in text
    assert {"first", "second"} <= set(ran)
    assert "| first | ours | peer |" in text
    assert "| second | ours | peer |" in text


def test_when_time_is_up_no_case_begins_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGES", tmp_path)

    def late(folder: Path) -> Iterator[Case]:
        run.deadline = 0.0
        yield Case("late", "ours", "peer", None, lambda: None, lambda: None)

    run = Run([], quick=True)
    run.compare("slow", late)
    run.compare("never", late)

    assert not run.measured
    text = (tmp_path / "README.md").read_text()
    assert "> `slow` was not measured from “late” on: time was up" in text
    assert [note.partition(":")[0] for note in run.notes][1] == "`never` was not measured at all"
