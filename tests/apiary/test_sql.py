"""SQL over frames: what it answers, what it leaves out, what it refuses, and that it reaches nothing but frames."""

import pyarrow as pa
import pytest

from ontologia.errors import (
    BackpressureError,
    TaskAbandonedError,
    UnknownNameError,
    UnsupportedStatementError,
    ValidationError,
)
from support.frames import NAME, readings, sensors


@pytest.fixture
def filled(ap):
    frame = sensors(ap)
    frame.write(readings(("north", 38.5, 1), ("north", 20.0, 2)))
    frame.write(readings(("south", 42.1, 3)))
    frame.write(readings(("east", 35.0, 4)))
    ap.create_frame("analytics", "sensors", "places", {"region": "string", "country": "string"}).write(
        [{"region": "north", "country": "NO"}, {"region": "south", "country": "ES"}]
    )
    return ap


def facts(table):
    return dict(zip(table.column("property").to_pylist(), table.column("value").to_pylist(), strict=True))


ANSWERS = [
    ("SELECT id FROM {t} WHERE temp > 40.0", [(3,)]),
    ("SELECT region, count(*) FROM {t} GROUP BY region ORDER BY region", [("east", 1), ("north", 2), ("south", 1)]),
    (
        "SELECT t.id, p.country FROM {t} t JOIN {p} p USING (region) WHERE p.country = 'NO' ORDER BY id",
        [(1, "NO"), (2, "NO")],
    ),
    ("SELECT id FROM {t}, {p} WHERE temperature.region = places.region AND country = 'ES'", [(3,)]),
    ("SELECT id, row_number() OVER (ORDER BY temp DESC) AS n FROM {t} ORDER BY n LIMIT 2", [(3, 1), (1, 2)]),
    ("WITH hot AS (SELECT * FROM {t} WHERE temp > 36) SELECT count(*) FROM hot", [(2,)]),
    ("WITH temperature AS (SELECT 7 AS id) SELECT id FROM temperature, {p} LIMIT 1", [(7,)]),
    (
        "SELECT p.country, t.id FROM {p} p LEFT JOIN {t} t ON t.region = p.region AND t.temp > 40 ORDER BY 1",
        [("ES", 3), ("NO", None)],
    ),
    ("SELECT t.id FROM {t} t LEFT JOIN {p} p ON p.region = t.region WHERE p.country IS NULL", [(4,)]),
    ("SELECT id FROM {t} WHERE region = 'north' OR temp > 40 ORDER BY id", [(1,), (2,), (3,)]),
    ("SELECT id FROM {t} o WHERE EXISTS (SELECT 1 FROM {p} WHERE region = o.region AND country = 'ES')", [(3,)]),
    ("SELECT id FROM {t} WHERE region IN (SELECT region FROM {p}) ORDER BY id", [(1,), (2,), (3,)]),
    ("SELECT analytics.sensors.temperature.id FROM {t} WHERE id = 4", [(4,)]),
    ("SELECT ID FROM Analytics.Sensors.TEMPERATURE WHERE Region = 'east'", [(4,)]),
    ("SELECT count(*) FROM {t} FOR VERSION AS OF 1", [(2,)]),
    ("SELECT count(*) FROM {t} AT (VERSION => 2)", [(3,)]),
    (
        "SELECT a.n - b.n FROM (SELECT count(*) n FROM {t}) a, (SELECT count(*) n FROM {t} FOR VERSION AS OF 1) b",
        [(2,)],
    ),
    ("/* a comment */ SELECT max(id) FROM {t} -- another", [(4,)]),
    ("SELECT id FROM {t} WHERE id = 1 UNION ALL SELECT id FROM {t} WHERE id = 4", [(1,), (4,)]),
    ("SELECT count(*) FROM {t}, range(3)", [(12,)]),
    ("FROM {t} SELECT sum(id)", [(10,)]),
]


@pytest.mark.parametrize(("query", "expected"), ANSWERS, ids=[item[0][:60] for item in ANSWERS])
def test_a_query_gives_its_answer(filled, query, expected):
    found = filled.query(query.format(t=NAME, p="analytics.sensors.places"))
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected


PRUNED = [
    ("WHERE region = 'north'", (1, 2, 0)),
    ("WHERE temp > 40.0", (1, 0, 2)),
    ("WHERE region = 'north' AND temp > 40", (0, 2, 1)),
    ("WHERE region = 'north' OR temp > 40", (2, 0, 1)),
    ("t WHERE t.id >= 4", (1, 0, 2)),
    ("", (3, 0, 0)),
]


@pytest.mark.parametrize(("rest", "counts"), PRUNED)
def test_explain_says_how_many_cells_are_scanned_and_pruned(filled, rest, counts):
    for explain in ("EXPLAIN", "EXPLAIN ANALYZE"):
        found = facts(filled.query(f"{explain} SELECT * FROM {NAME} {rest}"))
        assert (
            int(found["cells_scanned"]),
            int(found["cells_pruned_by_partition"]),
            int(found["cells_pruned_by_statistics"]),
        ) == counts
        assert found["cells"] == "3"
        assert found["plan"]


def test_the_optional_side_of_an_outer_join_is_not_pruned(filled):
    query = (
        f"SELECT p.region FROM analytics.sensors.places p LEFT JOIN {NAME} t ON t.region = p.region WHERE t.id IS NULL"
    )
    assert filled.query(query).num_rows == 0


def test_use_and_show_and_describe(filled):
    assert filled.query("SHOW HIVES").to_pydict() == {"hive": ["analytics"]}
    assert filled.query("show boxes in analytics;").to_pydict() == {"box": ["sensors"]}
    assert filled.query("SHOW FRAMES IN analytics.sensors").to_pydict() == {"frame": ["places", "temperature"]}
    filled.query("USE HIVE analytics")
    assert filled.query("SELECT count(*) AS n FROM sensors.places").to_pydict() == {"n": [2]}
    filled.query("USE BOX sensors")
    assert filled.query("SELECT count(*) AS n FROM places").to_pydict() == {"n": [2]}
    assert filled.query("SHOW FRAMES").num_rows == 2
    described = facts(filled.query(f"DESCRIBE {NAME}"))
    assert (described["partition_by"], described["cells"], described["total_rows"]) == ("region", "3", "4")


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        ("USE BOX sensors", ValidationError, "choose a hive first"),
        ("USE HIVE nothing", UnknownNameError, "hives: analytics"),
        ("SHOW BOXES", ValidationError, "say in which hive"),
        ("SHOW FRAMES", ValidationError, "say in which box"),
        ("SELECT * FROM temperature", UnknownNameError, "hive.box.frame"),
        ("SELECT * FROM analytics.sensors.nothing", UnknownNameError, "places, temperature"),
        ("SELECT * FROM a.b.c.d", ValidationError, "has 4 parts"),
        (f"SELECT humidity FROM {NAME}", UnknownNameError, "has region, temp, id"),
        (f"SELECT * FROM {NAME} FOR VERSION AS OF 99", UnknownNameError, "versions 0 to 3"),
        ("SELECT 1", ValidationError, "needs a frame"),
        ("SELEC 1 FROM", (ValidationError, UnsupportedStatementError), "SQL"),
        ("", ValidationError, "no statement"),
        ("CHECKPOINT", UnsupportedStatementError, "CHECKPOINT is not supported: SQL over frames reads: SELECT"),
        (f"SELECT reflect('java.lang.System', 'getenv') FROM {NAME}", UnsupportedStatementError, "cannot be called"),
        (f"SELECT java_method('java.lang.System', 'x') FROM {NAME}", UnsupportedStatementError, "cannot be called"),
        ("SELECT 1; SELECT 2", UnsupportedStatementError, "one statement at a time"),
    ],
)
def test_what_makes_no_sense_is_said(filled, statement, error, says):
    with pytest.raises(error, match=says):
        filled.query(statement)


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        (
            f"DELETE FROM {NAME}",
            r"DELETE is not supported in Apiary v1.*frame\.delete.*frame\.overwrite\(\).*overwrite_frame",
        ),
        (f"/* */ -- x\n delete from {NAME}", r"frame\.delete"),
        (f"UPDATE {NAME} SET temp = 1", r"frame\.update"),
        (f"INSERT INTO {NAME} VALUES (1)", r"frame\.write.*write_to_frame"),
        (f"MERGE INTO {NAME} USING x ON true WHEN MATCHED THEN DELETE", r"frame\.merge"),
        ("CREATE TABLE x (a int)", "create_frame"),
        (f"CREATE TABLE x AS SELECT * FROM {NAME}", "create_frame"),
        (f"DROP TABLE {NAME}", r"frame\.overwrite"),
        (f"ALTER TABLE {NAME} ADD COLUMN x int", "create_frame"),
        (f"EXPLAIN DELETE FROM {NAME}", r"frame\.delete"),
        (f"WITH gone AS (DELETE FROM {NAME} RETURNING *) SELECT * FROM gone", r"frame\.delete"),
        (f"SELECT * INTO x FROM {NAME}", "SQL over frames reads"),
    ],
)
def test_sql_that_would_write_is_refused_with_the_call_to_use(filled, statement, call):
    with pytest.raises(UnsupportedStatementError, match=call):
        filled.query(statement)


OUTSIDE = [
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM parquet_scan('{file}')",
    "SELECT * FROM '{file}'",
    'SELECT * FROM "{file}"',
    "SELECT * FROM glob('{folder}/*')",
    "SELECT content FROM {t}, read_text('{file}')",
    "SELECT (SELECT content FROM read_text('{file}')) FROM {t}",
    "SELECT * FROM {t} WHERE region IN (SELECT content FROM read_text('{file}'))",
    "WITH x AS (SELECT * FROM read_csv('{file}')) SELECT * FROM x, {t}",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
    "SELECT * FROM query_table('{file}')",
    "SELECT * FROM sqlite_scan('{file}', 'x')",
    "SELECT * FROM duckdb_secrets()",
    "COPY {t} TO '{folder}/out.csv'",
    "COPY (SELECT * FROM {t}) TO '{folder}/out.csv'",
    "ATTACH '{folder}/out.db'",
    "INSTALL spatial",
    "LOAD httpfs",
    "EXPORT DATABASE '{folder}/out'",
    "SET allowed_paths = ['{file}']",
    "PRAGMA enable_external_access",
    "CALL pragma_version()",
    "EXPLAIN SELECT * FROM read_csv('{file}')",
]


@pytest.mark.parametrize("statement", OUTSIDE)
def test_sql_reaches_no_file_outside_the_frames(filled, tmp_path, statement):
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nhunter2\n")
    text = statement.format(file=secret, folder=tmp_path, t=NAME)
    with pytest.raises((UnsupportedStatementError, UnknownNameError, ValidationError)) as caught:
        filled.query(text)
    assert "hunter2" not in str(caught.value)
    assert not list(tmp_path.glob("out*"))


def test_the_database_of_a_query_is_sealed_even_if_a_statement_got_through(filled, tmp_path):
    from ontologia.apiary.colony.bees import Chamber
    from ontologia.apiary.sql.sealing import open_sealed
    from ontologia.errors import StorageBackendError

    node = filled.node
    secret = tmp_path / "secret.csv"
    secret.write_text("password\n")
    chamber = Chamber(1 << 30, node.clock.steady() + 60, node.clock, tmp_path)
    for statement in (
        f"SELECT * FROM read_csv('{secret}')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/out.db'",
        "SET enable_external_access = true",
        "INSTALL spatial",
    ):
        with pytest.raises((StorageBackendError, ValidationError)), open_sealed(node, [], chamber) as database:
            database.duck.table(statement, {})
    assert not list(tmp_path.glob("out*"))


def test_the_result_of_sql_is_an_ipc_stream_also_without_rows(filled):
    with pa.ipc.open_stream(filled.sql(f"SELECT id FROM {NAME} WHERE id > 99")) as stream:
        assert stream.read_all().schema.names == ["id"]


def test_a_statement_that_takes_too_long_is_ended(filled):
    filled.node.bees.timeout_s = 0.5
    with pytest.raises(TaskAbandonedError, match="took longer than a task may"):
        filled.query(f"SELECT count(*) FROM {NAME}, range(100000) a, range(100000) b, range(1000) c")


def test_a_critical_colony_takes_no_new_query(filled, monkeypatch):
    from ontologia.apiary.colony.temperature import Load

    monkeypatch.setattr(filled.node, "load", lambda: Load(2, 2, 4, 1.0))
    with pytest.raises(BackpressureError, match="critical"):
        filled.query(f"SELECT * FROM {NAME}")


def test_an_unknown_engine_is_refused(filled):
    with pytest.raises(ValidationError, match="duckdb, colony, spark"):
        filled.query(f"SELECT * FROM {NAME}", engine="sqlite")


def test_names_with_quotes_in_columns_are_only_names(ap):
    ap.create_hive("h")
    ap.create_box("h", "b")
    columns = ['a"b', "x'; DROP TABLE y; --", "select", "ünï"]
    frame = ap.create_frame("h", "b", "odd", dict.fromkeys(columns, "int64"))
    frame.write([dict.fromkeys(columns, 1)])
    frame.update({columns[0]: 1}, {columns[1]: 2})
    frame.merge([dict.fromkeys(columns, 1)], on=[columns[2]])
    assert frame.read(filter={columns[1]: 1}).num_rows == 1
    assert ap.query('SELECT "select" AS s FROM h.b.odd WHERE "a""b" = 1').to_pydict() == {"s": [1]}


def test_columns_without_a_name_are_called_as_written_whatever_version_or_hive_is_meant(ap):
    ap.create_hive("memory")
    ap.create_box("memory", "b")
    ap.create_frame("memory", "b", "t", {"x": "string"}).write([{"x": "FOR VERSION AS OF 1"}])
    for said in ("", " FOR VERSION AS OF 1", " for version /* the first */ as of 1", " AT (VERSION => 1)"):
        found = ap.query(f"SELECT len('FOR VERSION AS OF 1'), max(memory.b.t.x) FROM memory.b.t{said} WHERE len(x) > 3")
        assert found.column_names == ["len('FOR VERSION AS OF 1')", "max(memory.b.t.x)"]


def test_a_sample_is_taken_of_all_rows_before_they_are_filtered(filled):
    query = f"SELECT count(*) AS n FROM {NAME} WHERE temp > 40 USING SAMPLE 100 PERCENT"
    said = facts(filled.query(f"EXPLAIN {query}"))
    assert (said["cells_scanned"], filled.query(query).to_pylist()) == ("3", [{"n": 1}])


@pytest.mark.parametrize("word", ["values", "select", "table", "order", "left", "pivot", "summarize", "interval"])
def test_a_frame_or_a_column_may_be_called_by_any_word(ap, root, word):
    ap.create_hive("h")
    ap.create_box("h", "b")
    ap.create_frame("h", "b", word, {word: "int64"}).write([{word: 7}])
    assert ap.query(f"SELECT h.b.{word}.{word} AS x FROM h.b.{word}").to_pylist() == [{"x": 7}]
    assert ap.query(f"SELECT t.{word} FROM h.b.{word} t WHERE t.{word} > 6").to_pylist() == [{word: 7}]
