"""DELETE and UPDATE as copy-on-write rewrites: cells that have affected rows are written anew, one entry commits. What
every rewrite shares; MERGE is in `merging`.

A rewrite holds for the state it was made on. If others commit first, it stands when none of its cells went and no cell
came that it would have had to look at; else it is made again on the fresh state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.apiary import scan
from ontologia.apiary.cells import CellSizing, decoded_size
from ontologia.apiary.conditions import Filter, condition, literal, render
from ontologia.apiary.entries import Action, AddCells, Cell, RewriteCells
from ontologia.apiary.incoming import column_of
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import prune, prune_cells
from ontologia.apiary.results import RewriteResult
from ontologia.apiary.state import FrameSnapshot, FrameState, partition_of
from ontologia.apiary.types import FrameSchema
from ontologia.apiary.writing import CellWriter
from ontologia.errors import ConcurrentWriteError, FrameSchemaError, ValidationError
from ontologia.files.quoting import quote_name, quote_names
from ontologia.objects import pauses

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.expressions import Expr

ATTEMPTS = 20


@dataclass(frozen=True)
class Computed:
    """A new value that is computed from the row: `frame.update("temp > 40", {"temp": Computed("temp - 1")})`."""

    sql: str


class Stale(Exception):
    """Others changed what a rewrite was made from."""


@dataclass
class Rewrite:
    """One rewrite on its way: the version it read, the cells it takes out, the writer of those it puts in."""

    node: Node
    name: FrameName
    snapshot: FrameSnapshot
    writer: CellWriter
    where: Expr | None = None
    removed: list[Cell] = field(default_factory=list)
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    only_own_cells: bool = False  # new cells of others make no difference: a compaction changes no row

    @property
    def schema(self) -> FrameSchema:
        return self.snapshot.schema

    def candidates(self) -> list[Cell]:
        """The cells that may have rows for the condition."""
        return prune_cells(self.snapshot, self.where).scanned

    def batches(self) -> Iterator[list[Cell]]:
        """The cells to be replaced, partition by partition, as many at a time as make about one cell."""
        order = self.snapshot.partition_by
        cells = sorted(self.removed, key=lambda cell: partition_of(cell.partition_values, order))
        yield from batches(cells, self.node.capacity.sizing, self.schema)

    def propose(self, state: FrameState) -> Action:
        """Name the cells, if the state still is, for us, the one that was read."""
        self.check(state)
        self.writer.check_limit_on(state)
        added = tuple(self.writer.cells)
        return RewriteCells(tuple(cell.id for cell in self.removed), added) if self.removed else AddCells(added)

    def check(self, state: FrameState) -> None:
        if state.version == self.snapshot.version:
            return
        if any(cell.id not in state.cells for cell in self.removed):
            raise Stale
        if self.only_own_cells:
            return
        seen = {cell.id for cell in self.snapshot.cells}
        news = [cell for cell_id, cell in state.cells.items() if cell_id not in seen]
        if prune(news, self.where, state.schema, state.partition_by).scanned:
            raise Stale


def rewriting(node: Node, name: FrameName, operation: str, fill: Callable[[Rewrite], None]) -> RewriteResult:
    """Make a rewrite and commit it; once more on fresh state when it turns out stale."""
    started = node.clock.steady()
    temperature = node.admit_write("block", 30.0)
    ledger = node.ledger(name)
    waits = pauses(0.01, 0.5)
    for _ in range(ATTEMPTS):
        try:
            with node.reading(name) as snapshot:
                writer = CellWriter(node, name, snapshot.schema, snapshot.partition_by, ledger.known().partitions)
                work = Rewrite(node, name, snapshot, writer)
                version = snapshot.version
                with writer.removing_on_failure():
                    fill(work)
                    if work.removed or writer.cells:
                        version = writer.commit(work.propose, operation)
        except Stale:
            node.clock.sleep(next(waits))
            continue
        return RewriteResult(
            version,
            len(writer.cells),
            writer.rows,
            writer.bytes,
            node.clock.steady() - started,
            temperature,
            cells_removed=len(work.removed),
            rows_deleted=work.rows_deleted,
            rows_updated=work.rows_updated,
            rows_inserted=work.rows_inserted,
        )
    raise ConcurrentWriteError(
        f"{operation} of {name}: other writers changed the same cells {ATTEMPTS} times in a row. Nothing was changed: "
        "try again when they are done"
    )


def delete(node: Node, name: FrameName, filter: Filter) -> RewriteResult:
    if filter is None:
        raise ValidationError("delete needs a filter; to remove all rows, say filter='true'")

    def fill(work: Rewrite) -> None:
        where = _where(work, filter)
        work.removed, work.rows_deleted = _find_affected(work, where)
        columns = quote_names(work.schema.names)
        work.writer.write_all(_rewritten(work, columns, f"({where}) IS NOT TRUE", work.schema.names))

    return rewriting(node, name, "delete", fill)


def update(node: Node, name: FrameName, filter: Filter | None, changes: Mapping[str, Any]) -> RewriteResult:
    if not changes:
        raise ValidationError("update needs at least one column and its new value, as in {'temp': 0.0}")

    def fill(work: Rewrite) -> None:
        where = _where(work, "true" if filter is None else filter)
        values = {column: _new_value(work.schema, column, value) for column, value in changes.items()}
        work.removed, work.rows_updated = _find_affected(work, where)
        hit = f"({where}) IS TRUE"
        chosen = ", ".join(_either(column, hit, values.get(column), quote_name(column)) for column in work.schema.names)
        stored = [column for column in work.schema.names if column not in values]
        work.writer.write_all(_rewritten(work, chosen, "true", stored))

    return rewriting(node, name, "update", fill)


# --- steps -------------------------------------------------------------------------------------------------------


def _where(work: Rewrite, filter: Filter) -> str:
    work.where = condition(filter, work.schema)
    if work.where is None:
        raise ValidationError("an empty filter means nothing; for all rows, say filter='true'")
    return render(work.where)


def _find_affected(work: Rewrite, where: str) -> tuple[list[Cell], int]:
    """The cells that have rows for a condition, and how many rows those are."""
    file = quote_name(scan.FILE_NAME)
    with scan.sources(work.node, work.name, work.schema, work.candidates(), with_file=True) as source:
        sql = f"SELECT {file} AS file, count(*) AS hits FROM ({source.sql}) WHERE {where} GROUP BY {file}"
        found = scan.rows(work.node, sql).to_pydict()
        return [source.cell_at(file) for file in found["file"]], sum(found["hits"])


def _rewritten(work: Rewrite, chosen: str, where: str, stored: Sequence[str]) -> Iterator[pa.Table]:
    """What takes the place of the rows of the cells to be replaced, as it is read. Columns `stored` as they were
    have the types of the frame."""
    for batch in work.batches():
        with scan.sources(work.node, work.name, work.schema, batch) as source:
            for part in scan.parts(work.node, f"SELECT {chosen} FROM ({source.sql}) WHERE {where}"):
                yield scan.with_types(part, work.schema, stored)


def batches(cells: Sequence[Cell], sizing: CellSizing, schema: FrameSchema | None = None) -> list[list[Cell]]:
    """Cells in groups whose rows become about one cell of the target size each."""
    found: list[list[Cell]] = [[]]
    size = 0
    for cell in cells:
        if found[-1] and size + decoded_size(cell, schema) > sizing.piece:
            found.append([])
            size = 0
        found[-1].append(cell)
        size += decoded_size(cell, schema)
    return [group for group in found if group]


def _either(column: str, hit: str, new: str | None, old: str) -> str:
    chosen = old if new is None else f"CASE WHEN {hit} THEN {new} ELSE {old} END"
    return f"{chosen} AS {quote_name(column)}"


def _new_value(schema: FrameSchema, column: str, value: Any) -> str:
    """The new value of a column as SQL, in a type that fits it."""
    field = schema.column(column)
    if isinstance(value, Computed):
        tree = condition(value.sql, schema)
        return render(tree) if tree is not None else "NULL"
    if value is None and not field.nullable:
        raise FrameSchemaError(f"column {column!r} must not be null")
    exact = column_of([value], column, field)[0].as_py()
    return f"CAST({render(literal(exact))} AS {scan.duck_type(field.arrow)})"
