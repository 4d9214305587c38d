"""Rows of several versions of a type's schema as rows of one: a projection of each, and all of them together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Column, TypeRef
from ontologia.query.in_force import is_removal
from ontologia.query.plan import Window
from ontologia.query.stored_rows import StoredRows
from ontologia.query.trees import select_from

if TYPE_CHECKING:
    from ontologia.query.dialects import Dialect


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the value of a column comes from: a column of the stored row, or one value for all of them.

    The value is as storage has it: of a field that is JSON, its text.
    """

    column: Column
    before: Column | None
    value: Any = None

    @property
    def becomes_json(self) -> bool:
        """Whether it was stored as a scalar and is JSON now."""
        return self.before is not None and self.before.scalar is not None and self.column.scalar is None


@dataclass(frozen=True)
class Projection:
    """How the stored columns of one version become those of another. `name` tells its parameters from others'."""

    ref: TypeRef
    sources: tuple[ColumnSource, ...]
    name: str
    dialect: Dialect

    @property
    def key(self) -> Hashable:
        """Equal for projections that are the same statement; the values that are filled in are parameters of it."""
        return (self.name, self.sources)

    def of(self, column: Column) -> ColumnSource:
        return next(source for source in self.sources if source.column.physical == column.physical)

    def parameter_of(self, source: ColumnSource) -> str:
        return f"{self.name}_{self.sources.index(source)}"


class CarriedRows(StoredRows):
    """The rows of one version under the columns of another."""

    def __init__(self, stored: StoredRows, projection: Projection) -> None:
        self.ref = projection.ref
        self.key = ("carried", stored.key, projection.key)
        self.has_removals = stored.has_removals
        self.stored = stored
        self.projection = projection

    @property
    def constants(self) -> Mapping[str, Any]:
        projection = self.projection
        return {
            projection.parameter_of(source): self.encode(
                source.column, projection.dialect.encode(source.column.scalar, source.value)
            )
            for source in projection.sources
            if source.before is None and source.value is not None
        } | dict(self.stored.constants)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        sources = [self.projection.of(column) for column in columns]
        needed = {source.before.physical: source.before for source in sources if source.before is not None}
        stored = self.stored.rows(window, list(needed.values()), probe=probe, removals=removals).subquery(
            "v", copy=False
        )
        plain = [exp.column(name, table="v", quoted=True) for name in (*self.ref.identity, COMMIT_ID)]
        fields = [exp.alias_(self._value(source), self.name_of(source.column), quoted=True) for source in sources]
        marks = [exp.column(SUPERSEDED_BY, table="v", quoted=True)] if removals and self.has_removals else []
        return select_from(stored, [*plain, *fields, *marks])

    def _value(self, source: ColumnSource) -> exp.Expression:
        dialect = self.projection.dialect
        if source.before is None:
            value = None if source.value is None else self.projection.parameter_of(source)
            return dialect.constant(source.column.scalar, value)
        stored = exp.column(self.stored.name_of(source.before), table="v", quoted=True)
        return dialect.as_json(source.before.scalar or "", stored) if source.becomes_json else stored

    def fill_in(self, sql: str) -> str:
        return self.stored.fill_in(sql)

    def name_of(self, column: Column) -> str:
        return self.stored.name_of(column)

    def encode(self, column: Column, value: Any) -> Any:
        return self.stored.encode(column, value)


class RowsTogether(StoredRows):
    """The rows of several sources, which have the same columns. The last one says how values are written."""

    def __init__(self, ref: TypeRef, parts: Sequence[StoredRows]) -> None:
        self.ref = ref
        self.key = ("together", *(part.key for part in parts))
        self.document = parts[-1].document
        self.has_removals = any(part.has_removals for part in parts)
        self.parts = parts

    @property
    def constants(self) -> Mapping[str, Any]:
        return {name: value for part in self.parts for name, value in part.constants.items()}

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Query:
        parts = []
        for part in self.parts:
            rows = part.rows(window, columns, probe=probe, removals=removals)
            if removals and self.has_removals and not part.has_removals:
                assert isinstance(rows, exp.Select)
                mark = exp.alias_(exp.cast(exp.null(), "BIGINT"), SUPERSEDED_BY, quoted=True)
                rows = rows.select(mark, copy=False)
            parts.append(rows)
        if self.document is not None:  # there may be more beside it, and not in all parts
            names = [*self.ref.identity, COMMIT_ID, *map(self.name_of, columns), self.document]
            parts = [
                select_from(
                    part.subquery("p", copy=False), [exp.column(name, table="p", quoted=True) for name in names]
                )
                for part in parts
            ]
        return parts[0] if len(parts) == 1 else exp.union(*parts, distinct=False)

    def fill_in(self, sql: str) -> str:
        for part in self.parts:
            sql = part.fill_in(sql)
        return sql

    def name_of(self, column: Column) -> str:
        return self.parts[-1].name_of(column)

    def encode(self, column: Column, value: Any) -> Any:
        return self.parts[-1].encode(column, value)


def leave_out_unused(select: exp.Select, alias: str) -> None:
    """Take out of rows that are put together under an alias what a statement does not ask of them: SQLite would read
    it all the same."""
    source = next((found for found in select.find_all(exp.Subquery) if found.alias == alias), None)
    if source is None or not isinstance(source.this, exp.Union):
        return
    parts = list(_parts_of(source.this))
    if any(part.args.get("group") for part in parts):  # of a group, what is selected decides which row it is
        return
    used = {column.name for column in select.find_all(exp.Column) if column.table == alias}
    kept = [place for place, node in enumerate(parts[0].selects) if node.alias_or_name in used] or [0]
    for part in parts:
        part.set("expressions", [part.selects[place] for place in kept])


def _parts_of(rows: exp.Query) -> Iterator[exp.Select]:
    if isinstance(rows, exp.Union):
        yield from _parts_of(rows.left)
        yield from _parts_of(rows.right)
    elif isinstance(rows, exp.Select):
        yield rows


class HeldRows(StoredRows):
    """Rows that are in a table of their own for the length of a statement; they are all of the window."""

    def __init__(self, ref: TypeRef, table: str, *, has_removals: bool) -> None:
        self.ref = ref
        self.key = ("held", table, has_removals)
        self.table = table
        self.has_removals = has_removals

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID]
        chosen: list[exp.Expr] = [exp.column(name, table="h", quoted=True) for name in names]
        for column in columns:
            chosen.append(
                exp.alias_(exp.column(column.physical, table="h", quoted=True), self.name_of(column), quoted=True)
            )
        table = exp.Table(this=exp.to_identifier(self.table, quoted=True), alias=exp.TableAlias(this="h"))
        if not self.has_removals:
            return select_from(table, chosen)
        if removals:
            return select_from(table, [*chosen, exp.column(SUPERSEDED_BY, table="h", quoted=True)])
        return select_from(table, chosen).where(exp.not_(is_removal("h")), copy=False)
