"""Compaction: many small cells become few large ones (seed, "Compaction"). What the frame says stays the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ontologia.apiary import scan
from ontologia.apiary.cells import CellSizing
from ontologia.apiary.entries import Cell
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import RewriteResult
from ontologia.apiary.rewriting import Rewrite, rewriting
from ontologia.apiary.state import FrameSnapshot, Partition, partition_of


@dataclass(frozen=True)
class CompactionPolicy:
    """When a partition is compacted: more than so many cells, or small ones of a certain age."""

    small_cell_threshold: int
    min_cell_count: int = 10
    max_cell_age_uncompacted: timedelta = timedelta(hours=1)

    @classmethod
    def for_sizing(cls, sizing: CellSizing) -> CompactionPolicy:
        return cls(small_cell_threshold=sizing.piece // 4)

    def choose(self, cells: Sequence[Cell], oldest: datetime | None, now: datetime, *, force: bool) -> list[Cell]:
        """The cells of one partition to be merged: its small ones, if it is due."""
        small = [cell for cell in cells if cell.bytes < self.small_cell_threshold]
        if len(small) < 2:
            return []
        aged = oldest is not None and now - oldest > self.max_cell_age_uncompacted
        return small if force or len(cells) > self.min_cell_count or aged else []


def compact(
    node: Node, name: FrameName, *, force: bool = False, policy: CompactionPolicy | None = None
) -> RewriteResult:
    """Seed, "Compaction Process": choose, read, merge, write under new names, commit; again on fresh state if another
    writer took one of the cells. One entry for all partitions."""
    chosen_policy = policy or CompactionPolicy.for_sizing(node.capacity.sizing)

    def fill(work: Rewrite) -> None:
        work.only_own_cells = True
        for cells in due(node, name, work.snapshot, chosen_policy, force=force):
            for batch in batches(cells, node.capacity.sizing):
                with scan.sources(node, name, work.schema, batch) as source:
                    rows = scan.rows(node, f"SELECT * FROM ({source.sql})")
                work.removed += batch
                work.writer.write(scan.cast_to_frame(rows, work.schema, work.schema.names))

    return rewriting(node, name, "compact", fill)


def preview(node: Node, name: FrameName, *, force: bool = False) -> list[list[Cell]]:
    """The cells that a compaction would merge now, by partition."""
    policy = CompactionPolicy.for_sizing(node.capacity.sizing)
    return due(node, name, node.ledger(name).snapshot(), policy, force=force)


def due(
    node: Node, name: FrameName, snapshot: FrameSnapshot, policy: CompactionPolicy, *, force: bool
) -> list[list[Cell]]:
    """The cells to be merged, by partition."""
    now = datetime.fromtimestamp(node.clock.wall()).astimezone()
    partitions: dict[Partition, list[Cell]] = {}
    for cell in snapshot.cells:
        partitions.setdefault(partition_of(cell.partition_values, snapshot.partition_by), []).append(cell)
    ages = _ages(node, name, snapshot, partitions.values(), policy) if not force else {}
    chosen = (
        policy.choose(cells, min((ages[cell.id] for cell in cells if cell.id in ages), default=None), now, force=force)
        for cells in partitions.values()
    )
    return [cells for cells in chosen if cells]


def _ages(
    node: Node, name: FrameName, snapshot: FrameSnapshot, partitions: Iterable[list[Cell]], policy: CompactionPolicy
) -> dict[str, datetime]:
    """When small cells were written, for partitions that only their age can make due."""
    keys: dict[str, str] = {}
    for cells in partitions:
        small = [cell for cell in cells if cell.bytes < policy.small_cell_threshold]
        if len(small) >= 2 and len(cells) <= policy.min_cell_count:
            keys |= {f"{name.folder}/{cell.path}": cell.id for cell in small}
    heads = node.objects.map(node.objects.head, keys)
    return {keys[info.key]: info.modified for info in heads if info is not None}


def batches(cells: Sequence[Cell], sizing: CellSizing) -> list[list[Cell]]:
    """Cells in groups that become about one cell of the target size each. A group of one would change nothing."""
    found: list[list[Cell]] = [[]]
    size = 0
    for cell in cells:
        if found[-1] and size + cell.bytes > sizing.piece:
            found.append([])
            size = 0
        found[-1].append(cell)
        size += cell.bytes
    return [group for group in found if len(group) > 1]
