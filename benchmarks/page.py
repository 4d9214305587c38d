"""The results as one page of Markdown with plots. Nothing is left out: what misses its goal comes first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import Growth
from benchmarks.report import Measured, Spread, Takes, readable
from benchmarks.run import Outcome

PAGES = Path(__file__).parent.parent / "docs" / "benchmarks"
DATA = PAGES / "results.json"
MET = {True: "🟢", False: "🔴 missed", None: ""}
WIDTH, HEIGHT, EDGE = 640, 320, 56
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057", "#1864ab")


def write(about: dict[str, Any], outcomes: Sequence[Outcome]) -> Path:
    """Write the page and its plots; where it is. What failed, is missed or was left out is told first."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for old in PAGES.glob("*.svg"):
        old.unlink()
    lines = ["# Benchmarks", "", _heading(about, outcomes), ""]
    said = list(summarize(outcomes))
    lines += [f"**{said[0]}**", "", *(f"- {line}" for line in said[1:]), ""]
    growths = [item for outcome in outcomes for item in outcome.growths]
    if growths:
        lines += ["## How costs grow", "", HOW_TO_READ, "", *_growth_tables(growths)]
    if any(outcome.measured for outcome in outcomes):
        lines += ["## Beside peers", "", *_peer_tables(outcomes)]
    page = PAGES / "README.md"
    page.write_text("\n".join(lines).rstrip() + "\n")
    return page


HOW_TO_READ = (
    "The exponent is fitted to the medians, both axes logarithmic: 0 is flat, 1 grows as the store does. The last step "
    "is the exponent between the two largest sizes alone. With two sizes, as in a quick run, it is but a hint."
)


def summarize(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What a reader must not overlook."""
    goals = [item for outcome in outcomes for item in (*outcome.measured, *outcome.growths) if item.met is not None]
    missed = [item for item in goals if item.met is False]
    yield f"{len(missed)} of {len(goals)} goals are missed."
    for outcome in outcomes:
        if outcome.failure:
            yield f"🔴 `{outcome.suite}` failed: {outcome.failure}"
    for item in missed:
        yield f"🔴 {_missed(item)}"
    for outcome in outcomes:
        for what in outcome.left_out:
            yield f"`{outcome.suite}`, not measured: {what}; no time was left. {_command(outcome)} measures it."


def _missed(item: Measured | Growth) -> str:
    if isinstance(item, Growth):
        most = readable(max(item.medians), item.takes)
        return f"{item.name}, by {item.unit}: n^{item.exponent:.2f}, up to {most}, wanted {_growth_goal(item)}"
    return f"{item.name} ({item.ours}): {item.ratio:.2f} x {item.peer}, wanted ≤ {item.limit:.3g}"


def _heading(about: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    kind = "the quick run" if about["quick"] else "the whole run"
    minutes = sum(outcome.took_s for outcome in outcomes) / 60
    return (
        f"Ontologia {about['ontologia']}, {kind} of `make bench` on {about['taken_at']}, {minutes:.0f} minutes: Python "
        f"{about['python']}, SQLite {about['sqlite']}, {about['cores']} cores ({about['machine']}), with a load of "
        f"{about['load']} before it began. Medians; in brackets the quartiles. Ours and the peer's are measured in "
        "turns on the same machine. Times differ between machines, ratios and exponents hardly do. "
        f"[All of it as JSON]({DATA.name})."
    )


def _growth_tables(growths: Sequence[Growth]) -> Iterator[str]:
    for unit in dict.fromkeys(item.unit for item in growths):
        some = [item for item in growths if item.unit == unit]
        for sizes in dict.fromkeys(tuple(item.sizes) for item in some):
            alike = [item for item in some if tuple(item.sizes) == sizes]
            yield f"| by {unit} | {' | '.join(f'{size:,}' for size in sizes)} | fitted | last step | goal | |"
            yield f"|---|{'---:|' * len(sizes)}---:|---:|---:|---|"
            for item in alike:
                cells = [_cell(value, item.takes, item.spreads[place]) for place, value in enumerate(item.medians)]
                fitted = f"{item.shape} ({item.exponent:+.2f}) | {item.last_step:+.2f}"
                yield f"| {item.name} | {' | '.join(cells)} | {fitted} | {_growth_goal(item)} | {MET[item.met]} |"
            yield ""
        timed = [item for item in some if item.takes == "time"]
        if not timed:
            continue
        plot = f"growth-by-{_slug(unit)}.svg"
        (PAGES / plot).write_text(_plot(timed, unit))
        yield f"![Time by {unit}, both axes logarithmic]({plot})"
        yield ""


def _command(outcome: Outcome) -> str:
    return f"`python -m benchmarks {outcome.suite}`"


def _growth_goal(item: Growth) -> str:
    goals = [] if item.limit is None else [f"≤ n^{item.limit:g}"]
    if item.most is not None:
        goals.append(f"≤ {readable(item.most, item.takes)}")
    return ", ".join(goals)


def _peer_tables(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if not outcome.measured:
            continue
        yield from (f"### {outcome.suite}", "", f"{outcome.title} ({_command(outcome)}, {outcome.took_s:.0f} s)", "")
        yield "| what | ours | peer | ours | peer | ratio | goal | |"
        yield "|---|---|---|---:|---:|---:|---:|---|"
        for item in outcome.measured:
            goal = "" if item.limit is None else f"≤ {item.limit:.3g}"
            ours = _cell(item.ours_median, item.takes, item.ours_spread)
            peer = _cell(item.peer_median, item.takes, item.peer_spread)
            what = f"{item.name} | {item.ours} | {item.peer}"
            yield f"| {what} | {ours} | {peer} | {item.ratio:.2f} | {goal} | {MET[item.met]} |"
        yield ""


def _cell(median: float, takes: Takes, spread: Spread) -> str:
    low, high = (readable(value, takes) for value in spread)
    return readable(median, takes) if low == high else f"{readable(median, takes)} ({low}–{high})"


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
