"""A consistent read view over all tables of a graph: the pins of one manifest version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.omnigraph.datasets import translate_errors
from ontologia.omnigraph.lookups import rows_with
from ontologia.omnigraph.manifest import GraphManifest, Pin
from ontologia.omnigraph.names import MAIN, MANIFEST

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
        return graph.manifest(branch, reference)
    if reference in graph.branches():
        return graph.manifest(reference)
    tags = tags_of(graph)
    if reference in tags:
        return graph.manifest(*tags[reference])
    if _ULID.fullmatch(reference):
        for name in dict.fromkeys([branch, *graph.branches()]):
            manifest = graph.manifest(name)
            found = next((it for it in graph.commit_log.log(manifest) if it.graph_commit_id == reference), None)
            if found is not None:
                return graph.manifest(found.branch, found.manifest_version)
    known = ", ".join([*graph.branches(), *tags])
    raise ValidationError(f"{reference!r} is not a commit, branch or tag of this graph; branches and tags are {known}")


def tags_of(graph: Graph) -> Mapping[str, tuple[str, int]]:
    """Names that people gave to commits: branch and version of `__manifest`, which Lance then keeps."""
    found = graph.datasets.open(MANIFEST).tags.list()
    return {name: (tag["branch"] or MAIN, tag["version"]) for name, tag in found.items()}


def same_place(left: Pin | None, right: Pin | None) -> bool:
    return (left and left.place) == (right and right.place)
