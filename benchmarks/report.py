"""Measurements: taken in turns, and what came out of them."""

from __future__ import annotations

import gc
import math
import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

import ontologia

Takes = Literal["time", "requests", "files", "kB", "MiB"]
Spread = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """Two pieces of work, measured in turns. The goal is `ours <= limit x peer`.

    `fresh` makes new arguments for every run and is not timed. `repeat` says how often a run does its work, for work
    too short to be timed once; such runs are short and many, so that most have the processor for themselves.
    """

    name: str
    ours: str
    peer: str
    limit: float | None
    run_ours: Callable[..., object]
    run_peer: Callable[..., object]
    fresh_ours: Callable[[], Sequence[object]] = tuple
    fresh_peer: Callable[[], Sequence[object]] = tuple
    repeat: int = 1
    runs: int = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """The medians of a case, per piece of work, and the quartiles of both sides."""

    name: str
    ours: str
    peer: str
    ours_median: float
    peer_median: float
    ours_spread: Spread
    peer_spread: Spread
    limit: float | None
    runs: int
    takes: Takes = "time"

    @property
    def ratio(self) -> float:
        return self.ours_median / self.peer_median

    @property
    def met(self) -> bool | None:
        return None if self.limit is None else self.ratio <= self.limit


def measure(case: Case, deadline: float = math.inf) -> Measured:
    """One warm run of each, then both in turns, so that a busy moment hurts both; past the deadline, as many turns as
    a second has, and one at least: of short work, a single turn says nothing."""
    ours: list[float] = []
    peer: list[float] = []
    deadline = max(deadline, time.monotonic() + 1)
    for number in range(case.runs + 1):
        if ours and time.monotonic() > deadline:
            break
        for times, run, fresh in ((peer, case.run_peer, case.fresh_peer), (ours, case.run_ours, case.fresh_ours)):
            taken = _timed(run, fresh(), case.repeat)
            if number:
                times.append(taken)
    return compared(case.name, case.ours, case.peer, case.limit, ours, peer)


def compared(
    name: str,
    ours: str,
    peer: str,
    limit: float | None,
    all_ours: Sequence[float],
    all_peer: Sequence[float],
    takes: Takes = "time",
) -> Measured:
    """What was measured of two pieces of work, against the goal."""
    return Measured(
        name, ours, peer, statistics.median(all_ours), statistics.median(all_peer), quartiles(all_ours),
        quartiles(all_peer), limit, len(all_ours), takes,
    )  # fmt: skip


def against(name: str, ours: str, goal: float, times: Sequence[float]) -> Measured:
    """What was measured of one piece of work, against a goal in seconds."""
    return compared(name, ours, f"the goal of {readable(goal)}", 1.0, times, [goal])


def quartiles(found: Sequence[float]) -> Spread:
    ordered = sorted(found)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _timed(run: Callable[..., object], arguments: Sequence[object], repeat: int) -> float:
    if repeat == 1:
        gc.collect()
    started = time.perf_counter()
    for _ in range(repeat):
        run(*arguments)
    return (time.perf_counter() - started) / repeat


def show(measured: Iterable[Measured]) -> None:
    table = Table(title="Ontologia beside its peers: medians, lower is better")
    for heading in ("what", "ours", "peer"):
        table.add_column(heading, overflow="fold")
    for heading in ("ours", "peer", "ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    for item in measured:
        style = {True: "green", False: "bold red", None: ""}[item.met]
        goal = "" if item.limit is None else f"≤ {item.limit:.3g}"
        medians = (readable(item.ours_median, item.takes), readable(item.peer_median, item.takes))
        table.add_row(item.name, item.ours, item.peer, *medians, f"{item.ratio:.2f}", goal, style=style)
    Console(width=None if os.isatty(1) else 160).print(table)


def readable(value: float, takes: Takes = "time") -> str:
    """A time in the unit that suits it; other things in theirs."""
    if takes != "time":
        return f"{value:,.0f} {takes}"
    if value < 1e-3:
        return f"{value * 1e6:.1f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def facts(*, quick: bool) -> dict[str, Any]:
    """What one needs to know to compare results."""
    return {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "ontologia": ontologia.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
