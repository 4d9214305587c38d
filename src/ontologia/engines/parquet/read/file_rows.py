"""A type's files as rows in a window of time, in DuckDB's SQL (RFC 0004 §4.3, §4.4).

Rows that need no care are selected as they are: those of a commit, which has each identity once, and those of a
snapshot, which know the commit that superseded them. What later commits superseded is left out by its place in the
file where the later ones are in memory, and by its identity where they are not. In a snapshot's file the rows in force
come first: where it is known how many they are, the number of a row tells, and no column is read for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.layers import Layers
from ontologia.engines.parquet.read.scan import Scan, in_force
from ontologia.engines.parquet.read.tails import Places, Tail
from ontologia.files.data_files import DataFile
from ontologia.files.duck import READ_OPTIONS
from ontologia.files.names import encode_name
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Column, TypeRef, TypeSchema
from ontologia.query.in_force import is_current, is_removal, keep_newest
from ontologia.query.plan import Window
from ontologia.query.stored_rows import EmptyRows, StoredRows
from ontologia.query.trees import select_from

ROW_NUMBER = "file_row_number"
MOST_NUMBERED = 8
"""A snapshot of more files, as executors write it, is read as one list."""
MANY_ROWS = 500_000
"""To compare these with what was superseded takes longer than to open the file again."""


def can_number(schema: TypeSchema) -> bool:
    """Whether DuckDB can say the number of a row in its file: not beside a field that is called so."""
    return ROW_NUMBER not in (column.physical.casefold() for column in schema.columns)


@dataclass(frozen=True, slots=True)
class _Mark:
    """What marks the rows of a file that are in force: they come first, or their `superseded_by` is null, or all rows
    are in force."""

    first: int | None = None
    by_column: bool = False


class FileRows(StoredRows):
    """The rows of a type in its files. `places` says where each file can be read, by path; `numbered`, whether rows can
    be identified by their number in it."""

    def __init__(self, ref: TypeRef, scan: Scan, places: Mapping[str, str], *, numbered: bool) -> None:
        self.ref = ref
        self.scan = scan
        self.places = places
        self.numbered = numbered
        self.has_removals = scan.has_removals
        entries = tuple(
            tuple((self.places[file.path], self._mark_of(entry, file)) for file in entry.files)
            for entry in scan.entries
        )
        self.key: Hashable = (ref, scan.upper, len(scan.apart), self.has_removals, entries)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        if not window.deduplicated:
            return self._versions(names, window, removals=removals)
        base = self._apart(names)
        if not self.scan.tail:
            return together(names, base)
        later = self.select(self.ref.identity, self.scan.tail_files).where(*self._upper(), copy=False)
        base = [without(part, later, self.ref.identity) for part in base]
        return together(names, [*base, self._newest(names)])

    def _versions(self, names: list[str], window: Window, *, removals: bool) -> exp.Select:
        tests = self._upper()
        if window.mode == "since":
            tests.append(exp.GT(this=_column(COMMIT_ID), expression=_bound_parameter()))
        if self.has_removals and removals:
            names = [*names, SUPERSEDED_BY]
        elif self.has_removals:
            tests.append(_is_no_removal("t"))
        return self.select(names, self.scan.files).where(*tests, copy=False)

    @property
    def count(self) -> int | None:
        """How many rows are in force, where that is known without looking."""
        return self.scan.count

    def _apart(self, names: Sequence[str]) -> list[exp.Select]:
        """The rows that need no care, as they were at the end of the window."""
        alike: dict[_Mark, list[DataFile]] = {}
        for entry in self.scan.apart:
            for file in entry.files:
                alike.setdefault(self._mark_of(entry, file), []).append(file)
        return [
            self._in_force(names, some, mark).where(*self._upper(), copy=False)
            for mark, files in alike.items()
            for some in ([files] if mark.first is None else [[file] for file in files])
        ]

    def _mark_of(self, entry: IndexEntry, file: DataFile) -> _Mark:
        if not entry.is_settled:
            return _Mark()
        if not entry.is_snapshot or file.rows_in_force is None or self.scan.inside_snapshot:
            return _Mark(by_column=True)
        if file.rows_in_force == file.row_count:
            return _Mark()
        is_few = self.numbered and len(entry.files) <= MOST_NUMBERED
        return _Mark(first=file.rows_in_force) if is_few else _Mark(by_column=True)

    def _in_force(
        self, names: Sequence[str], files: Sequence[DataFile], mark: _Mark, *, numbered: bool = False
    ) -> exp.Select:
        """Rows of files without those that were superseded when the file was written."""
        select = self.select(names, files, numbered=numbered or mark.first is not None)
        if mark.first is not None:
            return select.where(exp.LT(this=_row_number(), expression=exp.Literal.number(mark.first)), copy=False)
        if not mark.by_column:
            return select
        return select.where(is_current(at=self.scan.upper if self.scan.inside_snapshot else None), copy=False)

    def _newest(self, names: Sequence[str]) -> exp.Select:
        """The last row of each identity in the tail, unless that says that it was removed."""
        removing = any(entry.removals for entry in self.scan.tail)
        select = self.select([*names, SUPERSEDED_BY] if removing else names, self.scan.tail_files)
        select = select.where(*self._upper(), copy=False)
        if self.scan.tail_is_mixed:
            select = keep_newest(select, self.ref.identity)
        if not removing:
            return select
        newest = select_from(select.subquery("newest", copy=False), map(_column, names))
        return newest.where(_is_no_removal("newest"), copy=False)

    def _upper(self) -> list[exp.Expression]:
        if self.scan.upper is None:
            return []
        return [exp.LTE(this=_column(COMMIT_ID), expression=exp.Literal.number(self.scan.upper))]

    def _places(self, files: Iterable[DataFile]) -> list[str]:
        return [self.places[file.path] for file in files]

    def select(self, names: Sequence[str], files: Iterable[DataFile], *, numbered: bool = False) -> exp.Select:
        """Columns of files, under the alias `t`; with the number of each row in its file where it is asked for."""
        array = exp.Array(expressions=[exp.Literal.string(place) for place in self._places(files)])
        options = READ_OPTIONS | ({ROW_NUMBER: True} if numbered else {})
        how = [exp.EQ(this=exp.column(name), expression=exp.convert(value)) for name, value in options.items()]
        read = exp.Anonymous(this="read_parquet", expressions=[array, *how])
        source = exp.Table(this=read, alias=exp.TableAlias(this=exp.to_identifier("t")))
        return select_from(source, (exp.column(name, table="t", quoted=True) for name in names))


class CountedRows(EmptyRows):
    """Rows of which nothing is asked but how many they are, and that is known: no file is opened for it."""

    def __init__(self, ref: TypeRef, count: int) -> None:
        super().__init__(ref)
        self.count = count


@dataclass(frozen=True, slots=True)
class _Part:
    """Files that one SELECT reads: those with rows that were superseded later are read one by one."""

    files: tuple[DataFile, ...]
    mark: _Mark
    later: tuple[IndexEntry, ...]
    care: Literal["none", "whole", "beginning", "end"] = "none"
    """Where rows are that were superseded later: nowhere, anywhere, or only up to one row, or from one row on."""


class LayeredRows(FileRows):
    """The rows of a type whose small commits are in memory.

    The tables in memory change with every commit, the statement does not: it names places, which `fill_in` replaces.
    """

    def __init__(self, ref: TypeRef, scan: Scan, places: Mapping[str, str], layers: Layers, tail: Tail) -> None:
        self.ref = ref
        self.scan = scan
        self.places = places
        self.numbered = True
        self.layers = layers
        self.tail = tail
        self._parts = self._divide()
        parts = tuple(
            (
                part.mark,
                part.care,
                tuple(self._places(part.files)),
                *(tuple(self._places(entry.files)) for entry in part.later),
            )
            for part in self._parts
        )
        self.key = (ref, "layered", parts)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        table = exp.Table(this=exp.to_identifier(self._tail_place, quoted=True), alias=exp.TableAlias(this="t"))
        small = select_from(table, (exp.column(name, table="t", quoted=True) for name in names))
        return together(names, [*(select for part in self._parts for select in self._large(names, part)), small])

    def fill_in(self, sql: str) -> str:
        for part in self._parts:
            if part.care != "none":
                gone = self.tail.superseded[part.files[0].path]
                bound = gone.last if part.care == "beginning" else gone.first
                sql = sql.replace(f'"{self._bound_of(part)}"', str(bound))
                sql = sql.replace(f'"{self._place_of(part)}"', gone.table)
        return sql.replace(f'"{self._tail_place}"', self.tail.table)

    @property
    def count(self) -> int | None:
        large = in_force(self.layers.large)
        if large is None or any(self.layers.later):
            return None
        return large + self.tail.rows - sum(gone.rows for gone in self.tail.superseded.values())

    def _divide(self) -> list[_Part]:
        """Files that are read alike, together."""
        found: list[_Part] = []
        alike: dict[tuple[_Mark, tuple[IndexEntry, ...]], list[DataFile]] = {}
        for entry, later in zip(self.layers.large, self.layers.later, strict=True):
            for file in entry.files:
                mark, gone = self._mark_of(entry, file), self.tail.superseded.get(file.path)
                if gone is not None:
                    found.append(_Part((file,), mark, later, _needs_care(file, gone)))
                elif mark.first is not None:
                    found.append(_Part((file,), mark, later))
                else:
                    alike.setdefault((mark, later), []).append(file)
        whole = [_Part(tuple(files), mark, later) for (mark, later), files in alike.items()]
        return [*whole, *found]

    def _large(self, names: Sequence[str], part: _Part) -> list[exp.Select]:
        """The rows of large files, without those that were superseded later. To compare numbers of rows costs as much
        as a third of a sum: it is left out for the rows before the first, or behind the last one, where they are many.
        """
        if part.care == "none":
            return [self._without_later(names, part)]
        table = exp.to_table("x", alias="gone")
        table.set("this", exp.to_identifier(self._place_of(part), quoted=True))
        same = exp.EQ(this=exp.column("n", table="gone", quoted=True), expression=_row_number())
        cared_for = self._without_later(names, part).join(table, on=same, join_type="anti", copy=False)
        if part.care == "whole":
            return [cared_for]
        bound = _column(self._bound_of(part))
        near, far = (exp.LTE, exp.GT) if part.care == "beginning" else (exp.GTE, exp.LT)
        others = self._without_later(names, part).where(far(this=_row_number(), expression=bound), copy=False)
        return [cared_for.where(near(this=_row_number(), expression=bound.copy()), copy=False), others]

    def _without_later(self, names: Sequence[str], part: _Part) -> exp.Select:
        """The rows that no later large file has."""
        select = self._in_force(names, part.files, part.mark, numbered=part.care != "none")
        if not part.later:
            return select
        files = [file for entry in part.later for file in entry.files]
        return without(select, self.select(self.ref.identity, files), self.ref.identity)

    @property
    def _tail_place(self) -> str:
        return f"the tail of {self.ref.kind} {encode_name(self.ref.name)}"

    def _place_of(self, part: _Part) -> str:
        return f"{self._tail_place} in {self.places[part.files[0].path]}".replace('"', "'")

    def _bound_of(self, part: _Part) -> str:
        return f"the end of {self._place_of(part)}"


def _needs_care(file: DataFile, gone: Places) -> Literal["whole", "beginning", "end"]:
    """Where in a file rows have to be compared: in all of it, unless half of it or more lies on one side of them, and
    that is so much that it pays to read the file twice."""
    if file.row_count is None:
        return "whole"
    behind = file.row_count - gone.last - 1
    if max(gone.first, behind) < max(file.row_count / 2, MANY_ROWS):
        return "whole"
    return "beginning" if behind >= gone.first else "end"


def together(names: Sequence[str], parts: Sequence[exp.Select]) -> exp.Select:
    """The rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    union = exp.union(*parts, distinct=False)
    return select_from(union.subquery(copy=False), map(_column, names))


def without(rows: exp.Select, later: exp.Select, identity: Sequence[str]) -> exp.Select:
    """Rows whose identity later ones do not have."""
    same = [
        exp.EQ(this=exp.column(name, table="later", quoted=True), expression=exp.column(name, "t", quoted=True))
        for name in identity
    ]
    return rows.join(later.copy().subquery("later", copy=False), on=exp.and_(*same), join_type="anti", copy=False)


def _is_no_removal(table: str) -> exp.Expression:
    return exp.not_(is_removal(table))


def _column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _row_number() -> exp.Column:
    return exp.column(ROW_NUMBER, table="t", quoted=True)


def _bound_parameter() -> exp.Placeholder:
    return exp.Placeholder(this="window")
