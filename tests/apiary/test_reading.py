"""Reads: filters, what they prune, projection, versions, and frames in the hands of others."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ontologia.apiary.conditions import condition
from ontologia.apiary.pruning import prune
from ontologia.errors import UnknownNameError, ValidationError
from ontologia.files.pandas_frames import pandas_frame
from support.frames import ids, readings


@pytest.fixture
def filled(frame):
    """Three cells, with temperatures as in the seed's example, and one of NaN."""
    frame.write(readings(("north", 38.5, 1), ("north", 20.0, 2)))
    frame.write(readings(("south", 42.1, 3), ("south", None, 4)))
    frame.write(readings(("east", 35.0, 5)))
    frame.write(readings(("east", float("nan"), 6)))
    return frame


def scanned(frame, filter):
    snapshot = frame._snapshot()
    found = prune(snapshot.cells, condition(filter, snapshot.schema), snapshot.schema, snapshot.partition_by)
    return len(found.scanned), found.by_partition, found.by_statistics


FILTERS = [
    ({"region": "north"}, [1, 2], (1, 3, 0)),
    ({"region": ["north", "south"]}, [1, 2, 3, 4], (2, 2, 0)),
    ("temp > 40.0", [3, 6], (2, 0, 2)),
    ("40.0 < temp", [3, 6], (2, 0, 2)),
    ("temp >= 42.1", [3, 6], (2, 0, 2)),
    ("temp > 42.1", [6], (1, 0, 3)),
    ("temp <= 20", [2], (2, 0, 2)),
    ("temp < 20", [], (1, 0, 3)),
    ("temp BETWEEN 30 AND 36", [5], (3, 0, 1)),
    ("id IN (5, 6, 7)", [5, 6], (2, 0, 2)),
    ("id = -1", [], (0, 0, 4)),
    ("temp IS NULL", [4], (1, 0, 3)),
    ("temp IS NOT NULL AND region = 'south'", [3], (1, 3, 0)),
    ("region = 'north' OR id = 5", [1, 2, 5], (2, 0, 2)),
    ("NOT region = 'north'", [3, 4, 5, 6], (4, 0, 0)),
    ("region LIKE 'n%'", [1, 2], (4, 0, 0)),
    ("REGION = 'north' and ID = 2", [2], (1, 3, 0)),
    ("id + 1 = 3", [2], (4, 0, 0)),
    ([("temp", ">", 40.0), ("region", "!=", "east")], [3], (2, 0, 2)),
    ([("id", "not in", [1, 2, 3])], [4, 5, 6], (4, 0, 0)),
    ({"temp": None}, [4], (1, 0, 3)),
    ({"region": []}, [], (0, 4, 0)),
    ("true", [1, 2, 3, 4, 5, 6], (4, 0, 0)),
]


@pytest.mark.parametrize(("filter", "expected", "pruned"), FILTERS, ids=[str(item[0]) for item in FILTERS])
def test_a_filter_gives_its_rows_and_opens_only_cells_that_may_have_them(filled, filter, expected, pruned):
    assert ids(filled.read(filter=filter)) == expected
    assert scanned(filled, filter) == pruned


@pytest.mark.parametrize(
    "filter",
    [
        "temp >",
        "SELECT 1",
        "id IN (SELECT 1)",
        "1; DROP",
        "count(*) > 1",
        [("id", "~", 1)],
        [("id", "=")],
        [("id", "<", None)],
        {"id": {1: 2}},
        "id = 'x'",
    ],
    ids=str,
)
def test_what_is_no_condition_is_refused(filled, filter):
    with pytest.raises(ValidationError):
        filled.read(filter=filter)


@pytest.mark.parametrize("filter", [{"humidity": 1}, "humidity > 1", "other.temp > 1"])
def test_an_unknown_column_is_said_with_those_there_are(filled, filter):
    with pytest.raises(UnknownNameError, match="there are region, temp, id"):
        filled.read(filter=filter)


def test_columns_come_in_the_order_asked_for(filled):
    assert filled.read(columns=["id", "region"], filter={"id": 1}).to_pylist() == [{"id": 1, "region": "north"}]
    with pytest.raises(ValidationError, match="columns is empty"):
        filled.read(columns=[])


def test_rows_come_in_the_order_they_were_written(filled):
    assert filled.read().column("id").to_pylist() == [1, 2, 3, 4, 5, 6]


def test_an_empty_frame_has_its_columns(frame):
    assert frame.read().schema == pa.schema([("region", pa.string()), ("temp", pa.float64()), ("id", pa.int64())])
    assert frame.read(filter="id = 1").num_rows == 0


def test_times_and_dates_are_pruned_by_their_order(ap):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "t", {"at": "timestamp", "day": "date", "zoned": pa.timestamp("us", "UTC")})
    for month in (1, 2, 3):
        at = dt.datetime(2024, month, 15, 12)
        frame.write([{"at": at, "day": at.date(), "zoned": at.replace(tzinfo=dt.UTC)}])
    for filter, cells in [
        ("at >= '2024-02-15 12:00:00'", 2),
        ("at > TIMESTAMP '2024-02-15 12:00:00'", 1),
        ({"at": dt.datetime(2024, 2, 15, 12)}, 1),
        ("day < DATE '2024-02-15'", 1),
        ([("day", ">=", dt.date(2024, 2, 15))], 2),
        ([("zoned", ">", dt.datetime(2024, 2, 15, 12, tzinfo=dt.UTC))], 1),
        ("day > '2024-01-20'", 2),
    ]:
        assert (scanned(frame, filter)[0], frame.read(filter=filter).num_rows) == (cells, cells), filter


def test_float32_literals_do_not_lose_rows(ap):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "t", {"a": "float32"})
    frame.write(pa.table({"a": pa.array([0.1], pa.float32())}))
    for filter in ("a = 0.1", "a <= 0.1", "a >= 0.1"):
        unpruned = frame.to_duckdb().filter(filter).fetchall()
        assert frame.read(filter=filter).num_rows == len(unpruned)


def test_whole_numbers_with_gaps_keep_their_bits_in_pandas():
    big = 2**53 + 1
    table = pa.table({"n": [big, None], "u": pa.array([2**64 - 1, None], pa.uint64()), "l": [[big, None], None]})
    frame = pandas_frame(table)
    assert (frame["n"][0], frame["u"][0], frame["l"][0]) == (big, 2**64 - 1, [big, None])


def test_polars_duckdb_and_pandas_read_a_frame(filled):
    assert filled.to_polars().filter(pl.col("region") == "north").select("id").collect()["id"].to_list() == [1, 2]
    assert filled.to_duckdb().filter("region = 'south'").order("id").fetchall() == [
        ("south", 42.1, 3),
        ("south", None, 4),
    ]
    assert filled.to_pandas(columns=["id"])["id"].tolist() == [1, 2, 3, 4, 5, 6]
    assert filled.to_polars(version=1).collect().height == 2
    assert filled.to_duckdb(version=0).fetchall() == []
    assert filled.to_polars(version=0).collect().height == 0


def test_everything_that_reads_arrow_reads_a_frame(filled):
    import duckdb

    assert pa.table(filled).num_rows == 6
    assert pl.DataFrame(filled)["id"].to_list() == [1, 2, 3, 4, 5, 6]
    assert duckdb.sql("SELECT count(*) FROM filled").fetchone() == (6,)


def test_a_frame_shows_its_columns_versions_and_sizes(filled):
    assert repr(filled).startswith("Frame analytics.sensors.temperature, version 4: 6 rows in 4 cells, 3 partitions")
    assert "id: int64 not null" in repr(filled)
    page = filled._repr_html_()
    assert "<table>" in page
    assert "<td>write</td>" in page


def test_history_says_what_each_version_did(filled):
    filled.delete({"region": "north"})
    last = filled.history()
    assert [change.operation for change in last] == ["delete", "write", "write", "write", "write", "create"]
    assert (last[0].rows_removed, last[0].cells_removed, last[0].rows_added) == (2, 1, 0)
    assert [change.version for change in filled.history(2)] == [5, 4]
    assert filled.history(1)[0].rows_removed == 2


def test_a_difference_has_the_rows_that_changed_and_no_others(filled):
    before = filled.version
    filled.update({"id": 1}, {"temp": 0.0})
    filled.compact(force=True)
    difference = filled.diff(before, filled.version)
    rows = sorted((row["change"], row["id"], row["temp"]) for row in difference.rows().to_pylist())
    assert rows == [("added", 1, 0.0), ("removed", 1, 38.5)]
    assert filled.diff(2, 2).rows().num_rows == 0
    assert sorted(row["change"] for row in filled.diff(filled.version, before).rows().to_pylist()) == [
        "added",
        "removed",
    ]


def test_the_calls_of_the_sdk_take_and_give_ipc(ap, frame):
    from ontologia.apiary.incoming import from_ipc, to_ipc

    where = ("analytics", "sensors", "temperature")
    assert ap.read_from_frame(*where) is None
    result = ap.write_to_frame(*where, to_ipc(readings(("north", 1.0, 1), ("south", 2.0, 2))))
    assert set(result) == {"version", "cells_written", "rows_written", "bytes_written", "duration_ms", "temperature"}
    assert ids(from_ipc(ap.read_from_frame(*where, {"region": "south"}))) == [2]
    assert ap.overwrite_frame(*where, to_ipc(readings(("east", 3.0, 3))))["version"] == 2
    assert ids(from_ipc(ap.read_from_frame(*where))) == [3]


@pytest.fixture
def typed(ap, root):
    ap.create_hive("h")
    ap.create_box("h", "b")
    return ap.create_frame("h", "b", "f", {"x": "float64", "i": "int64", "t": "timestamp"})


NOON = dt.datetime(2026, 1, 1, 12)
HANDED_OUT = [
    {"x": np.float64(1.5)},
    {"x": np.float32(1.5)},
    {"i": np.int64(3)},
    {"i": np.array([3, 4])},
    {"i": list(np.array([3, 4]))},
    {"i": pd.Series([3, 4])},
    {"i": pl.Series([3, 4])},
    {"i": pa.array([3, 4])},
    {"i": pa.scalar(3)},
    {"t": pd.Timestamp(NOON)},
    {"t": np.datetime64(NOON, "ns")},
    [("i", "in", np.array([3]))],
    [("i", "!=", np.int8(4))],
    [("t", "<=", np.datetime64(NOON, "s"))],
]


@pytest.mark.parametrize("filter", HANDED_OUT)
def test_filters_take_what_numpy_pandas_polars_and_arrow_hand_out(typed, filter):
    typed.write(pa.table({"x": [1.5], "i": [3], "t": [NOON]}))
    assert typed.read(filter=filter).num_rows == 1


def test_what_pandas_has_for_nothing_is_null_in_a_filter(typed):
    typed.write(pa.table({"x": [1.5, None], "i": [3, 4], "t": [NOON, None]}))
    assert typed.read(filter={"t": pd.NaT}).column("i").to_pylist() == [4]
    assert typed.read(filter={"x": [pd.NA, 1.5]}).num_rows == 2


def test_a_diff_tells_zero_from_minus_zero(typed):
    typed.write(pa.table({"x": [0.0, 5.0, None], "i": [1, 2, 3]}))
    typed.update({"i": 1}, {"x": -0.0})
    rows = {row["change"]: str(row["x"]) for row in typed.diff(1, 2).rows().to_pylist()}
    assert rows == {"removed": "0.0", "added": "-0.0"}


FAR = [3_000_000, -800_000]


@pytest.mark.parametrize("day", FAR)
def test_days_beyond_those_of_python_are_written_and_found(ap, root, day):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "f", {"d": "date", "t": "timestamp", "i": "int64"})
    days = pa.array([day, 1], pa.int32()).cast(pa.date32())
    instants = pa.array([day * 86_400_000_000, 1], pa.timestamp("us"))
    frame.write(pa.table({"d": days, "t": instants, "i": [1, 2]}))
    frame.write(pa.table({"d": days[:1], "t": instants[:1], "i": [3]}))
    assert frame.read().column("d").cast(pa.int32()).to_pylist() == [day, 1, day]
    side = ">" if day > 0 else "<"
    assert ids_of(frame.read(filter=f"d {side} DATE '1970-01-02'")) == [1, 3]
    assert ids_of(frame.read(filter=f"t {side} TIMESTAMP '1970-01-01'")) == ([1, 2, 3] if day > 0 else [1, 3])


def ids_of(table):
    return sorted(table.column("i").to_pylist())
