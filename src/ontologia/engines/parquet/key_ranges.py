"""Ranges of keys, and the rows of one straight from files: where nothing has to be merged, no statement is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.engines.parquet.planning import Scan
from ontologia.engines.parquet.relation import SUPERSEDED_BY
from ontologia.engines.parquet.remote import Reading
from ontologia.engines.parquet.wanted import Footer
from ontologia.model import FieldExpr, Predicate, TypeSchema

if TYPE_CHECKING:
    import pyarrow as pa


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

    def meets(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether keys between these two, or unknown ones, may lie in the range."""
        before = self.end is not None and low is not None and low >= self.end.encode()
        return not before and not (self.first is not None and high is not None and high < self.first.encode())

    def covers(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether all keys between these two lie in the range."""
        starts = self.first is None or (low is not None and low >= self.first.encode())
        return starts and (self.end is None or (high is not None and high < self.end.encode()))

    def cut(self, rows: pa.Table, key: str) -> pa.Table:
        """The rows that lie in the range."""
        import pyarrow.compute as pc

        keys = rows.column(key)
        if self.first is not None:
            rows = rows.filter(pc.greater_equal(keys, self.first))
        return rows if self.end is None else rows.filter(pc.less(rows.column(key), self.end))


def first_key(schema: TypeSchema) -> FieldExpr[Any]:
    """The first identity column as an expression. It is text whatever the type of the key."""
    return FieldExpr(schema.ref, schema.ref.identity[0], None)


def unmerged(
    reading: Reading, files: Scan, names: Sequence[str], keys: KeyRange, key: str
) -> Iterator[pa.Table] | None:
    """The rows in force in a range, as files have them; None unless one commit or one snapshot has them all."""
    if len(files.files) != 1 or files.upper is not None:
        return None
    (entry,) = files.files
    settled = files.snapshot is not None
    return (rows for file in entry.files for rows in rows_between(reading, file, names, keys, key, settled=settled))


def rows_between(
    reading: Reading,
    file: tuple[str, int | None],
    names: Sequence[str],
    keys: KeyRange,
    key: str,
    *,
    settled: bool = False,
) -> Iterator[pa.Table]:
    """The rows of a range of keys in one file, from the row groups that may have them.

    A `settled` file knows which of its rows were superseded; those are left out.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = {*names, SUPERSEDED_BY} if settled else {*names}
    with reading.opened(*file) as source, pq.ParquetFile(source) as reader:
        for number, group in enumerate(Footer.of(reader.metadata, key).groups):
            if not keys.meets(group.low, group.high) or (settled and group.superseded):
                continue
            is_cut = not keys.covers(group.low, group.high)
            rows = reader.read_row_group(number, list(columns | {key} if is_cut else columns), use_threads=False)
            if is_cut:
                rows = keys.cut(rows, key)
            if settled:
                rows = rows.filter(pc.is_null(rows.column(SUPERSEDED_BY)))
            yield rows.select(names)
