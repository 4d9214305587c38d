"""Identities that are looked for, what a file says of the ones it has, and what is kept of files in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ontologia.engines.identity import identity_key
from ontologia.engines.parquet.relation import SUPERSEDED_BY
from ontologia.model import COMMIT_ID

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PLACE = "place"


@dataclass(frozen=True)
class Wanted:
    """Identities to look for, in the order of their first column."""

    identity: tuple[str, ...]
    keys: pa.Table

    @classmethod
    def of(cls, identity: tuple[str, ...], keys: pa.Table) -> Wanted:
        return cls(identity, keys.select(list(identity)).sort_by(identity[0]))

    @cached_property
    def _first(self) -> pa.Array:
        return self.keys.column(0).combine_chunks()

    @cached_property
    def _ends(self) -> tuple[bytes, bytes]:
        return self._at(0), self._at(self.keys.num_rows - 1)

    def _at(self, place: int) -> bytes:
        return bytes(self._first[place].as_py(), "utf-8")

    def between(self, low: bytes | None, high: bytes | None) -> Wanted:
        """Those whose first column lies in a range, of which an end may be open."""
        count = self.keys.num_rows
        if not count or (low is not None and low > self._ends[1]) or (high is not None and high < self._ends[0]):
            return Wanted(self.identity, self.keys[:0])
        start = 0 if low is None else bisect_left(range(count), low, key=self._at)
        end = count if high is None else bisect_right(range(count), high, key=self._at)
        return Wanted(self.identity, self.keys[start:end])

    def places_in(self, column: pa.ChunkedArray) -> pa.Array:
        """Where in a column of first parts of identities there is a wanted one."""
        import pyarrow.compute as pc

        return pc.indices_nonzero(pc.is_in(column.cast(self._first.type), value_set=self._first))

    def newest(self, rows: pa.Table, upper: int | None) -> tuple[pa.Table, Wanted]:
        """The last row of each wanted identity, up to a commit, and the identities of which there is none."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        slim = rows.select([COMMIT_ID, *self.identity]).append_column(PLACE, pa.array(np.arange(rows.num_rows)))
        if rows.num_rows > self.keys.num_rows:
            slim = slim.take(self.places_in(slim.column(self.identity[0])))
        if upper is not None:
            slim = slim.filter(pc.less_equal(slim.column(COMMIT_ID), upper))
        slim = slim.sort_by([(COMMIT_ID, "descending")])
        # Where several rows have one identity, this finds the first of them.
        found = pc.index_in(identity_key(self.keys, self.identity), value_set=identity_key(slim, self.identity))
        missing = Wanted(self.identity, self.keys.filter(pc.is_null(found)))
        return rows.take(slim.column(PLACE).take(found.drop_null())), missing


@dataclass(frozen=True, slots=True)
class Group:
    """What a row group says of itself: the range of its keys, and whether all its rows were superseded."""

    low: bytes | None
    high: bytes | None
    superseded: bool

    @classmethod
    def of(cls, metadata: pq.FileMetaData, number: int, key: str) -> Group:
        def statistics(name: str) -> Any:
            names = metadata.schema.names
            return metadata.row_group(number).column(names.index(name)).statistics if name in names else None

        keys, superseded = statistics(key), statistics(SUPERSEDED_BY)
        low, high = (keys.min_raw, keys.max_raw) if keys is not None and keys.has_min_max else (None, None)
        return cls(low, high, superseded is not None and superseded.has_null_count and superseded.null_count == 0)


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of a Parquet file: what is in it, and where."""

    metadata: pq.FileMetaData
    groups: Sequence[Group]

    @classmethod
    def of(cls, metadata: pq.FileMetaData, key: str) -> Footer:
        return cls(metadata, [Group.of(metadata, number, key) for number in range(metadata.num_row_groups)])

    def touched(self, wanted: Wanted, upper: int | None) -> list[tuple[int, Wanted]]:
        """The row groups that may have wanted rows, and those; superseded ones only for a state of the past."""
        return [
            (number, likely)
            for number, group in enumerate(self.groups)
            if not (group.superseded and upper is None)
            and (likely := wanted.between(group.low, group.high)).keys.num_rows
        ]


class Kept(Generic[K, V]):
    """The most recently used of some values, up to a total size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size = 0

    def get(self, key: K) -> V | None:
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: K, value: V, size: int) -> V:
        self.size += size - self._values.pop(key, (value, 0))[1]
        self._values[key] = (value, size)
        while self.size > self._most:
            self.size -= self._values.popitem(last=False)[1][1]
        return value
