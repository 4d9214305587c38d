"""The commit graph: `_graph_commits.lance`, the actors beside it, and the audit trail of recoveries.

The head row of `__manifest` is the authority on the newest commit. What is here follows it, and is completed by the
next writer where a crash came in between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontologia.errors import OntologiaError, ValidationError
from ontologia.files.quoting import quote_text
from ontologia.omnigraph.datasets import Datasets, cleans_itself, is_in, stop_cleaning, translate_errors
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.names import ACTORS, COMMITS, RECOVERIES, stored_branch

if TYPE_CHECKING:
    from lance import LanceDataset

RECOVERY_ACTOR = "omnigraph:recovery"
UNRECORDED = "manifest:"  #: begins the id of a commit that its writer did not write down, as the original calls it
_COMPACT_AFTER = 48
_log = logging.getLogger(__name__)


def _schema(*fields: tuple[str, bool]) -> pa.Schema:
    kinds: dict[str, Any] = {"manifest_version": pa.uint64(), "created_at": pa.timestamp("us")}
    return pa.schema([pa.field(name, kinds.get(name, pa.string()), nullable=nullable) for name, nullable in fields])


def commits_schema() -> pa.Schema:
    """The original's columns, then one of ours: message, kind and metadata as JSON."""
    return _schema(
        ("graph_commit_id", False),
        ("manifest_branch", True),
        ("manifest_version", False),
        ("parent_commit_id", True),
        ("merged_parent_commit_id", True),
        ("created_at", False),
        ("metadata", True),
    )


def actors_schema() -> pa.Schema:
    return _schema(("graph_commit_id", False), ("actor_id", False), ("created_at", False))


def recoveries_schema() -> pa.Schema:
    return _schema(
        ("graph_commit_id", False),
        ("recovery_kind", False),
        ("recovery_for_actor", True),
        ("operation_id", False),
        ("sidecar_writer_kind", False),
        ("per_table_outcomes_json", False),
        ("created_at", False),
    )


@dataclass(frozen=True)
class RecoveryRecord:
    """One action of a recovery sweep, joined to its commit by `graph_commit_id`."""

    graph_commit_id: str
    recovery_kind: str
    recovery_for_actor: str | None
    operation_id: str
    sidecar_writer_kind: str
    per_table_outcomes: Sequence[Mapping[str, Any]]
    created_at: datetime


class CommitLog:
    """Appends commits and finds them again."""

    def __init__(self, datasets: Datasets) -> None:
        self.datasets = datasets
        self._recorded: set[str] = set()

    def create(self, genesis: CommitRecord) -> None:
        """Make what is not there: the commit graph with its first commit, and the actors."""
        if self.datasets.find(COMMITS) is None:
            self.datasets.create(COMMITS, _table(commits_schema(), [_commit_row(genesis)]))
        if self.datasets.find(ACTORS) is None:
            self.datasets.create(ACTORS, _table(actors_schema(), []))

    # --- writing ---

    def append(self, branch: str, record: CommitRecord) -> None:
        """One row, and one that says who it was, if that is known."""
        dataset = self.datasets.open(COMMITS, stored_branch(branch))
        self._append(dataset, [_commit_row(record)])
        if record.actor_id is not None:
            row = {"graph_commit_id": record.graph_commit_id, "actor_id": record.actor_id}
            self._append(self.datasets.open(ACTORS), [row | {"created_at": _moment(record.created_at_us)}])
        self._recorded.add(record.graph_commit_id)

    def append_quietly(self, branch: str, record: CommitRecord) -> None:
        """After the commit point nothing makes the call fail: the next writer completes what is missing here."""
        try:
            self.append(branch, record)
        except OntologiaError as problem:
            _log.warning("commit %s is done, and not yet in the commit graph: %s", record.graph_commit_id, problem)

    def complete(self, branch: str, manifest: GraphManifest) -> None:
        """Write down the head commit if its writer died between the publish and its row here."""
        head = manifest.head
        if head is None or head.graph_commit_id in self._recorded or head.branch != branch:
            return
        if not self.has(branch, head.graph_commit_id):
            self.append(branch, head)
        self._recorded.add(head.graph_commit_id)

    def has(self, branch: str, commit: str) -> bool:
        """Whether the Lance branch of the commit graph shows a commit."""
        dataset = self.datasets.find(COMMITS, stored_branch(branch))
        return dataset is not None and dataset.count_rows(f"graph_commit_id = {quote_text(commit)}") > 0

    def audit(self, record: RecoveryRecord) -> None:
        if self.datasets.find(RECOVERIES) is None:
            self.datasets.create(RECOVERIES, _table(recoveries_schema(), []))
        row = {**record.__dict__, "per_table_outcomes_json": json.dumps(list(record.per_table_outcomes))}
        del row["per_table_outcomes"]
        self._append(self.datasets.open(RECOVERIES), [row])

    def _append(self, dataset: LanceDataset, rows: Sequence[Mapping[str, Any]]) -> None:
        table = _table(dataset.schema, rows)
        if cleans_itself(dataset):
            stop_cleaning(dataset)
        with translate_errors("append to", dataset.uri):
            committed = _write(table, dataset, self.datasets.options)
            if len(committed.get_fragments()) >= _COMPACT_AFTER:
                committed.optimize.compact_files()

    # --- reading ---

    def pool(self, branch: str) -> dict[str, CommitRecord]:
        """Every commit that the Lance branch of the commit graph shows, with actors."""
        dataset = self.datasets.find(COMMITS, stored_branch(branch))
        if dataset is None:
            return {}
        actors_dataset = self.datasets.find(ACTORS)
        actors: dict[str, str] = {}
        if actors_dataset is not None:
            for row in actors_dataset.to_table(columns=["graph_commit_id", "actor_id"]).to_pylist():
                actors[row["graph_commit_id"]] = row["actor_id"]
        return {row["graph_commit_id"]: _record(row, actors) for row in dataset.to_table().to_pylist()}

    def between(self, branch: str, low: int, high: int) -> dict[str, CommitRecord]:
        """The commits that the Lance branch shows with manifest versions above one and up to another, with actors."""
        dataset = self.datasets.find(COMMITS, stored_branch(branch))
        if dataset is None:
            return {}
        where = f"manifest_version > {low} AND manifest_version <= {high}"
        rows = dataset.to_table(filter=where).to_pylist()
        actors = self._actors_of([row["graph_commit_id"] for row in rows])
        return {row["graph_commit_id"]: _record(row, actors) for row in rows}

    def _actors_of(self, commits: Sequence[str]) -> dict[str, str]:
        dataset = self.datasets.find(ACTORS)
        if dataset is None or not commits:
            return {}
        rows = dataset.to_table(columns=["graph_commit_id", "actor_id"], filter=is_in("graph_commit_id", commits))
        return {row["graph_commit_id"]: row["actor_id"] for row in rows.to_pylist()}

    def head_of(self, manifest: GraphManifest, pool: Mapping[str, CommitRecord]) -> str | None:
        """The newest commit; in graphs without a head row, the greatest by (version, time, id)."""
        if manifest.head is not None:
            return manifest.head.graph_commit_id
        return max(
            pool,
            default=None,
            key=lambda name: (pool[name].manifest_version, pool[name].created_at_us, name),
        )

    def find_published(self, manifest: GraphManifest) -> CommitRecord:
        """The commit that published the newest tables of a branch, whose writer did not rewrite the head row: the
        original has none. Where it died before it wrote its commit down, a record of our own stands in for it, which
        the next writer writes down."""
        own = stored_branch(manifest.branch)
        found = self.between(manifest.branch, manifest.touched - 1, manifest.version).values()
        if found:
            # A branch shows the commits of its parent, too, also later ones: the first at or after that version is it.
            return min(
                found,
                key=lambda it: (it.manifest_branch != own, it.manifest_version, -it.created_at_us, it.graph_commit_id),
            )
        earlier = [it for it in self.pool(manifest.branch).values() if it.manifest_version < manifest.touched]
        if manifest.head is not None:
            earlier.append(manifest.head)
        last = max(earlier, default=None, key=lambda it: (it.manifest_version, it.created_at_us, it.graph_commit_id))
        return CommitRecord(
            f"{UNRECORDED}{manifest.branch}:v{manifest.touched}",
            own,
            None if last is None else last.graph_commit_id,
            None,
            0 if last is None else last.created_at_us + 1,
            manifest_version=manifest.touched,
        )

    def recoveries(self) -> list[RecoveryRecord]:
        dataset = self.datasets.find(RECOVERIES)
        rows = [] if dataset is None else dataset.to_table().to_pylist()
        return [
            RecoveryRecord(per_table_outcomes=json.loads(row.pop("per_table_outcomes_json")), **row) for row in rows
        ]


def walk(pool: Mapping[str, CommitRecord], start: str | None) -> Iterator[CommitRecord]:
    """A commit and all its known ancestors, newest first."""
    import heapq

    seen = {start}
    queue = [] if start is None or start not in pool else [_newest_first(pool[start])]
    while queue:
        record = pool[heapq.heappop(queue)[-1]]
        yield record
        for parent in (record.parent_commit_id, record.merged_parent_commit_id):
            if parent is not None and parent in pool and parent not in seen:
                seen.add(parent)
                heapq.heappush(queue, _newest_first(pool[parent]))


def _newest_first(record: CommitRecord) -> tuple[int, int, str]:
    return (-record.created_at_us, -record.manifest_version, record.graph_commit_id)


def merge_base(pool: Mapping[str, CommitRecord], left: str, right: str) -> CommitRecord:
    """The best common ancestor: one that no other common ancestor descends from; of several, the newest."""
    best = best_common(pool, ancestors_of(pool, left) & ancestors_of(pool, right))
    if best is None:
        raise ValidationError(f"commits {left} and {right} have no common ancestor, so they cannot be merged")
    return best


def best_common(pool: Mapping[str, CommitRecord], common: Set[str]) -> CommitRecord | None:
    """Of the common ancestors of two commits, the one that no other descends from; of several, the newest."""
    older = {parent for name in common for parent in pool[name].parents}
    best = [pool[name] for name in common - older]
    order = lambda record: (record.manifest_version, record.created_at_us, record.graph_commit_id)  # noqa: E731
    return max(best, key=order, default=None)


def ancestors_of(pool: Mapping[str, CommitRecord], start: str | None) -> set[str]:
    """A commit and all its known ancestors."""
    return {record.graph_commit_id for record in walk(pool, start)}


def _table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _write(table: pa.Table, dataset: LanceDataset, options: dict[str, str] | None) -> LanceDataset:
    import lance

    return lance.write_dataset(table, dataset, mode="append", storage_options=options)


def _commit_row(record: CommitRecord) -> dict[str, Any]:
    return {
        "graph_commit_id": record.graph_commit_id,
        "manifest_branch": record.manifest_branch,
        "manifest_version": record.manifest_version,
        "parent_commit_id": record.parent_commit_id,
        "merged_parent_commit_id": record.merged_parent_commit_id,
        "created_at": _moment(record.created_at_us),
        "metadata": json.dumps(dict(record.details), ensure_ascii=False) if record.details else None,
    }


def _record(row: Mapping[str, Any], actors: Mapping[str, str]) -> CommitRecord:
    created = row["created_at"].replace(tzinfo=UTC)
    return replace(
        CommitRecord(
            row["graph_commit_id"],
            row["manifest_branch"],
            row["parent_commit_id"],
            row["merged_parent_commit_id"],
            round(created.timestamp() * 1_000_000),
            actors.get(row["graph_commit_id"]),
            json.loads(row.get("metadata") or "{}"),
        ),
        manifest_version=row["manifest_version"],
    )


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(
        microsecond=microseconds % 1_000_000, tzinfo=None
    )
