"""Rows that tasks write for a commit on a graph: fragments of the type's dataset, which no version has yet."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ontologia.engines.omnigraph.types import GraphType
from ontologia.engines.staging import Staging
from ontologia.files.data_files import DataFile
from ontologia.files.row_spools import RowSpool
from ontologia.omnigraph.datasets import Datasets
from ontologia.omnigraph.fragments import stage_fragments

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class GraphStaging(Staging):
    """Where the dataset of a type lies. What a task wrote is described by a small object in the folder."""

    path: str = ""
    branch: str | None = None

    def writer(self) -> FragmentWriter:  # type: ignore[override]
        return FragmentWriter(self)


class FragmentWriter:
    """Rows of one type as fragments. They are gathered in a local file, so that memory does not grow with them."""

    def __init__(self, staging: GraphStaging) -> None:
        self.staging = staging
        self._type = GraphType(staging.layout.schema)
        self._spool = RowSpool(self._type.arrow)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing is kept open."""

    def add(self, rows: pa.Table) -> None:
        self._spool.add(self._type.to_graph(rows))

    def finish(self) -> list[DataFile]:
        """Write the fragments, and say where they are described."""
        rows = self._spool.table()
        if not rows.num_rows:
            return []
        staging = self.staging
        objects = staging.location.open_objects()
        fragments = stage_fragments(Datasets(objects), staging.path, staging.branch, rows)
        content = json.dumps({"fragments": fragments}).encode()
        key = f"{staging.folder}part-{uuid.uuid4().hex}.json"
        objects.put(key, content)
        return [DataFile(key, len(content), rows.num_rows)]


def fragments_of(objects: Any, parts: Sequence[DataFile]) -> list[str]:
    """The fragments that parts describe."""
    found: list[str] = []
    for part in parts:
        found += json.loads(objects.get(part.path).data)["fragments"]
    return found
