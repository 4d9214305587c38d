"""What executors do for frames: read some cells, write rows as cells, merge cells. No commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ontologia.apiary.conditions import condition, render
from ontologia.apiary.entries import Cell
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.scan import cast_to_frame, rows, sources
from ontologia.apiary.types import FrameSchema
from ontologia.apiary.writing import CellWriter
from ontologia.files.quoting import quote_names
from ontologia.objects import Location

BATCH_ROWS = 131_072


@dataclass(frozen=True)
class FrameWork:
    """A frame as a task needs it: where it is and what it looks like. Can be pickled."""

    location: Location
    name: FrameName
    schema: FrameSchema
    partition_by: tuple[str, ...]

    @property
    def node(self) -> Node:
        return _node(self.location)

    def read(self, cells: Sequence[Cell], columns: Sequence[str], where: Any = None) -> pa.Table:
        """Rows of some cells, with the types of the frame. `where` is a filter as `Frame.read` takes it."""
        tree = condition(where, self.schema) if where else None
        chosen = "" if tree is None else f" WHERE {render(tree)}"
        with sources(self.node, self.name, self.schema, cells) as source:
            found = rows(self.node, f"SELECT {quote_names(columns)} FROM ({source.sql}){chosen}")
        return cast_to_frame(found, self.schema, columns)

    def write(self, tables: Iterable[pa.Table]) -> list[Cell]:
        """Write rows as cells. They are part of the frame once the driver has named them."""
        writer = CellWriter(self.node, self.name, self.schema, self.partition_by)
        with writer.removing_on_failure():
            for table in tables:
                writer.write(table)
            writer.sync()
        return writer.cells


@lru_cache(maxsize=8)
def _node(location: Location) -> Node:
    """One node per store in a worker process, which lives for many tasks. It writes no heartbeats."""
    return Node(location, read_only=True)


def cells_text(cells: Iterable[Cell]) -> str:
    return json.dumps([cell.to_json() for cell in cells])


def cells_of(text: str) -> list[Cell]:
    return [Cell.from_json(body) for body in json.loads(text)]


def gather(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Small batches as tables of about the size of a cell."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def shares(cells: Sequence[Cell], tasks: int) -> list[list[Cell]]:
    """Cells for so many tasks, of about the same number of bytes each."""
    found: list[list[Cell]] = [[] for _ in range(max(1, min(tasks, len(cells))))]
    sizes = [0] * len(found)
    for cell in sorted(cells, key=lambda cell: -cell.bytes):
        lightest = sizes.index(min(sizes))
        found[lightest].append(cell)
        sizes[lightest] += cell.bytes
    return [share for share in found if share]
