"""`__retired/<ulid>.json`: what outlives a branch that was deleted.

Its commits stay part of the history of every branch that merged them, with message and author. And where two branches
each merged the branch, the state they merged is their common ancestor: a later merge compares with it. So the deletion
of a branch writes down its commits, and copies the rows of such states to table forks that belong to no branch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.errors import StorageBackendError
from ontologia.objects import ObjectNotFound, Objects
from ontologia.omnigraph.commits import ancestors_of
from ontologia.omnigraph.comparing import compare
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Pin, Table
from ontologia.omnigraph.names import RETIRED, new_ulid

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontologia.omnigraph.graph import Graph

FORK_PREFIX = "__retired__"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class RetiredState:
    """What all tables were at one commit of a deleted branch."""

    tables: Sequence[Table]
    pins: Sequence[Pin]

    def to_json(self) -> dict[str, Any]:
        return {
            "tables": [{"table_key": it.key, "table_path": it.path, "notes": dict(it.notes)} for it in self.tables],
            "pins": [
                {
                    "table_key": pin.key,
                    "table_path": pin.path,
                    "table_version": pin.version,
                    "table_branch": pin.branch,
                    "row_count": pin.rows,
                    "metadata": pin.text,
                }
                for pin in self.pins
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RetiredState:
        tables = [Table(it["table_key"], it["table_path"], it["notes"]) for it in content["tables"]]
        pins = [
            Pin(
                it["table_key"],
                it["table_path"],
                it["table_version"],
                it["table_branch"],
                it["row_count"],
                it["metadata"],
            )
            for it in content["pins"]
        ]
        return cls(tables, pins)


@dataclass(frozen=True)
class RetiredBranch:
    """The commits of a deleted branch that others have merged, and the states of some of them, by commit."""

    id: str
    branch: str
    commits: Sequence[CommitRecord]
    states: Mapping[str, RetiredState] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{RETIRED}/{self.id}.json"

    @property
    def fork(self) -> str:
        """The Lance branch of tables that has the rows of its states."""
        return f"{FORK_PREFIX}{self.id}"

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "id": self.id,
            "branch": self.branch,
            "commits": [
                {"manifest_version": it.manifest_version, "record": json.loads(it.to_json())} for it in self.commits
            ],
            "states": {commit: state.to_json() for commit, state in self.states.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RetiredBranch:
        if content["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version {content['format_version']!r} is not {FORMAT_VERSION}: upgrade first")
        return cls(
            content["id"],
            content["branch"],
            [CommitRecord(**it["record"], manifest_version=it["manifest_version"]) for it in content["commits"]],
            {commit: RetiredState.from_json(state) for commit, state in content["states"].items()},
        )


class RetiredBranches:
    """The folder of them. What was read of a file is kept."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._known: dict[tuple[str, int], RetiredBranch] = {}

    def list(self) -> list[RetiredBranch]:
        found = {}
        for info in self.objects.list(f"{RETIRED}/"):
            if info.key.endswith(".json"):
                known = (info.key, info.size)  # it is rewritten once, without its states
                try:
                    found[known] = self._known.get(known) or self._read(info.key)
                except ObjectNotFound:
                    continue  # a cleanup has just removed it
        self._known = found
        return list(found.values())

    def commits(self) -> dict[str, CommitRecord]:
        return {record.graph_commit_id: record for retired in self.list() for record in retired.commits}

    def find_state(self, record: CommitRecord) -> GraphManifest | None:
        """The catalog of a commit whose branch was deleted, where it was kept."""
        for retired in self.list():
            state = retired.states.get(record.graph_commit_id)
            if state is not None:
                tables, pins = {it.key: it for it in state.tables}, {pin.key: pin for pin in state.pins}
                return GraphManifest(record.branch, record.manifest_version, tables, pins, {}, {}, record)
        return None

    def write(self, retired: RetiredBranch) -> None:
        self.objects.put(retired.key, json.dumps(retired.to_json(), ensure_ascii=False).encode())

    def delete(self, retired: RetiredBranch) -> None:
        self.objects.delete(retired.key)

    def _read(self, key: str) -> RetiredBranch:
        try:
            return RetiredBranch.from_json(json.loads(self.objects.get(key).data))
        except (ValueError, KeyError, TypeError) as problem:
            raise StorageBackendError(
                f"{self.objects.url(key)}, the record of a deleted branch, cannot be read ({problem}): restore it from "
                "a backup, or remove it, which loses its commits from the history of other branches",
                context={"path": self.objects.url(key)},
            ) from problem


def retire(graph: Graph, name: str) -> None:
    """Write down what other branches need of one that is about to be deleted. The caller holds its lease."""
    heads, pool = graph.heads_and_commits()
    survivors = [ancestors_of(pool, head) for branch, head in heads.items() if branch != name]
    own = {it.graph_commit_id: it for it in graph.commit_log.pool(name).values() if it.branch == name}
    merged = {commit: it for commit, it in own.items() if any(commit in known for known in survivors)}
    if not merged:
        return
    known = set().union(*survivors)
    entered = {parent for commit in known - own.keys() for parent in pool[commit].parents if parent in merged}
    shared = [merged[commit] for commit in entered if sum(commit in known for known in survivors) > 1]
    retired = RetiredBranch(new_ulid(), name, sorted(merged.values(), key=lambda it: it.manifest_version))
    states = _copy_states(graph, retired.fork, sorted(shared, key=lambda it: it.manifest_version))
    graph.step("retire", name)
    graph.retired.write(RetiredBranch(retired.id, name, retired.commits, states))


def _copy_states(graph: Graph, fork: str, commits: Sequence[CommitRecord]) -> dict[str, RetiredState]:
    """The states of commits, none of which depends on a branch: what lies on forks is copied to one of our own."""
    states: dict[str, RetiredState] = {}
    copies: dict[str, LanceDataset] = {}
    for record in commits:
        try:
            manifest = graph.publisher.manifest(record.branch, record.manifest_version)
        except StorageBackendError:
            continue  # it was cleaned up, and is the base of nothing that can be merged
        pins = []
        for key, pin in manifest.pins.items():
            if pin.branch is None:
                pins.append(pin)
                continue
            graph.step("retire table", key)
            copies[key] = copy = _copy_rows(graph, pin, fork, copies.get(key))
            pins.append(Pin(key, pin.path, copy.version, fork, pin.rows, pin.text))
        states[record.graph_commit_id] = RetiredState([manifest.tables[pin.key] for pin in pins], pins)
    return states


def _copy_rows(graph: Graph, pin: Pin, fork: str, copy: LanceDataset | None) -> LanceDataset:
    """Bring a fork to the rows of a pinned version: what differs from where it stands, or began, is written."""
    datasets = graph.datasets
    source = datasets.open(*pin.place)
    if copy is None:
        forks = datasets.branches(pin.path)
        lineage, version = pin.branch, pin.version
        while lineage is not None:
            lineage, version = forks[lineage]["parent_branch"], forks[lineage]["parent_version"]
        copy = datasets.fork(pin.path, fork, None, version)
    if not copy.schema.equals(source.schema):
        return datasets.commit(copy, datasets.stage_overwrite(copy, source.to_table()), fork)
    difference = compare(copy, source)
    if difference.written.num_rows:
        rows = difference.written.select(copy.schema.names).cast(copy.schema)
        copy = datasets.commit(copy, datasets.stage_upsert(copy, rows), fork)
    deletion = datasets.stage_delete(copy, difference.deleted.column("id").to_pylist())
    return copy if deletion is None else datasets.commit(copy, deletion, fork)


def forget_unneeded(graph: Graph, *, dry_run: bool) -> set[str]:
    """Drop what no branch needs any more of branches that were deleted. Returns the forks that stay."""
    heads, pool = graph.heads_and_commits()
    known = [ancestors_of(pool, head) for head in heads.values()]
    forks = set()
    for retired in graph.retired.list():
        if not any(it.graph_commit_id in ids for it in retired.commits for ids in known):
            if not dry_run:
                graph.retired.delete(retired)
            continue
        needed = any(sum(commit in ids for ids in known) > 1 for commit in retired.states)
        if needed:
            forks.add(retired.fork)
        elif retired.states and not dry_run:
            graph.retired.write(RetiredBranch(retired.id, retired.branch, retired.commits))
    return forks
