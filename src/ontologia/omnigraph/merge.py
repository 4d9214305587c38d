"""Merging a branch: three-way, row by row, into one commit with two parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ontologia.errors import MergeConflictError, ValidationError
from ontologia.omnigraph.commits import merge_base
from ontologia.omnigraph.comparing import written_since
from ontologia.omnigraph.manifest import CommitRecord, Manifest, Pin, Table
from ontologia.omnigraph.mutation import ENDS, Checks, TableChange, endpoints_of, plan_mutation
from ontologia.omnigraph.phases import WritePlan
from ontologia.omnigraph.snapshots import Snapshot, same_place

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.omnigraph.graph import Graph

Strategy = Literal["fail", "ours", "theirs"]
STRATEGIES = ("fail", "ours", "theirs")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Conflict:
    """One thing that both sides changed. A side that does not have the row is None."""

    table_key: str
    id: str | None
    kind: Literal["DivergentInsert", "DivergentUpdate", "DeleteVsUpdate", "OrphanEdge", "UniqueViolation"]
    base: Row | None
    source: Row | None
    target: Row | None

    def __str__(self) -> str:
        return (
            f"{self.kind} of {self.table_key} {self.id!r}: base {self.base}, source {self.source}, target {self.target}"
        )


@dataclass(frozen=True)
class MergeReport:
    """What a merge did, or would do: rows written and deleted per table, and conflicts that a strategy decided."""

    outcome: Literal["already_up_to_date", "fast_forward", "merged"]
    source: str
    target: str
    base: str | None = None
    commit: CommitRecord | None = None
    written: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    conflicts: Sequence[Conflict] = ()


@dataclass
class _Merged:
    """One table: what the source changes in the target."""

    change: TableChange
    conflicts: list[Conflict]


def merge(
    graph: Graph,
    source: str,
    into: str = "main",
    *,
    strategy: Strategy = "fail",
    dry_run: bool = False,
    actor: str | None = None,
    message: str | None = None,
) -> MergeReport:
    """Bring what a branch changed since the common base into another branch."""
    if strategy not in STRATEGIES:
        raise ValidationError(f"strategy is {', '.join(STRATEGIES)}, not {strategy!r}")
    if source == into:
        raise ValidationError(f"a branch cannot be merged into itself: {source!r}")
    graph.check_branch(source)
    graph.check_branch(into)
    report = MergeReport("already_up_to_date", source, into)

    def prepare(manifest: Manifest) -> WritePlan | None:
        nonlocal report
        report, plan = plan_merge(graph, graph.publisher.manifest(source), manifest, strategy, message)
        return plan

    if dry_run:
        prepare(graph.manifest(into))
        return report
    commit = graph.write(into, "BranchMerge", prepare, actor=actor)
    return replace(report, commit=commit)


def plan_merge(
    graph: Graph, source: Manifest, target: Manifest, strategy: Strategy, message: str | None
) -> tuple[MergeReport, WritePlan | None]:
    base_commit, source_head, target_head = _base(graph, source, target)
    if base_commit.graph_commit_id == source_head:
        return MergeReport("already_up_to_date", source.branch, target.branch, source_head), None
    outcome: Any = "fast_forward" if base_commit.graph_commit_id == target_head else "merged"
    base = graph.publisher.manifest(base_commit.branch, base_commit.manifest_version)
    sides = _Sides(Snapshot(graph, base), Snapshot(graph, source), Snapshot(graph, target))
    merged, tombstones = _tables(sides, strategy)
    conflicts = [conflict for table in merged for conflict in table.conflicts]
    changes = {table.change.key: table.change for table in merged}
    conflicts += _orphans(sides, changes, strategy)
    if conflicts and strategy == "fail":
        shown = "; ".join(str(conflict) for conflict in conflicts[:20])
        more = f"; and {len(conflicts) - 20:,} more" if len(conflicts) > 20 else ""
        raise MergeConflictError(
            f"{source.branch} cannot be merged into {target.branch}, {len(conflicts):,} conflicts: {shown}{more}; "
            "change one side, or choose strategy='ours' (the target's) or 'theirs' (the source's)",
            conflicts,
        )
    details = {"merged": source.branch, **({"message": message} if message else {})}
    plan = plan_mutation(graph, target, list(changes.values()), Checks(endpoints=False), details)
    plan = replace(plan or WritePlan(details=details), merged_parent=source_head, tombstones=tombstones)
    report = MergeReport(
        outcome,
        source.branch,
        target.branch,
        base_commit.graph_commit_id,
        None,
        {key: change.rows.num_rows for key, change in changes.items() if change.rows is not None},
        {key: len(change.deleted) for key, change in changes.items() if change.deleted},
        conflicts,
    )
    return report, plan


def _base(graph: Graph, source: Manifest, target: Manifest) -> tuple[CommitRecord, str, str]:
    pool = graph.commit_log.known(graph.branches())
    for manifest in (source, target):
        if manifest.head is not None:
            pool[manifest.head.graph_commit_id] = manifest.head
    heads = [graph.commit_log.head_of(manifest, pool) for manifest in (source, target)]
    assert heads[0] is not None
    assert heads[1] is not None
    return merge_base(pool, heads[0], heads[1]), heads[0], heads[1]


@dataclass(frozen=True)
class _Sides:
    base: Snapshot
    source: Snapshot
    target: Snapshot

    def pins(self, key: str) -> tuple[Any, Any, Any]:
        return tuple(side.manifest.pins.get(key) for side in (self.base, self.source, self.target))  # type: ignore[return-value]


def _tables(sides: _Sides, strategy: Strategy) -> tuple[list[_Merged], dict[str, int]]:
    merged, tombstones = [], {}
    keys = sides.base.manifest.pins.keys() | sides.source.manifest.pins.keys()
    for key in sorted(keys):
        base, source, target = sides.pins(key)
        if same_place(base, source) and _notes(sides.base, key) == _notes(sides.source, key):
            continue
        if source is None:
            if target is not None:
                if not same_place(base, target):
                    raise ValidationError(
                        f"{key} was dropped on the source and changed on the target: drop it there too"
                    )
                tombstones[key] = target.version + 1
            continue
        if target is None and base is not None:
            raise ValidationError(f"{key} was dropped on the target and changed on the source: drop it there too")
        merged.append(_table(sides, key, strategy))
    return merged, tombstones


def _notes(side: Snapshot, key: str) -> Mapping[str, Any] | None:
    table = side.manifest.tables.get(key)
    return table.notes if table is not None and key in side else None


def _table(sides: _Sides, key: str, strategy: Strategy) -> _Merged:
    base, source, target = (side.find(key) for side in (sides.base, sides.source, sides.target))
    assert source is not None
    change = _registered(sides, key)
    pins = sides.pins(key)
    theirs = written_since(base, source, descends=_descends(sides, *pins[:2]))
    written, deleted = theirs.rows, theirs.deleted
    conflicts: list[Conflict] = []
    if target is not None and not same_place(pins[0], pins[2]):
        ours = written_since(base, target, descends=_descends(sides, pins[0], pins[2]))
        both = theirs.ids & ours.ids
        if both:
            kept, conflicts = _decided(sides, key, both, strategy)
            written = _without(written, both - kept)
            deleted = [name for name in deleted if name not in both - kept]
    change.rows = written if written.num_rows else None
    change.deleted = deleted
    return _Merged(change, conflicts)


def _descends(sides: _Sides, old: Pin | None, new: Pin | None) -> bool:
    """Whether a version of a table came out of another: on the same lineage, or on one that was forked later."""
    if old is None or new is None or old.path != new.path:
        return False
    forks = sides.base.graph.datasets.branches(old.path)
    branch, version = new.branch, new.version
    while branch != old.branch:
        if branch is None or branch not in forks:
            return False
        branch, version = forks[branch]["parent_branch"], forks[branch]["parent_version"]
    return old.version <= version


def _registered(sides: _Sides, key: str) -> TableChange:
    """What the merge does to the table itself: nothing, register it, or take over what the source noted about it."""
    source = sides.source.manifest.tables[key]
    known = sides.target.manifest.tables.get(key) if key in sides.target else None
    if known is None:
        schema = sides.source.dataset(key).schema
        return TableChange(
            key, table=Table(key, source.path, source.notes), schema=schema, notes=_pin_notes(sides, key)
        )
    notes = [_notes(side, key) for side in (sides.base, sides.source, sides.target)]
    ours, theirs = sides.target.dataset(key).schema, sides.source.dataset(key).schema
    if not ours.equals(theirs):
        raise ValidationError(
            f"{key} has other columns on {sides.source.manifest.branch} than on {sides.target.manifest.branch}: apply "
            "the same schema to both, then merge"
        )
    pinned = _pin_notes(sides, key)
    if notes[1] not in (notes[2], notes[0]):
        if notes[2] != notes[0]:
            raise ValidationError(f"{key} has a changed schema on both branches: apply the same schema to both first")
        return TableChange(key, table=replace(known, notes=source.notes), notes=pinned)
    return TableChange(key, notes=pinned)


def _pin_notes(sides: _Sides, key: str) -> dict[str, Any]:
    """What is noted with a version besides where its file is."""
    own = ("manifest_path", "manifest_size", "e_tag", "naming_scheme")
    metadata = sides.source.manifest.pins[key].metadata
    return {name: value for name, value in metadata.items() if name not in own}


def _decided(sides: _Sides, key: str, both: set[str], strategy: Strategy) -> tuple[set[str], list[Conflict]]:
    """Ids that both sides wrote: those that the source wins, and the conflicts. Not all of them were changed."""
    names = sorted(both)
    base, source, target = (_rows(side, key, names) for side in (sides.base, sides.source, sides.target))
    won, conflicts = set(), []
    for name in names:
        was, theirs, ours = base.get(name), source.get(name), target.get(name)
        if _same(theirs, was) or _same(theirs, ours):
            continue
        if _same(ours, was):
            won.add(name)
            continue
        kind: Any = "DivergentUpdate"
        if was is None:
            kind = "DivergentInsert"
        elif theirs is None or ours is None:
            kind = "DeleteVsUpdate"
        conflicts.append(Conflict(key, name, kind, was, theirs, ours))
        if strategy == "theirs":
            won.add(name)
    return won, conflicts


def _rows(side: Snapshot, key: str, names: Sequence[str]) -> dict[str, Row]:
    return {row["id"]: row for row in side.rows_of(key, names).to_pylist()} if key in side else {}


def _same(left: Row | None, right: Row | None) -> bool:
    """By the text of the values: null is no empty text, and not-a-number is equal to itself."""
    if left is None or right is None:
        return left is right
    return sorted(map(repr, left.items())) == sorted(map(repr, right.items()))


def _without(rows: pa.Table, ids: set[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=pa.array(sorted(ids), pa.string()))))


# --- edges that a merge would leave without an end ---


def _orphans(sides: _Sides, changes: dict[str, TableChange], strategy: Strategy) -> list[Conflict]:
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
    sides: _Sides, changes: dict[str, TableChange], key: str, column: str, node: str, strategy: Strategy
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
    return [Conflict(key, row["id"], "OrphanEdge", None, None, row) for row in left]


def _edges_to_missing(
    sides: _Sides, changes: dict[str, TableChange], key: str, column: str, node: str, strategy: Strategy
) -> list[Conflict]:
    """The source's edges touch nodes that the target deleted, or that this merge deletes."""
    import pyarrow as pa

    change = changes.get(key)
    if change is None or change.rows is None:
        return []
    nodes = changes.get(node)
    wanted = set(change.rows.column(column).to_pylist())
    if nodes is not None and nodes.rows is not None:
        wanted -= set(nodes.rows.column("id").to_pylist())
    present = sides.target.existing(node, sorted(wanted)) - set(nodes.deleted if nodes is not None else ())
    # Where the source itself has no such node, the edge was an orphan before: not this merge's doing.
    missing = sides.source.existing(node, sorted(wanted - present))
    if not missing:
        return []
    rows = [row for row in change.rows.to_pylist() if row[column] in missing]
    if strategy == "theirs":
        again = sides.source.rows_of(node, sorted(missing))
        nodes = changes.setdefault(node, TableChange(node))
        nodes.rows = again if nodes.rows is None else pa.concat_tables([nodes.rows, again.cast(nodes.rows.schema)])
    elif strategy == "ours":
        change.rows = _without(change.rows, {row["id"] for row in rows})
    return [Conflict(key, row["id"], "OrphanEdge", None, row, None) for row in rows]
