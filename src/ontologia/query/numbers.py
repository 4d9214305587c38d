"""Comparisons of integers with floats, exactly.

SQL engines make doubles of both, and then the neighbours of a 64-bit id are equal to it. Here a comparison becomes the
range of the values that pass, in the column's own type: of an integer column against 2.5, `n > 2.5` is "from 3 on".
The ranges are closed, so that one statement serves every value. As everywhere, NaN is above all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

LEAST, GREATEST = -(2**63), 2**63 - 1
NO_INTEGER, NO_FLOAT = (1, 0), (math.inf, -math.inf)


def value_kind(value: Any) -> Any:
    """What decides how a value is compared, besides the value: its type, and whether an int is wider than 64 bits."""
    return "wide" if type(value) is int and not LEAST <= value <= GREATEST else type(value)


def integers(op: str, value: float) -> tuple[int, int]:
    """The 64-bit integers that pass a comparison with a number; for `ne`, those that do not."""
    if isinstance(value, float) and not math.isfinite(value):
        above = value > 0 or math.isnan(value)
        passes = op in (("lt", "le") if above else ("gt", "ge"))
        return (LEAST, GREATEST) if passes else NO_INTEGER
    floor, ceiling = math.floor(value), math.ceil(value)
    low, high = {
        "lt": (LEAST, ceiling - 1),
        "le": (LEAST, floor),
        "gt": (floor + 1, GREATEST),
        "ge": (ceiling, GREATEST),
    }.get(op, (ceiling, floor))
    low, high = max(low, LEAST), min(high, GREATEST)
    return (low, high) if low <= high else NO_INTEGER


def floats(op: str, value: float) -> tuple[float, float]:
    """The floats that pass a comparison with a number; for `ne`, those that do not."""
    if isinstance(value, float) and math.isnan(value):
        ranges = {"lt": (-math.inf, math.inf), "le": (-math.inf, math.nan), "gt": NO_FLOAT}
        return ranges.get(op, (math.nan, math.nan))
    below, above = _around(value)
    match op:
        case "lt":
            below = math.nextafter(below, -math.inf) if below == value else below
            return (-math.inf, below) if below < value else NO_FLOAT
        case "le":
            return (-math.inf, below)
        case "gt":
            above = math.nextafter(above, math.inf) if above == value else above
            return (above if above > value else math.nan, math.nan)
        case "ge":
            return (above, math.nan)
    return (above, below) if below == above else NO_FLOAT


def as_integers(values: Iterable[float]) -> list[int]:
    """The 64-bit integers that are equal to one of these numbers."""
    found: list[int] = []
    for value in values:
        low, high = (value, value) if value_kind(value) is int else integers("eq", value)
        if low == high:
            found.append(int(low))
    return found


def as_floats(values: Iterable[float]) -> list[str]:
    """The floats that are equal to one of these numbers, as text: in a list, engines take no NaN and no infinity."""
    ranges = (floats("eq", value) for value in values)
    return ["NaN" if math.isnan(low) else repr(low) for low, high in ranges if low == high or math.isnan(low)]


def _around(value: float) -> tuple[float, float]:
    """The nearest floats at or below, and at or above."""
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if near == value:
        return near, near
    if near > value:
        return math.nextafter(near, -math.inf), near
    return near, math.nextafter(near, math.inf)
