"""Vacuum: deletes cells that nobody can need any more (seed, "Garbage Collection").

What stays: every cell of a version that was the newest at some time in the last `older_than`; of the newest
`keep_versions` versions; of every version that a reader of this process holds; and every young file that no entry has
named yet, since cells are written before they are committed. Only files that lie in the frame's folder, that are named
as cells are, and that were listed before the ledger was read, are deleted. A checkpoint of the newest version is
written first: no entry after the latest checkpoint names what goes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ontologia.apiary.colony.heartbeats import others_alive
from ontologia.apiary.ledger import Ledger
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import VacuumResult
from ontologia.apiary.state import changed_cells
from ontologia.errors import ValidationError
from ontologia.files.ages import HOW, parse_age

GRACE_S = 3600.0  #: what readers of other processes are given
_CELL_FILE = re.compile(r"cell_[0-9a-f-]+\.parquet")


def vacuum(
    node: Node, name: FrameName, older_than: float | str, *, keep_versions: int = 1, apply: bool = True
) -> VacuumResult:
    age = seconds(older_than)
    if type(keep_versions) is not int or keep_versions < 1:
        raise ValidationError(f"keep_versions is a whole number, at least 1, the newest: not {keep_versions!r}")
    _check_readers_elsewhere(node, age)
    horizon = datetime.fromtimestamp(node.clock.wall(), UTC) - timedelta(seconds=age)
    folder = node.objects.under(name.folder)
    files = [info for info in folder.list() if _CELL_FILE.fullmatch(info.key.rpartition("/")[2])]
    ledger = node.ledger(name)
    first = _first_kept(ledger, horizon, keep_versions, node.versions_read(name))
    kept = _paths_since(ledger, first)
    young = datetime.fromtimestamp(node.clock.wall() - GRACE_S, UTC)
    committed = _paths_added_since(ledger, young - timedelta(seconds=GRACE_S)) if age < GRACE_S else set()
    doomed = [
        info
        for info in files
        if info.key not in kept and info.modified <= horizon and (info.modified < young or info.key in committed)
    ]
    if apply and doomed:
        ledger.write_checkpoint()
        folder.delete_many(info.key for info in doomed)
        folder.sweep(older_than_s=max(age, GRACE_S))
    return VacuumResult(
        apply,
        [info.key for info in doomed],
        sum(info.size for info in doomed),
        range(first, ledger.known().version + 1),
    )


def _check_readers_elsewhere(node: Node, age: float) -> None:
    """Within the grace period, nobody else may be at work: their readers cannot be seen from here."""
    others = others_alive(node.objects, node.node_id, node.clock.wall()) if age < GRACE_S else []
    if others:
        raise ValidationError(
            f"older_than is {age:g} s, and node {others[0]} is alive and may be reading: use at least {GRACE_S:g} s, "
            "or stop the other nodes"
        )


def _first_kept(ledger: Ledger, horizon: datetime, keep_versions: int, held: set[int]) -> int:
    """The oldest version whose cells all stay."""
    newest = ledger.snapshot().version
    return min([max(0, newest + 1 - keep_versions), ledger.newest_before(horizon), *held])


def _paths_since(ledger: Ledger, first: int) -> set[str]:
    """The paths of all cells of a version and of every later one."""
    paths = {cell.path for cell in ledger.snapshot(first).cells}
    return paths | _paths_added(ledger, first + 1)


def _paths_added(ledger: Ledger, first: int) -> set[str]:
    entries = ledger.entries(first, ledger.snapshot().version)
    return {cell.path for entry in entries for cell in changed_cells(entry.action)[1]}


def _paths_added_since(ledger: Ledger, moment: datetime) -> set[str]:
    return _paths_added(ledger, ledger.newest_before(moment))


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
