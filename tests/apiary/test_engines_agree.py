"""What plain DuckDB answers over a table, SQL over a frame answers as well, by one node and by several."""

import duckdb
import pytest

from ontologia.apiary.sql.session import SqlSession
from support.frames import apiary

pytestmark = pytest.mark.thorough

NAN = float("nan")
ROWS = [
    {"k": "a", "v": 1, "f": -0.0, "yes": True},
    {"k": "a", "v": 2, "f": 0.0, "yes": False},
    {"k": "b", "v": 3, "f": 2.0, "yes": None},
    {"k": "c", "v": 4, "f": NAN, "yes": True},
    {"k": None, "v": None, "f": None, "yes": False},
]
OTHERS = [{"k": "a", "v": 1, "w": 0.5}, {"k": "b", "v": 7, "w": 1.5}, {"k": "c", "v": 4, "w": NAN}]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two frames `h.b.t` and `h.b.g`, and a plain database with the same rows as tables."""
    folder = tmp_path_factory.mktemp("agree")
    with apiary((folder / "frames").as_uri(), folder / "cache") as ap, duckdb.connect() as plain:
        ap.create_hive("h")
        ap.create_box("h", "b")
        frames = {
            "t": ap.create_frame("h", "b", "t", {"k": "string", "v": "int64", "f": "float64", "yes": "boolean"}),
            "g": ap.create_frame("h", "b", "g", {"k": "string", "v": "int64", "w": "float64"}),
        }
        for name, rows in (("t", ROWS), ("g", OTHERS)):
            frames[name].write(rows[:2])
            frames[name].write(rows[2:])
            plain.register("given", frames[name].read())
            plain.execute(f"CREATE TABLE {name} AS FROM given")
        yield ap, plain


def answer(table):
    """Names and rows, in any order; NaN equals itself, and -0.0 is not 0.0."""
    return table.column_names, sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def assert_agree(both, statements):
    ap, plain = both
    for statement in statements:
        expected = answer(plain.execute(statement.replace("@", "")).to_arrow_table())
        for engine in ("duckdb", "colony"):
            assert (statement, engine, answer(ap.query(statement.replace("@", "h.b."), engine=engine))) == (
                (statement, engine, expected)
            )


def test_columns_that_a_statement_means_without_their_names(both):
    assert_agree(
        both,
        [
            "SELECT count(*) AS n FROM @t NATURAL JOIN @g",
            "SELECT sum(w) AS n FROM @t NATURAL JOIN @g WHERE w < 1",
            "SELECT t FROM @t AS t",
            "SELECT to_json(t) AS j FROM @t AS t",
            "SELECT count(t) AS n FROM @t",
            "SELECT t.v FROM @t AS t WHERE t IS NOT NULL",
            "SELECT COLUMNS('k|v') FROM @t",
            "SELECT #2 AS second FROM @t",
            "SELECT #2 AS second, #1 AS first FROM @t",
            "SELECT v, a FROM @t AS x(v, a) WHERE v = 'a'",
            "SELECT k, count(*) AS n FROM @g AS x(v, k) GROUP BY k",
            "SELECT count(a) AS n FROM @t AS x(k, a, v)",
            "SELECT * FROM @g PIVOT (sum(v) FOR k IN ('a', 'b'))",
            "SELECT t.v, w FROM @t AS t JOIN @g USING (k)",
            "SELECT v AS n FROM @t WHERE v IN (SELECT v FROM @g)",
        ],
    )


def test_rows_are_chosen_by_nan_and_by_both_zeros(both):
    conditions = ["f IN (0, 2)", "f IN (2, 'nan')", "f = 0", "f >= 2", "f > 2", "f < 3", "f = 'nan'", "f <> 2"]
    conditions += ["f BETWEEN 0 AND 'nan'", "NOT f < 2", "f IS DISTINCT FROM 'nan'"]
    assert_agree(both, [f"SELECT k, f FROM @t WHERE {condition}" for condition in conditions])
    assert_agree(both, ["SELECT t.k, g.k AS other FROM @t JOIN @g ON t.f = g.w WHERE t.f >= 0 AND g.w > 1"])


def test_columns_without_a_name_are_called_as_duckdb_calls_them(both):
    statements = [
        "SELECT (SELECT max(v) FROM @g WHERE k = t.k) FROM @t t",
        "SELECT list(v ORDER BY v) FROM @t",
        "SELECT k, string_agg(k, ',' ORDER BY k) FROM @t GROUP BY k",
        "SELECT bool_and(yes), count(*), sum(v) + 1 FROM @t",
        "SELECT v + 1 FROM @t UNION ALL SELECT v FROM @g",
        "WITH x AS (SELECT bool_or(yes) FROM @t) SELECT *, 1 + 1 FROM x",
        "SELECT sum(v), sum(v), SUM(V) AS other FROM @t -- twice",
    ]
    ap, plain = both
    for name in ("t", "g"):
        plain.execute("ATTACH IF NOT EXISTS ':memory:' AS h; CREATE SCHEMA IF NOT EXISTS h.b")
        plain.execute(f"CREATE TABLE h.b.{name} AS FROM {name}")
    for statement in (text.replace("@", "h.b.") for text in statements):
        expected = plain.execute(statement).to_arrow_table().column_names
        for engine in ("duckdb", "colony"):
            assert (statement, ap.query(statement, engine=engine).column_names) == (statement, expected)


def test_columns_are_called_as_written_also_after_use(both):
    ap, _ = both
    session = SqlSession(ap.node)
    session.run("USE HIVE h")
    session.run("USE BOX b")
    assert session.run("SELECT (SELECT max(v) FROM g) FROM t LIMIT 1").column_names == ["(SELECT max(v) FROM g)"]
