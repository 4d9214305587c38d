"""What changed: between two states, and as a feed that can be taken up again where it was left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ontologia.errors import HistoryGapError, ValidationError
from ontologia.omnigraph.comparing import compare
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.merge import find_base
from ontologia.omnigraph.mutation import ENDS
from ontologia.omnigraph.snapshots import StoredSnapshot, resolve, same_place, state_of

if TYPE_CHECKING:
    from ontologia.omnigraph.graph import Graph

Op = Literal["insert", "update", "delete"]
OPS = ("insert", "update", "delete")
READ_AT_ONCE = 256  #: versions of `__manifest` whose commits are read together


@dataclass(frozen=True)
class Change:
    """One row that differs. `before` is None for an insert, `after` for a delete."""

    table_key: str
    id: str
    op: Op
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    commit_id: str | None = None

    @property
    def kind(self) -> str:
        return self.table_key.partition(":")[0]

    @property
    def type_name(self) -> str:
        return self.table_key.partition(":")[2]

    @property
    def endpoints(self) -> dict[str, str] | None:
        row = self.after or self.before or {}
        return {name: row[name] for name in ENDS} if self.kind == "edge" else None


@dataclass(frozen=True)
class ChangeSet:
    """The changes between two states, and how many there are of each kind."""

    from_version: int
    to_version: int
    branch: str
    changes: Sequence[Change]

    @property
    def stats(self) -> dict[str, int]:
        counts = {f"{op}s": sum(change.op == op for change in self.changes) for op in OPS}
        return counts | {"types_affected": len({change.table_key for change in self.changes})}

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


@dataclass(frozen=True)
class ChangeFeed:
    """Changes commit by commit, oldest first, and the cursor to go on from."""

    changes: Sequence[Change]
    cursor: str | None

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)


def diff(
    graph: Graph,
    before: GraphManifest,
    after: GraphManifest,
    keys: Sequence[str] | None = None,
    ops: Sequence[str] | None = None,
    commit_id: str | None = None,
) -> ChangeSet:
    """Row by row, with before and after. Tables that both states share are not read.

    Across a schema change, `before` has the columns of its time. What was renamed since, a type or a field, is the same
    thing; a value that one side has no column for counts as null.
    """
    wanted = set(OPS if ops is None else ops)
    if not wanted <= set(OPS):
        raise ValidationError(f"ops are {', '.join(OPS)}, not {', '.join(sorted(wanted - set(OPS)))}")
    old, new = StoredSnapshot(graph, before), StoredSnapshot(graph, after)
    changes: list[Change] = []
    names = Renames()
    moved = [key for key in before.pins.keys() | after.pins.keys() if not _same_pin(before, after, key)]
    if any(_columns(old, key) != _columns(new, key) for key in moved):
        names = find_renames(graph, before, after)
    earlier = {key: names.types.get(key, key) for key in after.pins}
    gone = before.pins.keys() - set(earlier.values())
    for key in sorted(after.pins.keys() | gone if keys is None else keys):
        was = earlier.get(key, key)
        if same_place(before.pins.get(was), after.pins.get(key)) or not (was in old or key in new):
            continue
        found = _changes(old, new, was, key, names.fields.get(key, {}), commit_id)
        changes += [change for change in found if change.op in wanted]
    return ChangeSet(before.version, after.version, after.branch, changes)


def _same_pin(before: GraphManifest, after: GraphManifest, key: str) -> bool:
    return same_place(before.pins.get(key), after.pins.get(key))


def _columns(side: StoredSnapshot, key: str) -> Any:
    """The columns of a table, without what Lance notes in them; None where there is no such table."""
    return side.dataset(key).schema.remove_metadata() if key in side else None


def _changes(
    old: StoredSnapshot, new: StoredSnapshot, was: str, key: str, renamed: Mapping[str, str], commit_id: str | None
) -> list[Change]:
    if was in old and key in new and (was != key or _columns(old, was) != _columns(new, key)):
        return _changes_across_schemas(old, new, was, key, renamed, commit_id)
    found = compare(old.find(was), new.find(key))
    changes = [Change(key, row["id"], "insert", None, row, commit_id) for row in found.inserted.to_pylist()]
    pairs = zip(found.before.to_pylist(), found.after.to_pylist(), strict=True)
    changes += [Change(key, after["id"], "update", before, after, commit_id) for before, after in pairs]
    changes += [Change(key, row["id"], "delete", row, None, commit_id) for row in found.deleted.to_pylist()]
    return sorted(changes, key=lambda change: change.id)


def _changes_across_schemas(
    old: StoredSnapshot, new: StoredSnapshot, was: str, key: str, renamed: Mapping[str, str], commit_id: str | None
) -> list[Change]:
    """Every row was written anew, so both sides are read, and values compared under today's names."""
    before, after = ({row["id"]: row for row in side.read(name).to_pylist()} for side, name in ((old, was), (new, key)))
    changes = []
    for name in sorted(before.keys() | after.keys()):
        left, right = before.get(name), after.get(name)
        op: Op = "insert" if left is None else ("delete" if right is None else "update")
        if left is None or right is None or not _equal_values(left, right, renamed):
            changes.append(Change(key, name, op, left, right, commit_id))
    return changes


def _equal_values(before: Mapping[str, Any], after: Mapping[str, Any], renamed: Mapping[str, str]) -> bool:
    known = {renamed.get(name, name): value for name, value in before.items()}
    pairs = ((known.get(name), after.get(name)) for name in known.keys() | after.keys())
    return all(left == right or (left != left and right != right) for left, right in pairs)


@dataclass(frozen=True)
class Renames:
    """Tables by their later key, and their earlier one; and per later key, columns by their earlier name."""

    types: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def find_renames(graph: Graph, before: GraphManifest, after: GraphManifest) -> Renames:
    """What migrations between two states renamed, whichever of them is the later one."""
    if before.head is None or after.head is None:
        return Renames()
    for newer, older, forward in ((after, before, True), (before, after, False)):
        assert older.head is not None
        commits: list[CommitRecord] = []
        for record in first_parents(graph, newer):
            if record.graph_commit_id == older.head.graph_commit_id:
                return _fold_renames(reversed(commits), forward=forward)
            commits.append(record)
    return Renames()


def _fold_renames(commits: Iterable[CommitRecord], *, forward: bool) -> Renames:
    types: dict[str, str] = {}
    fields: dict[str, dict[str, str]] = {}
    for record in commits:
        for step in (record.details.get("metadata") or {}).get("migrated_types", ()):
            kind = {"entity": "node", "relation": "edge"}[step["type_kind"]]
            key, was = f"{kind}:{step['type_name']}", f"{kind}:{step.get('renamed_from', step['type_name'])}"
            renamed = dict(step.get("renamed_fields", {}))
            known = {first: renamed.pop(last, last) for first, last in fields.pop(was, {}).items()}
            types[key], fields[key] = types.pop(was, was), known | renamed
    if forward:
        return Renames(types, fields)
    back = {first: {last: name for name, last in fields[key].items()} for key, first in types.items()}
    return Renames({first: key for key, first in types.items()}, back)


def resolve_range(graph: Graph, a: str | int, b: str | int | None) -> tuple[GraphManifest, GraphManifest]:
    """The two states of a diff: those that are named or, for `main...review`, what `review` changed since it and `main`
    had their last commit in common."""
    if b is not None:
        return resolve(graph, a), resolve(graph, b)
    left, dots, right = str(a).partition("...")
    if not (left and dots and right):
        raise ValidationError(f"a diff is of two states, or of a range such as 'main...review', not of {a!r} alone")
    target, source = resolve(graph, left), resolve(graph, right)
    return state_of(graph, find_base(graph, source, target)[0]), source


def changes_since(graph: Graph, branch: str, cursor: str | None, limit: int | None = None) -> ChangeFeed:
    """What commits after the cursor changed on a branch, oldest first; from the beginning without one."""
    chain: list[CommitRecord] = []
    for record in first_parents(graph, graph.manifest(branch)):
        chain.append(record)
        if record.graph_commit_id == cursor:
            break
    else:
        if cursor is not None:
            raise HistoryGapError(
                f"commit {cursor} is not in the history of branch {branch}, as far as it is stored: read the whole "
                "state with snapshot(), then follow from its head"
            )
    changes: list[Change] = []
    pairs = list(zip(chain[:0:-1], chain[-2::-1], strict=True))[: limit if limit is None else max(limit, 0)]
    for earlier, later in pairs:
        try:
            states = [state_of(graph, record) for record in (earlier, later)]
        except HistoryGapError as problem:
            raise HistoryGapError(
                f"{problem}. What followed it cannot be told: read the whole state with snapshot(), then follow from "
                "its head"
            ) from problem
        changes += diff(graph, states[0], states[1], commit_id=later.graph_commit_id)
    last = pairs[-1][1] if pairs else (chain[-1] if chain else None)
    return ChangeFeed(changes, None if last is None else last.graph_commit_id)


def first_parents(graph: Graph, manifest: GraphManifest) -> Iterator[CommitRecord]:
    """The commits that this branch itself went through, newest first, read as far back as they are asked for."""
    if manifest.head is None:
        pool = graph.commit_log.pool(manifest.branch)
        name, low = graph.commit_log.head_of(manifest, pool), 0
    else:
        name, low = manifest.head.graph_commit_id, manifest.head.manifest_version
        pool = {name: manifest.head}
    while name is not None:
        while name not in pool and low > 0:  # numbers only fall on the way back, so the parent is further down
            high, low = low, max(0, low - READ_AT_ONCE)
            pool |= graph.commit_log.between(manifest.branch, low, high)
        if name not in pool:
            return
        yield pool[name]
        name = pool[name].parent_commit_id
