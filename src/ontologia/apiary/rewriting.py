"""DELETE, UPDATE and MERGE as copy-on-write rewrites: cells that have affected rows are written anew, one entry
commits.

A rewrite holds for the state it was made on. If others commit first, it stands when none of its cells went and no cell
came that it would have had to look at; else it is made again on the fresh state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.apiary import scan
from ontologia.apiary.conditions import Filter, condition, conjunction, literal, rendered
from ontologia.apiary.entries import Action, AddCells, Cell, RewriteCells
from ontologia.apiary.incoming import column_of, one_table
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import prune
from ontologia.apiary.results import RewriteResult
from ontologia.apiary.state import FrameState, Snapshot
from ontologia.apiary.types import FrameSchema
from ontologia.apiary.validation import conformed
from ontologia.apiary.writing import CellWriter
from ontologia.errors import ConcurrentWriteError, FrameSchemaError, ValidationError
from ontologia.files.quoting import quote_name, quote_names
from ontologia.objects import pauses

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.expressions import Expr

ATTEMPTS = 20
ROW = "\u200brow"
GIVEN = "given_rows"
FEW = 64


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
    snapshot: Snapshot
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
        return prune(self.snapshot.cells, self.where, self.schema, self.snapshot.partition_by).scanned

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
        snapshot = ledger.snapshot()
        writer = CellWriter(node, name, snapshot.schema, snapshot.partition_by, ledger.known().partitions)
        work = Rewrite(node, name, snapshot, writer)
        version = snapshot.version
        try:
            with writer.removing_on_failure():
                with node.reading(name, version):
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
        work.removed, work.rows_deleted = _affected(work, where)
        columns = quote_names(work.schema.names)
        for source in _rewritten(work):
            kept = scan.rows(node, f"SELECT {columns} FROM ({source.sql}) WHERE ({where}) IS NOT TRUE")
            work.writer.write(scan.typed(kept, work.schema, work.schema.names))

    return rewriting(node, name, "delete", fill)


def update(node: Node, name: FrameName, filter: Filter | None, changes: Mapping[str, Any]) -> RewriteResult:
    if not changes:
        raise ValidationError("update needs at least one column and its new value, as in {'temp': 0.0}")

    def fill(work: Rewrite) -> None:
        where = _where(work, "true" if filter is None else filter)
        values = {column: _new_value(work.schema, column, value) for column, value in changes.items()}
        work.removed, work.rows_updated = _affected(work, where)
        hit = f"({where}) IS TRUE"
        chosen = ", ".join(_either(column, hit, values.get(column), quote_name(column)) for column in work.schema.names)
        for source in _rewritten(work):
            work.writer.write(scan.rows(node, f"SELECT {chosen} FROM ({source.sql})"))

    return rewriting(node, name, "update", fill)


def merge(node: Node, name: FrameName, data: Any, on: Sequence[str]) -> RewriteResult:
    state = node.ledger(name).known()
    keys = [state.schema.column(key).name for key in ([on] if isinstance(on, str) else on)]
    if not keys:
        raise ValidationError("merge needs the columns that make a key, as in on=['id']")
    table = one_table(data, state.schema)
    missing = [key for key in keys if key not in table.column_names]
    if missing:
        raise FrameSchemaError(f"the given rows have no column {', '.join(missing)}; they have {table.column_names}")
    columns = [column for column in state.schema.names if column in table.column_names]
    given = conformed(table, state.schema, state.partition_by, str(name))
    _check_keys(name, given, keys)

    def fill(work: Rewrite) -> None:
        if not given.num_rows:
            return
        work.where = _key_ranges(given, keys)
        numbered = _numbered(given)
        same = " AND ".join(f"t.{quote_name(key)} = g.{quote_name(key)}" for key in keys)
        work.removed, matched = _matches(work, numbered, same)
        work.rows_updated = len(matched)
        hit = f"g.{quote_name(ROW)} IS NOT NULL"
        chosen = ", ".join(
            _either(column, hit, f"g.{quote_name(column)}" if column in columns else None, f"t.{quote_name(column)}")
            for column in work.schema.names
        )
        for source in _rewritten(work):
            sql = f"SELECT {chosen} FROM ({source.sql}) t LEFT JOIN {GIVEN} g ON {same}"
            changed = scan.rows(node, sql, **{GIVEN: numbered})
            work.writer.write(scan.typed(changed, work.schema, work.schema.names))
        fresh = _unmatched(given, matched)
        work.rows_inserted = fresh.num_rows
        if fresh.num_rows:
            work.writer.write(fresh)

    return rewriting(node, name, "merge", fill)


# --- steps -------------------------------------------------------------------------------------------------------


def _where(work: Rewrite, filter: Filter) -> str:
    work.where = condition(filter, work.schema)
    if work.where is None:
        raise ValidationError("an empty filter means nothing; for all rows, say filter='true'")
    return rendered(work.where)


def _affected(work: Rewrite, where: str) -> tuple[list[Cell], int]:
    """The cells that have rows for a condition, and how many rows those are."""
    file = quote_name(scan.FILE_NAME)
    with scan.sources(work.node, work.name, work.schema, work.candidates(), with_file=True) as source:
        sql = f"SELECT {file} AS file, count(*) AS hits FROM ({source.sql}) WHERE {where} GROUP BY {file}"
        found = scan.rows(work.node, sql).to_pydict()
        return [source.cell_at(file) for file in found["file"]], sum(found["hits"])


def _rewritten(work: Rewrite) -> Iterator[scan.Source]:
    """The rows of the cells to be replaced, in batches that fit into memory."""
    most = work.node.capacity.sizing.piece // 4  # what a cell holds is larger than its file
    batch: list[Cell] = []
    for cell in work.removed:
        if batch and sum(held.bytes for held in batch) + cell.bytes > most:
            with scan.sources(work.node, work.name, work.schema, batch) as source:
                yield source
            batch = []
        batch.append(cell)
    if batch:
        with scan.sources(work.node, work.name, work.schema, batch) as source:
            yield source


def _either(column: str, hit: str, new: str | None, old: str) -> str:
    chosen = old if new is None else f"CASE WHEN {hit} THEN {new} ELSE {old} END"
    return f"{chosen} AS {quote_name(column)}"


def _new_value(schema: FrameSchema, column: str, value: Any) -> str:
    """The new value of a column as SQL, in a type that fits it."""
    field = schema.column(column)
    if isinstance(value, Computed):
        tree = condition(value.sql, schema)
        return rendered(tree) if tree is not None else "NULL"
    if value is None and not field.nullable:
        raise FrameSchemaError(f"column {column!r} must not be null")
    exact = column_of([value], column, field)[0].as_py()
    return f"CAST({rendered(literal(exact))} AS {scan.duck_type(field.arrow)})"


def _check_keys(name: FrameName, given: pa.Table, keys: Sequence[str]) -> None:
    empty = [key for key in keys if given.column(key).null_count]
    if empty:
        raise FrameSchemaError(f"merge into {name}: a key must not be null, and {', '.join(empty)} is in some rows")
    distinct = given.group_by(list(keys)).aggregate([]).num_rows
    if distinct < given.num_rows:
        raise FrameSchemaError(
            f"merge into {name}: {given.num_rows - distinct:,} of the given rows repeat the key of another "
            f"({', '.join(keys)}), so it is not clear which one counts. Keep one row per key"
        )


def _key_ranges(given: pa.Table, keys: Sequence[str]) -> Expr | None:
    """Where keys lie, to leave cells out. Few values are named one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from sqlglot import exp

    parts: list[Expr] = []
    for key in keys:
        column = given.column(key)
        if pa.types.is_binary(column.type) or pa.types.is_floating(column.type):
            continue
        name = exp.column(key, quoted=True)
        values = column.unique()
        if len(values) <= FEW:
            parts.append(exp.In(this=name, expressions=[literal(value) for value in values.to_pylist()]))
        else:
            low, high = pc.min_max(column).as_py().values()
            parts.append(exp.Between(this=name, low=literal(low), high=literal(high)))
    return conjunction(parts)


def _numbered(given: pa.Table) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    return given.append_column(ROW, pa.array(np.arange(given.num_rows)))


def _matches(work: Rewrite, numbered: pa.Table, same: str) -> tuple[list[Cell], pa.ChunkedArray]:
    """The cells that have rows with a given key, and the numbers of the given rows, once per row that matches."""
    with scan.sources(work.node, work.name, work.schema, work.candidates(), with_file=True) as source:
        found = scan.rows(
            work.node,
            f"SELECT t.{quote_name(scan.FILE_NAME)} AS file, g.{quote_name(ROW)} AS number "
            f"FROM ({source.sql}) t JOIN {GIVEN} g ON {same}",
            **{GIVEN: numbered},
        )
        cells = [source.cell_at(file) for file in found.column("file").unique().to_pylist()]
    return cells, found.column("number")


def _unmatched(given: pa.Table, matched: pa.ChunkedArray) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    fresh = np.ones(given.num_rows, bool)
    fresh[matched.to_numpy()] = False
    return given.filter(pa.array(fresh))
