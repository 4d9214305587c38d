"""Merging a branch: three-way, row by row, into one commit with two parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ontologia.errors import MergeConflictError, ValidationError
from ontologia.omnigraph.commits import merge_base
from ontologia.omnigraph.comparing import find_written
from ontologia.omnigraph.conflicts import STRATEGIES, Conflict, Sides, Strategy, rows_by_id, same_row, without
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Pin, Table
from ontologia.omnigraph.merge_rules import settle_rules
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.phases import GraphWrite
from ontologia.omnigraph.snapshots import StoredSnapshot, same_place, state_of

if TYPE_CHECKING:
    from ontologia.omnigraph.graph import Graph


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

    def prepare(manifest: GraphManifest) -> GraphWrite | None:
        nonlocal report
        report, plan = plan_merge(graph, graph.publisher.manifest(source), manifest, strategy, message)
        return plan

    if dry_run:
        prepare(graph.manifest(into))
        return report
    commit = graph.write(into, "BranchMerge", prepare, actor=actor)
    return replace(report, commit=commit)


def plan_merge(
    graph: Graph, source: GraphManifest, target: GraphManifest, strategy: Strategy, message: str | None
) -> tuple[MergeReport, GraphWrite | None]:
    base_commit, source_head, target_head = find_base(graph, source, target)
    if base_commit.graph_commit_id == source_head:
        return MergeReport("already_up_to_date", source.branch, target.branch, source_head), None
    outcome: Any = "fast_forward" if base_commit.graph_commit_id == target_head else "merged"
    base = state_of(graph, base_commit)
    sides = Sides(StoredSnapshot(graph, base), StoredSnapshot(graph, source), StoredSnapshot(graph, target))
    merged, tombstones = _tables(sides, strategy)
    conflicts = [conflict for table in merged for conflict in table.conflicts]
    changes = {table.change.key: table.change for table in merged}
    conflicts += settle_rules(sides, changes, strategy)
    if conflicts and strategy == "fail":
        shown = "; ".join(str(conflict) for conflict in conflicts[:20])
        more = f"; and {len(conflicts) - 20:,} more" if len(conflicts) > 20 else ""
        raise MergeConflictError(
            f"{source.branch} cannot be merged into {target.branch}, {_describe_count(conflicts)}: {shown}{more}; "
            "change one side, or choose strategy='ours' (the target's) or strategy='theirs' (the source's)",
            conflicts,
        )
    details = {"merged": source.branch, **({"message": message} if message else {})}
    plan = plan_mutation(graph, target, list(changes.values()), Checks(endpoints=False), details)
    plan = replace(plan or GraphWrite(details=details), merged_parent=source_head, tombstones=tombstones)
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


def _describe_count(conflicts: Sequence[Conflict]) -> str:
    return f"{len(conflicts):,} conflict{'' if len(conflicts) == 1 else 's'}"


def find_base(graph: Graph, source: GraphManifest, target: GraphManifest) -> tuple[CommitRecord, str, str]:
    """The common ancestor of two states, and their own commits."""
    heads, pool = graph.heads_and_commits()
    for manifest in (source, target):  # a branch may have moved on
        if manifest.head is not None:
            pool[manifest.head.graph_commit_id] = manifest.head
    left, right = (heads[it.branch] if it.head is None else it.head.graph_commit_id for it in (source, target))
    return merge_base(pool, left, right), left, right


def _tables(sides: Sides, strategy: Strategy) -> tuple[list[_Merged], dict[str, int]]:
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


def _notes(side: StoredSnapshot, key: str) -> Mapping[str, Any] | None:
    """What a side noted about a table, but for when: two branches may have declared the same type."""
    table = side.manifest.tables.get(key)
    if table is None or key not in side:
        return None
    schemas = [{name: it[name] for name in it if name != "created_at"} for it in table.notes.get("schemas", ())]
    return {**table.notes, "schemas": schemas}


def _table(sides: Sides, key: str, strategy: Strategy) -> _Merged:
    base, source, target = (side.find(key) for side in (sides.base, sides.source, sides.target))
    assert source is not None
    change = _register(sides, key)
    pins = sides.pins(key)
    theirs = find_written(base, source, descends=_descends(sides, *pins[:2]))
    written, deleted = theirs.rows, theirs.deleted
    conflicts: list[Conflict] = []
    if target is not None and not same_place(pins[0], pins[2]):
        ours = find_written(base, target, descends=_descends(sides, pins[0], pins[2]))
        both = theirs.both(ours)
        if both:
            kept, conflicts = _decide(sides, key, both, strategy)
            written = without(written, both - kept)
            deleted = [name for name in deleted if name not in both - kept]
    change.rows = written if written.num_rows else None
    change.deleted = deleted
    return _Merged(change, conflicts)


def _descends(sides: Sides, old: Pin | None, new: Pin | None) -> bool:
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


def _register(sides: Sides, key: str) -> TableChange:
    """What the merge does to the table itself: nothing, register it, or take over what the source noted about it."""
    source = sides.source.manifest.tables[key]
    known = sides.target.manifest.tables.get(key) if key in sides.target else None
    if known is None:
        schema = sides.source.dataset(key).schema
        return TableChange(
            key, table=Table(key, source.path, source.notes), schema=schema, notes=sides.source.manifest.pins[key].notes
        )
    notes = [_notes(side, key) for side in (sides.base, sides.source, sides.target)]
    ours, theirs = sides.target.dataset(key).schema, sides.source.dataset(key).schema
    if not ours.equals(theirs):
        raise ValidationError(
            f"{key} has other columns on {sides.source.manifest.branch} than on {sides.target.manifest.branch}: apply "
            "the same schema to both, then merge"
        )
    pinned = sides.source.manifest.pins[key].notes
    if notes[1] not in (notes[2], notes[0]):
        if notes[2] != notes[0]:
            raise ValidationError(f"{key} has a changed schema on both branches: apply the same schema to both first")
        return TableChange(key, table=replace(known, notes=source.notes), notes=pinned)
    return TableChange(key, notes=pinned)


def _decide(sides: Sides, key: str, both: set[str], strategy: Strategy) -> tuple[set[str], list[Conflict]]:
    """Ids that both sides wrote: those that the source wins, and the conflicts. Not all of them were changed."""
    names = sorted(both)
    base, source, target = (rows_by_id(side, key, names) for side in (sides.base, sides.source, sides.target))
    won, conflicts = set(), []
    for name in names:
        was, theirs, ours = base.get(name), source.get(name), target.get(name)
        if same_row(theirs, was) or same_row(theirs, ours):
            continue
        if same_row(ours, was):
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
