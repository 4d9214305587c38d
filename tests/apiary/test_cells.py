"""Cells: their sizes, their statistics, and the folders of partitions, whatever the values are."""

import dataclasses
import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from ontologia.apiary import Apiary
from ontologia.apiary.cells import FLOOR_BYTES, CellSizing, decoded_size, statistics, stream_cell
from ontologia.apiary.colony.capacity import Capacity
from ontologia.apiary.names import partition_folder
from ontologia.apiary.partitions import split
from ontologia.apiary.values import partition_text, partition_value
from ontologia.config import OntologiaConfig
from ontologia.errors import FrameSchemaError, PartitionLimitError
from ontologia.files.writing import repeating_columns
from ontologia.objects import open_objects
from support.frames import NAME, apiary, cells_at, ids, readings, sensors


def numbers(count):
    return pa.table({"a": pa.array(range(count), pa.int64())})


def test_a_target_is_a_quarter_of_a_bees_memory_and_the_most_twice_that():
    sizing = CellSizing.for_bee(1 << 30)
    assert (sizing.target, sizing.largest, sizing.floor) == (256 << 20, 512 << 20, 16 << 20)


def test_rows_below_the_target_are_one_cell():
    assert [piece.num_rows for piece in CellSizing(800, 1600, floor=1).cut(numbers(100))] == [100]


def test_rows_above_the_target_are_cut_evenly_and_keep_their_order():
    pieces = list(CellSizing(800, 1600, floor=1).cut(numbers(250)))
    assert [piece.num_rows for piece in pieces] == [83, 83, 84]
    assert pa.concat_tables(pieces).column("a").to_pylist() == list(range(250))


def test_nothing_is_cut_below_the_floor():
    assert CellSizing(target=100, largest=200).piece == FLOOR_BYTES
    assert len(list(CellSizing(target=100, largest=200).cut(numbers(1000)))) == 1


def test_a_piece_with_long_rows_is_cut_again_until_it_fits():
    table = pa.table({"a": ["x"] * 90 + ["y" * 1000] * 10})
    pieces = list(CellSizing(1000, 2000, floor=1).cut(table))
    assert max(piece.nbytes for piece in pieces) <= 2000
    assert sum(piece.num_rows for piece in pieces) == 100


def test_statistics_leave_out_what_is_not_known():
    table = pa.table(
        {
            "number": pa.array([3, None, 1], pa.int64()),
            "nan": [1.0, float("nan"), -2.0],
            "endless": [float("inf"), 0.0, 1.0],
            "text": ["b", "ä", None],
            "long": ["x" * 2000, "y", "z"],
            "nothing": pa.array([None] * 3, pa.string()),
            "bytes": [b"a", b"b", None],
            "when": [dt.datetime(2024, 1, 2), None, None],
            "day": [dt.date(2024, 1, 2), dt.date(2023, 1, 1), None],
            "price": [Decimal("1.50"), Decimal("-3.25"), None],
            "flag": [True, False, None],
        }
    )
    found = {name: (said["min"], said["max"], said["null_count"]) for name, said in statistics(table).items()}
    assert found == {
        "number": (1, 3, 1),
        "nan": (-2.0, None, 0),
        "endless": (0.0, None, 0),
        "text": ("b", "ä", 1),
        "long": (None, "z", 0),
        "nothing": (None, None, 3),
        "bytes": (None, None, 1),
        "when": ("2024-01-02T00:00:00", "2024-01-02T00:00:00", 2),
        "day": ("2023-01-01", "2024-01-02", 1),
        "price": ("-3.25", "1.50", 1),
        "flag": (False, True, 1),
    }


@pytest.mark.parametrize(
    ("value", "text", "arrow"),
    [
        ("north", "north", pa.string()),
        (-7, "-7", pa.int32()),
        (True, "true", pa.bool_()),
        (1.0, "1", pa.float64()),
        (1e21, "1" + "0" * 21, pa.float64()),
        (0.1, "0.1", pa.float64()),
        (dt.date(2024, 1, 2), "2024-01-02", pa.date32()),
        (dt.datetime(2024, 1, 2, 3), "2024-01-02T03:00:00", pa.timestamp("us")),
    ],
)
def test_a_partition_value_is_plain_text_and_comes_back(value, text, arrow):
    assert partition_text(value, "c") == text
    assert partition_value(text, arrow) == value


HOSTILE = [
    "../x",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "a=b",
    "a b",
    "übung",
    "\n",
    "x" * 1000,
    "%2F",
    "*[?]",
    "it's",
    "🐝",
    "a\0b",
]


def test_rows_of_hostile_partition_values_stay_inside_the_frame_and_come_back(ap, uri, frame):
    frame.write(readings(*[(value, 1.0, number) for number, value in enumerate(HOSTILE)]))
    assert frame.read().sort_by("id").column("region").to_pylist() == HOSTILE
    for number, value in enumerate(HOSTILE):
        assert ids(frame.read(filter={"region": value})) == [number]
    assert frame.compact(force=True).cells_removed == 0
    assert len(cells_at(uri)) == len(HOSTILE)
    assert {key.rsplit("/", 2)[0] for key in cells_at(uri)} == {"analytics/sensors/temperature"}
    assert ap.query("SELECT count(*) AS n FROM analytics.sensors.temperature WHERE region <> 'x'").to_pylist() == [
        {"n": len(HOSTILE)}
    ]


@pytest.mark.parametrize("value", HOSTILE)
def test_the_folder_of_a_value_is_one_short_printable_segment(value):
    folder = partition_folder("region", value)
    assert "/" not in folder
    assert "\\" not in folder
    assert folder.isprintable()
    assert folder.isascii()
    assert len(folder) <= 120


def test_a_plain_value_is_its_own_folder():
    assert partition_folder("region", "north") == "region=north"


def test_a_frame_can_have_partitions_of_several_columns(ap):
    frame = sensors(ap, partition_by=["region", "id"])
    frame.write(readings(("n", 1.0, 1), ("n", 2.0, 2), ("s", 3.0, 1), ("n", 4.0, 1)))
    assert frame.stats()["partitions"] == 3
    assert frame.read(filter={"region": "n", "id": 1}).column("temp").to_pylist() == [1.0, 4.0]


def test_a_write_with_too_many_partitions_is_refused_with_a_coarser_column(ap, uri):
    frame = sensors(ap, partition_by=["id"], max_partitions=3)
    frame.write(readings(("n", 1.0, 1), ("s", 1.0, 2)))
    with pytest.raises(
        PartitionLimitError, match=r"would have 5 partitions, and max_partitions is 3.*'region' \(2 values"
    ):
        frame.write(readings(("n", 2.0, 2), ("n", 1.5, 3), ("n", 3.5, 4), ("s", 4.5, 5)))
    assert (frame.version, len(cells_at(uri))) == (1, 2)


def test_the_limit_holds_for_partitions_that_others_added_meanwhile(ap, uri, tmp_path):
    frame = sensors(ap, partition_by=["id"], max_partitions=2)
    frame.write(readings(("n", 1.0, 1)))
    with apiary(uri, tmp_path / "c") as other:
        other.frame(NAME).write(readings(("n", 1.0, 2)))
        with pytest.raises(PartitionLimitError, match="would have 3 partitions"):
            frame.write(readings(("n", 1.0, 3)))
    assert len(cells_at(uri)) == 2


def test_a_partition_value_that_is_no_finite_number_is_refused(ap):
    frame = sensors(ap, partition_by=["temp"])
    with pytest.raises(FrameSchemaError, match="cannot be nan"):
        frame.write(readings(("n", float("nan"), 1)))


def test_rows_of_partitions_are_gathered_from_tables_of_any_size(monkeypatch):
    monkeypatch.setattr("ontologia.apiary.partitions.GATHERED_BYTES", 100)
    table = pa.table({"p": [f"p{n % 3}" for n in range(1000)], "n": range(1000)})
    found = {group.values["p"]: group.table().column("n").to_pylist() for group in split(table, ["p"])}
    assert found == {f"p{k}": list(range(k, 1000, 3)) for k in range(3)}


def test_a_dictionary_is_made_only_for_columns_whose_values_come_again():
    rows = 50_000
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "kind": pa.array([f"kind {n % 7}" for n in range(rows)]),
            "sorted": pa.array([n // 5000 for n in range(rows)]),
            "text": pa.array([f"text {n}" for n in range(rows)]),
            "half": pa.array([1.0] * rows, pa.float16()),
        }
    )
    assert repeating_columns(table) == ["kind", "sorted", "half"]
    assert repeating_columns(table.slice(0, 10)) == table.column_names


# --- memory ------------------------------------------------------------------------------------------------------

SMALL_BEE = Capacity(cores=1, memory_bytes=64 << 20)  # cells of 16 MB
ROWS = 200_000


@pytest.fixture
def small_bee(tmp_path):
    settings = OntologiaConfig(sync_files=False, cache_directory=str(tmp_path / "c"))
    with Apiary("test", str(tmp_path / "frames"), capacity=SMALL_BEE, config=settings) as ap:
        ap.create_hive("h")
        ap.create_box("h", "b")
        yield ap


def compressible(number, rows=ROWS):
    """Rows of 60 bytes each, in a file of next to nothing."""
    return pa.table(
        {
            "id": np.arange(rows) % 1000,
            "part": np.full(rows, number),
            "note": pa.array(["a status that is always the same: ok"]).take(pa.array(np.zeros(rows, np.int32))),
        }
    )


@pytest.fixture
def many_copies(small_bee):
    """Rows that fit into a bee's memory several times over as files, and not once as rows."""
    frame = small_bee.create_frame("h", "b", "f", {"id": "int64", "part": "int64", "note": "string"})
    for number in range(8):
        frame.write(compressible(number), backpressure="ignore")
    assert frame.stats()["bytes"] < 1 << 20
    return frame


@pytest.mark.parametrize(
    ("act", "rows"),
    [
        (lambda frame: frame.delete("id = 1"), 8 * ROWS - 8 * ROWS // 1000),
        (lambda frame: frame.update("id = 2", {"id": 3}), 8 * ROWS),
        (lambda frame: frame.compact(force=True), 8 * ROWS),
        (lambda frame: frame.merge(pa.table({"id": [7], "note": ["another"]}), on=["id"]), 8 * ROWS),
    ],
    ids=["delete", "update", "compact", "merge"],
)
def test_a_frame_that_is_large_only_in_memory_can_be_rewritten(many_copies, act, rows):
    act(many_copies)
    assert many_copies.read(columns=["id"]).num_rows == rows
    assert max(cell.decoded_bytes for cell in newest(many_copies)) <= SMALL_BEE.sizing.most


def newest(frame):
    return frame._node.ledger(frame.name).snapshot().cells


def test_a_second_compaction_finds_nothing_to_do(small_bee):
    frame = small_bee.create_frame("h", "b", "f", {"id": "int64", "part": "int64", "note": "string"})
    for number in range(30):
        frame.write(compressible(number, rows=20_000), backpressure="ignore")
    assert frame.compact(force=True).cells_removed == 30
    assert frame.compact(force=True).cells_removed == 0


def test_cells_of_writers_that_say_no_size_are_judged_by_their_columns(small_bee):
    frame = small_bee.create_frame("h", "b", "f", {"id": "int64", "part": "int64", "note": "string"})
    frame.write(compressible(1), backpressure="ignore")
    (cell,) = newest(frame)
    schema = frame._node.ledger(frame.name).snapshot().schema
    guess = decoded_size(dataclasses.replace(cell, decoded_bytes=None), schema)
    assert 0.5 < guess / cell.decoded_bytes < 2


@pytest.mark.parametrize("partition_by", [[], ["part"]], ids=["whole", "partitioned"])
def test_a_table_larger_than_a_bee_is_written(small_bee, partition_by):
    frame = small_bee.create_frame("h", "b", "f", {"id": "int64", "part": "int64"}, partition_by)
    table = pa.table({"id": np.arange(6_000_000), "part": np.arange(6_000_000) % 3})
    assert table.nbytes > SMALL_BEE.memory_per_bee
    frame.write(table, backpressure="ignore")
    assert frame.read(columns=["id"]).column("id").to_numpy().sum() == 6_000_000 * 5_999_999 // 2
    assert max(cell.decoded_bytes for cell in newest(frame)) <= SMALL_BEE.sizing.most


def test_a_merge_cuts_a_cell_that_grows_above_the_maximum(small_bee):
    frame = small_bee.create_frame("h", "b", "f", {"id": "int64", "note": "string"})
    frame.write(pa.table({"id": np.arange(60_000), "note": ["short"] * 60_000}))
    long = pa.table({"id": np.arange(60_000), "note": [f"{number:01000d}" for number in range(60_000)]})
    frame.merge(long, on=["id"])
    assert frame.read().sort_by("id") == long
    assert max(cell.decoded_bytes for cell in newest(frame)) <= SMALL_BEE.sizing.most


def test_rows_that_come_in_parts_leave_no_small_remainder():
    sizing = CellSizing(800, 1600, floor=1)
    tables = list(sizing.gather(numbers(30) for _ in range(11)))
    assert [table.num_rows for table in tables[:-1]] == [93, 93]
    assert (sum(table.num_rows for table in tables), tables[-1].num_rows > 100) == (330, True)


def test_bounds_of_texts_in_parts_are_those_of_all_rows(tmp_path):
    folder = open_objects((tmp_path / "o").as_uri()).under("f")
    parts = [
        pa.table({"note": pa.array([None, None], pa.string())}),
        pa.table({"note": ["m", "k"]}),
        pa.table({"note": ["z" * 5000, "l"]}),
    ]
    cell = stream_cell(folder, parts, {}, [], lambda: tmp_path, in_memory=True)
    assert (cell.stats["note"]["min"], cell.stats["note"]["max"], cell.stats["note"]["null_count"]) == ("k", None, 2)
