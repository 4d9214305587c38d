"""The table of conversions on Spark, held value by value against the table over Arrow, in sessions of every kind."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

from ontologia.runtime.intake import conversions as table
from ontologia.spark.loading.conversions import SourceValue, convert, kind_of
from support.spark_conversions import SETTINGS, Every, session_with, sources

COLUMNS = Every.__declaration__.schema.columns


def test_spark_converts_every_value_as_arrow_does_whatever_the_settings_of_the_session(spark):
    every = list(itertools.product(*SETTINGS.values()))
    chosen = [every[0], every[-1], *random.Random(1).sample(every[1:-1], 2)]  # each value of each setting is in these
    given = sources(random.Random(2))
    frames = {
        name: spark.createDataFrame(
            pa.table({"place": range(len(values)), "given": values}),
            "place bigint, given timestamp_ntz" if name == "local" else None,
        )
        for name, values in given.items()
    }
    for settings in chosen:
        with session_with(spark, dict(zip(SETTINGS, settings, strict=True))):
            for name, frame in frames.items():
                _compare(frame, given[name], f"{name} with {settings}")


def _compare(frame, values: pa.Array, where: str) -> None:
    from pyspark.sql import functions as sql

    source = SourceValue(sql.col("given"), frame.schema["given"].dataType)
    kind = kind_of(source.kind)
    assert kind == table.kind_of(values.type)
    shown = []
    for column in COLUMNS:
        value, lost = convert(column, source)
        shown += [value.alias(f"v_{column.name}"), (sql.lit(False) if lost is None else lost).alias(f"l_{column.name}")]
    found = frame.select("place", *shown).toArrow().sort_by("place")
    for column in COLUMNS:
        wanted = table.convert(column, pa.chunked_array([values]))
        lost = [bool(one) for one in found.column(f"l_{column.name}").to_pylist()]
        said = [
            None if gone else one
            for one, gone in zip(_plain(found.column(f"v_{column.name}"), column), lost, strict=True)
        ]
        rows = list(
            zip(
                values.to_pylist() if kind not in ("instant", "local", "date") else range(len(values)),
                said,
                lost,
                strict=True,
            )
        )
        other = list(zip([row[0] for row in rows], _plain(wanted.values, column), wanted.lost.to_pylist(), strict=True))
        differing = [(one, two) for one, two in zip(rows, other, strict=True) if repr(one) != repr(two)]
        assert not differing, f"{kind} as {column.scalar}: {where}: {differing[:5]}"


def _plain(values: pa.ChunkedArray, column) -> list:
    """Values that can be compared: times as numbers, which years beyond Python's have as well."""
    if column.scalar == "datetime":
        values = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    if column.scalar == "date":
        values = values.cast(pa.int32())
    return values.to_pylist()


def test_a_pair_that_the_table_does_not_have_is_refused_in_words():
    assert table.describe_refusal("age", "instant", "int") == "age: a timestamp cannot become int: map it"
    with pytest.raises(KeyError):
        table.describe_refusal("age", "nested", "int")
