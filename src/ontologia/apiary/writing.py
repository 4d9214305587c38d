"""The write path (seed, "The Write Path"): validate, partition, write cells, commit, answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ontologia.apiary.cells import IN_MEMORY_BYTES, stream_cell, write_cell
from ontologia.apiary.colony.bees import Chamber
from ontologia.apiary.entries import AddCells, Cell, RewriteCells
from ontologia.apiary.incoming import tables
from ontologia.apiary.ledger import Propose
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.partitions import Group, check_limit, coarser_columns, split
from ontologia.apiary.results import RewriteResult, WriteResult
from ontologia.apiary.scan import column_order
from ontologia.apiary.state import FrameState, Partition, partition_of
from ontologia.apiary.types import FrameSchema
from ontologia.apiary.validation import conform
from ontologia.errors import CommitOutcomeUnknownError, OntologiaError, TaskAbandonedError

if TYPE_CHECKING:
    import pyarrow as pa

WRITE_LIMIT_S = 86_400.0  #: from the first cell to the commit: a vacuum spares files that no entry names for longer
_log = logging.getLogger(__name__)


class CellWriter:
    """Writes cells of one frame and remembers them, until an entry of the ledger names them."""

    def __init__(
        self,
        node: Node,
        name: FrameName,
        schema: FrameSchema,
        partition_by: tuple[str, ...],
        there: Collection[Partition] = (),
    ) -> None:
        self.node = node
        self.name = name
        self.schema = schema
        self.partition_by = partition_by
        self.order = column_order(node, name, schema, node.ledger(name).first_cell())
        self.cells: list[Cell] = []
        self._put: list[Cell] = []  # also those of tasks that failed afterwards
        self.limit = node.registry.frame(name).max_partitions
        self._there = there
        self._new: set[Partition] = set()
        self._hints: dict[str, int] = {}
        self._began = node.clock.wall()

    def write(self, table: pa.Table) -> None:
        """Steps 1 to 3 for some rows: validate, partition, write."""
        rows = conform(table, self.schema, self.partition_by, str(self.name))
        groups = split(rows, self.partition_by)
        self._check_limit(rows, groups)
        tasks = [partial(self._write_group, group) for group in groups]
        for cells in self.node.bees.run(f"writing to {self.name}", tasks):
            self.cells += cells

    def write_all(self, parts: Iterable[pa.Table]) -> None:
        """The same for rows that come in parts, of which about a cell is held at a time."""
        for table in self.node.capacity.sizing.gather(parts):
            self.write(table)

    def adopt(self, cells: Sequence[Cell]) -> None:
        """Take over cells that tasks elsewhere wrote."""
        self.cells += cells
        self._put += cells
        self._new.update(partition_of(cell.partition_values, self.partition_by) for cell in cells)

    def _write_group(self, group: Group, chamber: Chamber) -> list[Cell]:
        table = group.table()
        folder = self.node.objects.under(self.name.folder)
        cells = []
        for piece in self.node.capacity.sizing.cut(table):
            with chamber.holding(piece.nbytes):
                cell = write_cell(
                    folder,
                    piece.select(self.order),
                    group.values,
                    self.partition_by,
                    lambda: chamber.scratch,
                    exact=self.order == self.schema.names,
                )
            self._put.append(cell)
            cells.append(cell)
        return cells

    def replace(self, cell: Cell, parts: Callable[[], Iterable[pa.Table]]) -> None:
        """Write a cell in the place of another, of rows that were checked before; several, where it would be too large.
        The rows come in parts, which are not held."""

        def write(chamber: Chamber) -> list[Cell]:
            cells = []
            for run in self.node.capacity.sizing.runs(parts()):
                written = stream_cell(
                    self.node.objects.under(self.name.folder),
                    (part.select(self.order) for part in _hold(chamber, run)),
                    cell.partition_values,
                    self.partition_by,
                    lambda: chamber.scratch,
                    in_memory=cell.bytes <= IN_MEMORY_BYTES,
                    exact=self.order == self.schema.names,
                )
                self._put.append(written)
                cells.append(written)
            return cells

        self.cells += self.node.bees.run(f"writing to {self.name}", [write])[0]

    def commit(self, propose: Propose, operation: str) -> int:
        """Step 4: name the cells in one entry of the ledger, which becomes durable after them. Its version."""
        check_duration(self.name, operation, self.node.clock.wall() - self._began)
        ahead = [cell.path for cell in self._put]
        return self.node.ledger(self.name).commit(propose, operation, ahead).version

    def sync(self) -> None:
        """Make the cells durable, for somebody else to name them."""
        self.node.objects.under(self.name.folder).sync(cell.path for cell in self._put)

    def _check_limit(self, rows: pa.Table, groups: Sequence[Group]) -> None:
        self._new.update(partition_of(group.values, self.partition_by) for group in groups)
        if len(self._there) + len(self._new) > self.limit:
            self._hints = coarser_columns(rows, self.partition_by)
            check_limit(str(self.name), self._there, self._new, self.limit, self._hints)

    def check_limit_on(self, state: FrameState) -> None:
        """The same at the commit, when others may have added partitions meanwhile."""
        check_limit(str(self.name), state.partitions, self._new, self.limit, self._hints)

    @property
    def rows(self) -> int:
        return sum(cell.rows for cell in self.cells)

    @property
    def bytes(self) -> int:
        return sum(cell.bytes for cell in self.cells)

    @contextmanager
    def removing_on_failure(self) -> Iterator[None]:
        """Take cells back that will never be named: not while it is unknown whether they are, which `Ledger.commit`
        says, nor when this process is being ended."""
        try:
            yield
        except CommitOutcomeUnknownError:
            raise
        except Exception:
            remove_cells(self.node, self.name, self._put)
            raise


def check_duration(name: FrameName, operation: str, took_s: float) -> None:
    """Refuse to name cells that a vacuum may have taken for left over."""
    if took_s > WRITE_LIMIT_S:
        raise TaskAbandonedError(
            f"{operation} of {name} took longer than {WRITE_LIMIT_S / 3600:g} hours, and a vacuum may delete files "
            "that are not committed for so long. Nothing was committed: write fewer rows at a time"
        )


def _hold(chamber: Chamber, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for part in parts:
        with chamber.holding(part.nbytes):
            yield part


def remove_cells(node: Node, name: FrameName, cells: Iterable[Cell]) -> None:
    """Delete cells that no entry names. What stays behind is for the vacuum."""
    try:
        node.objects.delete_many([f"{name.folder}/{cell.path}" for cell in cells])
    except OntologiaError as problem:
        _log.warning("cells of %s that were not committed stay behind: %s", name, problem)


def append(node: Node, name: FrameName, data: Any, backpressure: str, timeout_s: float) -> WriteResult:
    """Seed, "The Write Path"."""
    started = node.clock.steady()
    temperature = node.admit_write(backpressure, timeout_s)
    state = node.ledger(name).known()
    writer = CellWriter(node, name, state.schema, state.partition_by, state.partitions)
    with writer.removing_on_failure():
        for table in tables(data, state.schema, node.capacity.sizing):
            writer.write(table)
        version = state.version
        if writer.cells:
            version = writer.commit(partial(_append_entry, writer), "write")
    return WriteResult(
        version, len(writer.cells), writer.rows, writer.bytes, node.clock.steady() - started, temperature
    )


def _append_entry(writer: CellWriter, state: FrameState) -> AddCells:
    writer.check_limit_on(state)
    return AddCells(tuple(writer.cells))


def overwrite(node: Node, name: FrameName, data: Any, backpressure: str, timeout_s: float) -> RewriteResult:
    """Seed, "Overwrite Semantics": all cells that are there when it commits go, the new ones come."""
    started = node.clock.steady()
    temperature = node.admit_write(backpressure, timeout_s)
    current = node.ledger(name).known()
    writer = CellWriter(node, name, current.schema, current.partition_by)
    removed: list[Cell] = []

    def replaced(state: FrameState) -> RewriteCells:
        removed[:] = state.cells.values()
        return RewriteCells(tuple(state.cells), tuple(writer.cells))

    with writer.removing_on_failure():
        for table in tables(data, current.schema, node.capacity.sizing):
            writer.write(table)
        version = writer.commit(replaced, "overwrite")
    return RewriteResult(
        version,
        len(writer.cells),
        writer.rows,
        writer.bytes,
        node.clock.steady() - started,
        temperature,
        cells_removed=len(removed),
        rows_deleted=sum(cell.rows for cell in removed),
        rows_inserted=writer.rows,
    )
