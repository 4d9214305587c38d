"""What changed: between two states, and as a feed that can be taken up again where it was left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ontologia.errors import HistoryGapError, ValidationError
from ontologia.omnigraph.comparing import compare
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.mutation import ENDS
from ontologia.omnigraph.snapshots import StoredSnapshot, same_place, state_of

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
    """Row by row, with before and after. Tables that both states share are not read."""
    wanted = set(OPS if ops is None else ops)
    if not wanted <= set(OPS):
        raise ValidationError(f"ops are {', '.join(OPS)}, not {', '.join(sorted(wanted - set(OPS)))}")
    old, new = StoredSnapshot(graph, before), StoredSnapshot(graph, after)
    changes: list[Change] = []
    for key in sorted(before.pins.keys() | after.pins.keys() if keys is None else keys):
        if same_place(before.pins.get(key), after.pins.get(key)) or not (key in old or key in new):
            continue
        changes += [change for change in _changes(old, new, key, commit_id) if change.op in wanted]
    return ChangeSet(before.version, after.version, after.branch, changes)


def _changes(old: StoredSnapshot, new: StoredSnapshot, key: str, commit_id: str | None) -> list[Change]:
    found = compare(old.find(key), new.find(key))
    changes = [Change(key, row["id"], "insert", None, row, commit_id) for row in found.inserted.to_pylist()]
    pairs = zip(found.before.to_pylist(), found.after.to_pylist(), strict=True)
    changes += [Change(key, after["id"], "update", before, after, commit_id) for before, after in pairs]
    changes += [Change(key, row["id"], "delete", row, None, commit_id) for row in found.deleted.to_pylist()]
    return sorted(changes, key=lambda change: change.id)


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
