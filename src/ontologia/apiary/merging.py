"""MERGE as a copy-on-write rewrite: rows whose key is given again are replaced where they stand, others are appended.

Which rows those are is asked of DuckDB, which reads only the keys. What is written anew goes from Parquet to Arrow and
back, part by part; only parts that have a row to be replaced are touched in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontologia.apiary import scan
from ontologia.apiary.conditions import conjunction, literal
from ontologia.apiary.entries import Cell
from ontologia.apiary.incoming import one_table
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import RewriteResult
from ontologia.apiary.rewriting import Rewrite, rewriting
from ontologia.apiary.validation import conform
from ontologia.apiary.values import python_bounds
from ontologia.errors import FrameSchemaError, ValidationError
from ontologia.files.quoting import quote_name

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

NUMBER = "\u200bnumber"
GIVEN, STORED = "given_rows", "stored_rows"
FEW = 64


def merge(node: Node, name: FrameName, data: Any, on: Sequence[str]) -> RewriteResult:
    """Update rows by key and append those whose key is new, as one version."""
    state = node.ledger(name).known()
    keys = [state.schema.column(key).name for key in ([on] if isinstance(on, str) else on)]
    if not keys:
        raise ValidationError("merge needs the columns that make a key, as in on=['id']")
    table = one_table(data, state.schema)
    missing = [key for key in keys if key not in table.column_names]
    if missing:
        raise FrameSchemaError(f"the given rows have no column {', '.join(missing)}; they have {table.column_names}")
    columns = [column for column in state.schema.names if column in table.column_names]
    given = conform(table, state.schema, state.partition_by, str(name))
    _check_keys(name, given, keys)

    def fill(work: Rewrite) -> None:
        if not given.num_rows:
            return
        work.where = _key_ranges(given, keys)
        matches = _matches(work, given, keys)
        work.removed = [cell for cell in work.snapshot.cells if cell.id in matches]
        work.rows_updated = sum(len(numbers) for _, numbers in matches.values())
        new = given.select(columns)
        for batch in work.batches():
            if len(batch) > 1 or work.writer.partition_by:
                work.writer.write_all(_merge_rows(work, batch, matches, new))
            else:  # what was one cell remains one, unless it grows too large
                work.writer.replace(batch[0], partial(_merge_rows, work, batch, matches, new))
        fresh = _unmatched(given, [numbers for _, numbers in matches.values()])
        work.rows_inserted = fresh.num_rows
        if fresh.num_rows:
            work.writer.write(fresh)

    return rewriting(node, name, "merge", fill)


# --- keys --------------------------------------------------------------------------------------------------------


def _check_keys(name: FrameName, given: pa.Table, keys: Sequence[str]) -> None:
    empty = [key for key in keys if given.column(key).null_count]
    if empty:
        raise FrameSchemaError(f"merge into {name}: a key must not be null, and {', '.join(empty)} is in some rows")
    distinct = (
        pa.table({key: _as_compared(given.column(key)) for key in keys}).group_by(list(keys)).aggregate([]).num_rows
    )
    if distinct < given.num_rows:
        raise FrameSchemaError(
            f"merge into {name}: {given.num_rows - distinct:,} of the given rows repeat the key of another "
            f"({', '.join(keys)}), so it is not clear which one counts. Keep one row per key"
        )


def _as_compared(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose values are equal to Arrow where they are to DuckDB: 0.0 and -0.0 are one key, and so is every
    NaN."""
    if not pa.types.is_floating(column.type):
        return column
    numbers = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(numbers), pa.scalar(float("nan")), pc.add(numbers, 0.0))


def _key_ranges(given: pa.Table, keys: Sequence[str]) -> Expr | None:
    """Where keys lie, to leave cells out. Few values are named one by one."""
    from sqlglot import exp

    parts: list[Expr] = []
    for key in keys:
        column = given.column(key)
        if pa.types.is_binary(column.type) or pa.types.is_floating(column.type):
            continue
        name = exp.column(key, quoted=True)
        low, high = python_bounds(column)
        if low is None or high is None:  # a day that Python has no word for: any cell may have it
            continue
        values = column.unique()
        if len(values) <= FEW:
            parts.append(exp.In(this=name, expressions=[literal(value) for value in values.to_pylist()]))
        else:
            parts.append(exp.Between(this=name, low=literal(low), high=literal(high)))
    return conjunction(parts)


# --- rows --------------------------------------------------------------------------------------------------------

Matches = Mapping[str, tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]]
"""By cell: the places of the rows to be replaced, in order, and the number of the given row for each."""


def _matches(work: Rewrite, given: pa.Table, keys: Sequence[str]) -> Matches:
    """Where rows have a given key."""
    numbered = _for_duckdb(given.select(list(keys))).append_column(NUMBER, pa.array(np.arange(given.num_rows)))
    cells = work.candidates()
    found = (_find_in_files if scan.can_number(work.schema, cells) else _find_in_rows)(work, cells, keys, numbered)
    by_cell = found.column("cell").combine_chunks().dictionary_encode()
    of_cell, places, numbers = (np.asarray(part) for part in (by_cell.indices, found["place"], found["number"]))
    order = np.lexsort((places, of_cell))
    ends = np.searchsorted(of_cell[order], np.arange(len(by_cell.dictionary) + 1))
    return {
        cell: (places[order[start:end]], numbers[order[start:end]])
        for cell, start, end in zip(by_cell.dictionary.to_pylist(), ends, ends[1:], strict=False)
    }


def _for_duckdb(rows: pa.Table) -> pa.Table:
    """Rows whose short floats are longer: DuckDB reads none of 16 bits from Arrow."""
    longer = [field.with_type(pa.float32()) if field.type == pa.float16() else field for field in rows.schema]
    return rows.cast(pa.schema(longer))


def _find_in_files(work: Rewrite, cells: Sequence[Cell], keys: Sequence[str], numbered: pa.Table) -> pa.Table:
    with scan.sources(work.node, work.name, work.schema, cells, with_file=True, with_place=True) as source:
        found = scan.rows(work.node, _join(source.sql, keys), **{GIVEN: numbered})
        files = found.column("cell").combine_chunks().dictionary_encode()
        ids = [source.cell_at(file).id for file in files.dictionary.to_pylist()]
    return found.set_column(0, "cell", pa.array(ids, pa.string()).take(files.indices))


def _find_in_rows(work: Rewrite, cells: Sequence[Cell], keys: Sequence[str], numbered: pa.Table) -> pa.Table:
    """The same for cells whose files DuckDB cannot number."""
    stored = []
    for cell in cells:
        parts = [part.select(list(keys)) for part in scan.cell_rows(work.node, work.name, work.schema, cell)]
        rows = _for_duckdb(pa.concat_tables(parts or [work.schema.arrow.empty_table().select(list(keys))]))
        rows = rows.append_column(scan.FILE_NAME, pa.array([cell.id] * rows.num_rows, pa.string()))
        stored.append(rows.append_column(scan.PLACE, pa.array(np.arange(rows.num_rows))))
    return scan.rows(work.node, _join(f"FROM {STORED}", keys), **{GIVEN: numbered, STORED: pa.concat_tables(stored)})


def _join(stored: str, keys: Sequence[str]) -> str:
    file, place, number = (quote_name(name) for name in (scan.FILE_NAME, scan.PLACE, NUMBER))
    same = " AND ".join(f"t.{quote_name(key)} = g.{quote_name(key)}" for key in keys)
    return (
        f"SELECT t.{file} AS cell, t.{place} AS place, g.{number} AS number FROM ({stored}) t JOIN {GIVEN} g ON {same}"
    )


def _merge_rows(work: Rewrite, cells: Sequence[Cell], matches: Matches, new: pa.Table) -> Iterator[pa.Table]:
    """The rows of cells in order, in parts, each with those replaced that have a new one."""
    for cell in cells:
        places, numbers = matches[cell.id]
        start = 0
        for part in scan.cell_rows(work.node, work.name, work.schema, cell):
            first, last = places.searchsorted((start, start + part.num_rows))
            yield part if first == last else _replace_rows(part, places[first:last] - start, new, numbers[first:last])
            start += part.num_rows


def _replace_rows(
    rows: pa.Table, places: np.ndarray[Any, Any], new: pa.Table, numbers: np.ndarray[Any, Any]
) -> pa.Table:
    """Rows with those at some places taken from the new ones, as far as these have columns."""
    mask = np.zeros(rows.num_rows, bool)
    mask[places] = True
    chosen = new.take(pa.array(numbers))
    for column in new.column_names:
        values = pc.replace_with_mask(rows.column(column), pa.array(mask), chosen.column(column).combine_chunks())
        rows = rows.set_column(rows.column_names.index(column), rows.schema.field(column), values)
    return rows


def _unmatched(given: pa.Table, matched: Sequence[np.ndarray[Any, Any]]) -> pa.Table:
    fresh = np.ones(given.num_rows, bool)
    for numbers in matched:
        fresh[numbers] = False
    return given.filter(pa.array(fresh))
