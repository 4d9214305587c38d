"""The commit point: one write to `__manifest` makes new versions of any number of tables visible at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ontologia.errors import (
    CommitOutcomeUnknownError,
    ExpectedVersionMismatchError,
    HeadMismatchError,
    OntologiaError,
    StorageBackendError,
)
from ontologia.objects import SYSTEM_CLOCK
from ontologia.omnigraph.adoption import Adoption
from ontologia.omnigraph.commits import UNRECORDED, CommitLog
from ontologia.omnigraph.datasets import Datasets, is_contention, lance_error
from ontologia.omnigraph.manifest import (
    CommitRecord,
    GraphManifest,
    Pin,
    Table,
    head_row,
    identity_of,
    read_manifest,
    read_on,
    rows_table,
    tombstone_row,
)
from ontologia.omnigraph.migrations import check_stamp, migrate
from ontologia.omnigraph.names import MAIN, MANIFEST, stored_branch

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

PUBLISHER_RETRY_BUDGET = 5
_log = logging.getLogger(__name__)
_COMPACT_AFTER = 24  #: fragments of `__manifest`; more of them make every publish slower


@dataclass(frozen=True)
class Publication:
    """What one publish makes visible. `expected` has the version of each table that the writer built on."""

    pins: Sequence[Pin] = ()
    tables: Sequence[Table] = ()  #: registered, or known ones with new notes
    tombstones: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    expected_head: str | None = None


class Publisher:
    """Reads and publishes `__manifest`. What was read of a version is kept until the next one."""

    def __init__(self, datasets: Datasets) -> None:
        self.datasets = datasets
        self._log = CommitLog(datasets)
        self._adoption = Adoption(datasets)
        self._known: dict[str, GraphManifest] = {}

    # --- reading, free of side effects ---

    def manifest(self, branch: str = MAIN, version: int | None = None) -> GraphManifest:
        dataset = self.datasets.open(MANIFEST, stored_branch(branch), version)
        return self.manifest_in(dataset, branch, keep=version is None)

    def manifest_in(self, dataset: LanceDataset, branch: str, *, keep: bool = True) -> GraphManifest:
        """What a branch of `__manifest` that is open says."""
        check_stamp(dataset)
        return self._read(dataset, branch, keep=keep)

    def _read(self, dataset: LanceDataset, branch: str, *, keep: bool = True) -> GraphManifest:
        known = self._known.get(branch)
        same = known is not None and known.identity == identity_of(dataset)
        if known is not None and same and not _is_unrecorded(known.head):
            return known
        later = known is not None and keep and known.version < dataset.version
        found = read_on(dataset, known) if known is not None and later else read_manifest(dataset, branch)
        if found.head is None or found.touched > found.head.manifest_version:
            found = replace(found, head=self._log.find_published(found))
        found = self._adoption.describe(found)
        if keep:
            self._known[branch] = found
        return found

    # --- publishing ---

    def publish(self, branch: str, publication: Publication, record: CommitRecord) -> GraphManifest:
        """Publish with our own retries: each attempt opens, migrates, reads and checks anew, and lets Lance try once.

        So a concurrent advance of a table shows as a mismatch, and is never rebased through.
        """
        for attempt in range(PUBLISHER_RETRY_BUDGET + 1):
            dataset = migrate(self.datasets, stored_branch(branch))
            manifest = self._read(dataset, branch)
            _check(manifest, publication)
            rows = _rows(manifest, publication, _on_head(record, manifest))
            try:
                _merge(dataset, rows)
            except OSError as problem:
                if not is_contention(problem):
                    return self._settle(branch, record, problem)
                if attempt == PUBLISHER_RETRY_BUDGET:
                    raise HeadMismatchError(
                        f"publishing to branch {branch} lost {attempt + 1} races for the same rows of __manifest: "
                        "try again"
                    ) from problem
                SYSTEM_CLOCK.sleep(0.01 * 2**attempt)
                continue
            self._compact(dataset)
            return self._read(dataset, branch)  # a handle that wrote is at what it wrote
        raise AssertionError("unreachable")

    def _settle(self, branch: str, record: CommitRecord, problem: OSError) -> GraphManifest:
        """The answer got lost: the head row says whether the commit did."""
        try:
            found = self.manifest(branch)
        except OntologiaError as second:
            raise CommitOutcomeUnknownError(
                f"the answer to publishing commit {record.graph_commit_id} was lost ({problem}), and __manifest cannot "
                f"be read ({second}): the next read-write open finishes or undoes it"
            ) from problem
        if found.head is None or found.head.graph_commit_id != record.graph_commit_id:
            raise lance_error("publish to", f"__manifest of branch {branch}", problem) from problem
        return found

    def _compact(self, dataset: LanceDataset) -> None:
        """Keep the cost of a publish flat. The commit stands whatever happens here."""
        if len(dataset.get_fragments()) < _COMPACT_AFTER:
            return
        try:
            dataset.optimize.compact_files()
        except (OSError, ValueError, RuntimeError) as problem:
            _log.info("__manifest was not compacted, the next publish tries again: %s", problem)


def _is_unrecorded(head: CommitRecord | None) -> bool:
    """Whether a commit was published and not written down, so far."""
    return head is not None and head.graph_commit_id.startswith(UNRECORDED)


def _check(manifest: GraphManifest, publication: Publication) -> None:
    for key, expected in publication.expected.items():
        actual = manifest.highest(key)
        if actual != expected:
            raise ExpectedVersionMismatchError(key, expected, actual)
    head = None if manifest.head is None else manifest.head.graph_commit_id
    if publication.expected_head is not None and publication.expected_head != head:
        raise HeadMismatchError(
            f"branch {manifest.branch} is at commit {head}, not at {publication.expected_head}: read again and retry"
        )
    registered = {table.key for table in publication.tables}
    for table in publication.tables:
        known = manifest.tables.get(table.key)
        if known is not None and known.path != table.path:
            raise StorageBackendError(f"{table.key} lies at {known.path}, and cannot be registered at {table.path}")
    for pin in publication.pins:
        if pin.key not in manifest.tables and pin.key not in registered:
            raise StorageBackendError(f"{pin.key} is not registered in __manifest, so it has no versions to publish")
        if any(old.version == pin.version and old.branch == pin.branch for old in manifest.history.get(pin.key, ())):
            raise ExpectedVersionMismatchError(pin.key, pin.version - 1, pin.version)
    for key, number in publication.tombstones.items():
        if manifest.tombstones.get(key, -1) >= number:
            raise ExpectedVersionMismatchError(key, number, manifest.tombstones[key])


def _on_head(record: CommitRecord, manifest: GraphManifest) -> CommitRecord:
    """The parent is the head that this publish replaces, unless the writer named one."""
    if record.parent_commit_id is not None or manifest.head is None:
        return record
    return replace(record, parent_commit_id=manifest.head.graph_commit_id)


def _rows(manifest: GraphManifest, publication: Publication, record: CommitRecord) -> pa.Table:
    rows: list[dict[str, Any]] = [table.row() for table in publication.tables]
    rows += [pin.row() for pin in publication.pins]
    rows += [tombstone_row(key, number) for key, number in publication.tombstones.items()]
    return rows_table([*rows, head_row(record)])


def _merge(dataset: LanceDataset, rows: pa.Table) -> None:
    """One merge on `object_id`. An index on it would switch off the conflict check, so none is used."""
    builder = dataset.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    builder.conflict_retries(0).use_index(False).execute(rows)
