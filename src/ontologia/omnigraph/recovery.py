"""What happens to writes that stopped halfway: all of it is published, or none, and the audit trail says which.

Every sidecar is recovered under the lease of its branch. A writer that is alive holds that lease, so nobody recovers
under its feet; a writer that stalls past its lease cannot publish any more, because the publish conflicts exactly.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ontologia.errors import LockContentionError, StorageBackendError
from ontologia.omnigraph.commits import RECOVERY_ACTOR, RecoveryRecord
from ontologia.omnigraph.datasets import operation_of
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Pin
from ontologia.omnigraph.names import MAIN, MANIFEST, new_ulid, table_path
from ontologia.omnigraph.phases import CONTENT_PRESERVING, GraphWrite, new_record, pin_of
from ontologia.omnigraph.publisher import Publication
from ontologia.omnigraph.sidecars import PIN_NOTES, Sidecar, TableIntent

if TYPE_CHECKING:
    from ontologia.omnigraph.graph import Graph

FORWARD, BACK, DISCARDED = "RolledForward", "RolledBack", "OrphanedBranchDiscarded"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableState:
    """A table of an unfinished write: its newest version, its pin, and how far the write got."""

    intent: TableIntent
    path: str
    newest: int
    pinned: int
    owned: bool  #: whether the manifest's pin is on the lineage that the write commits to
    done: bool

    @property
    def moved(self) -> bool:
        return self.newest > (self.pinned if self.owned else self.intent.expected_version)


class GraphRecovery:
    """Finishes or undoes what sidecars tell of."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def sweep(self) -> list[RecoveryRecord]:
        """On read-write open: every branch whose writer is gone. A branch that is being written to is left alone."""
        recovered: list[RecoveryRecord] = []
        for branch in sorted({sidecar.branch for sidecar in self.graph.sidecars.pending()}):
            try:
                with self.graph.leases.hold(branch, timeout_s=0):
                    recovered += self.recover_branch(branch)
            except LockContentionError:
                _log.info("branch %s has a live writer: nothing to recover there", branch)
        return recovered

    def recover_branch(self, branch: str) -> list[RecoveryRecord]:
        """Every sidecar of a branch, oldest first. The caller holds the branch's lease."""
        pending = [sidecar for sidecar in self.graph.sidecars.pending() if sidecar.branch == branch]
        return [self.recover(sidecar) for sidecar in pending]

    def recover(self, sidecar: Sidecar, *, undo: bool = False) -> RecoveryRecord:
        """One sidecar: decide, publish, write the audit row, and only then let the sidecar go.

        `undo` is for a write whose caller was told that it failed: it is not finished behind their back.
        """
        if sidecar.branch != MAIN and sidecar.branch not in self.graph.datasets.branch_names(MANIFEST):
            return self._close(sidecar, None, DISCARDED, [])
        manifest = self.graph.publisher.manifest(sidecar.branch)
        self.graph.commit_log.complete(sidecar.branch, manifest)
        earlier = self._earlier(sidecar, manifest)
        if earlier is not None:
            kind = str(earlier.details.get("outcome", FORWARD))
            return self._close(sidecar, earlier, kind, _find_unchanged(sidecar, manifest))
        states = [self._state(sidecar, intent, manifest) for intent in sidecar.tables]
        published = any(state.pinned > state.intent.expected_version for state in states)
        if sidecar.foreign and published and not any(state.moved for state in states):
            return self._close(sidecar, manifest.head, FORWARD, _find_unchanged(sidecar, manifest))
        if all(state.done for state in states) and not undo:
            return self._forward(sidecar, manifest, states)
        return self._back(sidecar, manifest, states)

    def _earlier(self, sidecar: Sidecar, manifest: GraphManifest) -> CommitRecord | None:
        """The commit of this very write, or of a recovery of it that did not get as far as removing the sidecar."""
        pool = self.graph.commit_log.pool(sidecar.branch)
        if sidecar.operation_id in pool:
            return pool[sidecar.operation_id]
        return next((it for it in pool.values() if it.details.get("recovers") == sidecar.operation_id), None)

    def _state(self, sidecar: Sidecar, intent: TableIntent, manifest: GraphManifest) -> TableState:
        """The classifier. Only versions that this write made count for it, whatever their number."""
        key = intent.table_key
        path = manifest.tables[key].path if key in manifest.tables else table_path(key)
        pin = manifest.pins.get(key)
        pinned = manifest.highest(key)
        newest = self.graph.datasets.find(path, intent.table_branch)
        owned = pin is not None and pin.branch == intent.table_branch
        if newest is None:
            return TableState(intent, path, 0 if not owned else -1, pinned, owned, done=False)
        if owned and newest.version < pinned:
            raise StorageBackendError(
                f"recovery of {sidecar.operation_id}: {key} is published at version {pinned}, and its dataset ends at "
                f"{newest.version}; restore the missing versions from a backup, the sidecar is kept",
                context={"operation": "recover", "table_key": key},
            )
        kind, operation = operation_of(newest, newest.version)
        made_by_us = operation == sidecar.operation_id
        if sidecar.writer_kind in ("EnsureIndices", "Optimize"):
            made_by_us = kind in CONTENT_PRESERVING and kind != "Restore" and newest.version > pinned
            enough = newest.version >= intent.post_commit_pin
        else:
            enough = newest.version == intent.post_commit_pin
        if sidecar.foreign and operation is None and sidecar.writer_kind not in ("EnsureIndices", "Optimize"):
            made_by_us = newest.version > pinned  # as the original tells it: by numbers alone
            enough = newest.version == pinned + 1 == intent.post_commit_pin if sidecar.strict else True
        done = made_by_us and enough and pinned == intent.expected_version
        return TableState(intent, path, newest.version, pinned, owned, done)

    # --- both ways end in a publish ---

    def _forward(self, sidecar: Sidecar, manifest: GraphManifest, states: Sequence[TableState]) -> RecoveryRecord:
        """Publish every table where the write left it, with what it registered and dropped."""
        pins = [self._pin_newest(state, sidecar) for state in states]
        tombstones = {
            key: number for key, number in sidecar.tombstones.items() if manifest.tombstones.get(key, 0) < number
        }
        expected = {state.intent.table_key: state.intent.expected_version for state in states}
        outcomes = [_outcome(pin.key, expected[pin.key], pin.version) for pin in pins]
        outcomes += [_outcome(key, manifest.highest(key), number) for key, number in tombstones.items()]
        publication = Publication(pins, sidecar.registrations, tombstones, expected)
        return self._publish(sidecar, manifest, publication, FORWARD, outcomes)

    def _back(self, sidecar: Sidecar, manifest: GraphManifest, states: Sequence[TableState]) -> RecoveryRecord:
        """Put every table that moved back to its pin and publish that, so that pin and newest version agree."""
        pins: list[Pin] = []
        outcomes: list[dict[str, Any]] = []
        for state in states:
            if not state.moved:
                continue
            key, branch = state.intent.table_key, state.intent.table_branch
            if state.owned:
                restored = self.graph.datasets.restore(state.path, branch, state.pinned)
                text = manifest.pins[key].metadata | self.graph.datasets.metadata(restored, state.path, branch)
                pins.append(pin_of(key, state.path, branch, restored, text))
            elif branch is not None:
                self.graph.datasets.drop_branch(state.path, branch)  # a fork that nothing refers to yet
            outcomes.append(_outcome(key, state.newest, state.pinned))
        publication = Publication(pins, expected={pin.key: manifest.highest(pin.key) for pin in pins})
        return self._publish(sidecar, manifest, publication, BACK, outcomes)

    def _publish(
        self,
        sidecar: Sidecar,
        manifest: GraphManifest,
        publication: Publication,
        kind: str,
        outcomes: Sequence[dict[str, Any]],
    ) -> RecoveryRecord:
        details = {"recovers": sidecar.operation_id, "outcome": kind}
        merged = sidecar.merge_source_commit_id if kind == FORWARD else None
        plan = GraphWrite(merged_parent=merged, details=details)
        record = new_record(new_ulid(), manifest, RECOVERY_ACTOR, "Recovery", plan)
        self.graph.step("recovery publish", sidecar.operation_id)
        published = self.graph.publisher.publish(sidecar.branch, publication, record)
        assert published.head is not None
        if publication.tables or publication.tombstones:
            self.graph.refresh_schema_files(published)
        self.graph.step("recovery commit row", sidecar.operation_id)
        self.graph.commit_log.append(sidecar.branch, published.head)
        return self._close(sidecar, published.head, kind, outcomes)

    def _close(
        self, sidecar: Sidecar, commit: CommitRecord | None, kind: str, outcomes: Sequence[dict[str, Any]]
    ) -> RecoveryRecord:
        record = RecoveryRecord(
            commit.graph_commit_id if commit is not None else sidecar.operation_id,
            kind,
            sidecar.actor_id,
            sidecar.operation_id,
            sidecar.writer_kind,
            list(outcomes),
            datetime.now(UTC).replace(tzinfo=None),
        )
        if all(row.operation_id != sidecar.operation_id for row in self.graph.commit_log.recoveries()):
            self.graph.commit_log.audit(record)
        self.graph.step("recovery delete sidecar", sidecar.operation_id)
        self.graph.sidecars.delete(sidecar)
        return record

    def _pin_newest(self, state: TableState, sidecar: Sidecar) -> Pin:
        branch = state.intent.table_branch
        dataset = self.graph.datasets.open(state.path, branch)
        notes = dict(sidecar.extra.get(PIN_NOTES, {}).get(state.intent.table_key, {}))
        metadata = self.graph.datasets.metadata(dataset, state.path, branch) | notes
        return pin_of(state.intent.table_key, state.path, branch, dataset, metadata)


def _outcome(key: str, before: int, after: int) -> dict[str, Any]:
    return {"table_key": key, "from_version": before, "to_version": after}


def _find_unchanged(sidecar: Sidecar, manifest: GraphManifest) -> list[dict[str, Any]]:
    return [
        _outcome(intent.table_key, intent.expected_version, manifest.highest(intent.table_key))
        for intent in sidecar.tables
    ]
