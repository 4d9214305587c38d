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


def cuts_of_files(repository: S3Repository, files: Scan) -> list[str]:
    """Where to cut, from the row groups of the files."""
    import pyarrow.parquet as pq

    starts: list[tuple[str, int]] = []
    with repository.reading.places(files.files) as places:
        for place in places.values():
            if "://" in place:  # too large to fetch whole: it is read by range, in one task
                continue
            metadata = pq.ParquetFile(place).metadata
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                statistics = next(
                    (
                        group.column(index).statistics
                        for index in range(group.num_columns)
                        if group.column(index).path_in_schema in ("entity_key", "left_key")
                    ),
                    None,
                )
                if statistics is not None and statistics.has_min_max:
                    starts.append((statistics.min, group.num_rows))
    starts.sort()
    cuts, rows = [], 0
    for start, size in starts:
        if rows >= ROWS_PER_SPLIT:
            cuts.append(start)
            rows = 0
        rows += size
    return cuts


def cuts_of_table(repository: RowwiseRepository, catalog: Catalog, layout: TypeLayout, window: Window) -> list[str]:
    """Where to cut in a store that has no files: every so many rows in key order."""
    plan = Plan(layout.ref, {layout.ref: layout.schema}, window, aggregates=(("rows", count()),))
    rows = int(repository.fetch(plan, catalog=catalog).columns[0][0])
    cuts = []
    for offset in range(ROWS_PER_SPLIT, rows, ROWS_PER_SPLIT):
        step = Plan(layout.ref, {layout.ref: layout.schema}, window, limit=1, offset=offset, stored=True)
        cuts += list(repository.fetch(step, catalog=catalog).columns[1])
    return cuts
