"""DuckDB in process: what it leaves on disk, how many threads it has, and how values get into it."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ontologia.errors import StorageBackendError
from ontologia.files import duck as duck_module
from ontologia.files.duck import Duck, execute


def test_what_does_not_fit_into_memory_lies_where_only_its_owner_can_look_and_goes_with_the_store():
    duck = Duck("64MB")
    with duck.cursor() as cursor:
        folder = Path(cursor.execute("SELECT current_setting('temp_directory')").fetchone()[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    duck.close()
    assert not folder.exists()


@pytest.mark.parametrize(("memory", "threads"), [("64MB", 1), ("256MB", 2), ("1GB", 8), ("8GB", 16)])
def test_there_are_as_many_threads_as_memory_feeds(memory, threads, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    duck = Duck(memory)
    assert duck.table("SELECT current_setting('threads') AS n", {}).column("n").to_pylist() == [threads]
    duck.close()


def test_every_cursor_has_the_settings_of_the_database():
    """Of which some would be those of one connection, and its cursors have their own."""
    code = """
from ontologia.files.duck import Duck
duck = Duck("256MB")
names = ("TimeZone", "parquet_metadata_cache")
print([duck.table(f"SELECT current_setting('{name}') AS n", {}).column("n").to_pylist()[0] for name in names])
duck.close()
"""
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TZ": "America/New_York"}, capture_output=True, text=True
    )
    assert said.stdout.strip() == "['UTC', True]", said.stderr


VALUES = [0, -7, 2**31, -(2**63), 2**63 - 1, 2**70, 0.1, -0.0, 1e300, math.nan, math.inf, -math.inf, True, False, None]
VALUES += ["", "it's", 'a "b" $c; --', "€ 😀 \n\t\\", "a\0b", b"bytes", datetime(2020, 1, 2, 3, 4, 5, 6, UTC), [1, 2]]


def test_what_two_threads_have_no_memory_for_is_asked_again_with_one(monkeypatch):
    """As a sort of a million rows in 256 MB."""
    asked, most = [], 1

    def ask(cursor, sql, parameters):
        (threads,) = cursor.execute("SELECT current_setting('threads')").fetchone()
        asked.append(threads)
        if threads > most:
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to pin block")
        return cursor.execute(sql)

    monkeypatch.setattr(duck_module, "_threads", lambda connection: 2)
    monkeypatch.setattr(duck_module, "execute", ask)
    ours = Duck("256MB")
    assert ours.table("SELECT 42 AS n", {}).to_pylist() == [{"n": 42}]
    assert [batch.to_pylist() for batch in ours.batches("SELECT 43 AS n", {}, 10)] == [[{"n": 43}]]
    assert asked == [2, 1, 2, 1], "others go on with all of them"
    ours.close()
    monkeypatch.setattr(duck_module, "_threads", lambda connection: 1)
    alone, most = Duck("256MB"), 0
    with pytest.raises(StorageBackendError, match="s3_duckdb_memory_limit"):
        alone.table("SELECT 44 AS n", {})
    alone.close()


def test_a_value_is_the_same_as_a_literal_and_as_a_parameter(monkeypatch):
    sql = "SELECT typeof($a) AS t, CAST($a AS VARCHAR) AS text, $b AS b"
    duck = Duck("64MB")
    for value in VALUES:
        found = []
        for loaded in (True, False):
            monkeypatch.setattr(duck_module, "_is_loaded", lambda _, loaded=loaded: loaded)
            found.append(duck.table(sql, {"a": value, "b": 1}).to_pydict())
        assert found[0] == found[1], repr(value)
    duck.close()


def test_a_table_is_the_same_by_way_of_a_file_and_of_arrow(monkeypatch):
    columns = {
        "text": pa.array(["it's", None, "a\0b"]),
        "bytes": pa.array([b"\0\xff", None, b""]),
        "whole": pa.array([2**63 - 1, None, -(2**63)]),
        "float": pa.array([math.nan, None, -0.0]),
        "truth": pa.array([True, None, False]),
        "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
        "instant": pa.array([datetime(1969, 1, 1, tzinfo=UTC), None, datetime.max.replace(tzinfo=UTC)]),
        "length": pa.array([timedelta(1), None, timedelta(0)]),
    }
    tables = [pa.table({name: column}) for name, column in columns.items()]
    assert {table.schema.types[0] for table in tables} - {pa.duration("us")} == duck_module.PLAIN
    duck = Duck("64MB")
    for table in (*tables, pa.table(columns), pa.table(columns).slice(0, 0)):
        found = []
        for loaded in (True, False):
            monkeypatch.setattr(duck_module, "_is_loaded", lambda _, loaded=loaded: loaded)
            found.append(duck.table('SELECT * FROM "it is given"', {}, **{"it is given": table}))
        assert found[0].schema == found[1].schema
        assert str(found[0].to_pydict()) == str(found[1].to_pydict())
    duck.close()


def test_a_name_of_a_parameter_is_quoted():
    duck = Duck("64MB")
    with duck.cursor() as cursor:
        assert execute(cursor, "SELECT $p0, $window", {"p0": "x", "window": 3}).fetchall() == [("x", 3)]
    duck.close()


def test_neither_a_question_nor_a_commit_imports_pandas(tmp_path):
    code = """
import sys
from datetime import UTC, datetime
from ontologia import Entity, Field, Ontology
from ontologia.engines.initializing import initialize_storage

class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0
    made: Field[datetime]

initialize_storage(storage_uri=sys.argv[1])
with Ontology(storage_uri=sys.argv[1], entity_types=[Thing]) as onto:
    for step in range(3):
        with onto.session() as session:
            session.ensure(Thing(id=str(n), size=n + step, made=datetime(2020, 1, 2, tzinfo=UTC)) for n in range(5))
    query = onto.query().entities(Thing)
    assert query.where(Thing.id == "3").first().size == 5
    assert query.where(Thing.size > 4, Thing.size < 6).count() == 1
    assert query.order_by(Thing.size).limit(2).to_arrow().num_rows == 2
    assert len(query.as_of(2).collect()) == 5
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, (tmp_path / "store").as_uri()], check=True)


def test_rows_that_are_sorted_leave_nothing_when_nobody_wants_the_rest():
    duck, rows = Duck("64MB"), pa.table({"n": [2, 1]})
    sorting = duck.sort_rows(rows.schema, [rows], ["n"])
    assert next(sorting).to_pylist() == [{"n": 1}, {"n": 2}]
    sorting.close()
    assert duck.table("SELECT count(*) AS n FROM duckdb_tables()", {}).to_pylist() == [{"n": 0}]
    duck.close()


class Stopped(BaseException):
    """What a signal handler of a service may raise."""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Stopped])
def test_what_a_signal_handler_raises_in_the_middle_of_a_statement_arrives(raised):
    duck = Duck("256MB")
    with pytest.raises(raised), duck.cursor():
        raise RuntimeError("Query interrupted") from raised()  # as DuckDB reports what its check for signals raised
    duck.close()


def test_a_failure_that_no_signal_caused_stays_what_it_is():
    duck = Duck("256MB")
    with pytest.raises(RuntimeError, match="ours"), duck.cursor():
        raise RuntimeError("ours") from ValueError()
    duck.close()
