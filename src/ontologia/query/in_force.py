"""The row in force (RFC 0004 §4.3): the one statement of the rule, which SQL, Arrow and Spark render.

Of the rows of an identity the one of the last commit counts: it is *the newest*. It is in force, unless it is a
*removal*, which is a row that its own commit superseded. Where rows know the commit that superseded them, a row is in
force at the end when none did, and at a commit when that comes later; so a removal never is.

For SQL the rule is trees, without names of tables unless they are given. For Arrow it is arrays over the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from ontologia.model import COMMIT_ID, SUPERSEDED_BY

if TYPE_CHECKING:
    import pyarrow as pa

NEWEST_FIRST = [(COMMIT_ID, "descending")]
"""The order of Arrow rows in which the first of an identity is the newest."""


def rank(identity: Sequence[str]) -> exp.Window:
    """The place of a row among those of its identity, of which the newest is the first."""
    newest_first = exp.Ordered(this=_column(COMMIT_ID), desc=True, nulls_first=False)
    return exp.Window(
        this=exp.Anonymous(this="row_number"),
        partition_by=[_column(name) for name in identity],
        order=exp.Order(expressions=[newest_first]),
    )


def keep_newest(rows: exp.Select, identity: Sequence[str]) -> exp.Select:
    """Of each identity the newest row, in dialects that know QUALIFY."""
    rows.set("qualify", exp.Qualify(this=exp.EQ(this=rank(identity), expression=exp.Literal.number(1))))
    return rows


def is_removal(table: str | None = None) -> exp.Expression:
    """Whether a row, which has `superseded_by`, says that something was removed. Never null."""
    return exp.NullSafeEQ(this=_column(SUPERSEDED_BY, table), expression=_column(COMMIT_ID, table))


def is_current(table: str | None = None, at: int | None = None) -> exp.Expr:
    """Whether no commit superseded a row, which has `superseded_by`; or none up to one."""
    by = _column(SUPERSEDED_BY, table)
    if at is None:
        return by.is_(exp.null())
    return exp.or_(by.is_(exp.null()), exp.GT(this=by.copy(), expression=exp.Literal.number(at)))


def removal_sql(table: str) -> str:
    """`is_removal` as text that SQLite and DuckDB take alike, for WHERE and WHEN: it is null for some of the others."""
    return f"{table}.{SUPERSEDED_BY} = {table}.{COMMIT_ID}"


def are_removals(rows: pa.Table) -> pa.ChunkedArray:
    """`is_removal`, of Arrow rows."""
    import pyarrow.compute as pc

    by = rows.column(SUPERSEDED_BY)
    return pc.and_kleene(pc.is_valid(by), pc.equal(by, rows.column(COMMIT_ID)))


def are_current(rows: pa.Table, at: int | None = None) -> pa.ChunkedArray:
    """`is_current`, of Arrow rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    by = rows.column(SUPERSEDED_BY)
    if at is None:
        return pc.is_null(by)
    return pc.or_kleene(pc.is_null(by), pc.greater(by, pa.scalar(at, pa.int64())))


def mark_removals(removed: pa.ChunkedArray, commits: pa.ChunkedArray) -> pa.ChunkedArray:
    """`superseded_by` of versions of which it is known which are removals, and nothing of what came after them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(removed, commits, pa.scalar(None, pa.int64()))


def _column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(name, table=table, quoted=True)
