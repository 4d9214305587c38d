"""A consistent read view over all tables of a graph: the pins of one manifest version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontologia.errors import HistoryGapError, ValidationError
from ontologia.omnigraph.datasets import translate_errors
from ontologia.omnigraph.lookups import rows_with
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Pin
from ontologia.omnigraph.names import MAIN, MANIFEST, stored_branch

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

    from ontologia.omnigraph.graph import Graph

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class StoredSnapshot:
    """All tables as they were at one commit. Versions are immutable, so this never changes."""

    def __init__(self, graph: Graph, manifest: GraphManifest) -> None:
        self.graph = graph
        self.manifest = manifest
        self._open: dict[str, LanceDataset] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.manifest.pins

    def dataset(self, key: str) -> LanceDataset:
        """The Lance dataset of a table at its pinned version."""
        if key not in self._open:
            self.manifest.table(key)
            pin = self.manifest.pins[key]
            self._open[key] = self.graph.datasets.open(pin.path, pin.branch, pin.version)
        return self._open[key]

    def find(self, key: str) -> LanceDataset | None:
        return self.dataset(key) if key in self else None

    def read(
        self, key: str, columns: Sequence[str] | None = None, where: str | None = None, **options: Any
    ) -> pa.Table:
        """Rows of a table; the filter and the columns go into Lance's scan."""
        dataset = self.dataset(key)
        with translate_errors("read", dataset.uri):
            return dataset.scanner(
                columns=None if columns is None else list(columns), filter=where, **options
            ).to_table()

    def rows_of(self, key: str, ids: Sequence[str], columns: Sequence[str] | None = None, by: str = "id") -> pa.Table:
        """The rows whose `by` is one of these."""
        return rows_with(self.dataset(key), by, ids, columns)

    def existing(self, key: str, ids: Sequence[str]) -> set[str]:
        """Those of these ids that the table has."""
        if key not in self or not ids:
            return set()
        return set(self.rows_of(key, ids, ["id"]).column("id").to_pylist())


def resolve(graph: Graph, reference: str | int | None, branch: str = MAIN) -> GraphManifest:
    """The catalog that a branch, a tag, a commit id or a version (of `branch`) stands for."""
    if reference is None:
        return graph.manifest(branch)
    if isinstance(reference, int):
        newest = graph.manifest(branch)
        if not 0 < reference <= newest.version:
            raise ValidationError(f"branch {branch} has versions up to {newest.version}, not {reference}")
        if graph.datasets.find(MANIFEST, stored_branch(branch), reference) is None:
            raise HistoryGapError(
                f"version {reference} of branch {branch} is not stored any more: it was cleaned up; use a newer one, "
                "and tag states that must stay"
            )
        return graph.manifest(branch, reference)
    if reference in graph.branches():
        return graph.manifest(reference)
    tags = tags_of(graph)
    if reference in tags:
        return graph.manifest(*tags[reference])
    if _ULID.fullmatch(reference):
        found = graph.heads_and_commits()[1].get(reference)
        if found is not None:
            return state_of(graph, found)
    known = ", ".join([*graph.branches(), *tags])
    raise ValidationError(f"{reference!r} is not a commit, branch or tag of this graph; branches and tags are {known}")


def state_of(graph: Graph, record: CommitRecord) -> GraphManifest:
    """The catalog that a commit left. Its branch may have been deleted since, and another one have its name now."""
    found = _stored_state(graph, record) if _is_on_branch(graph, record) else graph.retired.find_state(record)
    if found is None:
        raise HistoryGapError(
            f"the state of commit {record.graph_commit_id}, made on branch {record.branch}, is not stored any more: it "
            "was cleaned up, or its branch was deleted; use a newer commit, and tag states that must stay"
        )
    return found


def _is_on_branch(graph: Graph, record: CommitRecord) -> bool:
    if record.branch == MAIN:
        return True
    if record.branch not in graph.branches():
        return False
    head = graph.publisher.manifest(record.branch).head
    if head is not None and head.graph_commit_id == record.graph_commit_id:
        return True
    return graph.commit_log.has(record.branch, record.graph_commit_id)


def _stored_state(graph: Graph, record: CommitRecord) -> GraphManifest | None:
    """The version of `__manifest` that the commit published or, where that is gone, a later one of the same commit:
    `__manifest` compacts itself."""
    lineage = stored_branch(record.branch)
    if graph.datasets.find(MANIFEST, lineage, record.manifest_version) is not None:
        return graph.publisher.manifest(record.branch, record.manifest_version)
    later = [it["version"] for it in graph.datasets.open(MANIFEST, lineage).versions()]
    version = min((it for it in later if it > record.manifest_version), default=None)
    found = None if version is None else graph.publisher.manifest(record.branch, version)
    same = found is not None and found.head is not None and found.head.graph_commit_id == record.graph_commit_id
    return found if same else None


def tags_of(graph: Graph) -> Mapping[str, tuple[str, int]]:
    """Names that people gave to commits: branch and version of `__manifest`, which Lance then keeps."""
    found = graph.datasets.open(MANIFEST).tags.list()
    return {name: (tag["branch"] or MAIN, tag["version"]) for name, tag in found.items()}


def same_place(left: Pin | None, right: Pin | None) -> bool:
    return (left and left.place) == (right and right.place)
