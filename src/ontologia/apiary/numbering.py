"""Objects that are numbered in the order they came: entries of a ledger, states of a registry, checkpoints of both.

The highest number is the truth, so finding it must not cost what history costs. A bucket lists from a name on. A
directory cannot, and is asked for the next names one by one instead, in windows wide enough to see past a gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ontologia.apiary.names import number_text
from ontologia.objects import Objects

WINDOW = 128  #: more than there are between two checkpoints
_SORTED_AS_TEXT = 999_000  # from there on, names do not sort as their numbers do


def numbers_in(objects: Objects, folder: str, prefix: str = "") -> list[int]:
    """All numbers that have an object `{prefix}NNNNNN.json` in a folder, in order."""
    return _parse(objects.names(folder), prefix)


def newest_first(objects: Objects, folder: str, prefix: str = "") -> Iterator[int]:
    """The same from the highest on. Names are understood as they are asked for: mostly only the first one is."""
    names = sorted(objects.names(folder), reverse=True)
    names.sort(key=len, reverse=True)  # past six digits, names do not sort as their numbers do
    for name in names:
        yield from _parse([name], prefix)


def numbers_from(objects: Objects, folder: str, first: int, prefix: str = "") -> list[int]:
    """Those numbers from one on that others have come before; from 0 on, all of them."""
    if first == 0 or (first >= _SORTED_AS_TEXT and objects.local_path(folder) is None):
        return [number for number in numbers_in(objects, folder, prefix) if number >= first]
    if objects.local_path(folder) is not None:
        return _probe(objects, folder, first, prefix)
    infos = objects.tail(folder, _name(prefix, first - 1))
    return _parse((info.key.rpartition("/")[2] for info in infos), prefix)


def _probe(objects: Objects, folder: str, first: int, prefix: str) -> list[int]:
    found: list[int] = []
    while True:
        window = range(first, first + WINDOW)
        there = objects.existing(folder, [_name(prefix, number) for number in window])
        found += _parse(there, prefix)
        if len(there) < WINDOW:
            return found
        first += WINDOW


def _parse(names: Iterable[str], prefix: str) -> list[int]:
    fits, start = re.compile(re.escape(prefix) + r"\d{6,}\.json").fullmatch, len(prefix)
    return sorted([int(name[start:-5]) for name in names if fits(name)])


def _name(prefix: str, number: int) -> str:
    return f"{prefix}{number_text(number)}.json"
