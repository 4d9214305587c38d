"""Overwrite, delete, update and merge: what they change, what they leave, and what happens beside other writers."""

import re
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia.apiary import Computed
from ontologia.errors import CorruptFrameError, FrameSchemaError, UnknownNameError, ValidationError
from ontologia.files.writing import write_rows
from ontologia.objects import open_objects
from ontologia.testing.stores import FaultyObjects
from support.frames import NAME, apiary, cells_at, ids, readings, sensors


@pytest.fixture
def filled(frame):
    frame.write(readings(("north", 1.0, 1), ("north", 2.0, 2), ("south", 3.0, 3)))
    frame.write(readings(("south", 4.0, 4), ("east", None, 5)))
    return frame


def rows(frame):
    return sorted(tuple(row.values()) for row in frame.read(columns=["id", "region", "temp"]).to_pylist())


def test_an_overwrite_replaces_everything_as_one_version(filled):
    result = filled.overwrite(filled.read(filter={"region": "north"}))
    assert (result.version, result.cells_removed, result.rows_deleted) == (3, 4, 5)
    assert ids(filled.read()) == [1, 2]
    assert ids(filled.read(version=2)) == [1, 2, 3, 4, 5]


def test_an_overwrite_removes_what_others_wrote_in_between(uri, tmp_path):
    with apiary(uri, tmp_path / "c") as one, apiary(uri, tmp_path / "c") as other:
        frame = sensors(one)
        frame.write(readings(("north", 1.0, 1)))
        other.frame(NAME).write(readings(("north", 2.0, 2)))
        frame.overwrite(readings(("north", 3.0, 3)))
        assert ids(frame.read()) == [3]


def test_an_overwrite_with_no_rows_empties_the_frame(filled):
    filled.overwrite(readings())
    assert filled.read().num_rows == 0


def test_an_empty_list_is_no_rows_to_write_and_nothing_to_overwrite_with(filled):
    written, merged = filled.write([]), filled.merge([], on=["id"])
    assert (written.version, written.rows_written, merged.version, len(ids(filled.read()))) == (2, 0, 2, 5)
    assert (filled.overwrite([]).rows_deleted, filled.read().num_rows) == (5, 0)


def test_a_delete_rewrites_only_cells_that_have_the_rows(filled):
    result = filled.delete("id = 1 OR id = 4")
    assert (result.rows_deleted, result.cells_removed, result.cells_written) == (2, 2, 1)
    assert ids(filled.read()) == [2, 3, 5]


def test_a_delete_keeps_rows_whose_condition_is_null(filled):
    filled.delete("temp > 0")
    assert ids(filled.read()) == [5]


def test_a_delete_of_nothing_makes_no_version(filled):
    assert filled.delete({"id": 99}).version == filled.version == 2


def test_deleting_all_rows_must_be_said(filled):
    for filter in (None, {}, []):
        with pytest.raises(ValidationError, match="filter='true'"):
            filled.delete(filter)
    assert filled.delete("true").rows_deleted == 5


def test_an_update_sets_values_and_computed_ones(filled):
    result = filled.update("region = 'north'", {"temp": Computed("temp * 10 + id")})
    assert (result.rows_updated, result.cells_removed, result.cells_written) == (2, 1, 1)
    filled.update({"id": 5}, {"temp": 0.5})
    assert rows(filled) == [
        (1, "north", 11.0),
        (2, "north", 22.0),
        (3, "south", 3.0),
        (4, "south", 4.0),
        (5, "east", 0.5),
    ]


def test_an_update_of_a_partition_column_moves_rows(filled):
    filled.update({"region": "south"}, {"region": "west"})
    assert ids(filled.read(filter={"region": "west"})) == [3, 4]
    assert filled.read(filter={"region": "south"}).num_rows == 0


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({}, ValidationError, "at least one column"),
        ({"humidity": 1}, UnknownNameError, "there are region, temp, id"),
        ({"id": None}, FrameSchemaError, "must not be null"),
        ({"id": 1.5}, FrameSchemaError, "does not fit"),
        ({"temp": "warm"}, FrameSchemaError, "does not fit"),
        ({"id": Computed("temp / 2")}, FrameSchemaError, "without loss"),
        ({"region": None}, FrameSchemaError, "partitioned by 'region'"),
        ({"temp": Computed("nope + 1")}, UnknownNameError, "there are region, temp, id"),
    ],
    ids=str,
)
def test_an_update_that_does_not_fit_changes_nothing(filled, changes, error, says):
    before = rows(filled)
    with pytest.raises(error, match=says):
        filled.update("true", changes)
    assert (filled.version, rows(filled)) == (2, before)


def test_a_merge_updates_what_is_there_and_appends_what_is_not(filled):
    result = filled.merge(readings(("north", 9.0, 1), ("west", 6.0, 6)), on=["id"])
    assert (result.rows_updated, result.rows_inserted, result.cells_removed) == (1, 1, 1)
    assert rows(filled)[0] == (1, "north", 9.0)
    assert ids(filled.read()) == [1, 2, 3, 4, 5, 6]


def test_a_merge_leaves_columns_alone_that_are_not_given(filled):
    filled.merge(pa.table({"id": [3], "region": ["south"]}), on=["id"])
    assert filled.read(filter={"id": 3}).to_pylist() == [{"region": "south", "temp": 3.0, "id": 3}]


def test_a_merge_by_two_columns_matches_both(filled):
    result = filled.merge(readings(("north", 7.0, 3), ("south", 8.0, 3)), on=["region", "id"])
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert sorted(filled.read(filter={"id": 3}).column("temp").to_pylist()) == [7.0, 8.0]


def test_a_merge_of_many_keys_is_pruned_by_their_range(filled):
    filled.merge(readings(*[("big", float(n), n) for n in range(1000, 1200)]), on=["id"])
    assert filled.merge(readings(*[("big", 0.0, n) for n in range(1100, 1300)]), on=["id"]).rows_updated == 100
    assert filled.read().num_rows == 305


@pytest.mark.parametrize(
    ("given", "on", "error", "says"),
    [
        (readings(("n", 1.0, 1), ("n", 2.0, 1)), ["id"], FrameSchemaError, "repeat the key"),
        (readings(("n", None, 1)), ["temp"], FrameSchemaError, "must not be null"),
        (readings(("n", 1.0, 1)), ["humidity"], UnknownNameError, "there are region"),
        (readings(("n", 1.0, 1)), [], ValidationError, "columns that make a key"),
        (readings(("n", 1.0, 1)).drop_columns(["id"]), ["id"], FrameSchemaError, "no column id"),
    ],
    ids=["twice", "null", "unknown", "none", "missing"],
)
def test_a_merge_whose_keys_are_not_clear_is_refused(filled, given, on, error, says):
    with pytest.raises(error, match=says):
        filled.merge(given, on)
    assert filled.version == 2


def test_a_merge_replaces_rows_of_every_type_where_they_stand(ap, root, monkeypatch):
    """In a cell of several row groups, of which one is not touched; also where rows cannot be numbered by DuckDB."""
    monkeypatch.setattr(write_rows, "__defaults__", (100,))
    types = {"id": "int64", "text": "string", "half": "float16", "flag": "boolean", "day": "date", "at": "timestamp"}
    types |= {"raw": "binary", "price": "decimal128(10, 2)", "small": "uint8", "ratio": "float32"}
    ap.create_hive("h")
    ap.create_box("h", "b")
    for name, more in (("plain", {}), ("numbered", {"File_Row_Number": "int64"})):
        frame = ap.create_frame("h", "b", name, types | more)
        frame.write(_all_types(range(1000), 1, frame.schema))
        given = _all_types([0, 150, 999, 2000], 2, frame.schema)
        result = frame.merge(given, on=["id"])
        assert (result.rows_updated, result.rows_inserted, result.cells_removed, result.cells_written) == (3, 1, 1, 2)
        expected = _all_types(range(1000), 1, frame.schema).to_pylist()
        for place, row in zip((0, 150, 999), given.to_pylist(), strict=False):
            expected[place] = row
        assert frame.read().to_pylist() == [*expected, given.to_pylist()[3]]
        cells = frame._node.ledger(frame.name).snapshot().cells
        assert cells[0].stats["text"] == {
            "min": "text 0 of 2",
            "max": "text 999 of 2",
            "null_count": 198,
            "distinct_count": None,
        }
        assert cells[0].stats["ratio"]["max"] == 1000.0


def _all_types(numbers, step, schema):
    numbers = list(numbers)
    columns = {
        "id": numbers,
        "text": [None if n % 5 == 0 and step == 1 else f"text {n} of {step}" for n in numbers],
        "half": np.array([n % 7 for n in numbers], np.float16),
        "flag": [n % 2 == step % 2 for n in numbers],
        "day": [date(2026, 1, 1 + n % 28) for n in numbers],
        "at": [datetime(2026, 1, 1 + n % 28, step) for n in numbers],
        "raw": [bytes([n % 256, step]) for n in numbers],
        "price": [Decimal(n) / 100 for n in numbers],
        "small": [n % 200 for n in numbers],
        "ratio": [float(n + step - 1) for n in numbers],
        "File_Row_Number": [-n for n in numbers],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def test_a_merge_into_cells_of_other_writers_reads_them_by_name(ap, root, frame):
    """Their files have the columns that were handed in, in that order, and perhaps one that DuckDB has a meaning for."""
    frame.write(readings(("north", 1.0, 1), ("north", 2.0, 2)))
    (file,) = root.rglob("cell_*.parquet")
    stored = readings(("north", 1.0, 1), ("north", 2.0, 2)).select(["id", "temp", "region"])
    pq.write_table(stored.append_column("file_row_number", pa.array([7, 7])), file)
    entry = next(root.rglob("_ledger/000001.json"))
    said = entry.read_text().replace(', "exact": true', "")
    entry.write_text(re.sub(r'"bytes": \d+', f'"bytes": {file.stat().st_size}', said))
    with apiary(root, root.parent / "c") as fresh:
        frame = fresh.frame(NAME)
        assert frame.merge(readings(("north", 20.0, 2), ("north", 3.0, 3)), on=["id"]).rows_updated == 1
        assert rows(frame) == [(1, "north", 1.0), (2, "north", 20.0), (3, "north", 3.0)]


def test_a_merge_finds_bit_rot_in_rows_that_it_would_copy(ap, root):
    frame = sensors(ap, partition_by=[])
    frame.write(readings(*(("north", float(n), n) for n in range(5000))))
    (file,) = root.rglob("cell_*.parquet")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(1)
    data = bytearray(file.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 9] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(CorruptFrameError, match="cannot be read"):
        frame.merge(readings(("north", 0.5, 7)), on=["id"])
    assert frame.version == 1
    assert list(root.rglob("cell_*.parquet")) == [file]


# --- beside other writers ----------------------------------------------------------------------------------------

REWRITES = {
    "delete": lambda frame: frame.delete("temp < 10"),
    "update": lambda frame: frame.update("temp < 10", {"temp": 50.0}),
    "merge": lambda frame: frame.merge(readings(("north", 50.0, 1), ("north", 50.0, 7)), on=["id"]),
}


@pytest.mark.parametrize("verb", REWRITES)
def test_a_rewrite_that_loses_a_race_is_made_again_on_what_the_winner_left(uri, tmp_path, verb):
    """The other writer appends a row that the rewrite must see, just before the entry is put."""
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap, apiary(uri, tmp_path / "c") as other:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1)))
        rival = other.frame(NAME)
        faulty.call(
            lambda request: rival.write(readings(("north", 2.0, 7))),
            operation="put_if_absent",
            key="*_ledger/000002.json",
        )
        REWRITES[verb](frame)
        expected = {"delete": [], "update": [(1, "north", 50.0), (7, "north", 50.0)]}
        assert rows(frame) == expected.get(verb, expected["update"])
        assert len(cells_at(uri)) == {"delete": 2}.get(verb, 3)


@pytest.mark.parametrize("verb", REWRITES)
def test_a_rewrite_whose_cell_another_took_is_made_again(uri, tmp_path, verb):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap, apiary(uri, tmp_path / "c") as other:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1), ("north", 99.0, 2)))
        rival = other.frame(NAME)
        faulty.call(
            lambda request: rival.update({"id": 2}, {"temp": 98.0}),
            operation="put_if_absent",
            key="*_ledger/000002.json",
        )
        REWRITES[verb](frame)
        assert (2, "north", 98.0) in rows(frame)


def test_a_rewrite_is_not_made_again_for_rows_it_has_nothing_to_do_with(uri, tmp_path):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap, apiary(uri, tmp_path / "c") as other:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1), ("north", 2.0, 2)))
        rival = other.frame(NAME)
        faulty.call(
            lambda request: rival.write(readings(("south", 1.0, 3))),
            operation="put_if_absent",
            key="*_ledger/000002.json",
        )
        with faulty.recording() as steps:
            frame.delete({"region": "north", "id": 1})
        cells = [step for step in steps if step.request.operation == "put" and "cell_" in step.request.key]
        assert len(cells) == 1
        assert ids(frame.read()) == [2, 3]


ZEROS = [(0.0, -0.0), (float("nan"), -float("nan")), (-0.0, 0.0)]


@pytest.mark.parametrize("pair", ZEROS)
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_keys_that_are_equal_are_one_key_in_a_merge(ap, root, kind, pair):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "f", {"k": kind, "v": "string"})
    frame.write([{"k": np.float16(pair[0]), "v": "a"}, {"k": np.float16(1), "v": "b"}])
    keys = pa.array([np.float16(number) for number in (*pair, 1)], pa.float16()).cast(frame.schema.field("k").type)
    with pytest.raises(FrameSchemaError, match="repeat the key"):
        frame.merge(pa.table({"k": keys, "v": ["x", "y", "z"]}), on=["k"])
    assert frame.merge(pa.table({"k": keys[1:], "v": ["y", "z"]}), on=["k"]).rows_updated == 2
    assert frame.read().column("v").to_pylist() == ["y", "z"]


def test_a_merge_takes_days_that_python_has_no_word_for(ap, root):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "f", {"d": "date", "v": "int64"})
    days = pa.array([3_000_000, 1], pa.int32()).cast(pa.date32())
    frame.write(pa.table({"d": days, "v": [1, 2]}))
    assert frame.merge(pa.table({"d": days[:1], "v": [3]}), on=["d"]).rows_updated == 1
    assert frame.read().column("v").to_pylist() == [3, 2]


@pytest.mark.parametrize("verb", ["delete", "update", "compact", "merge"])
def test_half_precision_numbers_survive_every_rewrite(ap, verb):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "f", {"id": "int64", "half": "float16"})
    for number in range(2):
        frame.write(pa.table({"id": [number, 10 + number], "half": pa.array(np.float16([0.5, 1.5]))}))
    acts = {
        "delete": lambda: frame.delete("id >= 10"),
        "update": lambda: frame.update("id >= 10", {"id": 5}),
        "compact": lambda: frame.compact(force=True),
        "merge": lambda: frame.merge(pa.table({"id": [10], "half": pa.array(np.float16([1.5]))}), on=["id"]),
    }
    acts[verb]()
    assert {float(value) for value in frame.read(filter="id < 5").column("half").to_pylist()} == {0.5}
