"""A write, from intent to done: the four phases that all writers of a graph go through.

A  the sidecar says what will happen        crash after it: nothing moved, rolled back
B  every table commits, each exactly once   crash in it: rolled back; after it: rolled forward
C  one publish makes all of it visible      the commit point
D  the sidecar goes                         crash before it: recovery only tidies up
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ontologia.errors import CommitOutcomeUnknownError, OntologiaError, TableDriftError
from ontologia.objects import Lease
from ontologia.omnigraph.datasets import cleans_itself, operation_of, stage_stop_cleaning
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Pin, Table
from ontologia.omnigraph.names import new_ulid, stored_branch
from ontologia.omnigraph.publisher import Publication
from ontologia.omnigraph.sidecars import PIN_NOTES, Sidecar, TableIntent, WriterKind

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

    from ontologia.omnigraph.graph import Graph

Commit = Callable[["LanceDataset", Any], "LanceDataset"]
Apply = Callable[["LanceDataset", Commit], "LanceDataset"]

CONTENT_PRESERVING = ("Rewrite", "BaseOperation", "CreateIndex", "Restore")
"""What Lance calls compaction (and the reservation before it), index building and restoring: no row changes by them
that the graph does not know of."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableWork:
    """What a write does to one table: `apply` makes `commits` commits with the function it is handed.

    For compaction and index building, where Lance decides, `commits` is the least number. A work with `schema` is on a
    table that this write creates: it is laid out, empty, before `apply` is called.
    """

    key: str
    apply: Apply
    commits: int
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class GraphWrite:
    """All that a write will do, known before the first byte of it is committed."""

    works: Sequence[TableWork] = ()
    tables: Sequence[Table] = ()
    tombstones: Mapping[str, int] = field(default_factory=dict)
    merged_parent: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    pin_notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: per table, kept with its version


@dataclass(frozen=True)
class _Start:
    """Where a table stands before this write commits to it."""

    work: TableWork
    path: str
    branch: str | None
    base: int  #: the version to build on
    expected: int  #: what the manifest says
    fork_from: tuple[str | None, int] | None = None
    laid_out: int = 0  #: commits that lay out a table which this write creates
    settles: bool = False  #: whether a commit of its own first stops Lance from cleaning up by itself

    @property
    def intent(self) -> TableIntent:
        last = self.base + self.laid_out + self.settles + self.work.commits
        return TableIntent(self.work.key, self.path, self.expected, last, self.branch)


def run_phases(
    graph: Graph,
    lease: Lease,
    manifest: GraphManifest,
    kind: WriterKind,
    plan: GraphWrite,
    *,
    actor: str | None = None,
    expected_head: str | None = None,
) -> CommitRecord:
    """Phases A to D, under the lease of the branch. A failure before the commit point leaves the graph as it was."""
    branch = manifest.branch
    operation_id = new_ulid()
    starts = [_start(graph, manifest, work, plan) for work in plan.works]
    intents = [replace(start.intent, table_path=graph.datasets.uri(start.path)) for start in starts]
    sidecar = _sidecar(operation_id, kind, branch, actor, intents, plan)
    record = new_record(operation_id, manifest, actor, kind, plan)
    graph.step("A", "")
    graph.sidecars.write(sidecar)
    try:
        pins = []
        for start in starts:
            graph.step("B", start.work.key)
            lease.guard()
            pins.append(_commit_table(graph, start, operation_id, plan))
        graph.step("C", "")
        lease.guard()
        expected = {start.work.key: start.expected for start in starts}
        expected |= {key: manifest.highest(key) for key in plan.tombstones}
        publication = Publication(pins, plan.tables, plan.tombstones, expected, expected_head)
        published = graph.publisher.publish(branch, publication, record)
    except CommitOutcomeUnknownError:
        raise
    except Exception:
        _undo(graph, sidecar)
        raise
    record = published.head if published.head is not None else record
    if plan.tables or plan.tombstones:
        graph.refresh_schema_files(published)
    graph.step("D", "")
    _finish(graph, branch, record, sidecar)
    return record


def _sidecar(
    operation_id: str, kind: WriterKind, branch: str, actor: str | None, intents: list[TableIntent], plan: GraphWrite
) -> Sidecar:
    """What recovery needs to finish a write, or to undo it."""
    return Sidecar(
        operation_id,
        kind,
        branch,
        actor,
        intents,
        plan.merged_parent if kind == "BranchMerge" else None,
        plan.tables,
        plan.tombstones,
        extra={PIN_NOTES: dict(plan.pin_notes)},
    )


def new_record(commit_id: str, manifest: GraphManifest, actor: str | None, kind: str, plan: GraphWrite) -> CommitRecord:
    head = manifest.head
    # Clocks differ between writers; a commit is never older than the one it follows.
    now = max(time.time_ns() // 1000, 0 if head is None else head.created_at_us + 1)
    return CommitRecord(
        commit_id,
        stored_branch(manifest.branch),
        None if head is None else head.graph_commit_id,
        plan.merged_parent,
        now,
        actor,
        {"kind": kind, **plan.details},
    )


def _finish(graph: Graph, branch: str, record: CommitRecord, sidecar: Sidecar) -> None:
    """The commit row and phase D. Neither may fail a commit that stands."""
    graph.commit_log.append_quietly(branch, record)
    try:
        graph.sidecars.delete(sidecar)
    except OntologiaError as problem:
        _log.warning("commit %s is done, its sidecar is still there: %s", record.graph_commit_id, problem)


def _undo(graph: Graph, sidecar: Sidecar) -> None:
    """This process lives and holds the lease: it recovers at once, rather than leave it to the next."""
    try:
        graph.recovery.recover(sidecar, undo=True)
    except Exception as problem:
        _log.warning("the failed write %s is left to the next writer: %s", sidecar.operation_id, problem)


# --- phase B, one table ---


def _start(graph: Graph, manifest: GraphManifest, work: TableWork, plan: GraphWrite) -> _Start:
    """Where to build: the pinned version, which must be the newest of its lineage."""
    own = stored_branch(manifest.branch)
    if work.schema is not None:
        path = next(table.path for table in plan.tables if table.key == work.key)
        return _start_new(graph, manifest, work, path, own)
    pin = manifest.pins[work.key]
    if pin.branch != own:
        settles = bool(cleans_itself(graph.datasets.open(*pin.place)))
        source = (pin.branch, pin.version)
        return _Start(work, pin.path, own, pin.version, pin.version, fork_from=source, settles=settles)
    base = _without_drift(graph, pin)
    return _Start(work, pin.path, own, base.version, pin.version, settles=bool(cleans_itself(base)))


def _start_new(graph: Graph, manifest: GraphManifest, work: TableWork, path: str, own: str | None) -> _Start:
    """A dataset may lie there already: of a type that was dropped, or of a write that was undone."""
    existing = graph.datasets.find(path)
    expected = manifest.highest(work.key)
    if existing is None:
        return _Start(work, path, None, 0, expected, laid_out=1)
    # A tombstone hides versions up to its number: the new life of a table begins after it.
    laid_out = max(1, manifest.tombstones.get(work.key, 0) - existing.version + 1)
    fork_from = None if own is None else (None, existing.version)
    return _Start(work, path, own, existing.version, expected, fork_from, laid_out)


def _without_drift(graph: Graph, pin: Pin) -> LanceDataset:
    """The version to build on. Versions after the pin that no row depends on are put back; others are refused."""
    newest = graph.datasets.open(pin.path, pin.branch)
    if newest.version == pin.version:
        return newest
    if newest.version < pin.version:
        raise TableDriftError(
            f"{pin.key} is published at version {pin.version}, and its dataset ends at {newest.version}: versions were "
            "deleted; restore them from a backup"
        )
    for version in range(pin.version + 1, newest.version + 1):
        kind, operation = operation_of(newest, version)
        if operation is None and kind not in CONTENT_PRESERVING:
            raise TableDriftError(
                f"{pin.key} is published at version {pin.version}, and version {version} ({kind}) was not made by this "
                "graph: run repair() to see and settle it"
            )
    return graph.datasets.restore(pin.path, pin.branch, pin.version)


def _commit_table(graph: Graph, start: _Start, operation_id: str, plan: GraphWrite) -> Pin:
    datasets, work = graph.datasets, start.work

    def commit(dataset: LanceDataset, transaction: Any) -> LanceDataset:
        return datasets.commit(dataset, transaction, operation_id)

    if start.fork_from is not None:
        dataset = datasets.fork(start.path, start.branch or "", *start.fork_from)
    elif start.base:
        dataset = datasets.open(start.path, start.branch, start.base)
    else:
        assert work.schema is not None
        dataset = datasets.create(start.path, work.schema.empty_table(), operation_id)
    if start.base:
        for _ in range(start.laid_out):
            assert work.schema is not None
            dataset = commit(dataset, datasets.stage_overwrite(dataset, work.schema.empty_table()))
    if start.settles:
        dataset = commit(dataset, stage_stop_cleaning(dataset))
    dataset = work.apply(dataset, commit)
    notes = datasets.metadata(dataset, start.path, start.branch) | dict(plan.pin_notes.get(work.key, {}))
    return pin_of(work.key, start.path, start.branch, dataset, notes)


def pin_of(key: str, path: str, branch: str | None, dataset: LanceDataset, notes: Mapping[str, Any]) -> Pin:
    import json

    return Pin(key, path, dataset.version, branch, dataset.count_rows(), json.dumps(dict(notes)))
