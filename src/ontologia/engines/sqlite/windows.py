"""The rows of a window of time in SQLite (RFC 0004 §4.3), for a table keyed by identity and commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from ontologia.model import COMMIT_ID, Column
from ontologia.query.plan import Window
from ontologia.query.stored_rows import EmptyRows, StoredRows


class SqliteRows(StoredRows):
    """Rows whose columns any field can name."""

    def shown(self, column: Column) -> str:
        """SQLite forgets that a column of a subquery is called `true` or `false`, whatever its case and quotes."""
        name = column.physical
        return f"{name}?" if "?" in name or name.casefold() in ("true", "false") else name


class NoRows(SqliteRows, EmptyRows):
    """A type that is not stored."""


def windowed(
    table: str,
    identity: Sequence[str],
    fields: Mapping[str, exp.Expression],
    window: Window,
    *,
    probe: bool,
    extra: exp.Expression | None = None,
) -> exp.Select:
    """Select the rows of a window; `fields` maps result names to expressions over the alias `t`.

    Two ways to keep one row per identity. Probing looks, for each candidate, for a newer row by the primary key: best
    after a filter that finds few, and for rows in key order, because SQLite merges it into the query around it and
    then need not sort. Scanning reads the table once in key order and keeps the row of the largest commit, which
    SQLite promises for bare columns beside a lone `max()`: best for aggregates over all.
    """
    keys = [exp.column(name, table="t", quoted=True) for name in identity]
    commit = exp.column(COMMIT_ID, table="t", quoted=True)
    named = [exp.alias_(node, name, quoted=True) for name, node in fields.items()]
    conditions = [extra] if extra is not None else []
    if window.mode == "as_of":
        conditions.append(exp.LTE(this=commit.copy(), expression=exp.Placeholder(this="window")))
    if window.mode == "since":
        conditions.append(exp.GT(this=commit.copy(), expression=exp.Placeholder(this="window")))
    if window.deduplicated and probe:
        conditions.append(exp.not_(exp.Exists(this=_newer(table, identity, window, extra))))
    if window.deduplicated and not probe:
        newest = exp.alias_(exp.Max(this=commit.copy()), COMMIT_ID, quoted=True)
        select = exp.select(*keys, newest, *named).from_(_table(table)).where(*conditions)
        return select.group_by(*(key.copy() for key in keys))
    return exp.select(*keys, commit, *named).from_(_table(table)).where(*conditions)


def _table(name: str, alias: str = "t") -> exp.Table:
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _newer(table: str, identity: Sequence[str], window: Window, extra: exp.Expression | None) -> exp.Select:
    def column(name: str, alias: str) -> exp.Column:
        return exp.column(name, table=alias, quoted=True)

    same = [exp.EQ(this=column(name, "n"), expression=column(name, "t")) for name in identity]
    tests: list[exp.Expression] = [*same, exp.GT(this=column(COMMIT_ID, "n"), expression=column(COMMIT_ID, "t"))]
    if window.mode == "as_of":
        tests.append(exp.LTE(this=column(COMMIT_ID, "n"), expression=exp.Placeholder(this="window")))
    if extra is not None:
        tests.append(extra.transform(_retabled))
    return exp.select("1").from_(_table(table, "n")).where(*tests)


def _retabled(node: exp.Expression) -> exp.Expression:
    return exp.column(node.name, table="n", quoted=True) if isinstance(node, exp.Column) else node
