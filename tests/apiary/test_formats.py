"""What lies in the bucket: the seed's layout and JSON shapes, and buckets that other writers made."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia.apiary.entries import Entry, encode, instant
from ontologia.errors import CorruptFrameError
from support.frames import NAME, apiary, ids, readings, sensors

FOLDER = "analytics/sensors/temperature"


def keys(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def body(root, key):
    return json.loads((root / key).read_text())


def test_everything_is_where_the_bucket_layout_says(ap, root, frame):
    frame.write(readings(("north", 38.5, 1), ("south", 42.1, 2)))
    found = keys(root)
    assert [key for key in found if key.startswith("_registry/")] == [
        f"_registry/state_{number:06d}.json" for number in range(1, 5)
    ]
    assert f"_heartbeats/node_{ap.node.node_id}.json" in found
    assert [key for key in found if "_ledger" in key] == [
        f"{FOLDER}/_ledger/000000.json",
        f"{FOLDER}/_ledger/000001.json",
    ]
    cells = [key for key in found if key.endswith(".parquet")]
    assert [key.rpartition("/cell_")[0] for key in cells] == [f"{FOLDER}/region=north", f"{FOLDER}/region=south"]


def test_nothing_at_the_root_could_be_taken_for_a_hive(ap, root, frame):
    frame.write(readings(("north", 38.5, 1)))
    names = {path.name for path in root.iterdir()}
    assert {name for name in names if not name.startswith("_")} == {"analytics"}


def test_version_zero_creates_the_frame(root, frame):
    entry = body(root, f"{FOLDER}/_ledger/000000.json")
    assert list(entry)[:4] == ["version", "timestamp", "node_id", "action"]
    assert entry["action"] == {
        "CreateFrame": {
            "schema": {
                "fields": [
                    {"name": "region", "data_type": "string", "nullable": True},
                    {"name": "temp", "data_type": "float64", "nullable": True},
                    {"name": "id", "data_type": "int64", "nullable": False},
                ]
            },
            "partition_by": ["region"],
        }
    }


def test_an_append_names_its_cells_with_their_statistics(root, frame):
    frame.write(readings(("north", 38.5, 1), ("north", None, 7)))
    entry = body(root, f"{FOLDER}/_ledger/000001.json")
    (cell,) = entry["action"]["AddCells"]["cells"]
    size = (root / FOLDER / cell["path"]).stat().st_size
    assert cell["path"] == f"region=north/{cell['id']}.parquet"
    assert (cell["format"], cell["partition_values"], cell["rows"], cell["bytes"]) == (
        "parquet",
        {"region": "north"},
        2,
        size,
    )
    assert cell["stats"]["temp"] == {"min": 38.5, "max": 38.5, "null_count": 1, "distinct_count": None}
    assert cell["stats"]["id"] == {"min": 1, "max": 7, "null_count": 0, "distinct_count": None}


def test_a_rewrite_names_removed_ids_and_added_cells(root, frame):
    frame.write(readings(("north", 1.0, 1)))
    frame.overwrite(readings(("south", 2.0, 2)))
    (first,) = body(root, f"{FOLDER}/_ledger/000001.json")["action"]["AddCells"]["cells"]
    rewrite = body(root, f"{FOLDER}/_ledger/000002.json")["action"]["RewriteCells"]
    assert rewrite["removed"] == [first["id"]]
    assert [cell["partition_values"] for cell in rewrite["added"]] == [{"region": "south"}]


def test_a_checkpoint_has_the_schema_the_partitions_and_the_active_cells(root, frame):
    for number in range(100):
        frame.write(readings(("north", 1.0, number)))
    checkpoint = body(root, f"{FOLDER}/_ledger/_checkpoint/checkpoint_000100.json")
    assert list(checkpoint) == ["version", "schema", "partition_by", "active_cells"]
    assert (checkpoint["version"], checkpoint["partition_by"], len(checkpoint["active_cells"])) == (
        100,
        ["region"],
        100,
    )


def test_the_registry_has_the_flat_schema_and_the_times_of_creation(root, frame):
    state = body(root, "_registry/state_000004.json")
    hive = state["hives"]["analytics"]
    entry = hive["boxes"]["sensors"]["frames"]["temperature"]
    assert entry["schema"] == {"region": "string", "temp": "float64", "id": "int64"}
    assert (entry["partition_by"], entry["max_partitions"], entry["properties"]) == (["region"], 10000, {})
    assert all(instant(part["created_at"]) for part in (hive, hive["boxes"]["sensors"], entry))


def test_cells_are_lz4_parquet_with_the_declared_columns(root, frame):
    frame.write(readings(("north", 38.5, 1)))
    (cell,) = root.rglob("cell_*.parquet")
    metadata = pq.read_metadata(cell)
    assert {metadata.row_group(0).column(number).compression for number in range(3)} == {"LZ4"}
    assert pq.read_schema(cell).names == ["region", "temp", "id"]


def test_an_entry_keeps_keys_it_does_not_know(root, frame):
    frame.write(readings(("north", 38.5, 1)))
    stored = body(root, f"{FOLDER}/_ledger/000001.json")
    stored["note"] = {"by": "somebody"}
    stored["action"]["AddCells"]["cells"][0]["colour"] = "amber"
    assert json.loads(encode(Entry.from_json(stored).to_json())) == stored


# --- what the original leaves ------------------------------------------------------------------------------------


@pytest.fixture
def original(root):
    """A bucket as the original writes it: alphabetical columns, incoming types, doubled cells, nanoseconds."""
    node, at = "5b0c7b3e-8a1c-4a38-9c46-6c1f6f3ac9a1", "2025-02-01T00:00:00.123456789Z"
    frame = root / FOLDER
    cells = [
        (
            "cell_11111111-1111-4111-8111-111111111111",
            pa.table({"id": pa.array([1, 2], pa.int32()), "region": ["n", "n"]}),
        ),
        (
            "cell_22222222-2222-4222-8222-222222222222",
            pa.table({"region": ["s"], "temp": [40.5], "id": [3], "extra": ["x"]}),
        ),
    ]
    listed = []
    for cell_id, rows in cells:
        region = rows.column("region")[0].as_py()
        path = f"region={region}/{cell_id}.parquet"
        (frame / path).parent.mkdir(parents=True)
        pq.write_table(rows, frame / path, compression="lz4")
        listed.append(
            {
                "id": cell_id,
                "path": path,
                "format": "parquet",
                "partition_values": {"region": region},
                "rows": rows.num_rows,
                "bytes": (frame / path).stat().st_size,
                "stats": {},
            }
        )
    schema = {
        "fields": [
            {"name": "id", "data_type": "int64", "nullable": True},
            {"name": "region", "data_type": "string"},
            {"name": "temp", "data_type": "float64", "nullable": True},
        ]
    }
    entries = [
        {"CreateFrame": {"schema": schema, "partition_by": ["region"]}},
        {"AddCells": {"cells": listed[:1]}},
        {"AddCells": {"cells": listed[1:]}},
    ]
    (frame / "_ledger/_checkpoint").mkdir(parents=True)
    for version, action in enumerate(entries):
        entry = {"version": version, "timestamp": at, "node_id": node, "action": action}
        (frame / f"_ledger/{version:06d}.json").write_text(json.dumps(entry, indent=2))
    checkpoint = {"version": 1, "schema": schema, "active_cells": [listed[0], listed[0]]}
    (frame / "_ledger/_checkpoint/checkpoint_000001.json").write_text(json.dumps(checkpoint, indent=2))
    flat = {"id": "int64", "region": "string", "temp": "float64"}
    inside = {
        "frames": {"temperature": {"schema": flat, "partition_by": ["region"], "created_at": at}},
        "created_at": at,
    }
    state = {"version": 4, "hives": {"analytics": {"boxes": {"sensors": inside}, "created_at": at}}}
    (root / "_registry").mkdir()
    (root / "_registry/state_000004.json").write_text(json.dumps(state, indent=2))
    return root


def test_a_bucket_of_the_original_opens_and_reads_by_name_and_declared_type(original, tmp_path):
    with apiary(original, tmp_path / "cache") as ap:
        found = ap.frame(NAME).read()
    assert found.schema == pa.schema([("id", pa.int64()), ("region", pa.string()), ("temp", pa.float64())])
    assert found.to_pylist() == [
        {"id": 1, "region": "n", "temp": None},
        {"id": 2, "region": "n", "temp": None},
        {"id": 3, "region": "s", "temp": 40.5},
    ]


def test_a_bucket_of_the_original_can_be_written_compacted_and_queried(original, tmp_path):
    with apiary(original, tmp_path / "cache") as ap:
        frame = ap.frame(NAME)
        frame.write([{"id": 4, "region": "n", "temp": 1.5}])
        frame.compact(force=True)
        frame.delete({"id": 1})
        assert ids(frame.read()) == [2, 3, 4]
        assert ids(frame.to_polars().collect().to_arrow()) == [2, 3, 4]
        assert ap.query(f"SELECT count(*) AS n FROM {NAME} WHERE temp > 1").to_pylist() == [{"n": 2}]


def test_creating_a_frame_of_the_original_again_changes_nothing(original, tmp_path):
    with apiary(original, tmp_path / "cache") as ap:
        flat = {"id": "int64", "region": "string", "temp": "float64"}
        assert ap.create_frame("analytics", "sensors", "temperature", flat, ["region"]).version == 2
        assert ap.node.registry.state().version == 4


# --- what cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text[: len(text) // 2], "malformed"),
        (lambda text: text.replace("AddCells", "ShrinkCells"), "'ShrinkCells', which this release does not know"),
        (lambda text: text.replace('"version": 1', '"version": 9'), "says that it is version 9"),
        (lambda text: text.replace('"rows": 1', '"rows": -1'), "rows must be a whole number"),
    ],
)
@pytest.mark.thorough
def test_an_entry_that_cannot_be_read_is_named_and_nothing_is_written(root, tmp_path, spoil, says):
    with apiary(root, tmp_path / "cache") as ap:
        sensors(ap).write(readings(("north", 38.5, 1)))
    entry = root / FOLDER / "_ledger/000001.json"
    entry.write_text(spoil(entry.read_text()))
    before = keys(root)
    with apiary(root, tmp_path / "cache") as ap:
        for act in (lambda: ap.frame(NAME).read(), lambda: ap.frame(NAME).write(readings(("north", 1.0, 2)))):
            with pytest.raises(CorruptFrameError, match=says) as caught:
                act()
            assert "_ledger/000001.json" in str(caught.value)
    assert keys(root) == before


def test_an_entry_that_is_gone_is_named(root, tmp_path):
    with apiary(root, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for number in range(3):
            frame.write(readings(("north", 38.5, number)))
    (root / FOLDER / "_ledger/000002.json").unlink()
    with (
        apiary(root, tmp_path / "cache") as ap,
        pytest.raises(CorruptFrameError, match="version 2 is part of the history"),
    ):
        ap.frame(NAME).read()


@pytest.mark.parametrize("how", ["gone", "short", "garbled", "newer"])
def test_a_cell_that_cannot_be_read_is_named(root, tmp_path, how):
    with apiary(root, tmp_path / "cache") as ap:
        frame = sensors(ap)
        frame.write(readings(("north", 38.5, 1)))
        (cell,) = root.rglob("cell_*.parquet")
        if how == "gone":
            cell.unlink()
        elif how == "short":
            cell.write_bytes(cell.read_bytes()[:-10])
        elif how == "garbled":
            cell.write_bytes(b"x" * cell.stat().st_size)
        else:
            entry = root / FOLDER / "_ledger/000001.json"
            entry.write_text(entry.read_text().replace('"format": "parquet"', '"format": "vortex"'))
    with apiary(root, tmp_path / "cache") as ap, pytest.raises(CorruptFrameError) as caught:
        ap.frame(NAME).read()
    assert cell.stem in str(caught.value)


CELL = ("action", "AddCells", "cells", 0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((*CELL, "path"), "../x.parquet"),
        ((*CELL, "rows"), 10**30),
        ((*CELL, "bytes"), "12"),
        ((*CELL, "stats", "temp", "null_count"), 10**30),
        ((*CELL, "stats", "temp", "min"), [1]),
        ((*CELL, "stats", "temp"), 5),
        ((*CELL, "partition_values"), {"region": 5}),
        (CELL, "a text"),
        ((*CELL[:-1],), {}),
        (("action", "AddCells"), [1]),
        (("operation",), 7),
        (("timestamp",), 7),
    ],
    ids=str,
)
def test_an_entry_of_the_wrong_shape_is_corrupt_and_is_named(root, frame, tmp_path, place, value):
    frame.write(readings(("north", 1.0, 1)))
    entry = root / "analytics/sensors/temperature/_ledger/000001.json"
    body = json.loads(entry.read_text())
    *parents, last = place
    inner = body
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    entry.write_text(json.dumps(body))
    with (
        apiary(root.as_uri(), tmp_path / "c") as again,
        pytest.raises(CorruptFrameError, match=r"000001\.json is malformed"),
    ):
        again.frame(NAME).read()


@pytest.mark.parametrize("key", ["analytics/sensors/temperature/_ledger/000001.json", "_registry/state_000004.json"])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "[]", "", '{"version": 4, "hives": {"h": 1}}'], ids=len
)
def test_a_control_object_that_is_no_such_object_is_corrupt(root, frame, tmp_path, key, text):
    frame.write(readings(("north", 1.0, 1)))
    (root / key).write_text(text)
    with pytest.raises(CorruptFrameError, match="is malformed"), apiary(root.as_uri(), tmp_path / "c") as again:
        again.frame(NAME).read()
