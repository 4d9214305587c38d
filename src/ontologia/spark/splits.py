"""How a type is cut into ranges of keys, so that tasks read side by side what an engine would read at once.

Files are sorted by identity, and their statistics say where; merging the tail happens inside each range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ontologia.engines.base import Catalog, TypeLayout
from ontologia.engines.parquet.planning import Scan
from ontologia.engines.parquet.repository import S3Repository
from ontologia.engines.parquet.wanted import Footer
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.model import FieldExpr, Predicate, TypeSchema
from ontologia.query.aggregates import count
from ontologia.query.plan import Plan, Window

ROWS_PER_SPLIT = 500_000


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `first` up to, and without, `end`; None is open. Keys are of the first identity column."""

    first: str | None = None
    end: str | None = None

    def predicates(self, schema: TypeSchema) -> tuple[Predicate, ...]:
        """The range as filters that an engine answers by its index or its statistics."""
        key = first_key(schema)
        found = []
        if self.first is not None:
            found.append(key >= self.first)
        if self.end is not None:
            found.append(key < self.end)
        return tuple(found)


def first_key(schema: TypeSchema) -> FieldExpr[Any]:
    """The first identity column as an expression. It is text whatever the type of the key."""
    return FieldExpr(schema.ref, schema.ref.identity[0], None)


def key_ranges(cuts: Sequence[str]) -> list[KeyRange]:
    edges = [None, *sorted(set(cuts)), None]
    return [KeyRange(first, end) for first, end in pairwise(edges)]


def cuts_of_files(repository: S3Repository, files: Scan, key: str) -> list[str]:
    """Where to cut, from what the files say of their row groups. Footers are read side by side."""
    found = repository.objects.map(
        lambda file: _starts(repository, file, key), [file for entry in files.files for file in entry.files]
    )
    cuts, rows = [], 0
    for start, size in sorted(start for starts in found for start in starts):
        if rows >= ROWS_PER_SPLIT:
            cuts.append(start)
            rows = 0
        rows += size
    return cuts


def _starts(repository: S3Repository, file: tuple[str, int | None], key: str) -> list[tuple[str, int]]:
    """The first key and the number of rows of each row group."""
    import pyarrow.parquet as pq

    with repository.reading.opened(*file) as source, pq.ParquetFile(source) as reader:
        metadata = reader.metadata
        groups = Footer.of(metadata, key).groups
    return [
        (group.low.decode(), metadata.row_group(number).num_rows)
        for number, group in enumerate(groups)
        if group.low is not None
    ]


def cuts_of_table(repository: RowwiseRepository, catalog: Catalog, layout: TypeLayout, window: Window) -> list[str]:
    """Where to cut in a store that has no files: every so many rows in key order."""
    plan = Plan(layout.ref, {layout.ref: layout.schema}, window, aggregates=(("rows", count()),))
    rows = int(repository.fetch(plan, catalog=catalog).columns[0][0])
    cuts = []
    for offset in range(ROWS_PER_SPLIT, rows, ROWS_PER_SPLIT):
        step = Plan(layout.ref, {layout.ref: layout.schema}, window, limit=1, offset=offset, stored=True)
        cuts += list(repository.fetch(step, catalog=catalog).columns[1])
    return cuts
