"""Spark against the embedded path: random types, rows, windows, settings and questions; what is loaded and what is read.

The quick run asks a few worlds; `slow` asks many. A failure names its seed.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import os
import random
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import functions as sql

from ontologia import Session
from ontologia.runtime.intake import conversions as table
from ontologia.runtime.loading.local import LocalPipeline
from ontologia.runtime.loading.sources import read_source
from ontologia.spark import Pipeline, read
from ontologia.spark.sources import opened as opened_by_spark
from ontologia.spark.types import quote_name
from ontologia.testing.conformance import directory, sqlite
from ontologia.testing.differential.checking import write_history
from support.spark_conversions import SETTINGS, Every, session_with, sources
from support.spark_shop import new_store

QUICK, MANY = range(2), range(2, 40)


def plain(rows: pa.Table) -> list[tuple]:
    """Rows that can be compared and sorted: times as numbers, and no two zeros or NaNs."""
    columns = []
    for column in rows.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        columns.append([_plain(value) for value in column.to_pylist()])
    return sorted(zip(*columns, strict=True), key=repr)


def _plain(value):
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def windows(rng: random.Random, head: int) -> list[dict]:
    return [{}, {"as_of": rng.randint(0, head)}, {"history": True}, {"since": rng.randint(0, head)}]


def embedded(session: Session, cls, window: dict) -> pa.Table:
    query = (
        session.query().entities(cls) if cls.__declaration__.ref.kind == "entity" else session.query().relations(cls)
    )
    if "as_of" in window:
        query = query.as_of(window["as_of"])
    if "since" in window:
        query = query.history_since(window["since"])
    return (query.with_history() if "history" in window else query).to_arrow()


def frames(spark, uri: str, ref, window: dict):
    """The same rows twice: on Spark's own reader where it can be had, and through Arrow."""
    options = {"as_of": "asOf", "since": "since", "history": "history"}
    given = {options[name]: str(value).lower() for name, value in window.items()}
    yield "read", read(spark, uri, ref.name, kind=ref.kind, **window)
    yield "load", spark.read.format("ontologia").options(type=ref.name, kind=ref.kind, **given).load(uri)


def check_frame(where: str, frame, expected: list[tuple], names: list[str], rng: random.Random) -> None:
    """All rows of a frame, some of them, and all again, in a union and in a self-join."""
    assert plain(frame.toArrow()) == expected, where
    if not expected:
        return
    place = rng.randrange(len(names))
    value = rng.choice(expected)[place]
    column = frame[quote_name(names[place])]
    kind = frame.schema[place].dataType.typeName()
    wanted = [row for row in expected if row[place] is None] if value is None else None
    if value is None:
        some = frame.where(column.isNull())
    elif kind == "timestamp":
        some = frame.where(column == sql.timestamp_micros(sql.lit(value).cast("bigint")))
    elif kind == "date":  # as a literal, PySpark knows no year before 1000
        some = frame.where(column == sql.date_from_unix_date(sql.lit((value - dt.date(1970, 1, 1)).days)))
    else:
        some = frame.where(column == (float("nan") if value == "NaN" else value))
    if wanted is None:
        wanted = [row for row in expected if row[place] == value]
    assert some.count() == len(wanted), f"{where}, {names[place]} = {value!r}"
    assert some.union(frame).count() == len(wanted) + len(expected), f"{where}, in a union"
    keys = [name for name in names if name.endswith("_key")] or names[:1]
    other = frame.toDF(*(f"o{number}" for number in range(len(names))))
    both = frame.join(other, [frame[quote_name(key)] == other[f"o{names.index(key)}"] for key in keys])
    counts: dict = {}
    for row in expected:
        key = tuple(row[names.index(name)] for name in keys)
        counts[key] = counts.get(key, 0) + 1
    assert both.count() == sum(count * count for key, count in counts.items() if None not in key), f"{where}, joined"
    assert plain(frame.toArrow()) == expected, f"{where}, asked again"


def check_reads(spark, seed: int) -> None:
    rng = random.Random(f"reads {seed}")
    case = rng.choice((directory("v2"), sqlite("v2")))
    settings = {name: rng.choice(values) for name, values in SETTINGS.items()}
    with write_history(case, seed) as known, session_with(spark, settings):
        uri = known.session.engine.location.uri
        stored = known.session.engine.catalog().layouts  # a name means nothing before the first row of its type
        subjects = [one for one in known.world.subjects if one.cls.__declaration__.ref in stored]
        for subject in rng.sample(subjects, min(2, len(subjects))):
            window = rng.choice(windows(rng, known.oracle.head))
            rows = embedded(known.session, subject.cls, window)
            for how, frame in frames(spark, uri, subject.cls.__declaration__.ref, window):
                where = f"seed {seed}, {case}, {subject.name} {window}, {how}, {settings}"
                assert frame.columns == rows.column_names, where
                check_frame(where, frame, plain(rows), rows.column_names, rng)


def test_spark_reads_what_the_embedded_path_reads(spark):
    for seed in QUICK:
        check_reads(spark, seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_reads_what_the_embedded_path_reads_in_many_worlds(spark):
    for seed in MANY:
        check_reads(spark, seed)


def source(rng: random.Random, rows: int = 60) -> pa.Table:
    """A column of some kind for each field of `Every`, with values of all sorts."""
    pool = sources(rng)
    named = {column.name: pool[rng.choice(list(pool))] for column in Every.__declaration__.schema.columns}
    named["text"] = pool[rng.choice(("text", "whole", "digits", "instant", "day"))]  # of what keys are made
    picked = {
        name: values.take(pa.array([rng.randrange(len(values)) for _ in range(rows)])) for name, values in named.items()
    }
    return pa.table(picked)


def expected_rows(given: pa.Table) -> tuple[dict[str, tuple], set[int]]:
    """What the table of conversions makes of the rows, by key, and which of them it refuses. The last of a key counts."""
    columns = Every.__declaration__.schema.columns
    found = [table.convert(column, given.column(column.name)) for column in columns]
    lost = {row for one in found for row, gone in enumerate(one.lost.to_pylist()) if gone}
    lost |= {row for row, key in enumerate(found[0].values.to_pylist()) if key is None}
    stored = pa.table([one.values for one in found], names=[column.name for column in columns])
    rows = {}
    for place in range(given.num_rows):
        if place not in lost:
            row = plain(stored.slice(place, 1))[0]
            rows[row[0]] = row
    return rows, lost


def check_load(spark, tmp_path, seed: int) -> None:
    rng = random.Random(f"loads {seed}")
    uri = new_store(str(tmp_path / f"{seed}.db") if seed % 2 else (tmp_path / str(seed)).as_uri())
    given = source(rng)
    settings = {name: rng.choice(values) for name, values in SETTINGS.items()}
    rows, lost = expected_rows(given)
    with session_with(spark, settings):
        numbered = given.append_column("at", pa.array(range(given.num_rows)))
        pipeline = Pipeline(spark, uri, on_invalid="quarantine").load(numbered, into=Every, order_by="at")
        report = pipeline.commit().types["Every"]
    where = f"seed {seed}, {settings}, {given.schema.to_string()}"
    assert (report.read, report.rejected, report.inserted) == (given.num_rows, len(lost), len(rows)), where
    beside = new_store(str(tmp_path / f"{seed}-local.db"))
    local = LocalPipeline(beside, on_invalid="quarantine").load(numbered, into=Every, order_by="at").commit()
    assert replace(local.types["Every"], files=report.files) == report, where
    for place in (uri, beside):
        with Session(place, entity_types=[Every]) as opened:
            assert plain(opened.query().entities(Every).to_arrow()) == sorted(rows.values(), key=repr), (where, place)


def written(rng: random.Random) -> str:
    """A CSV file with quotes, line breaks, blanks and nothing in odd places."""
    cells = (
        "",
        '""',
        "a",
        " b ",
        '"c,d"',
        '"e\nf"',
        '"g""h"',
        '"\r\n"',
        "ü",
        '" "',
        "null",
        "NaN",
        "'",
        "\\",
        '"\\"',
        "#",
        "i\tj",
    )
    lines = ["k,l,m"]
    lines += [",".join(rng.choice(cells) for _ in range(3)) for _ in range(rng.randint(1, 12))]
    return rng.choice(("\n", "\r\n")).join(lines) + rng.choice(("", "\n", "\n\n"))


def test_spark_and_the_embedded_path_read_the_same_of_a_csv_file(spark, tmp_path):
    for seed in range(12):
        text = written(random.Random(f"csv {seed}"))
        (tmp_path / f"{seed}.csv").write_text(text, newline="")
        local = read_source(tmp_path / f"{seed}.csv")
        found = opened_by_spark(spark, tmp_path / f"{seed}.csv")
        assert found.columns == local.column_names
        rows = sorted(map(tuple, found.collect()), key=repr)
        assert rows == sorted((tuple(row.values()) for row in local.to_pylist()), key=repr), repr(text)


def test_spark_loads_what_the_table_of_conversions_says(spark, tmp_path):
    for seed in range(3):
        check_load(spark, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_loads_what_the_table_of_conversions_says_of_many_sources(spark, tmp_path):
    for seed in itertools.islice(itertools.count(3), 60):
        check_load(spark, tmp_path, seed)


CONNECTED = """
import importlib.util, sys
from pathlib import Path
from pyspark.sql import SparkSession
spec = importlib.util.spec_from_file_location("against_embedded", sys.argv[1])
checks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(checks)
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for seed in range(3):
    checks.check_reads(spark, seed)
    checks.check_load(spark, Path(sys.argv[2]), seed)
print(type(spark).__module__, "agrees")
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.xdist_group("connect")  # its servers all listen on one port
@pytest.mark.timeout(900)
def test_a_connect_session_reads_and_loads_what_the_embedded_path_does(workers_path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, __file__, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.stdout.strip() == "pyspark.sql.connect.session agrees", done.stderr[-3000:]
