"""What an engine supplies for a type: rows in a window of time, as something SQL can select from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ontologia.model import Column, TypeRef
from ontologia.query.plan import Window

if TYPE_CHECKING:
    from ontologia.query.carried_rows import Projection


class StoredRows(ABC):
    """One type's rows as stored.

    The compiler puts filters, joins, aggregation and paging around `rows`; how history becomes one row per identity
    is the engine's knowledge. `key` identifies the storage it speaks of, for the cache of statements.
    """

    ref: TypeRef
    key: Hashable
    document: str | None = None
    """The column that holds a whole row as JSON, for engines whose rows are read back from that."""
    has_removals: bool = False
    """Whether some of the stored rows say that something was removed; those have `superseded_by`."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """Parameters of `rows` whose values do not depend on the plan."""
        return {}

    @abstractmethod
    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Query:
        """Select identity, `commit_id`, and the columns as `name_of` names them, in this order.

        Removals are left out, unless rows are versions and `removals` asks for them, with `superseded_by`.

        The bound of `as_of` and `since` is the parameter `:window`. `probe` advises to look for newer versions
        row by row rather than in one pass over all: filters leave few rows, or the result is wanted in key order.
        """

    def rows_of_keys(
        self, keys: str, window: Window, columns: Sequence[Column]
    ) -> tuple[exp.Select, exp.Expression] | None:
        """Where the engine can go from an identity straight to its row in force: all rows of a window that has one of
        each, and the test, over the aliases `s` and `keys`, that one is it. None where `rows` serves as well."""
        return None

    def fill_in(self, sql: str) -> str:
        """A statement over these rows with what it leaves open filled in: it is kept longer than they are."""
        return sql

    def carried(self, projection: Projection) -> StoredRows:
        """These rows, of an earlier version of the schema, under the columns of another."""
        from ontologia.query.carried_rows import CarriedRows

        return CarriedRows(self, projection)

    def name_of(self, column: Column) -> str:
        """What `rows` calls a column: its physical name, unless the engine cannot have that."""
        return column.physical

    def index_test(
        self, column: Column, alias: str, op: str, bound: Sequence[exp.Placeholder]
    ) -> exp.Expression | None:
        """Where an index of a column holds less than its value: the test of a comparison that the index can serve,
        true for every row that passes the comparison itself."""
        return None

    def encode(self, column: Column, value: Any) -> Any:
        """A value of a field as this storage compares it."""
        return value


# What a value or a NULL is of: some engines make an integer of a NULL that says nothing.
SQL_TYPES = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "datetime": "TIMESTAMPTZ",
    "date": "DATE",
    "bytes": "BLOB",
}


class EmptyRows(StoredRows):
    """A type that has no rows to read: not stored yet, or dropped."""

    def __init__(self, ref: TypeRef) -> None:
        self.ref = ref
        self.key = ("empty", ref)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        types = dict.fromkeys(self.ref.identity, "TEXT") | {"commit_id": "BIGINT"}
        types |= {self.name_of(column): SQL_TYPES.get(column.scalar or "", "TEXT") for column in columns}
        nothing = (exp.alias_(exp.cast(exp.null(), kind), name, quoted=True) for name, kind in types.items())
        return exp.select(*nothing).where(exp.false())
