"""`Graph`: a graph of Lance datasets under one root, in plain data. The typed face is `Omnigraph`, above this layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from ontologia.config import OntologiaConfig, new_runtime_id
from ontologia.errors import (
    BranchError,
    HeadMismatchError,
    StorageBackendError,
    UninitializedStorageError,
    ValidationError,
)
from ontologia.objects import Lease, Objects, prove_conditions
from ontologia.omnigraph import schema_files
from ontologia.omnigraph.adoption import check_not_in_progress
from ontologia.omnigraph.commits import CommitLog, RecoveryRecord, walk
from ontologia.omnigraph.datasets import Datasets, translate_errors
from ontologia.omnigraph.leases import CONTROL, Leases
from ontologia.omnigraph.manifest import MANAGED, CommitRecord, GraphManifest, head_row, rows_table
from ontologia.omnigraph.migrations import INTERNAL_SCHEMA_VERSION, is_outdated, migrate, stamp
from ontologia.omnigraph.names import MAIN, MANIFEST, SCHEMA_APPLY_LOCK, new_ulid, stored_branch
from ontologia.omnigraph.phases import GraphWrite, run_phases
from ontologia.omnigraph.publisher import Publisher
from ontologia.omnigraph.recovery import GraphRecovery
from ontologia.omnigraph.retired import RetiredBranches
from ontologia.omnigraph.sidecars import Sidecars, WriterKind


class OpenMode(Enum):
    """Read-write runs migrations and recovery; read-only writes nothing, ever."""

    READ_WRITE = "read-write"
    READ_ONLY = "read-only"


class Graph:
    """Manifest, commit graph, branches and recovery of one root. Everything that changes a branch goes through
    `write`."""

    def __init__(
        self, objects: Objects, config: OntologiaConfig | None = None, *, mode: OpenMode = OpenMode.READ_WRITE
    ) -> None:
        self.objects = objects
        self.config = config or OntologiaConfig()
        self.mode = mode
        self.runtime_id = self.config.runtime_id or new_runtime_id()
        self.datasets = Datasets(objects)
        self.publisher = Publisher(self.datasets)
        self.commit_log = CommitLog(self.datasets)
        self.retired = RetiredBranches(objects)
        self.sidecars = Sidecars(objects)
        self.leases = Leases(objects, self.config, self.runtime_id)
        self.recovery = GraphRecovery(self)
        self.recovered: list[RecoveryRecord] = []
        self._settled = True
        self.step: Callable[[str, str], None] = lambda name, about: None
        """Called before each step of the protocol, for whoever watches: tests stop writers there."""

    # --- beginning ---

    @classmethod
    def init(cls, objects: Objects, config: OntologiaConfig | None = None) -> Graph:
        """Lay out an empty graph. Types are registered by the first write that has them."""
        graph = cls(objects, config)
        prove_conditions(objects)
        with graph.leases.hold("@init"):
            if graph.datasets.find(MANIFEST) is not None:
                raise ValidationError(f"{objects.uri} holds a graph already: open it, or choose another place")
            graph._lay_out()
        return graph

    def _lay_out(self) -> None:
        """Rows (version 1), the config key (2), the stamp (3); then the commit graph, which makes it complete."""
        genesis = CommitRecord(new_ulid(), None, None, None, time.time_ns() // 1000, None, {"kind": "Init"}, 3)
        dataset = self.datasets.create(MANIFEST, rows_table([head_row(genesis)]))
        with translate_errors("lay out", dataset.uri):
            dataset.update_config(MANAGED)
        stamp(dataset, INTERNAL_SCHEMA_VERSION)
        self.commit_log.create(genesis)
        self.refresh_schema_files(self.publisher.manifest())

    @classmethod
    def open(
        cls,
        objects: Objects,
        config: OntologiaConfig | None = None,
        *,
        mode: OpenMode = OpenMode.READ_WRITE,
        deferred: bool = False,
    ) -> Graph:
        """Open a graph. Read-write migrates, then recovers, before anything looks at branches; `deferred`, before the
        first write instead, for who may only want to read."""
        graph = cls(objects, config, mode=mode)
        if graph.datasets.find(MANIFEST) is None:
            raise UninitializedStorageError(
                f"there is no graph at {objects.uri}: make one with Omnigraph.init or `onto init --engine omnigraph`",
                context={"path": objects.uri},
            )
        graph._settled = False
        if mode is OpenMode.READ_ONLY or deferred:
            graph.manifest()
        else:
            graph._settle()
        return graph

    def _settle(self) -> None:
        """Migrate, then finish or undo what others left, once. What cannot be done is refused before anything."""
        check_not_in_progress(self.datasets, self.sidecars.pending())
        self.publisher.manifest()
        if is_outdated(self.datasets):
            with self.leases.hold(CONTROL):  # no branch is made meanwhile: the sweep would take one for an old run
                migrate(self.datasets)
        manifest = self.publisher.manifest()
        if manifest.head is not None:  # where an init died after the manifest, which makes it a graph
            self.commit_log.create(manifest.head)
        self.recovered = self.recovery.sweep()
        self.refresh_schema_files(self.publisher.manifest())
        self._settled = True

    def refresh_schema_files(self, manifest: GraphManifest) -> None:
        """What main's types are is also written down for other readers."""
        if manifest.branch == MAIN:
            schema_files.refresh(self.objects, manifest)

    # --- reading ---

    def manifest(self, branch: str = MAIN, version: int | None = None) -> GraphManifest:
        """The catalog of a branch, at its head or at a version of it."""
        if branch != MAIN:
            self.check_branch(branch)
        return self.publisher.manifest(branch, version)

    def branches(self) -> list[str]:
        """main, then the others by name."""
        return [MAIN, *(name for name in self.datasets.branch_names(MANIFEST) if name != SCHEMA_APPLY_LOCK)]

    def check_branch(self, branch: str) -> None:
        if branch == SCHEMA_APPLY_LOCK:
            raise BranchError(f"{branch!r} is an internal branch: it cannot be read, written, merged or deleted")
        if branch not in self.branches():
            raise BranchError(f"there is no branch {branch!r}; there are {', '.join(self.branches())}")

    def commits(self, branch: str = MAIN) -> Iterator[CommitRecord]:
        """The history of a branch, newest first, through both parents."""
        manifest = self.manifest(branch)
        pool = self.commit_log.pool(branch)
        if manifest.head is not None:
            pool[manifest.head.graph_commit_id] = manifest.head
        if any(parent not in pool for record in pool.values() for parent in record.parents):
            pool = self.heads_and_commits()[1] | pool  # of branches that were merged
        return walk(pool, self.commit_log.head_of(manifest, pool))

    def heads_and_commits(self) -> tuple[dict[str, str], dict[str, CommitRecord]]:
        """The newest commit of every branch, and all commits that are known, also of branches that were deleted."""
        heads: dict[str, str] = {}
        pool: dict[str, CommitRecord] = {}
        for branch in self.branches():
            try:
                manifest, commits = self.publisher.manifest(branch), self.commit_log.pool(branch)
            except StorageBackendError:
                if branch in self.branches():
                    raise
                continue  # it was deleted just now, which left behind what others have of it
            if manifest.head is not None:
                commits[manifest.head.graph_commit_id] = manifest.head
            head = self.commit_log.head_of(manifest, commits)
            if head is not None:
                heads[branch] = head
            pool |= commits
        return heads, self.retired.commits() | pool

    # --- writing ---

    def check_writable(self) -> None:
        """Said by everything that writes, before it does anything else."""
        if self.mode is OpenMode.READ_ONLY:
            raise ValidationError(f"{self.objects.uri} was opened read-only: open it with OpenMode.READ_WRITE to write")
        if not self._settled:
            self._settle()

    @contextmanager
    def writing(self, branch: str) -> Iterator[tuple[Lease, GraphManifest]]:
        """The lease of a branch, with everything unfinished on it settled, and its catalog of that moment."""
        self.check_writable()
        with self.leases.hold(branch) as lease:
            if branch != MAIN:
                self.check_branch(branch)
            self.recovery.recover_branch(branch)
            manifest = self.publisher.manifest_in(migrate(self.datasets, stored_branch(branch)), branch)
            self.commit_log.complete(branch, manifest)
            yield lease, manifest

    def write(
        self,
        branch: str,
        kind: WriterKind,
        prepare: Callable[[GraphManifest], GraphWrite | None],
        *,
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> CommitRecord | None:
        """One atomic commit on a branch. `prepare` validates and plans on the state that will be written to."""
        with self.writing(branch) as (lease, manifest):
            self._check_head(manifest, if_commit)
            plan = prepare(manifest)
            if plan is None:
                return None
            return run_phases(self, lease, manifest, kind, plan, actor=actor, expected_head=if_commit)

    def _check_head(self, manifest: GraphManifest, if_commit: str | None) -> None:
        head = None if manifest.head is None else manifest.head.graph_commit_id
        if if_commit is not None and head != if_commit:
            raise HeadMismatchError(
                f"branch {manifest.branch} is at commit {head}, not at {if_commit}: read again and retry"
            )
