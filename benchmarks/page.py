"""The results as one page of Markdown with plots. Nothing is left out: what misses its goal comes first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import Growth
from benchmarks.report import Measured, readable

PAGES = Path(__file__).parent.parent / "docs" / "benchmarks"
MET = {True: "🟢", False: "🔴 missed", None: ""}
WIDTH, HEIGHT, EDGE = 640, 320, 56
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057", "#1864ab")


def write(
    facts: dict[str, Any],
    measured: Sequence[Measured],
    growths: Sequence[Growth],
    notes: Sequence[str],
    failures: Sequence[str] = (),
) -> Path:
    """Write the page and its plots; where it is. Failures and what did not get its turn are told first."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for old in PAGES.glob("*.svg"):
        old.unlink()
    lines = ["# Benchmarks", "", _heading(facts), ""]
    missed = [item for item in measured if item.met is False] + [item for item in growths if item.met is False]
    lines += [f"**{len(missed)} of {_with_goal(measured, growths)} goals are missed.**", ""] if missed else []
    for said in (*(f"🔴 {failure}" for failure in failures), *notes):
        lines += [f"> {said}", ""]
    if growths:
        lines += ["## How costs grow", "", *_growth_tables(growths)]
    if measured:
        lines += ["## Beside peers", "", *_peer_table(measured)]
    page = PAGES / "README.md"
    page.write_text("\n".join(lines).rstrip() + "\n")
    return page


def _heading(facts: dict[str, Any]) -> str:
    kind = "the quick run" if facts["quick"] else "the whole run"
    return (
        f"Ontologia {facts['ontologia']}, {kind} of `make bench` on {facts['taken_at']}: Python {facts['python']}, "
        f"SQLite {facts['sqlite']}, {facts['cores']} cores ({facts['machine']}), with a load of {facts['load']} over "
        "the last quarter of an hour (above the cores, others were at work). Medians; in brackets the quartiles. "
        "Ours and the peer's are measured in turns on the same machine. Times differ between machines, ratios and "
        "exponents hardly do."
    )


def _with_goal(measured: Sequence[Measured], growths: Sequence[Growth]) -> int:
    return sum(item.met is not None for item in (*measured, *growths))


def _growth_tables(growths: Sequence[Growth]) -> Iterable[str]:
    for unit in dict.fromkeys(item.unit for item in growths):
        some = [item for item in growths if item.unit == unit]
        for sizes in dict.fromkeys(tuple(item.sizes) for item in some):
            alike = [item for item in some if tuple(item.sizes) == sizes]
            yield f"| by {unit} | {' | '.join(f'{size:,}' for size in sizes)} | fitted | goal | |"
            yield f"|---|{'---:|' * len(sizes)}---:|---:|---|"
            for item in alike:
                cells = [_cell(item, place) for place in range(len(sizes))]
                goal = "" if item.limit is None else f"≤ n^{item.limit:g}"
                fitted = f"{item.shape} ({item.exponent:+.2f})"
                yield f"| {item.name} | {' | '.join(cells)} | {fitted} | {goal} | {MET[item.met]} |"
            yield ""
        timed = [item for item in some if item.takes == "time"]
        if not timed:
            continue
        plot = f"growth-by-{_slug(unit)}.svg"
        (PAGES / plot).write_text(_plot(timed, unit))
        yield f"![Time by {unit}, both axes logarithmic]({plot})"
        yield ""


def _cell(item: Growth, place: int) -> str:
    if item.takes != "time":
        return f"{item.medians[place]:.0f} {item.takes}"
    low, high = item.spreads[place]
    return f"{readable(item.medians[place])} ({readable(low)}–{readable(high)})"


def _peer_table(measured: Sequence[Measured]) -> Iterable[str]:
    yield "| what | ours | peer | ours | peer | ratio | goal | |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    for item in sorted(measured, key=lambda item: item.met is not False):
        goal = "" if item.limit is None else f"≤ {item.limit:g}"
        yield (
            f"| {item.name} | {item.ours} | {item.peer} | {_spread(item.ours_s, item.ours_all_s)} | "
            f"{_spread(item.peer_s, item.peer_all_s)} | {item.ratio:.2f} | {goal} | {MET[item.met]} |"
        )
    yield ""


def _spread(median: float, runs: Sequence[float]) -> str:
    ordered = sorted(runs)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    return f"{readable(median)} ({readable(low)}–{readable(high)})"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _plot(growths: Sequence[Growth], unit: str) -> str:
    """Lines on two logarithmic axes."""
    sizes = [size for item in growths for size in item.sizes]
    times = [value for item in growths for value in item.medians]
    left, right = math.log10(min(sizes)), math.log10(max(sizes))
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    right, high = max(right, left + 0.01), max(high, low + 1)

    def place(size: float, value: float) -> str:
        x = EDGE + (math.log10(size) - left) / (right - left) * (WIDTH - 2 * EDGE)
        y = HEIGHT - EDGE - (math.log10(value) - low) / (high - low) * (HEIGHT - 2 * EDGE)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 18 * len(growths)}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for power in range(low, high + 1):
        start, end = place(10**left, 10.0**power), place(10**right, 10.0**power)
        y = start.partition(",")[2]
        parts.append(f'<polyline points="{start} {end}" stroke="#dee2e6" fill="none"/>')
        parts.append(f'<text x="{EDGE - 6}" y="{y}" text-anchor="end">{readable(10.0**power)}</text>')
    for size in sorted(set(sizes)):
        x = place(size, 10.0**low).partition(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{size:,}</text>')
    parts.append(f'<text x="{WIDTH // 2}" y="{HEIGHT - 14}" text-anchor="middle">{unit}</text>')
    for number, item in enumerate(growths):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(place(*point) for point in zip(item.sizes, item.medians, strict=True))
        parts.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="2" fill="none"/>')
        y = HEIGHT + 18 * number
        parts.append(f'<rect x="{EDGE}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{EDGE + 18}" y="{y + 2}">{item.name}: {item.shape} ({item.exponent:+.2f})</text>')
    return "\n".join([*parts, "</svg>", ""])
