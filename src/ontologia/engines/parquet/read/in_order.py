"""All rows in force in the order of their identity, without a sort: files have them in that order already.

A file's rows are taken as they lie, without those that were superseded, and the rows of small commits are put in
between. Where files are not in order, or a row may be superseded by another large file, nothing is promised here, and
DuckDB sorts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.file_rows import FileRows, LayeredRows
from ontologia.engines.parquet.read.shapes import AnsweredStatement
from ontologia.files.arrays import numbers_of, numpy_of
from ontologia.files.data_files import DataFile
from ontologia.files.duck import Duck
from ontologia.files.footers import Footer
from ontologia.files.identity import is_ordered
from ontologia.files.quoting import quote_names
from ontologia.files.reading import FileReader
from ontologia.model import SUPERSEDED_BY
from ontologia.query.carried_rows import CarriedRows, Projection, RowsTogether
from ontologia.query.in_force import are_current
from ontologia.query.stored_rows import StoredRows

MOST_BETWEEN = 20_000
"""More rows than these are not put in between one by one."""
MOST_SLICES = 64


@dataclass(frozen=True, slots=True)
class InOrder:
    """Reads all rows of a type in order."""

    reader: FileReader
    duck: Duck
    rows: FileRows

    def table(self, names: Sequence[str], *, from_afar: bool = False) -> pa.Table | None:
        """These columns of all rows; None where the files do not give them in order. Large files that lie far away are
        read only if asked for: DuckDB reads them side by side."""
        entries = self._entries(from_afar)
        if entries is None:
            return None
        identity = self.rows.ref.identity
        wanted = list(dict.fromkeys((*names, *identity)))
        pieces = []
        for entry, file in sorted(entries, key=lambda item: item[1].keys.low if item[1].keys else ""):
            piece = self._piece(entry, file, wanted)
            if piece is None or not is_ordered(piece, identity):
                return None
            pieces.append(piece)
        if any(_key(after, 0, identity) <= _key(before, -1, identity) for before, after in _neighbours(pieces)):
            return None
        together = pa.concat_tables(pieces)
        if isinstance(self.rows, LayeredRows):
            together = self._with_tail(together, self.rows.tail.table, wanted)
        return together.select(list(names))

    def _entries(self, from_afar: bool) -> list[tuple[IndexEntry, DataFile]] | None:
        """The large files, where each row of theirs is right or known by its place."""
        rows = self.rows
        if rows.scan.upper is not None:
            return None
        if isinstance(rows, LayeredRows):
            entries: Sequence[IndexEntry] = () if any(rows.layers.later) else rows.layers.large
        else:
            entries = () if rows.scan.tail else rows.scan.apart
        found = [(entry, file) for entry in entries for file in entry.files]
        if not found or (len(found) > 1 and any(file.keys is None for _, file in found)):
            return None
        return found if from_afar or all(self.reader.comes_whole(file) for _, file in found) else None

    def _piece(self, entry: IndexEntry, file: DataFile, names: Sequence[str]) -> pa.Table | None:
        """The rows in force of one file, in the order it has them; None where it lacks a column."""
        with (
            self.reader.open(file) as source,
            pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True) as parquet,
        ):
            if not {*names} <= {*parquet.schema_arrow.names}:
                return None
            if not entry.is_snapshot:
                rows = parquet.read([*names, SUPERSEDED_BY] if entry.is_settled else list(names))
            else:
                groups = Footer.of(parquet.metadata, SUPERSEDED_BY).groups
                current = [group.number for group in groups if group.ranges[SUPERSEDED_BY].null_count == group.rows]
                mixed = [group for group in groups if group.ranges[SUPERSEDED_BY].null_count not in (0, group.rows)]
                if mixed or current != list(range(len(current))):
                    return None
                rows = parquet.read_row_groups(current, list(names))
        places = self._find_superseded(file)
        rows = rows if places is None else _without(rows, places)
        if entry.is_settled and not entry.is_snapshot:  # only now, since places count the removals
            rows = rows.filter(are_current(rows)).drop_columns([SUPERSEDED_BY])
        return rows

    def _find_superseded(self, file: DataFile) -> npt.NDArray[np.int64] | None:
        if not isinstance(self.rows, LayeredRows) or file.path not in self.rows.tail.superseded:
            return None
        table = self.rows.tail.superseded[file.path].table
        return numpy_of(self.duck.table(f"SELECT n FROM {table} ORDER BY n", {}).column(0))

    def _with_tail(self, rows: pa.Table, table: str, names: Sequence[str]) -> pa.Table:
        """Put the rows of small commits between the others."""
        identity = self.rows.ref.identity
        between = self.duck.table(
            f"SELECT {quote_names(names)} FROM {table} ORDER BY {quote_names(identity)}", {}
        ).cast(rows.schema)
        if between.num_rows > MOST_BETWEEN:
            together = pa.concat_tables([rows, between])
            return together.take(pc.sort_indices(together, [(name, "ascending") for name in identity]))
        keys = [rows.column(name) for name in identity]
        places, start = [], 0
        for number in range(between.num_rows):
            wanted = _key(between, number, identity)
            start = bisect_left(
                range(rows.num_rows), wanted, start, key=lambda place: tuple(key[place].as_py() for key in keys)
            )
            places.append(start)
        return _put_between(rows, between, places)


@dataclass(frozen=True, slots=True)
class CarriedInOrder:
    """Reads all rows of an earlier schema version in order, under the columns of today."""

    stored: InOrder
    projection: Projection

    def table(self, names: Sequence[str], *, from_afar: bool = False) -> pa.Table | None:
        """As of the stored rows."""
        sources = {source.column.physical: source for source in self.projection.sources}
        if any(source.becomes_json for source in sources.values()):  # which DuckDB writes
            return None
        before = {name: sources[name].before if name in sources else None for name in names}
        kept = [name for name in names if name not in sources]
        wanted = list(dict.fromkeys([*kept, *(old.physical for old in before.values() if old)]))
        rows = self.stored.table(wanted, from_afar=from_afar)
        if rows is None:
            return None
        columns = []
        for name in names:
            old = before[name]
            if old is not None or name in kept:
                columns.append(rows.column(name if old is None else old.physical))
            else:
                source = sources[name]
                columns.append(pa.repeat(pa.scalar(source.value, source.column.arrow_type), rows.num_rows))
        return pa.table(columns, names=list(names))


def rows_in_order(reader: FileReader, duck: Duck, rows: StoredRows) -> InOrder | CarriedInOrder | None:
    """How all of these rows can be read in order; None where they are of no one schema version."""
    if isinstance(rows, RowsTogether) and len(rows.parts) == 1:
        (rows,) = rows.parts
    if isinstance(rows, CarriedRows) and isinstance(rows.stored, FileRows):
        return CarriedInOrder(InOrder(reader, duck, rows.stored), rows.projection)
    return InOrder(reader, duck, rows) if isinstance(rows, FileRows) else None


@dataclass(frozen=True, slots=True)
class InOrderStatement(AnsweredStatement):
    """A statement for all rows, which has to run where files do not have them in order."""

    rows: InOrder | CarriedInOrder

    def table(self) -> pa.Table | None:
        return self.rows.table(self.names)

    def last_resort(self) -> pa.Table | None:
        return self.rows.table(self.names, from_afar=True)


def _neighbours(pieces: Sequence[pa.Table]) -> Iterator[tuple[pa.Table, pa.Table]]:
    filled = [piece for piece in pieces if piece.num_rows]
    return pairwise(filled)


def _key(rows: pa.Table, place: int, identity: Sequence[str]) -> tuple[str, ...]:
    return tuple(rows.column(name)[place].as_py() for name in identity)


def _without(rows: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    """The rows but for those at some places, which come sorted."""
    if len(places) <= MOST_SLICES:
        edges = [-1, *places.tolist(), rows.num_rows]
        return pa.concat_tables([rows.slice(a + 1, b - a - 1) for a, b in pairwise(edges)])
    kept = np.delete(np.arange(rows.num_rows), places)
    return rows.take(numbers_of(kept))


def _put_between(rows: pa.Table, between: pa.Table, places: Sequence[int]) -> pa.Table:
    """Two tables as one; each row of the second comes before the row of the first at its place."""
    if len(places) <= MOST_SLICES:
        parts, start = [], 0
        for number, place in enumerate(places):
            parts += [rows.slice(start, place - start), between.slice(number, 1)]
            start = place
        return pa.concat_tables([*parts, rows.slice(start)])
    order = np.insert(np.arange(rows.num_rows), places, np.arange(rows.num_rows, rows.num_rows + between.num_rows))
    return pa.concat_tables([rows, between]).take(numbers_of(order))
