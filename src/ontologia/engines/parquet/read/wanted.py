"""Identities that are looked for, and where a file may have them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontologia.files.arrays import numbers_of, scalar_of
from ontologia.files.footers import Footer
from ontologia.files.identity import identity_key
from ontologia.files.spans import Spans, Texts
from ontologia.model import COMMIT_ID, SUPERSEDED_BY
from ontologia.query.in_force import NEWEST_FIRST

PLACE = "place"
FEW = 64


@dataclass(frozen=True)
class WantedKeys:
    """Identities to look for, in the order of their first column."""

    identity: tuple[str, ...]
    keys: pa.Table

    @classmethod
    def of(cls, identity: tuple[str, ...], keys: pa.Table) -> WantedKeys:
        return cls(identity, keys.select(list(identity)).sort_by(identity[0]))

    @cached_property
    def _first(self) -> pa.Array:
        return self.keys.column(0).combine_chunks()

    @cached_property
    def ends(self) -> tuple[bytes, bytes]:
        """The first and the last first column; there must be one."""
        return self._at(0), self._at(self.keys.num_rows - 1)

    def _at(self, place: int) -> bytes:
        return bytes(self._first[place].as_py(), "utf-8")

    def between(self, low: bytes | None, high: bytes | None) -> WantedKeys:
        """Those whose first column lies in a range, of which an end may be open."""
        count = self.keys.num_rows
        if not count or (low is not None and low > self.ends[1]) or (high is not None and high < self.ends[0]):
            return WantedKeys(self.identity, self.keys[:0])
        start = 0 if low is None else bisect_left(range(count), low, key=self._at)
        end = count if high is None else bisect_right(range(count), high, key=self._at)
        return WantedKeys(self.identity, self.keys[start:end])

    @cached_property
    def _texts(self) -> Texts:
        return np.array([text.encode() for text in self._first.to_pylist()], np.bytes_)

    def within(self, spans: Spans) -> list[int]:
        """Which of these spans, by their number, may have one; of those that nobody knows, all."""
        return spans.having(self._texts)

    def places_in(self, column: pa.ChunkedArray) -> pa.Array:
        """Where in a column of first parts of identities there is a wanted one."""
        return pc.indices_nonzero(pc.is_in(column.cast(self._first.type), value_set=self._first))

    def newest(self, rows: pa.Table, upper: int | None) -> tuple[pa.Table, WantedKeys]:
        """The last row of each wanted identity, up to a commit, and the identities of which there is none."""
        slim = rows.select([COMMIT_ID, *self.identity]).append_column(PLACE, numbers_of(np.arange(rows.num_rows)))
        if rows.num_rows > self.keys.num_rows:
            slim = slim.take(self.places_in(slim.column(self.identity[0])))
        if upper is not None:
            slim = slim.filter(pc.less_equal(slim.column(COMMIT_ID), scalar_of(upper, pa.int64())))
        slim = slim.sort_by(NEWEST_FIRST)
        # Where several rows have one identity, this finds the first of them.
        found = pc.index_in(identity_key(self.keys, self.identity), value_set=identity_key(slim, self.identity))
        missing = WantedKeys(self.identity, self.keys.filter(pc.is_null(found)))
        return _take(rows, slim.column(PLACE).take(found.drop_null())), missing


def _take(rows: pa.Table, places: pa.ChunkedArray) -> pa.Table:
    """The rows at some places. To take a few, Arrow would copy the table's chunks into one first."""
    if len(places) > FEW:
        return rows.take(places)
    return pa.concat_tables([rows[:0], *(rows.slice(place, 1) for place in places.to_pylist())])


def find_groups(
    footer: Footer, wanted: WantedKeys, upper: int | None, *, removals: bool
) -> list[tuple[int, WantedKeys]]:
    """The row groups that may have wanted rows, and those; superseded ones only for a state of the past, and in a file
    that has removals: what such a row says of an identity counts more than what older files say."""
    found = []
    for group in footer.meeting(wanted.identity[0], *wanted.ends):
        keys = group.ranges[wanted.identity[0]]
        superseded = group.ranges[SUPERSEDED_BY].null_count == 0
        if superseded and upper is None and not removals:
            continue
        likely = wanted.between(keys.low, keys.high)
        if likely.keys.num_rows:
            found.append((group.number, likely))
    return found
