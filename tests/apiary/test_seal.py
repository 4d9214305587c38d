"""The seal: whatever a filter or a statement says, it reads the frames it names, and nothing else."""

from contextlib import ExitStack
from itertools import cycle

import duckdb
import pytest

from ontologia.apiary import Computed
from ontologia.apiary.sql.planning import plan_query
from ontologia.apiary.sql.statements import parse_statement
from ontologia.cli import main
from ontologia.errors import OntologiaError, StorageBackendError, UnsupportedStatementError, ValidationError
from ontologia.files import sealing
from ontologia.files.duck import Duck
from ontologia.spark.frames.tasks import FrameWork
from ontologia.spark.frames.work import spark_text
from support.frames import NAME, apiary, readings, sensors

SECRET = "hunter2"
SOURCES = [
    *(
        f"{name}('{{file}}')"
        for name in ["read_csv", "read_csv_auto", "read_text", "read_blob", "read_json", "read_json_auto"]
    ),
    *(f"{name}('{{file}}')" for name in ["read_json_objects", "read_ndjson", "read_ndjson_objects", "read_parquet"]),
    *(
        f"{name}('{{file}}')"
        for name in ["parquet_scan", "parquet_metadata", "parquet_schema", "parquet_file_metadata"]
    ),
    *(
        f"{name}('{{file}}')"
        for name in ["parquet_kv_metadata", "parquet_full_metadata", "sniff_csv", "glob", "read_duckdb"]
    ),
    "parquet_bloom_probe('{file}', 'password', 'x')",
    "read_csv(['{file}', '{file}'], header = true)",
    "glob('{folder}/*')",
    "sqlite_scan('{file}', 'x')",
    "postgres_scan('host=localhost', 'public', 'x')",
    "iceberg_scan('{folder}')",
    "delta_scan('{folder}')",
    "query('FROM read_text(''{file}'')')",
    "query_table('{file}')",
    "json_execute_serialized_sql('{{}}')",
    *(
        f"duckdb_{name}()"
        for name in ["settings", "secrets", "functions", "tables", "views", "columns", "databases", "schemas", "types"]
    ),
    *(
        f"duckdb_{name}()"
        for name in ["extensions", "variables", "logs", "memory", "temporary_files", "external_file_cache"]
    ),
    *(f"pragma_{name}()" for name in ["version", "database_size", "platform", "user_agent", "collations"]),
    "pragma_table_info('x')",
    "pragma_storage_info('x')",
    "which_secret('s3://other/x', 's3')",
    "enable_logging()",
    "checkpoint()",
    "test_all_types()",
    "seq_scan('x')",
    "arrow_scan(1, 2, 3)",
    "pandas_scan(1)",
    "'{file}'",
    '"{file}"',
    "'{folder}/*.csv'",
    "'s3://other/secret.parquet'",
    "'https://example.com/secret.csv'",
    "'file://{file}'",
    "information_schema.tables",
    "pg_catalog.pg_settings",
    "sqlite_master",
    "secret_table",
]
IN_FILTERS = [
    "EXISTS(SELECT 1 FROM {s})",
    "EXISTS(FROM {s})",
    "EXISTS(SUMMARIZE {s})",
    "EXISTS(SUMMARIZE FROM {s})",
    "EXISTS(DESCRIBE {s})",
    "EXISTS(SHOW {s})",
    "EXISTS(TABLE {s})",
    "EXISTS(VALUES ((SELECT 1 FROM {s})))",
    "EXISTS(WITH x AS (FROM {s}) FROM x)",
    "EXISTS(PIVOT {s} ON password)",
    "id IN (SELECT 1 FROM {s})",
    "id IN (FROM {s})",
    "(SELECT count(*) FROM {s}) > 0",
    "id > ANY(SELECT 1 FROM {s})",
    "id = ALL(SUMMARIZE {s})",
    "('a', 'b') > ANY(SUMMARIZE {s})",
    "NOT EXISTS(SELECT 1 FROM {s} LIMIT 1)",
    "CASE WHEN EXISTS(FROM {s}) THEN true ELSE false END",
    "coalesce((SELECT true FROM {s} LIMIT 1), false)",
    "list_contains(ARRAY(SELECT 1 FROM {s}), id)",
    "len(list_transform([1], lambda x: (SELECT count(*) FROM {s}))) > 0",
    "[x FOR x IN [1] IF EXISTS(FROM {s})] = [1]",
    "id BETWEEN 0 AND (SELECT count(*) FROM {s})",
    "TRY((SELECT 1 FROM {s})) = 1",
]
FUNCTIONS = [
    *(
        f"{name}('{{file}}') IS NOT NULL"
        for name in ["getenv", "getvariable", "current_setting", "read_text", "nextval"]
    ),
    *(f"{name}('FROM ''{{file}}''') <> ''" for name in ["json_serialize_plan", "json_serialize_sql", "query"]),
    *(f"{name}() IS NOT NULL" for name in ["current_query", "txid_current", "current_connection_id"]),
    "current_setting('allowed_directories') IS NOT NULL",
    "write_log('{file}') IS NULL",
    "setseed(0.5) IS NULL",
    "sleep_ms(10) IS NULL",
    "pg_get_viewdef(1) IS NULL",
    "upper(current_setting('home_directory')) <> ''",
]
BREAKOUTS = [
    "true; DROP TABLE x",
    "true; COPY (SELECT 1) TO '{folder}/out.csv'",
    "true) FROM '{file}' --",
    "true FROM '{file}'",
    "true UNION SELECT 1 FROM '{file}'",
    "true ORDER BY 1",
    "true /* */; SELECT 1",
    "id = $1",
    "id = ?",
    "id = $name",
    "COLUMNS(*) = 1",
    "COLUMNS('id') = 1",
    "#1 = 1",
    "count(*) > 1",
    "sum(id) OVER () > 1",
    "SUMMARIZE '{file}'",
    "DESCRIBE '{file}'",
    "SHOW ALL TABLES",
    "FROM '{file}'",
    "SELECT * FROM '{file}'",
    "ATTACH '{folder}/out.db'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}'",
    "INSTALL spatial",
    "LOAD '{file}'",
    "SET enable_external_access = true",
    "RESET ALL",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CREATE MACRO m() AS TABLE FROM '{file}'",
    "CREATE SECRET s (TYPE s3)",
    "CHECKPOINT",
    "USE memory",
    "EXECUTE asked",
    "PREPARE q AS SELECT 1",
    "VACUUM",
    "EXPLAIN SELECT 1",
]
_forms = cycle(IN_FILTERS)
FILTERS = [
    *(next(_forms).replace("{s}", source) for source in SOURCES),
    *(form.replace("{s}", "'{file}'") for form in IN_FILTERS),
    *(form.replace("{s}", "read_text('{file}')") for form in IN_FILTERS),
    *FUNCTIONS,
    *BREAKOUTS,
]
IN_STATEMENTS = [
    "SELECT * FROM {s}",
    "FROM {s}",
    "SELECT * FROM {t}, {s}",
    "SELECT (SELECT count(*) FROM {s}) FROM {t}",
    "SELECT * FROM {t} WHERE EXISTS(SELECT 1 FROM {s})",
    "SELECT * FROM {t} WHERE EXISTS(SUMMARIZE {s})",
    "SELECT * FROM {t} WHERE id IN (SELECT 1 FROM {s})",
    "WITH x AS (SELECT * FROM {s}) SELECT * FROM x, {t}",
    "WITH x AS (SUMMARIZE {s}) SELECT * FROM x, {t}",
    "SELECT * FROM (SUMMARIZE {s})",
    "SELECT * FROM (DESCRIBE {s})",
    "SELECT * FROM {t} JOIN LATERAL (SELECT * FROM {s}) l ON true",
    "SELECT * FROM {t} POSITIONAL JOIN {s}",
    "SELECT region FROM {t} UNION ALL SELECT 'x' FROM {s}",
    "SELECT * FROM (PIVOT {s} ON password USING count(*))",
    "SELECT * FROM {t} ORDER BY (SELECT 1 FROM {s})",
    "SELECT count(*) FROM {t} GROUP BY (SELECT 1 FROM {s})",
    "SELECT count(*) FROM {t} HAVING EXISTS(FROM {s})",
    "SELECT * FROM {t} LIMIT (SELECT count(*) FROM {s})",
    "SELECT sum(id) OVER (PARTITION BY (SELECT 1 FROM {s})) FROM {t}",
    "SELECT list_transform([1], lambda x: (SELECT count(*) FROM {s})) FROM {t}",
    "SELECT * FROM {t} QUALIFY row_number() OVER () < (SELECT count(*) FROM {s})",
    "EXPLAIN SELECT * FROM {s}",
    "EXPLAIN ANALYZE SELECT * FROM {t}, {s}",
    "SELECT * FROM (VALUES ((SELECT 1 FROM {s}))) v, {t}",
]
_forms = cycle(IN_STATEMENTS)
STATEMENTS = [
    *(next(_forms).replace("{s}", source) for source in SOURCES),
    *(form.replace("{s}", "'{file}'") for form in IN_STATEMENTS),
    *(form.replace("{s}", "read_text('{file}')") for form in IN_STATEMENTS),
    *(f"SELECT {text} FROM {{t}}" for text in FUNCTIONS),
    *(f"SELECT * FROM {{t}} WHERE {text}" for text in FUNCTIONS),
    *(text for text in BREAKOUTS if text[:4].isupper() and "COLUMNS" not in text),
    "SELECT 1; SELECT 2 FROM {t}",
    "SELECT * INTO OUTFILE '{folder}/out' FROM {t}",
]


def update_with(frame, text):
    return frame.update({"id": 1}, {"temp": Computed(text)})


def read_as_a_task(frame, text):
    node, state = frame._node, frame._node.ledger(frame.name).known()
    return FrameWork(node.location, frame.name, state.schema, state.partition_by).read(
        frame._snapshot().cells, ["id"], text
    )


FILTER_DOORS = {
    "read": lambda frame, text: frame.read(filter=text),
    "delete": lambda frame, text: frame.delete(text),
    "update": lambda frame, text: frame.update(text, {"temp": 0.0}),
    "computed": update_with,
    "spark task": read_as_a_task,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("outside")


@pytest.fixture(scope="module")
def secret(folder):
    file = folder / "secret.csv"
    file.write_text(f"password\n{SECRET}\n")
    return file


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    base = tmp_path_factory.mktemp("store")
    with apiary((base / "frames").as_uri(), base / "cache") as found:
        sensors(found).write(readings(("north", 38.5, 1), ("south", 20.0, 2)))
        yield found


def written(text, secret):
    return text.replace("{file}", str(secret)).replace("{folder}", str(secret.parent)).replace("{t}", NAME)


def test_there_are_enough_texts_that_try_to_get_out():
    assert len(set(FILTERS)) >= 150
    assert len(set(STATEMENTS)) >= 150


@pytest.mark.parametrize("door", FILTER_DOORS)
@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_reads_the_columns_of_its_frame_and_nothing_else(filled, secret, text, door):
    frame = filled.frame(NAME)
    with pytest.raises(OntologiaError) as caught:
        FILTER_DOORS[door](frame, written(text, secret))
    assert SECRET not in str(caught.value)
    assert not list(secret.parent.glob("out*"))
    assert frame.version == 1


@pytest.mark.parametrize("engine", ["duckdb", "colony"])
@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_reads_frames_and_nothing_else(filled, secret, text, engine):
    with pytest.raises(OntologiaError) as caught:
        filled.query(written(text, secret), engine=engine)
    assert SECRET not in str(caught.value)
    assert not list(secret.parent.glob("out*"))


@pytest.mark.parametrize("text", STATEMENTS[::8])
def test_the_console_refuses_what_the_library_refuses(filled, secret, text, capsys):
    code = main(["apiary", "sql", "--storage", filled.location.uri, "--", written(text, secret)])
    said = capsys.readouterr()
    assert code == 1
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("source", [text for text in SOURCES if "{file}" in text or "{folder}" in text])
def test_a_text_that_passed_the_check_would_find_a_sealed_database(filled, secret, source):
    with pytest.raises((StorageBackendError, ValidationError)) as caught:
        filled.node.duck.table(written(f"SELECT * FROM {source}", secret), {})
    assert SECRET not in str(caught.value)


def test_a_name_in_a_statement_is_no_variable_of_the_program():
    secret_rows = readings(("north", 1.0, 1))
    with pytest.raises(StorageBackendError, match="secret_rows"):
        Duck("64MB").table("FROM secret_rows", {})
    assert secret_rows.num_rows == 1


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("lower(region) = 'north' AND temp BETWEEN 30 AND 40", 1),
        ("region LIKE 'n%' OR regexp_matches(region, '^s')", 2),
        ("CASE WHEN id > 1 THEN temp ELSE 0 END > 10", 1),
        ("id IN (1, 2, 3) AND NOT region IS NULL", 2),
        ("temp::INTEGER % 2 = 0 AND now() > TIMESTAMP '2020-01-01'", 2),
        ("list_contains([1, 2], id)", 2),
        ("round(temp / 3, 1) > 6.0 AND region COLLATE NOCASE = 'NORTH'", 1),
        ("date_trunc('day', now()) + INTERVAL 1 DAY > now()", 2),
    ],
)
def test_an_ordinary_filter_passes_the_seal(filled, text, rows):
    assert filled.frame(NAME).read(filter=text).num_rows == rows


def test_every_function_that_does_more_than_compute_is_known_to_the_seal():
    harmless = {
        "current_database",
        "current_date",
        "current_schema",
        "get_current_time",
        "get_current_timestamp",
        "now",
        "today",
    }
    harmless |= {"transaction_timestamp", "error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"}
    with duckdb.connect() as connection:
        names = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() "
            "WHERE function_type = 'scalar' AND stability <> 'CONSISTENT'"
        ).fetchall()
    assert {name for (name,) in names} - harmless <= sealing.FORBIDDEN_FUNCTIONS


BREAKS_DUCKDB = "SELECT 1 WHERE (1, 'a') > ANY (SUMMARIZE SELECT 1 AS x)"


def test_a_failure_inside_duckdb_leaves_other_answers_as_they_are(filled):
    frame = filled.frame(NAME)
    frame.read()
    with pytest.raises(StorageBackendError, match="INTERNAL"):
        filled.node.duck.table(BREAKS_DUCKDB, {})
    assert frame.read().num_rows == 2


def test_a_statement_whose_database_another_one_broke_runs_again():
    duck, first = Duck("64MB"), []

    def broken_once(cursor, sql, parameters):
        if not first:
            first.append(sql)
            raise duckdb.FatalException("FATAL Error: the database has been invalidated because of a fatal error")
        return cursor.execute(sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ontologia.files.duck.execute", broken_once)
        assert duck.table("SELECT 1 AS one", {}).to_pydict() == {"one": [1]}
    duck.close()


def planned(filled, text):
    statement = parse_statement(text.replace("{t}", NAME))
    with ExitStack() as pins:
        return plan_query(filled.node, statement.tree, None, None, pins)


def test_spark_puts_no_variable_of_the_environment_into_a_statement(filled):
    text = spark_text(planned(filled, "SELECT '${env:HOME} and ${system:user.home}' AS x, 'a' AS y FROM {t}"))
    assert "${" not in text
    with pytest.raises(UnsupportedStatementError, match="variable"):
        spark_text(planned(filled, 'SELECT id AS "${env:HOME}" FROM {t}'))


UNKNOWN_TO_SPARK = "read_text('{file}') IS"  #: as a function of a row, which is for Spark to say


@pytest.mark.parametrize(
    "text",
    [text for text in STATEMENTS if text.startswith(("SELECT", "FROM", "WITH")) and UNKNOWN_TO_SPARK not in text],
)
def test_a_statement_on_spark_is_refused_as_well(filled, secret, text):
    with pytest.raises(OntologiaError):
        spark_text(planned(filled, text.replace("{file}", str(secret)).replace("{folder}", str(secret.parent))))
