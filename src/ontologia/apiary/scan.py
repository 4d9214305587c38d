"""Cells as something DuckDB can read FROM: exact file lists, columns by name, in the types of the frame."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.apiary.conditions import render
from ontologia.apiary.entries import FORMAT, Cell
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import prune_cells
from ontologia.apiary.state import FrameSnapshot
from ontologia.apiary.types import FrameSchema
from ontologia.errors import CorruptFrameError, OntologiaError, StorageBackendError, ValidationError
from ontologia.extras import need
from ontologia.files.data_files import DataFile
from ontologia.files.quoting import literal_path, quote_name, quote_names, quote_text

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    from sqlglot.expressions import Expr

    from ontologia.files.reading import FileReader

_BROKEN = ("magic bytes", "Parquet", "parquet", "IO Error", "too small", "Snappy", "LZ4", "thrift", "TProtocol")
FILE_NAME = "\u200bfile"  #: no frame has such a column: it cannot be printed
PLACE = "\u200bplace"
PART_ROWS = 131_072
_log = logging.getLogger(__name__)
_ROW_NUMBER = "file_row_number"  #: what DuckDB calls the place of a row in its file, unless the file has such a column


def read(
    node: Node, name: FrameName, snapshot: FrameSnapshot, columns: Sequence[str] | None, where: Expr | None
) -> pa.Table:
    """The rows of a version that satisfy a condition, in the order they were written. The caller has pinned it."""
    if isinstance(columns, str):
        raise ValidationError(f"columns is a list, as in columns=[{columns!r}]")
    names = [snapshot.schema.column(column).name for column in (snapshot.schema.names if columns is None else columns)]
    if not names:
        raise ValidationError("columns is empty: name at least one, or leave it out for all of them")
    cells = prune_cells(snapshot, where).scanned
    with sources(node, name, snapshot.schema, cells) as source:
        condition = "" if where is None else f" WHERE {render(where)}"
        found = rows(node, f"SELECT {quote_names(names)} FROM ({source.sql}){condition}")
    return cast_to_frame(found, snapshot.schema, names)


def rows(node: Node, sql: str, **tables: pa.Table) -> pa.Table:
    """The result of a statement of ours over cells; what goes wrong gets a name."""
    with explain_failures():
        return node.duck.table(sql, {}, **tables)


def parts(node: Node, sql: str) -> Iterator[pa.Table]:
    """The same as it comes, in parts."""
    with explain_failures():
        for batch in node.duck.batches(sql, {}, PART_ROWS):
            yield pa.Table.from_batches([batch])


def cast_to_frame(table: pa.Table, schema: FrameSchema, names: Sequence[str]) -> pa.Table:
    """A result with the exact types of the frame."""
    return table.select(list(names)).cast(pa.schema([(name, schema.by_name[name].arrow) for name in names]))


def with_types(table: pa.Table, schema: FrameSchema, names: Sequence[str]) -> pa.Table:
    """The same with the exact types of the frame in some columns; others stay as they are."""
    types = {name: schema.by_name[name].arrow for name in names}
    return table.cast(pa.schema([(field.name, types.get(field.name, field.type)) for field in table.schema]))


@dataclass(frozen=True)
class CellRows:
    """SQL that gives the rows of some cells, and the files it reads, as DuckDB is given them and as it names them."""

    sql: str
    files: Sequence[str]
    cells: Mapping[str, Cell]

    def cell_at(self, file: str) -> Cell:
        """The cell whose rows come from a file, by the name that DuckDB gives it."""
        return self.cells[file]


@contextmanager
def sources(
    node: Node,
    name: FrameName,
    schema: FrameSchema,
    cells: Sequence[Cell],
    *,
    with_file: bool = False,
    with_place: bool = False,
    reader: FileReader | None = None,
) -> Iterator[CellRows]:
    """The rows of these cells for DuckDB, good while in the block. `with_file` adds the file that each row is from,
    `with_place` which row of it, where `can_number` says that it can."""
    for cell in cells:
        if cell.format != FORMAT:
            raise CorruptFrameError(
                f"cell {cell.id} of {name} is in the format {cell.format!r}, which this release does not read: a newer "
                "one wrote it, so upgrade",
                context={"operation": "read", "url": node.objects.url(f"{name.folder}/{cell.path}")},
            )
    files = {cell.id: _file(name, cell) for cell in cells}
    with explain_failures(), (reader or node.reader).places(files.values()) as places:
        node.cells_read.update((file.path, file.size or 0) for file in files.values())
        parts = [
            _select(schema, present, [places[files[cell.id].path] for cell in group], with_file, with_place)
            for present, group in _alike(node, schema, cells, files)
        ]
        by_file = {literal_path(places[files[cell.id].path]): cell for cell in cells}
        yield CellRows(
            " UNION ALL ".join(parts) or _nothing(schema, with_file, with_place), list(places.values()), by_file
        )


def cell_rows(node: Node, name: FrameName, schema: FrameSchema, cell: Cell) -> Iterator[pa.Table]:
    """All rows of one cell in the order of its file, in parts; the next one is decoded while one is used."""
    if not cell.exact or not cell.rows:
        with sources(node, name, schema, [cell]) as source:
            for part in parts(node, source.sql):
                yield cast_to_frame(part, schema, schema.names)
        return
    with explain_failures(), node.reader.open(_file(name, cell)) as file, ThreadPoolExecutor(1) as ahead:
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as stored:
                groups = range(stored.num_row_groups)
                coming = deque(ahead.submit(stored.read_row_group, group) for group in groups[:2])
                for group in groups:
                    found = coming.popleft().result()
                    if group + 2 in groups:
                        coming.append(ahead.submit(stored.read_row_group, group + 2))
                    yield cast_to_frame(found, schema, schema.names)
        except (pa.ArrowException, OSError) as problem:
            url = node.objects.url(f"{name.folder}/{cell.path}")
            first = str(problem).partition("\n")[0]
            raise CorruptFrameError(
                f"cell {cell.id} of {name} cannot be read ({first}): restore {url} from a backup",
                context={"operation": "read", "url": url},
            ) from problem


def _file(name: FrameName, cell: Cell) -> DataFile:
    return DataFile(f"{name.folder}/{cell.path}", cell.bytes, cell.rows)


def lazy_polars(node: Node, name: FrameName, snapshot: FrameSnapshot) -> pl.LazyFrame:
    """The cells as one lazy frame of polars."""
    need("polars", "to_polars()")
    import polars as pl

    schema = pl.from_arrow(snapshot.schema.arrow.empty_table()).schema  # type: ignore[union-attr]
    with sources(node, name, snapshot.schema, snapshot.cells) as source:
        if not source.cells:
            return pl.LazyFrame(schema=schema)
        exact = [file for file, cell in source.cells.items() if cell.exact]
        frames = [pl.scan_parquet(exact, glob=False, hive_partitioning=False)] if exact else []
        for file, cell in source.cells.items():
            if not cell.exact:
                frames.append(_as_declared(pl.scan_parquet(file, glob=False, hive_partitioning=False), schema))
    return pl.concat(frames).select(list(schema))


def _as_declared(frame: pl.LazyFrame, schema: Mapping[str, Any]) -> pl.LazyFrame:
    import polars as pl

    there = frame.collect_schema()
    return frame.select(
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name) for name, kind in schema.items()
    )


def duck_relation(
    node: Node, name: FrameName, snapshot: FrameSnapshot, connection: duckdb.DuckDBPyConnection | None
) -> duckdb.DuckDBPyRelation:
    """The cells as a relation of a connection, by default a new one."""
    import duckdb

    with sources(node, name, snapshot.schema, snapshot.cells) as source:
        return (connection or duckdb.connect(":memory:")).sql(source.sql)


def _alike(
    node: Node, schema: FrameSchema, cells: Sequence[Cell], files: dict[str, DataFile]
) -> Sequence[tuple[frozenset[str] | None, list[Cell]]]:
    """Cells that can be read together. Ours are exactly as declared (None); others are asked for their columns, which
    they have as they were handed in."""
    exact: list[tuple[frozenset[str] | None, list[Cell]]] = [(None, [cell for cell in cells if cell.exact])]
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        if not cell.exact:
            groups.setdefault(_stored_columns(node, files[cell.id]), []).append(cell)
    others: list[tuple[frozenset[str] | None, list[Cell]]] = [
        (frozenset(name for name, _ in columns), group) for columns, group in groups.items()
    ]
    return (exact if exact[0][1] else []) + others


def column_order(node: Node, name: FrameName, schema: FrameSchema, cell: Cell | None) -> tuple[str, ...]:
    """The order in which a frame's cells have its columns, by one of them. Another program reads cells by the place of
    their columns, so that all must have the same."""
    if cell is None or cell.exact:
        return schema.names
    try:
        stored = [column for column, _ in _stored_columns(node, _file(name, cell))]
    except OntologiaError as problem:  # a frame with a broken cell can still be overwritten
        _log.warning("cells of %s get their columns as declared, because a cell cannot be read: %s", name, problem)
        return schema.names
    first = [column for column in stored if column in schema.by_name]
    return (*first, *(column for column in schema.names if column not in first))


def _stored_columns(node: Node, file: DataFile) -> tuple[tuple[str, str], ...]:
    with node.reader.open(file) as source:
        return tuple((field.name, str(field.type)) for field in pq.read_schema(source))


def can_number(schema: FrameSchema, cells: Sequence[Cell]) -> bool:
    """Whether DuckDB can tell the place of a row in its file: no file has a column of that name."""
    return all(cell.exact for cell in cells) and _ROW_NUMBER not in map(str.casefold, schema.names)


def _select(
    schema: FrameSchema, present: frozenset[str] | None, paths: Sequence[str], with_file: bool, with_place: bool
) -> str:
    files = ", ".join(map(quote_text, paths))
    options = f", filename = {quote_text(FILE_NAME)}" if with_file else ""
    file = f", {quote_name(FILE_NAME)}" if with_file else ""
    file += f", {_ROW_NUMBER} AS {quote_name(PLACE)}" if with_place else ""
    if present is None:
        columns = quote_names(schema.names)
    else:
        columns = ", ".join(_as_declared_sql(schema, name, name in present) for name in schema.names)
    return f"SELECT {columns}{file} FROM read_parquet([{files}], hive_partitioning = false{options})"


def _as_declared_sql(schema: FrameSchema, name: str, is_present: bool) -> str:
    """A column of another program's file in the type of the frame. Its statistics leave NaN out, and DuckDB would take
    conditions for true by them: it must not see that a float is a column."""
    column, arrow = quote_name(name), schema.by_name[name].arrow
    value = f"CAST({column if is_present else 'NULL'} AS {duck_type(arrow)})"
    if is_present and pa.types.is_floating(arrow):
        value = f"CASE WHEN {column} IS NOT NULL THEN {value} END"
    return f"{value} AS {column}"


def _nothing(schema: FrameSchema, with_file: bool, with_place: bool) -> str:
    columns = [f"CAST(NULL AS {duck_type(field.arrow)}) AS {quote_name(field.name)}" for field in schema.fields]
    if with_file:
        columns.append(f"CAST(NULL AS VARCHAR) AS {quote_name(FILE_NAME)}")
    if with_place:
        columns.append(f"CAST(NULL AS BIGINT) AS {quote_name(PLACE)}")
    return f"SELECT {', '.join(columns)} WHERE false"


def duck_type(arrow: pa.DataType) -> str:
    """The name of a type in DuckDB."""
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP" if arrow.tz is None else "TIMESTAMPTZ"
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    return {
        "int8": "TINYINT",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "uint8": "UTINYINT",
        "uint16": "USMALLINT",
        "uint32": "UINTEGER",
        "uint64": "UBIGINT",
        "halffloat": "FLOAT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "bool": "BOOLEAN",
        "date32[day]": "DATE",
        "binary": "BLOB",
    }[str(arrow)]


@contextmanager
def explain_failures() -> Iterator[None]:
    """Tell a cell that cannot be read from a condition that makes no sense."""
    try:
        yield
    except CorruptFrameError:
        raise
    except StorageBackendError as problem:
        text = str(problem)
        if "is gone" in text or problem.context.get("kind") == "wrong_size":
            raise CorruptFrameError(
                f"{text}. If this version was vacuumed, read a newer one; else restore the file from a backup",
                context=problem.context,
            ) from problem
        if problem.context.get("operation") != "query" or "Out of Memory" in text:
            raise
        if any(word in text for word in _BROKEN):
            raise CorruptFrameError(f"a cell cannot be read: {text}", context=problem.context) from problem
        raise ValidationError(text) from problem
