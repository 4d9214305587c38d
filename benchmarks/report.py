"""Measurements: taken in turns, reported as a table and as JSON."""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import ontologia

RESULTS = Path(__file__).parent / "results"
Work = Callable[[], object]


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
    """The medians of a case, per piece of work."""

    name: str
    ours: str
    peer: str
    ours_s: float
    peer_s: float
    ratio: float
    limit: float | None
    met: bool | None
    runs: int
    ours_all_s: list[float] = field(default_factory=list)
    peer_all_s: list[float] = field(default_factory=list)


def measure(case: Case, deadline: float = math.inf) -> Measured:
    """One warm run of each, then both in turns, so that a busy moment hurts both; past the deadline, one turn."""
    ours: list[float] = []
    peer: list[float] = []
    for number in range(case.runs + 1):
        if ours and time.monotonic() > deadline:
            break
        for times, run, fresh in ((peer, case.run_peer, case.fresh_peer), (ours, case.run_ours, case.fresh_ours)):
            taken = _timed(run, fresh(), case.repeat)
            if number:
                times.append(taken)
    return compared(case.name, case.ours, case.peer, case.limit, ours, peer)


def compared(
    name: str, ours: str, peer: str, limit: float | None, ours_all_s: list[float], peer_all_s: list[float]
) -> Measured:
    """What was measured of two pieces of work, against the goal."""
    ours_s, peer_s = statistics.median(ours_all_s), statistics.median(peer_all_s)
    ratio = ours_s / peer_s
    met = None if limit is None else ratio <= limit
    return Measured(name, ours, peer, ours_s, peer_s, ratio, limit, met, len(ours_all_s), ours_all_s, peer_all_s)


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
        goal = "" if item.limit is None else f"≤ {item.limit:g}"
        table.add_row(
            item.name, item.ours, item.peer, readable(item.ours_s), readable(item.peer_s), f"{item.ratio:.2f}", goal,
            style=style,
        )  # fmt: skip
    Console(width=None if os.isatty(1) else 160).print(table)


def readable(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


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
        "load": round(os.getloadavg()[2], 1),
    }


def save(
    known: dict[str, Any],
    measured: Iterable[Measured],
    growths: Iterable[Any],
    notes: Sequence[str],
    failures: Sequence[str] = (),
) -> Path:
    """Results as JSON, for comparisons over time."""
    RESULTS.mkdir(exist_ok=True)
    content = {
        **known,
        "notes": list(notes),
        "failures": list(failures),
        "results": [asdict(item) for item in measured],
        "growth": [{**asdict(item), "exponent": item.exponent, "shape": item.shape} for item in growths],
    }
    path = RESULTS / f"{re.sub('[^0-9TZ]', '', known['taken_at'])}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
