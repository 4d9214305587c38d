"""Rules about more than one row, which a merge keeps: edges have their ends, unique values are unique."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.omnigraph.conflicts import Conflict, Sides, Strategy, rows_by_id, without
from ontologia.omnigraph.mutation import ENDS, TableChange, endpoints_of, missing_nodes
from ontologia.omnigraph.snapshots import same_place
from ontologia.omnigraph.uniqueness import clashes, unique_columns


def settle_rules(sides: Sides, changes: dict[str, TableChange], strategy: Strategy) -> list[Conflict]:
    """Apply the rules until nothing is left to settle: a node that comes back for an edge may have a value that is
    taken by now, and a row that gives way to another's value may be the end of an edge."""
    conflicts = unique_violations(sides, changes, strategy)
    seen: set[tuple[str, str | None]] = set()
    while found := [it for it in orphans(sides, changes, strategy) if (it.table_key, it.id) not in seen]:
        seen |= {(it.table_key, it.id) for it in found}
        conflicts += found
        if strategy == "fail":
            break
        conflicts += unique_violations(sides, changes, strategy, thorough=True)
    return conflicts


# --- edges that a merge would leave without an end ---


def orphans(sides: Sides, changes: dict[str, TableChange], strategy: Strategy) -> list[Conflict]:
    """One side deleted a node, the other has an edge that needs it. The winner's change stands."""
    conflicts: list[Conflict] = []
    tables = {**sides.source.manifest.tables, **sides.target.manifest.tables}
    for key in sorted(sides.source.manifest.pins.keys() | sides.target.manifest.pins.keys()):
        ends = endpoints_of(tables[key])
        for column, node in zip(ENDS, ends or (), strict=False):
            conflicts += _edges_of_deleted(sides, changes, key, column, node, strategy)
            conflicts += _edges_to_missing(sides, changes, key, column, node, strategy)
    return conflicts


def _edges_of_deleted(
    sides: Sides, changes: dict[str, TableChange], key: str, column: str, node: str, strategy: Strategy
) -> list[Conflict]:
    """The source deleted nodes that edges of the target still touch."""
    gone = sorted(changes[node].deleted) if node in changes else []
    if not gone or key not in sides.target:
        return []
    change = changes.get(key)
    settled = set() if change is None else set(change.deleted)
    if change is not None and change.rows is not None:
        settled |= set(change.rows.column("id").to_pylist())
    touching = sides.target.rows_of(key, gone, by=column).to_pylist()
    left = [row for row in touching if row["id"] not in settled]
    for row in left:
        if strategy == "theirs":
            change = changes.setdefault(key, TableChange(key))
            change.deleted = [*change.deleted, row["id"]]
        elif strategy == "ours":
            changes[node].deleted = [name for name in changes[node].deleted if name != row[column]]
    return _orphan_conflicts(sides, key, [row["id"] for row in left])


def _edges_to_missing(
    sides: Sides, changes: dict[str, TableChange], key: str, column: str, node: str, strategy: Strategy
) -> list[Conflict]:
    """The source's edges touch nodes that the target deleted, or that this merge deletes."""
    change = changes.get(key)
    if change is None or change.rows is None:
        return []
    nodes = changes.get(node)
    absent = missing_nodes(sides.target, nodes, node, change.rows.column(column))
    # Where the source itself has no such node, the edge was an orphan before: not this merge's doing.
    missing = sides.source.existing(node, sorted(absent.to_pylist()))
    if not missing:
        return []
    lost = pc.is_in(change.rows.column(column), value_set=pa.array(sorted(missing), pa.string()))
    rows = change.rows.filter(lost).to_pylist()
    if strategy == "theirs":
        again = sides.source.rows_of(node, sorted(missing))
        nodes = changes.setdefault(node, TableChange(node))
        nodes.rows = again if nodes.rows is None else pa.concat_tables([nodes.rows, again.cast(nodes.rows.schema)])
    elif strategy == "ours":
        change.rows = without(change.rows, {row["id"] for row in rows})
    return _orphan_conflicts(sides, key, [row["id"] for row in rows])


def _orphan_conflicts(sides: Sides, key: str, names: Sequence[str]) -> list[Conflict]:
    base, source, target = (rows_by_id(side, key, names) for side in (sides.base, sides.source, sides.target))
    return [Conflict(key, name, "OrphanEdge", base.get(name), source.get(name), target.get(name)) for name in names]


# --- values that both sides gave to different rows ---


def unique_violations(
    sides: Sides, changes: dict[str, TableChange], strategy: Strategy, *, thorough: bool = False
) -> list[Conflict]:
    """Both sides gave one unique value to different rows. The winner's row stands; the other's is as the winner has it,
    which may free or take another value, so this goes on until there is nothing left to settle. `thorough` also looks
    at tables that only the source changed, of which something else took rows back."""
    conflicts: list[Conflict] = []
    for key, change in list(changes.items()):
        columns = unique_columns(change.table or sides.target.manifest.tables[key])
        base, _, target = sides.pins(key)
        if not columns or target is None or (same_place(base, target) and not thorough):
            continue  # the target has no change of its own: what was unique on the source stays so
        seen: set[str] = set()
        while change.rows is not None:
            found = list(clashes(sides.target, key, columns, change.rows, change.deleted, replace_all=False))
            conflicts += _unique_conflicts(sides, key, {it.id: it.other for it in found if it.id not in seen})
            seen |= {it.id for it in found}
            if not found or strategy == "fail":
                break
            if strategy == "ours":
                left = without(change.rows, {it.id for it in found})
                change.rows = left if left.num_rows else None
            else:
                _as_source(sides, change, sorted({it.other for it in found}))
    return conflicts


def _as_source(sides: Sides, change: TableChange, ids: Sequence[str]) -> None:
    """Make rows of the target what they are on the source, where they may not be at all."""
    again = sides.source.rows_of(change.key, ids)
    known = set(again.column("id").to_pylist())
    change.deleted = [*change.deleted, *(name for name in ids if name not in known)]
    if again.num_rows:
        assert change.rows is not None
        change.rows = pa.concat_tables([change.rows, again.cast(change.rows.schema)])


def _unique_conflicts(sides: Sides, key: str, holders: Mapping[str, str]) -> list[Conflict]:
    """The source's row, and the target's row, which is another one, that has its value."""
    names = sorted(holders)
    base, source = rows_by_id(sides.base, key, names), rows_by_id(sides.source, key, names)
    target = rows_by_id(sides.target, key, sorted(holders.values()))
    return [
        Conflict(key, name, "UniqueViolation", base.get(name), source.get(name), target.get(holders[name]))
        for name in names
    ]
