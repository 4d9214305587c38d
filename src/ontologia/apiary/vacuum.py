"""Vacuum: deletes cells that nobody can need any more (seed, "Garbage Collection").

Only files that lie in the frame's folder and are named as cells are can go, and only if they were listed *before* the
ledger was read: `Retained` says what stays, from one look at the ledger. A checkpoint of the newest version is written
first: no entry after the latest checkpoint names what goes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ontologia.apiary.colony.heartbeats import others_alive
from ontologia.apiary.ledger import Ledger
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import VacuumResult
from ontologia.apiary.state import changed_cells
from ontologia.apiary.writing import WRITE_LIMIT_S
from ontologia.errors import ValidationError
from ontologia.files.ages import HOW, parse_age
from ontologia.objects import Info

GRACE_S = 3600.0  #: what readers of other processes are given, and how far clocks may be apart
UNNAMED_S = WRITE_LIMIT_S + GRACE_S  #: how long a file that no entry names may still be on its way to be committed
_CELL_FILE = re.compile(r"cell_[0-9a-f-]+\.parquet")


def vacuum(
    node: Node, name: FrameName, older_than: float | str, *, keep_versions: int = 1, apply: bool = True
) -> VacuumResult:
    age = seconds(older_than)
    if type(keep_versions) is not int or keep_versions < 1:
        raise ValidationError(f"keep_versions is a whole number, at least 1, the newest: not {keep_versions!r}")
    _check_readers_elsewhere(node, age)
    now = datetime.fromtimestamp(node.clock.wall(), UTC)
    horizon = now - timedelta(seconds=age)
    folder, ledger = node.objects.under(name.folder), node.ledger(name)
    candidates = [
        info for info in folder.list() if info.modified <= horizon and _CELL_FILE.fullmatch(_file_name(info.key))
    ]
    retained = retain(node, name, candidates, horizon, keep_versions, now)
    doomed = [info for info in candidates if not retained.keeps(info)]
    if apply and doomed:
        _check_readers_elsewhere(node, age)
        ledger.write_checkpoint()
        folder.delete_many(info.key for info in doomed)
        folder.sweep(older_than_s=max(age, GRACE_S))
    return VacuumResult(apply, [info.key for info in doomed], sum(info.size for info in doomed), retained.versions)


@dataclass(frozen=True)
class Retained:
    """What a vacuum leaves alone: the cells of these versions, and files that may still be committed.

    Cells go by their file names, which are unique: how a store spells the folder of a partition makes no difference.
    """

    versions: range
    cells: set[str]
    named: set[str]
    unnamed_until: datetime

    def keeps(self, info: Info) -> bool:
        file = _file_name(info.key)
        return file in self.cells or (file not in self.named and info.modified >= self.unnamed_until)


def retain(
    node: Node, name: FrameName, candidates: Sequence[Info], horizon: datetime, keep_versions: int, now: datetime
) -> Retained:
    """What must stay, of files that were listed before. In this order:

    1. The newest version is looked up. Every file that is listed and named later is not named yet, and is spared.
    2. The versions that readers of this process hold. A reader that comes later reads that version or a newer one.
    3. All cells of these versions, of those that were the newest since the horizon, and of the newest `keep_versions`.
    4. Which of the young files are named by an entry up to that version. The others may be on their way.
    """
    ledger = node.ledger(name)
    newest = ledger.snapshot().version
    held = node.versions_read(name)
    first = min([max(0, newest + 1 - keep_versions), ledger.newest_before(horizon, newest), *held])
    cells = _paths_since(ledger, first, newest)
    unnamed_until = now - timedelta(seconds=UNNAMED_S)
    young = [info.modified for info in candidates if info.modified >= unnamed_until]
    named: set[str] = set()
    if young:
        named = _named(ledger, ledger.newest_before(min(young) - timedelta(seconds=GRACE_S), newest), newest)
    return Retained(range(first, newest + 1), cells, named, unnamed_until)


def _paths_since(ledger: Ledger, first: int, newest: int) -> set[str]:
    """The files of all cells of a version and of every later one."""
    return {_file_name(cell.path) for cell in ledger.snapshot(first).cells} | _named(ledger, first + 1, newest)


def _named(ledger: Ledger, first: int, last: int) -> set[str]:
    """The files of the cells that entries added."""
    return {_file_name(cell.path) for entry in ledger.entries(first, last) for cell in changed_cells(entry.action)[1]}


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _check_readers_elsewhere(node: Node, age: float) -> None:
    """Within the grace period, nobody else may be at work: their readers cannot be seen from here."""
    others = others_alive(node.objects, node.node_id, node.clock.wall()) if age < GRACE_S else []
    if others:
        raise ValidationError(
            f"older_than is {age:g} s, and node {others[0]} is alive and may be reading: use at least {GRACE_S:g} s, "
            "or stop the other nodes"
        )


def seconds(age: float | str) -> float:
    """An age as a number of seconds.

    >>> seconds("12h")
    43200.0
    """
    if isinstance(age, str):
        return parse_age(age)
    if isinstance(age, bool) or not isinstance(age, (int, float)) or age < 0:
        raise ValidationError(f"{age!r} is not an age: {HOW}, or as seconds")
    return float(age)
