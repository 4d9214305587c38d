"""The rows of a window of time in SQLite (RFC 0004 §4.3), for a table keyed by identity and commit.

The rule is that of `query.in_force`. Its rank would sort the table, which has the rows in that order already: so here
the newest row is the one of the largest commit, or the one that no newer one follows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Column
from ontologia.query.dialects import equal
from ontologia.query.in_force import is_current
from ontologia.query.plan import Window
from ontologia.query.stored_rows import EmptyRows, StoredRows
from ontologia.query.trees import select_from


@dataclass(frozen=True, slots=True)
class Versions:
    """All stored rows of a type: their table, result names to expressions over the alias `t`, and what selects them."""

    table: str
    fields: Mapping[str, exp.Expression]
    among: exp.Expression | None = None


class SqliteRows(StoredRows):
    """Rows in a table keyed by identity and commit, whose columns any field can name."""

    @abstractmethod
    def versions(self, window: Window, columns: Sequence[Column]) -> Versions:
        """Where the rows that a window chooses from are."""

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        select = select_window(self.versions(window, columns), self.ref.identity, window, probe=probe)
        if not self.has_removals:
            return select
        if removals:
            return select.select(_column(SUPERSEDED_BY, "t"), copy=False)
        # Of a group, SQLite looks at the row of the largest commit, as for the other columns.
        in_force = is_current("t")
        return select.having(in_force, copy=False) if select.args.get("group") else select.where(in_force, copy=False)

    def rows_of_keys(
        self, keys: str, window: Window, columns: Sequence[Column]
    ) -> tuple[exp.Select, exp.Expression] | None:
        """The newest commit of an identity is the last entry of the primary key that begins with it: one look finds
        it, and another the row, however many rows and versions there are."""
        if not window.deduplicated:
            return None
        versions = self.versions(window, columns)
        same = [equal(_column(name, "n"), _column(name, keys)) for name in self.ref.identity]
        newest = select_from(_table(versions.table, "n"), [exp.Max(this=_column(COMMIT_ID, "n"))])
        newest = newest.where(*same, *_tests(versions, window, "n"), copy=False)
        rows = _select(versions, self.ref.identity, window)
        if self.has_removals:
            rows = rows.where(is_current("t"), copy=False)
        return rows, equal(_column(COMMIT_ID, "s"), newest.subquery(copy=False))

    def name_of(self, column: Column) -> str:
        """SQLite forgets that a column of a subquery is called `true` or `false`, whatever its case and quotes."""
        name = column.physical
        return f"{name}?" if "?" in name or name.casefold() in ("true", "false") else name


class NoRows(EmptyRows, SqliteRows):
    """A type that is not stored."""

    def versions(self, window: Window, columns: Sequence[Column]) -> Versions:
        raise TypeError(f"{self.ref} has no table")

    def rows_of_keys(self, keys: str, window: Window, columns: Sequence[Column]) -> None:
        return None


def select_window(versions: Versions, identity: Sequence[str], window: Window, *, probe: bool) -> exp.Select:
    """Select the rows of a window.

    Two ways to keep one row per identity. Probing looks, for each candidate, for a newer row by the primary key: best
    after a filter that finds few, and for rows in key order, because SQLite merges it into the query around it and
    then need not sort. Scanning reads the table once in key order and keeps the row of the largest commit, which
    SQLite promises for bare columns beside a lone `max()`: best for aggregates over all.
    """
    if not window.deduplicated:
        return _select(versions, identity, window)
    if probe:
        return _select(versions, identity, window).where(exp.not_(has_newer(versions, identity, window)), copy=False)
    newest = exp.alias_(exp.Max(this=_column(COMMIT_ID, "t")), COMMIT_ID, quoted=True)
    select = _select(versions, identity, window, commit=newest)
    return select.group_by(*(_column(name, "t") for name in identity), copy=False)


def _select(versions: Versions, identity: Sequence[str], window: Window, commit: exp.Expr | None = None) -> exp.Select:
    keys = [_column(name, "t") for name in identity]
    named = [exp.alias_(node, name, quoted=True) for name, node in versions.fields.items()]
    select = select_from(_table(versions.table, "t"), [*keys, commit or _column(COMMIT_ID, "t"), *named])
    return select.where(*_tests(versions, window, "t"), copy=False)


def _tests(versions: Versions, window: Window, alias: str) -> list[exp.Expr]:
    """What makes a row of the table, under an alias, one of the window."""
    tests: list[exp.Expr] = []
    if versions.among is not None:
        tests.append(versions.among.transform(_with_table, alias))
    bounds = {"as_of": exp.LTE, "since": exp.GT}
    if window.mode in bounds:
        tests.append(bounds[window.mode](this=_column(COMMIT_ID, alias), expression=exp.Placeholder(this="window")))
    return tests


def has_newer(versions: Versions, identity: Sequence[str], window: Window) -> exp.Exists:
    """Whether a row, under the alias `t`, is not the newest of its identity in a window."""
    same = [equal(_column(name, "n"), _column(name, "t")) for name in identity]
    later = exp.GT(this=_column(COMMIT_ID, "n"), expression=_column(COMMIT_ID, "t"))
    newer = select_from(_table(versions.table, "n"), [exp.Literal.number(1)])
    newer = newer.where(*same, later, *_tests(versions, window, "n"), copy=False)
    return exp.Exists(this=newer)


def _column(name: str, alias: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


def _table(name: str, alias: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _with_table(node: exp.Expression, alias: str) -> exp.Expression:
    return _column(node.name, alias) if isinstance(node, exp.Column) else node
