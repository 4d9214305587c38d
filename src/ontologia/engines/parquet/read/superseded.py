"""Where in a large file the rows of given identities are, by the key column of the row groups that may have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.parquet.read.wanted import PLACE, WantedKeys
from ontologia.files.arrays import numpy_of
from ontologia.files.data_files import DataFile
from ontologia.files.footers import Footer, RowGroup
from ontologia.files.identity import identity_key
from ontologia.files.reading import FileReader
from ontologia.model import SUPERSEDED_BY
from ontologia.query.in_force import are_current


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a file, by their number in it, and their identities as one column."""

    places: npt.NDArray[np.int64]
    identities: pa.ChunkedArray


def find(reader: FileReader, file: DataFile, wanted: WantedKeys, *, in_force: bool = True) -> list[Found]:
    """The rows of a file that have a wanted identity: those in force, or all."""
    if file.keys is not None:
        wanted = wanted.between(file.keys.low.encode(), file.keys.high.encode())
    return list(_find(reader, file, wanted, in_force=in_force)) if wanted.keys.num_rows else []


def _find(reader: FileReader, file: DataFile, wanted: WantedKeys, *, in_force: bool) -> Iterator[Found]:
    with reader.open(file) as source, pq.ParquetFile(source) as parquet:
        start = 0
        for group in Footer.of(parquet.metadata, wanted.identity[0], SUPERSEDED_BY).groups:
            found = _within(parquet, group, wanted, in_force=in_force)
            if found is not None:
                yield Found(found.places + start, found.identities)
            start += group.rows


def _within(parquet: pq.ParquetFile, group: RowGroup, wanted: WantedKeys, *, in_force: bool) -> Found | None:
    """The wanted rows of one row group, by their number in it."""
    first, *others = wanted.identity
    keys, superseded = group.ranges[first], group.ranges[SUPERSEDED_BY].null_count
    likely = wanted.between(keys.low, keys.high)
    if (in_force and superseded == 0) or not likely.keys.num_rows:
        return None
    column = parquet.read_row_group(group.number, [first]).column(0)
    places = likely.places_in(column)
    if not len(places):
        return None
    mixed = [SUPERSEDED_BY] if in_force and superseded not in (None, group.rows) else []
    rows = pa.table({first: column.take(places), PLACE: places})
    if others or mixed:
        more = parquet.read_row_group(group.number, [*others, *mixed]).take(places)
        for name in more.column_names:
            rows = rows.append_column(name, more.column(name))
    if mixed:
        rows = rows.filter(are_current(rows))
    identities = identity_key(rows, wanted.identity)
    if others:
        same = pc.is_in(identities, value_set=identity_key(likely.keys, wanted.identity))
        rows, identities = rows.filter(same), identities.filter(same)
    return Found(numpy_of(rows.column(PLACE)), identities) if rows.num_rows else None
