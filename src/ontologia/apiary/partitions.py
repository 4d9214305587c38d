"""Rows by partition (seed, "The Write Path", step 2), and how many partitions a frame may have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontologia.apiary.state import Partition
from ontologia.apiary.values import partition_text
from ontologia.errors import FrameSchemaError, PartitionLimitError

GATHERED_BYTES = 1 << 30


@dataclass(frozen=True)
class Group:
    """The rows of one partition. They are gathered when they are asked for, by whoever writes them."""

    values: Mapping[str, str]
    _table: pa.Table
    _rows: Any = None

    @property
    def num_rows(self) -> int:
        return self._table.num_rows if self._rows is None else len(self._rows)

    def table(self) -> pa.Table:
        return self._table if self._rows is None else _take(self._table, self._rows)


def _take(table: pa.Table, rows: Any) -> pa.Table:
    """Some rows of a table, by their numbers, in order. In halves while it is large: Arrow gathers no more than 2 GiB
    of text at once."""
    if table.nbytes <= GATHERED_BYTES or table.num_rows < 2:
        return table.take(pa.array(rows))
    middle = table.num_rows // 2
    cut = int(np.searchsorted(rows, middle))
    halves = [(table.slice(0, middle), rows[:cut]), (table.slice(middle), rows[cut:] - middle)]
    return pa.concat_tables([_take(*half) for half in halves if len(half[1])])


def split(table: pa.Table, partition_by: Sequence[str]) -> list[Group]:
    """One group per combination of partition values, with the rows in the order they came."""
    if not table.num_rows:
        return []
    if not partition_by:
        return [Group({}, table)]
    if table.nbytes <= GATHERED_BYTES:
        table = table.combine_chunks()
    codes, distinct = _codes(table, partition_by)
    texts = [
        {name: partition_text(value, name) for name, value in zip(partition_by, values, strict=True)}
        for values in distinct
    ]
    if len(distinct) == 1:
        return [Group(texts[0], table)]
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(distinct)))
    parts = np.split(order.astype(np.int32) if len(order) < 1 << 31 else order, ends[:-1])
    return [Group(values, table, rows) for values, rows in zip(texts, parts, strict=True)]


def _codes(table: pa.Table, partition_by: Sequence[str]) -> tuple[Any, list[tuple[Any, ...]]]:
    """A small number for each row's combination of values, and the combinations by number."""
    first, *more = partition_by
    codes, values = _encode(table, first)
    seen: list[tuple[Any, ...]] = [(value,) for value in values]
    for name in more:
        inner, values = _encode(table, name)
        combined = codes.astype(np.int64) * len(values) + inner
        used, codes = _renumber(combined, len(seen) * len(values))
        seen = [(*seen[number // len(values)], values[number % len(values)]) for number in used.tolist()]
    smallest = np.uint8 if len(seen) <= 1 << 8 else np.uint16 if len(seen) <= 1 << 16 else np.int64
    return codes.astype(smallest), seen  # numbers this small sort in linear time


def _encode(table: pa.Table, name: str) -> tuple[Any, list[Any]]:
    """The values of a column, each once, and for every row the place of its own."""
    encoded = table.column(name).combine_chunks().dictionary_encode()
    if hasattr(encoded, "chunks"):
        encoded = encoded.combine_chunks()
    try:
        values = encoded.dictionary.to_pylist()
    except (OverflowError, ValueError) as problem:
        raise FrameSchemaError(
            f"{name!r} is a partition column, and a value of it lies before year 1 or after 9999: keep such values in "
            "another column"
        ) from problem
    return encoded.indices.to_numpy(zero_copy_only=False), values


def _renumber(codes: Any, limit: int) -> tuple[Any, Any]:
    """The numbers that occur, in order, and the codes by their place among them. Counting is quicker than sorting."""
    if limit > 4 * len(codes) + 1024:
        return np.unique(codes, return_inverse=True)
    used = np.flatnonzero(np.bincount(codes, minlength=limit))
    place = np.zeros(limit, np.int64)
    place[used] = np.arange(len(used))
    return used, place[codes]


def check_limit(
    frame: str, there: Collection[Partition], new: Iterable[Partition], limit: int, hints: Mapping[str, int]
) -> None:
    """Seed, "Partition Cardinality Limit". `hints` are columns that have fewer values in these rows."""
    added = sum(partition not in there for partition in new)
    total = len(there) + added
    if not added or total <= limit:
        return
    fewer = sorted((count, name) for name, count in hints.items() if 1 < count <= limit)
    advice = f", such as {fewer[0][1]!r} ({fewer[0][0]} values in these rows)" if fewer else ""
    raise PartitionLimitError(
        f"{frame} would have {total:,} partitions, and max_partitions is {limit:,}. Nothing was written: make a frame "
        f"that is partitioned by a column with fewer values{advice}, or by a coarser one: a day, not an instant"
    )


def coarser_columns(table: pa.Table, partition_by: Sequence[str], rows: int = 100_000) -> dict[str, int]:
    """How many values the other columns have, in some of the rows."""
    some = table.slice(0, rows)
    return {
        name: pc.count_distinct(some.column(name)).as_py() for name in table.column_names if name not in partition_by
    }
