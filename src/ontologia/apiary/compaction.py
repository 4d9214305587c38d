"""Compaction: many small cells become few large ones (seed, "Compaction"). What the frame says stays the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ontologia.apiary import scan
from ontologia.apiary.cells import CellSizing, decoded_size
from ontologia.apiary.entries import Cell
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import RewriteResult
from ontologia.apiary.rewriting import Rewrite, batches, rewriting
from ontologia.apiary.state import FrameSnapshot, Partition, partition_of
from ontologia.apiary.types import FrameSchema


@dataclass(frozen=True)
class CompactionPolicy:
    """When a partition is compacted: more than so many cells, or small ones of a certain age."""

    small_cell_threshold: int
    min_cell_count: int = 10
    max_cell_age_uncompacted: timedelta = timedelta(hours=1)

    @classmethod
    def for_sizing(cls, sizing: CellSizing) -> CompactionPolicy:
        return cls(small_cell_threshold=sizing.piece // 4)

    def small(self, cells: Iterable[Cell], schema: FrameSchema | None = None) -> list[Cell]:
        """Those of the cells that are small, by the size of their rows in memory. They are cut by that, too, so that
        what a compaction wrote is not small again."""
        return [cell for cell in cells if decoded_size(cell, schema) < self.small_cell_threshold]

    def choose(
        self,
        cells: Sequence[Cell],
        oldest: datetime | None,
        now: datetime,
        *,
        force: bool,
        schema: FrameSchema | None = None,
    ) -> list[Cell]:
        """The cells of one partition to be merged: its small ones, if it is due."""
        small = self.small(cells, schema)
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
            for batch in groups(cells, node.capacity.sizing, work.schema):
                work.removed += batch
                with scan.sources(node, name, work.schema, batch) as source:
                    parts = scan.parts(node, f"SELECT * FROM ({source.sql})")
                    work.writer.write_all(scan.cast_to_frame(part, work.schema, work.schema.names) for part in parts)

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
        policy.choose(
            cells,
            min((ages[cell.id] for cell in cells if cell.id in ages), default=None),
            now,
            force=force,
            schema=snapshot.schema,
        )
        for cells in partitions.values()
    )
    return [cells for cells in chosen if cells]


def _ages(
    node: Node, name: FrameName, snapshot: FrameSnapshot, partitions: Iterable[list[Cell]], policy: CompactionPolicy
) -> dict[str, datetime]:
    """When small cells were written, for partitions that only their age can make due."""
    keys: dict[str, str] = {}
    for cells in partitions:
        small = policy.small(cells, snapshot.schema)
        if len(small) >= 2 and len(cells) <= policy.min_cell_count:
            keys |= {f"{name.folder}/{cell.path}": cell.id for cell in small}
    heads = node.objects.map(node.objects.head, keys)
    return {keys[info.key]: info.modified for info in heads if info is not None}


def groups(cells: Sequence[Cell], sizing: CellSizing, schema: FrameSchema | None = None) -> list[list[Cell]]:
    """The cells that become one each. A group of one would change nothing."""
    return [group for group in batches(cells, sizing, schema) if len(group) > 1]
