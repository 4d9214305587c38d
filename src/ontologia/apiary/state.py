"""The state of a frame: what replaying its ledger gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ontologia.apiary.bounds import CellBounds
from ontologia.apiary.entries import Action, AddCells, Cell, Checkpoint, CreateFrame, Entry, RewriteCells
from ontologia.apiary.types import FrameSchema

Partition = tuple[str, ...]


@dataclass(frozen=True)
class FrameSnapshot:
    """A frame at one version. Does not change."""

    version: int
    schema: FrameSchema
    partition_by: tuple[str, ...]
    cells: Sequence[Cell]

    @property
    def rows(self) -> int:
        return sum(cell.rows for cell in self.cells)

    @cached_property
    def bounds(self) -> CellBounds:
        """Between which values the columns of its cells lie."""
        return CellBounds(self.cells)

    @property
    def bytes(self) -> int:
        return sum(cell.bytes for cell in self.cells)


class FrameState:
    """A frame as far as it has been replayed. Moves forward by `apply`, in place: a commit must not cost a copy of
    everything that came before it."""

    def __init__(self, schema: FrameSchema, partition_by: tuple[str, ...], version: int, cells: Iterable[Cell]) -> None:
        self.version = version
        self.schema = schema
        self.partition_by = partition_by
        self.cells: dict[str, Cell] = {}
        self.partitions: Counter[Partition] = Counter()
        self._snapshot: FrameSnapshot | None = None
        self._add(cells)

    @classmethod
    def of(cls, start: Checkpoint) -> FrameState:
        return cls(start.schema, start.partition_by or (), start.version, start.active_cells)

    def apply(self, entry: Entry) -> None:
        """Take one more version in. Cells that are there already are not doubled."""
        self._snapshot = None
        match entry.action:
            case CreateFrame(schema, partition_by):
                self.schema, self.partition_by = schema, partition_by
                self.cells.clear()
                self.partitions.clear()
            case AddCells(cells):
                self._add(cells)
            case RewriteCells(removed, added):
                for cell_id in removed:
                    cell = self.cells.pop(cell_id, None)
                    if cell is not None:
                        self._count(cell, -1)
                self._add(added)
        self.version = entry.version

    def snapshot(self) -> FrameSnapshot:
        if self._snapshot is None:
            self._snapshot = FrameSnapshot(self.version, self.schema, self.partition_by, tuple(self.cells.values()))
        return self._snapshot

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.version, self.schema, self.partition_by, tuple(self.cells.values()))

    def partition_of(self, cell: Cell) -> Partition:
        return partition_of(cell.partition_values, self.partition_by)

    def _add(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            if cell.id not in self.cells:
                self.cells[cell.id] = cell
                self._count(cell, 1)

    def _count(self, cell: Cell, by: int) -> None:
        partition = self.partition_of(cell)
        self.partitions[partition] += by
        if not self.partitions[partition]:
            del self.partitions[partition]


def partition_of(values: Mapping[str, str], partition_by: Sequence[str]) -> Partition:
    """The values of a partition, in the order of its columns."""
    return tuple(values.get(name, "") for name in partition_by)


def changed_cells(action: Action) -> tuple[tuple[str, ...], tuple[Cell, ...]]:
    """What an entry took out (ids) and put in."""
    match action:
        case AddCells(cells):
            return (), cells
        case RewriteCells(removed, added):
            return removed, added
    return (), ()


def with_partitioning(start: Checkpoint, partition_by: tuple[str, ...]) -> Checkpoint:
    return replace(start, partition_by=partition_by)
