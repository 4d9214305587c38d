"""Cells that a condition leaves out have no row for it, whatever DuckDB makes of the condition."""

import datetime as dt
import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from ontologia.apiary.conditions import condition
from ontologia.apiary.pruning import prune

COLUMNS = {
    "a": "int64",
    "b": "int64",
    "x": "float64",
    "narrow": "float32",
    "d": "decimal128(10, 2)",
    "ts": "timestamp",
    "tz": "timestamp[us, tz=UTC]",
    "day": "date",
    "s": "string",
}


def row(n):
    at = dt.datetime(2024, 1, n, 6)
    return {
        "a": n,
        "b": -n,
        "x": float(n),
        "narrow": n + 0.1,
        "d": Decimal(n) + Decimal("0.01"),
        "ts": at,
        "tz": at.replace(tzinfo=dt.UTC),
        "day": at.date(),
        "s": f"2024-1-{n}",
    }


@pytest.fixture
def frame(ap):
    ap.create_hive("h")
    ap.create_box("h", "b")
    return ap.create_frame("h", "b", "t", COLUMNS)


@pytest.fixture
def five_cells(frame):
    """A cell for every row, so that what is left out is missed."""
    for n in range(1, 6):
        frame.write([row(n)])
    return frame


def in_plain_duckdb(table):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    connection.register("given", table)
    connection.execute("CREATE TABLE t AS FROM given")
    return connection


CONVERTED = [
    "a = CAST(3.7 AS DECIMAL(2, 0))",
    "a = '3.7'",
    "a <= '0.6'",
    "a >= '5.4'",
    "a IN ('3.7', '9')",
    "a BETWEEN '2.6' AND '3.4'",
    "x = CAST(3.7 AS DECIMAL(2, 0))",
    "x >= CAST(5.4 AS DECIMAL(2, 0))",
    "d = '3.014'",
    "d >= '5.013'",
    "d = CAST(3.014 AS DECIMAL(10, 2))",
    "d = CAST('3.014' AS DECIMAL(10, 2))",
    "ts >= CAST('2024-01-05 12:00:00' AS DATE)",
    "ts >= '2024-01-05 12:00:00'::DATE",
    "tz >= CAST('2024-01-05 12:00:00' AS DATE)",
    "ts = CAST('2024-01-03 05:59:59.7' AS TIMESTAMP(0))",
    "ts = CAST('2024-01-03 06:00:00.7' AS TIMESTAMP_S)",
    "ts >= TIMESTAMPTZ '2024-01-05 08:00:00+02:00'",
    "day = CAST('2024-01-03 12:00:00' AS DATE)",
    "day = '2024-01-03 00:00:00'",
    "s = DATE '2024-01-03'",
    "s = TIMESTAMP '2024-01-03 00:00:00'",
]


def test_a_literal_that_duckdb_converts_leaves_no_matching_cell_out(ap, five_cells, root):
    plain = in_plain_duckdb(five_cells.read())
    for where in CONVERTED:
        expected = [found for (found,) in plain.execute(f"SELECT a FROM t WHERE {where} ORDER BY a").fetchall()]
        asked = ap.query(f"SELECT a FROM h.b.t WHERE {where} ORDER BY a")["a"].to_pylist()
        read = sorted(five_cells.read(filter=where)["a"].to_pylist())
        assert (where, asked, read) == (where, expected, expected)


def test_a_delete_and_an_update_find_rows_by_what_duckdb_makes_of_the_literal(five_cells, root):
    assert five_cells.update("a <= '0.6'", {"s": "found"}).rows_updated == 1
    assert five_cells.delete("ts >= CAST('2024-01-05 12:00:00' AS DATE)").rows_deleted == 1


@pytest.mark.parametrize("engine", ["duckdb", "colony"])
def test_columns_that_an_alias_renames_are_not_taken_for_those_of_the_frame(ap, five_cells, root, engine):
    asked = [
        ("SELECT count(*) AS n FROM h.b.t AS x(b, a) WHERE a < -3", 2),
        ("SELECT count(*) AS n FROM h.b.t AS x(b, a) WHERE b = 4", 1),
        ("SELECT sum(b) AS n FROM h.b.t AS x(b, a) WHERE a < -3", 9),
    ]
    assert [ap.query(statement, engine=engine)["n"].to_pylist() for statement, _ in asked] == [[n] for _, n in asked]


def test_a_join_that_keeps_unmatched_rows_or_places_prunes_nothing(ap, five_cells, root):
    plain = in_plain_duckdb(five_cells.read())
    for statement in (
        "SELECT x.a, y.a FROM {t} x POSITIONAL JOIN {t} y WHERE x.a > 2 ORDER BY 1",
        "SELECT y.a FROM ({t} x RIGHT JOIN {t} y ON x.a = y.a) WHERE x.a IS NULL ORDER BY 1",
        "SELECT y.a FROM {t} x RIGHT JOIN {t} y ON x.a = y.a WHERE x.a IS NULL ORDER BY 1",
    ):
        expected = plain.execute(statement.format(t="t")).fetchall()
        found = ap.query(statement.format(t="h.b.t"))
        assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected, statement


# --- random conditions -------------------------------------------------------------------------------------------

LITERALS = {
    "number": [
        "0",
        "3",
        "-2",
        "2.5",
        "3.01",
        "3.014",
        "-(-4)",
        "3.0000001",
        "1e0",
        "4.1",
        "9007199254740993",
        "'3'",
        "'3.7'",
        "'0.6'",
        "CAST('3' AS DOUBLE)",
        "CAST('2.5' AS DOUBLE)",
        "CAST('3.01' AS DECIMAL(3, 2))",
        "CAST('3.7' AS DECIMAL(2, 0))",
        "CAST(3.7 AS INTEGER)",
        "CAST('3.1' AS REAL)",
        "3.1",
        "3.0999999046325684",
        "CAST('inf' AS DOUBLE)",
        "CAST('nan' AS DOUBLE)",
        "9007199254740992.0",
        "99999999999999999999",
        "true",
    ],
    "moment": [
        "'2024-01-03'",
        "'2024-01-03 06:00:00'",
        "'2024-01-03 06:00:00+00:00'",
        "'2024-01-03T06:00:00Z'",
        "DATE '2024-01-03'",
        "TIMESTAMP '2024-01-03 06:00:00'",
        "TIMESTAMPTZ '2024-01-03 08:00:00+02:00'",
        "CAST('2024-01-03 12:00:00' AS DATE)",
        "CAST('2024-01-03 05:59:59.7' AS TIMESTAMP(0))",
        "TIMESTAMP '2024-01-03'",
        "'2024-01-02 23:59:59.999999'",
        "TIMESTAMP '2024-01-03 08:00:00+02:00'",
    ],
    "text": [
        "'2024-1-3'",
        "'2024-01-03'",
        "DATE '2024-01-03'",
        "'é'",
        "''",
        "'z'",
        "3",
    ],
}
SUITING = {"s": "text", "ts": "moment", "tz": "moment", "day": "moment"}


def some_condition(chance, depth=0):
    column = chance.choice(list(COLUMNS))
    literals = LITERALS[SUITING.get(column, "number")]
    kind = chance.random()
    if depth < 2 and kind < 0.3:
        parts = (some_condition(chance, depth + 1), chance.choice(["AND", "OR"]), some_condition(chance, depth + 1))
        return f"({' '.join(parts)})"
    if kind < 0.35:
        return f"NOT ({some_condition(chance, depth + 1)})"
    if kind < 0.4:
        return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
    if kind < 0.55:
        return f"{column} IN ({', '.join(chance.sample(literals, 2))})"
    if kind < 0.65:
        return f"{column} BETWEEN {chance.choice(literals)} AND {chance.choice(literals)}"
    sides = [column, chance.choice(["=", "<", "<=", ">", ">=", "<>"]), chance.choice(literals)]
    return " ".join(sides if chance.random() < 0.8 else reversed(sides))


def some_value(chance, column):
    n = chance.randint(1, 6)
    special = {
        "a": [0, -5, (1 << 53) + 1, 1 << 53, (1 << 63) - 1],
        "x": [float("nan"), float("inf"), -0.0, 0.0, 2.5, 3.7, 9007199254740992.0],
        "narrow": [float("nan"), 0.1, 3.1, -0.0],
        "d": [Decimal("3.01"), Decimal("-2.00"), Decimal("99999999.99")],
        "ts": [dt.datetime(2024, 1, 3), dt.datetime(2024, 1, 2, 23, 59, 59, 999999)],
        "tz": [dt.datetime(2024, 1, 3, tzinfo=dt.UTC)],
        "s": ["", "é", "x", "2024-01-03", "3"],
    }.get(column, [])
    return chance.choice([None, row(n)[column], row(n)[column], *special])


def test_random_conditions_leave_no_matching_cell_out_of_random_layouts(frame, root):
    chance = random.Random(20)
    cells = []
    for number in range(12):
        rows = [{column: some_value(chance, column) for column in COLUMNS} for _ in range(chance.randint(1, 3))]
        before = {cell.id for cell in frame._snapshot().cells}
        frame.write(rows)
        (new,) = {cell.id for cell in frame._snapshot().cells} - before
        cells.append(
            frame.read(version=number + 1).slice(sum(map(len, cells))).append_column("cell", [[new] * len(rows)])
        )
    snapshot = frame._snapshot()
    plain = in_plain_duckdb(pa.concat_tables(cells))
    left_out = tried = 0
    for _ in range(600):
        where = some_condition(chance)
        try:
            matching = {cell for (cell,) in plain.execute(f"SELECT DISTINCT cell FROM t WHERE {where}").fetchall()}
        except duckdb.Error:
            continue
        found = prune(snapshot.cells, condition(where, snapshot.schema), snapshot.schema, snapshot.partition_by)
        assert matching <= {cell.id for cell in found.scanned}, where
        tried, left_out = tried + 1, left_out + found.by_statistics
    assert (tried > 200, left_out > tried) == (True, True)
