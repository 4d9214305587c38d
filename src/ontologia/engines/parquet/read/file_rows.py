"""A type's files as rows in a window of time, in DuckDB's SQL (RFC 0004 §4.3, §4.4).

Rows that need no care are selected as they are: those of a commit, which has each identity once, and those of a
snapshot, which know the commit that superseded them. What later commits superseded is left out by its place in the
file where the later ones are in memory, and by its identity where they are not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.layers import Layers
from ontologia.engines.parquet.read.scan import Scan, in_force
from ontologia.engines.parquet.read.tails import Tail
from ontologia.files.data_files import DataFile
from ontologia.files.duck import READ_OPTIONS
from ontologia.files.names import encode_name
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Column, TypeRef
from ontologia.query.plan import Window
from ontologia.query.stored_rows import EmptyRows, StoredRows, is_removal, keep_newest

ROW_NUMBER = "file_row_number"


class FileRows(StoredRows):
    """The rows of a type in its files. `places` says where each file can be read, by path."""

    def __init__(self, ref: TypeRef, scan: Scan, places: Mapping[str, str]) -> None:
        self.ref = ref
        self.scan = scan
        self.places = places
        self.has_removals = scan.has_removals
        entries = tuple((entry.is_settled, *self._places(entry.files)) for entry in scan.entries)
        self.key: Hashable = (ref, scan.upper, len(scan.apart), self.has_removals, entries)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        if not window.deduplicated:
            return self._versions(names, window, removals=removals)
        base = self._apart(names)
        if not self.scan.tail:
            return together(names, base)
        later = self.select(self.ref.identity, self.scan.tail_files).where(*self._upper())
        base = [without(part, later, self.ref.identity) for part in base]
        return together(names, [*base, self._newest(names)])

    def _versions(self, names: list[str], window: Window, *, removals: bool) -> exp.Select:
        tests = self._upper()
        if window.mode == "since":
            tests.append(exp.GT(this=_column(COMMIT_ID), expression=_bound()))
        if self.has_removals and removals:
            names = [*names, SUPERSEDED_BY]
        elif self.has_removals:
            tests.append(_is_no_removal("t"))
        return self.select(names, self.scan.files).where(*tests)

    @property
    def count(self) -> int | None:
        """How many rows are in force, where that is known without looking."""
        return self.scan.count

    def _apart(self, names: Sequence[str]) -> list[exp.Select]:
        """The rows that need no care, as they were at the end of the window."""
        parts = []
        plain = [file for entry in self.scan.apart if not entry.is_settled for file in entry.files]
        settled = [file for entry in self.scan.apart if entry.is_settled for file in entry.files]
        if plain:
            parts.append(self.select(names, plain).where(*self._upper()))
        if settled:
            current: exp.Expr = _column(SUPERSEDED_BY).is_(exp.null())
            if self.scan.inside_snapshot:
                current = exp.or_(current, exp.GT(this=_column(SUPERSEDED_BY), expression=self._end()))
            parts.append(self.select(names, settled).where(current, *self._upper()))
        return parts

    def _newest(self, names: Sequence[str]) -> exp.Select:
        """The last row of each identity in the tail, unless that says that it was removed."""
        removing = any(entry.removals for entry in self.scan.tail)
        select = self.select([*names, SUPERSEDED_BY] if removing else names, self.scan.tail_files)
        select = select.where(*self._upper())
        if self.scan.tail_is_mixed:
            select = keep_newest(select, self.ref.identity)
        if not removing:
            return select
        return exp.select(*map(_column, names)).from_(select.subquery("newest")).where(_is_no_removal("newest"))

    def _upper(self) -> list[exp.Expression]:
        if self.scan.upper is None:
            return []
        return [exp.LTE(this=_column(COMMIT_ID), expression=self._end())]

    def _end(self) -> exp.Expression:
        return exp.Literal.number(self.scan.upper)

    def _places(self, files: Iterable[DataFile]) -> list[str]:
        return [self.places[file.path] for file in files]

    def select(self, names: Sequence[str], files: Iterable[DataFile], *, numbered: bool = False) -> exp.Select:
        """Columns of files, under the alias `t`; with the number of each row in its file where it is asked for."""
        array = exp.Array(expressions=[exp.Literal.string(place) for place in self._places(files)])
        options = READ_OPTIONS | ({ROW_NUMBER: True} if numbered else {})
        how = [exp.EQ(this=exp.column(name), expression=exp.convert(value)) for name, value in options.items()]
        read = exp.Anonymous(this="read_parquet", expressions=[array, *how])
        source = exp.Table(this=read, alias=exp.TableAlias(this=exp.to_identifier("t")))
        return exp.select(*(exp.column(name, table="t", quoted=True) for name in names)).from_(source)


class CountedRows(EmptyRows):
    """Rows of which nothing is asked but how many they are, and that is known: no file is opened for it."""

    def __init__(self, ref: TypeRef, count: int) -> None:
        super().__init__(ref)
        self.count = count


@dataclass(frozen=True, slots=True)
class _Part:
    """Files that one SELECT reads: those with rows that were superseded are read one by one."""

    files: tuple[DataFile, ...]
    is_settled: bool
    later: tuple[IndexEntry, ...]
    superseded: bool


class LayeredRows(FileRows):
    """The rows of a type whose small commits are in memory.

    The tables in memory change with every commit, the statement does not: it names places, which `fill_in` replaces.
    """

    def __init__(self, ref: TypeRef, scan: Scan, places: Mapping[str, str], layers: Layers, tail: Tail) -> None:
        self.ref = ref
        self.scan = scan
        self.places = places
        self.layers = layers
        self.tail = tail
        self._parts = self._divided()
        parts = tuple(
            (
                part.is_settled,
                part.superseded,
                tuple(self._places(part.files)),
                *(tuple(self._places(entry.files)) for entry in part.later),
            )
            for part in self._parts
        )
        self.key = (ref, "layered", parts)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        table = exp.Table(this=exp.to_identifier(self._tail_place, quoted=True), alias=exp.TableAlias(this="t"))
        small = exp.select(*(exp.column(name, table="t", quoted=True) for name in names)).from_(table)
        return together(names, [*(self._large(names, part) for part in self._parts), small])

    def fill_in(self, sql: str) -> str:
        for part in self._parts:
            if part.superseded:
                table, _ = self.tail.superseded[part.files[0].path]
                sql = sql.replace(f'"{self._place_of(part)}"', table)
        return sql.replace(f'"{self._tail_place}"', self.tail.table)

    @property
    def count(self) -> int | None:
        large = in_force(self.layers.large)
        if large is None or any(self.layers.later):
            return None
        return large + self.tail.rows - sum(count for _, count in self.tail.superseded.values())

    def _divided(self) -> list[_Part]:
        """Files that are read alike, together."""
        found: list[_Part] = []
        alike: dict[tuple[bool, tuple[IndexEntry, ...]], list[DataFile]] = {}
        for entry, later in zip(self.layers.large, self.layers.later, strict=True):
            for file in entry.files:
                if file.path in self.tail.superseded:
                    found.append(_Part((file,), entry.is_settled, later, True))
                else:
                    alike.setdefault((entry.is_settled, later), []).append(file)
        whole = [_Part(tuple(files), is_settled, later, False) for (is_settled, later), files in alike.items()]
        return [*whole, *found]

    def _large(self, names: Sequence[str], part: _Part) -> exp.Select:
        select = self.select(names, part.files, numbered=part.superseded)
        if part.is_settled:
            select = select.where(_column(SUPERSEDED_BY).is_(exp.null()))
        if part.superseded:
            table = exp.to_table("x", alias="gone")
            table.set("this", exp.to_identifier(self._place_of(part), quoted=True))
            same = exp.EQ(
                this=exp.column("n", table="gone", quoted=True),
                expression=exp.column(ROW_NUMBER, table="t", quoted=True),
            )
            select = select.join(table, on=same, join_type="anti")
        if part.later:
            files = [file for entry in part.later for file in entry.files]
            select = without(select, self.select(self.ref.identity, files), self.ref.identity)
        return select

    @property
    def _tail_place(self) -> str:
        return f"the tail of {self.ref.kind} {encode_name(self.ref.name)}"

    def _place_of(self, part: _Part) -> str:
        return f"{self._tail_place} in {self.places[part.files[0].path]}".replace('"', "'")


def together(names: Sequence[str], parts: Sequence[exp.Select]) -> exp.Select:
    """The rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    union = exp.union(*parts, distinct=False)
    return exp.select(*map(_column, names)).from_(union.subquery())


def without(rows: exp.Select, later: exp.Select, identity: Sequence[str]) -> exp.Select:
    """Rows whose identity later ones do not have."""
    same = [
        exp.EQ(this=exp.column(name, table="later", quoted=True), expression=exp.column(name, "t", quoted=True))
        for name in identity
    ]
    return rows.join(later.copy().subquery("later"), on=exp.and_(*same), join_type="anti")


def _is_no_removal(table: str) -> exp.Expression:
    return exp.not_(is_removal(table))


def _column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _bound() -> exp.Placeholder:
    return exp.Placeholder(this="window")
