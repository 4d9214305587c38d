"""What a Parquet file says of itself at its end: how many rows it has, and between which values they lie."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ontologia.files.spans import Spans

if TYPE_CHECKING:
    import pyarrow.parquet as pq

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """What a row group says of a column. An end that is None is not known, and neither is `null_count` then."""

    low: bytes | None = None
    high: bytes | None = None
    null_count: int | None = None


UNKNOWN = ColumnRange()


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a file, by its number."""

    number: int
    rows: int
    ranges: Mapping[str, ColumnRange]


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of a Parquet file: what is in it, and where."""

    metadata: pq.FileMetaData
    groups: Sequence[RowGroup]
    _spans: dict[str, Spans] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, metadata: pq.FileMetaData, *columns: str) -> Footer:
        """A footer, with what its row groups say of these columns."""
        places = {name: place for place, name in enumerate(metadata.schema.names) if name in columns}
        groups = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            ranges = {name: _range(group.column(place)) for name, place in places.items()}
            groups.append(RowGroup(number, group.num_rows, {name: ranges.get(name, UNKNOWN) for name in columns}))
        return cls(metadata, groups)

    def meeting(self, column: str, low: bytes, high: bytes) -> list[RowGroup]:
        """The row groups that may have a value between two of a column, by what they say of it, all at once."""
        spans = self._spans.get(column)
        if spans is None:
            ranges = (group.ranges[column] for group in self.groups)
            spans = self._spans[column] = Spans.of((item.low, item.high) for item in ranges)
        return [self.groups[number] for number in spans.meeting(low, high)]


def _range(column: pq.ColumnChunkMetaData) -> ColumnRange:
    statistics = column.statistics
    if statistics is None:
        return UNKNOWN
    low, high = (statistics.min_raw, statistics.max_raw) if statistics.has_min_max else (None, None)
    return ColumnRange(low, high, statistics.null_count if statistics.has_null_count else None)


class Kept(Generic[K, V]):
    """The most recently used of some values, up to a total size. Several threads may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V, size: int) -> V:
        with self._lock:
            self.size += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = (value, size)
            while self.size > self._most:
                self.size -= self._values.popitem(last=False)[1][1]
        return value
