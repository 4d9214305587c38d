"""The row in force: each rendering of the one rule gives what the rule says."""

from __future__ import annotations

import random
import sqlite3

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from ontologia.engines.sqlite.windows import Versions, has_newer
from ontologia.model import COMMIT_ID, SUPERSEDED_BY
from ontologia.query.in_force import (
    NEWEST_FIRST,
    are_current,
    are_removals,
    is_current,
    is_removal,
    keep_newest,
    mark_removals,
    removal_sql,
)
from ontologia.query.plan import Window

KEY = "the key"
Row = tuple[str, int, int | None]


@pytest.fixture(scope="module")
def versions() -> list[Row]:
    """Keys with versions at some commits, of which each fifth is a removal; none knows yet what came after it."""
    chance = random.Random(7)
    commits = {key: sorted(chance.sample(range(1, 40), 6)) for key in "abcdefgh"}
    return [(key, n, n if chance.random() < 0.2 else None) for key, some in commits.items() for n in some]


def newest(rows: list[Row], at: int) -> dict[str, Row]:
    """The rule, in the plainest words."""
    return {key: (key, commit, by) for key, commit, by in sorted(rows, key=lambda row: row[1]) if commit <= at}


def table(rows: list[Row]) -> pa.Table:
    schema = pa.schema([(KEY, pa.string()), (COMMIT_ID, pa.int64()), (SUPERSEDED_BY, pa.int64())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def in_duckdb(rows: pa.Table, sql: str) -> list[Row]:
    with duckdb.connect() as connection:
        return connection.register("rows", rows).execute(sql).fetchall()


def with_successors(rows: list[Row]) -> list[Row]:
    """The rows as a snapshot has them: each knows the commit that superseded it."""
    later = {(key, commit): [n for other, n, _ in rows if other == key and n > commit] for key, commit, _ in rows}
    return [(key, n, n if by == n else min(later[key, n], default=None)) for key, n, by in rows]


@pytest.mark.parametrize("at", [0, 7, 20, 40])
def test_the_newest_row_is_the_same_in_duckdb_in_sqlite_and_in_arrow(versions: list[Row], at: int) -> None:
    expected = sorted(newest(versions, at).values())

    select = exp.select("*").from_("rows").where(f"{COMMIT_ID} <= {at}")
    by_duckdb = in_duckdb(table(versions), keep_newest(select, [KEY]).sql("duckdb"))

    file = sqlite3.connect(":memory:")
    file.execute(f'CREATE TABLE t0 ("{KEY}", {COMMIT_ID}, {SUPERSEDED_BY})')
    file.executemany("INSERT INTO t0 VALUES (?, ?, ?)", versions)
    later = has_newer(Versions("t0", {}), [KEY], Window("as_of", at)).sql("sqlite")
    of_window = f"SELECT * FROM t0 AS t WHERE {COMMIT_ID} <= :window AND NOT {later}"
    by_sqlite = file.execute(of_window, {"window": at}).fetchall()
    file.close()

    in_order = table([row for row in versions if row[1] <= at]).sort_by(NEWEST_FIRST).to_pylist()
    by_arrow = {row[KEY]: tuple(row.values()) for row in reversed(in_order)}

    assert sorted(by_duckdb) == sorted(by_sqlite) == sorted(by_arrow.values()) == expected


@pytest.mark.parametrize("at", [None, 7, 20])
def test_rows_that_know_what_superseded_them_are_in_force_where_they_are_the_newest(
    versions: list[Row], at: int | None
) -> None:
    upper = 40 if at is None else at
    expected = {row[:2] for row in newest(versions, upper).values() if row[2] is None}

    found = table([row for row in with_successors(versions) if row[1] <= upper])
    by_duckdb = in_duckdb(found, f"SELECT * FROM rows WHERE {is_current(at=at).sql('duckdb')}")
    by_arrow = found.filter(are_current(found, at)).to_pylist()

    assert {row[:2] for row in by_duckdb} == {(row[KEY], row[COMMIT_ID]) for row in by_arrow} == expected


def test_removals_are_told_from_rows_that_others_superseded(versions: list[Row]) -> None:
    expected = {row[:2] for row in versions if row[2] is not None}
    found = table(with_successors(versions))
    texts = (is_removal("t").sql("duckdb"), removal_sql("t"))
    by_duckdb = [{row[:2] for row in in_duckdb(found, f"SELECT * FROM rows t WHERE {text}")} for text in texts]
    marks = mark_removals(are_removals(found), found.column(COMMIT_ID)).to_pylist()
    by_arrow = {(row[KEY], row[COMMIT_ID]) for row, mark in zip(found.to_pylist(), marks, strict=True) if mark}
    assert [*by_duckdb, by_arrow] == [expected] * 3
