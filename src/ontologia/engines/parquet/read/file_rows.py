"""A type's files as rows in a window of time, in DuckDB's SQL (RFC 0004 §4.3, §4.4).

Over a snapshot, latest and as-of are plain filters, because each row knows the commit that superseded it. Only the
commits after it go through a window function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from ontologia.engines.base import SUPERSEDED_BY
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.scan import Scan
from ontologia.files.duck import READ_OPTIONS
from ontologia.files.names import encode_name
from ontologia.model import COMMIT_ID, Column, TypeRef
from ontologia.query.plan import Window
from ontologia.query.stored_rows import StoredRows, keep_newest


class FileRows(StoredRows):
    """The rows of a type in its files. `places` says where each file can be read, by path.

    `tail_table` holds the newest rows of the commits after the snapshot, where somebody has loaded them.
    """

    def __init__(self, ref: TypeRef, scan: Scan, places: Mapping[str, str], tail_table: str | None = None) -> None:
        self.ref = ref
        self.scan = scan
        self.places = places
        self.tail_table = tail_table
        read = scan.entries if tail_table is None else [entry for entry in scan.entries if entry is scan.snapshot]
        loaded = tail_table is not None
        self.key = (ref, scan.upper, loaded, tuple((entry.is_snapshot, *self._places([entry])) for entry in read))

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        if not window.deduplicated:
            since = [exp.GT(this=_column(COMMIT_ID), expression=_bound())] if window.mode == "since" else []
            return self._select(names, self.scan.entries).where(*since, *self._upper())
        if self.scan.snapshot is None:
            return self._newest(names)
        if self.scan.inside_snapshot or not self.scan.tail:
            return self._settled(names, self.scan.snapshot)
        base = self._not_superseded(self._settled(names, self.scan.snapshot))
        return exp.select(*map(_column, names)).from_(exp.union(base, self._newest(names), distinct=False).subquery())

    def _settled(self, names: Sequence[str], snapshot: IndexEntry) -> exp.Select:
        """The rows of the snapshot that were in force at the end of the window."""
        current = _column(SUPERSEDED_BY).is_(exp.null())
        if not self.scan.inside_snapshot:
            return self._select(names, [snapshot]).where(current)
        later = exp.GT(this=_column(SUPERSEDED_BY), expression=self._end())
        return self._select(names, [snapshot]).where(exp.or_(current, later), *self._upper())

    def _newest(self, names: Sequence[str]) -> exp.Select:
        """The last row of each identity among the commits after the snapshot."""
        select = self._tail(names)
        if self.tail_table is not None or len(self.scan.tail) == 1:  # one commit has each identity once
            return select
        return keep_newest(select, self.ref.identity)

    def _not_superseded(self, base: exp.Select) -> exp.Select:
        """Without the identities that a later commit has a row of. Those are few, so that this is one small table."""
        names = self.ref.identity
        later = self._tail(names).subquery("later")
        same = [
            exp.EQ(this=exp.column(name, table="later", quoted=True), expression=exp.column(name, "t", quoted=True))
            for name in names
        ]
        return base.join(later, on=exp.and_(*same), join_type="anti")

    def _tail(self, names: Sequence[str]) -> exp.Select:
        if self.tail_table is not None:
            # The table changes with every commit, the statement does not: it names a place, which `fill_in` replaces.
            table = exp.Table(this=exp.to_identifier(self._tail_place, quoted=True), alias=exp.TableAlias(this="t"))
            return exp.select(*(exp.column(name, table="t", quoted=True) for name in names)).from_(table)
        return self._select(names, self.scan.tail).where(*self._upper())

    @property
    def _tail_place(self) -> str:
        return f"the tail of {self.ref.kind} {encode_name(self.ref.name)}"

    def fill_in(self, sql: str) -> str:
        """A statement over this relation with the table of this tail in it."""
        return sql if self.tail_table is None else sql.replace(f'"{self._tail_place}"', self.tail_table)

    def _upper(self) -> list[exp.Expression]:
        if self.scan.upper is None:
            return []
        return [exp.LTE(this=_column(COMMIT_ID), expression=self._end())]

    def _end(self) -> exp.Expression:
        return exp.Literal.number(self.scan.upper)

    def _places(self, entries: Sequence[IndexEntry]) -> list[str]:
        return [self.places[file.path] for entry in entries for file in entry.files]

    def _select(self, names: Sequence[str], entries: Sequence[IndexEntry]) -> exp.Select:
        files = exp.Array(expressions=[exp.Literal.string(place) for place in self._places(entries)])
        how = [exp.EQ(this=exp.column(name), expression=exp.convert(value)) for name, value in READ_OPTIONS.items()]
        read = exp.Anonymous(this="read_parquet", expressions=[files, *how])
        source = exp.Table(this=read, alias=exp.TableAlias(this=exp.to_identifier("t")))
        return exp.select(*(exp.column(name, table="t", quoted=True) for name in names)).from_(source)


def _column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _bound() -> exp.Placeholder:
    return exp.Placeholder(this="window")
