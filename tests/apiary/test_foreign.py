"""Frames that another program also writes: its cells as it leaves them, its registry, and what it reads of ours."""

import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia.errors import CorruptFrameError, FrameSchemaError, OntologiaError, UnknownNameError
from support.frames import apiary


@pytest.fixture
def box(ap, root):
    ap.create_hive("h")
    ap.create_box("h", "b")
    return ap


def add_cell(root, table, stats, *, frame="f", version=1, values=None, format="parquet"):
    """A cell as another program adds it: the rows as they were given, and what it says of them."""
    cell = f"cell_{uuid.uuid4()}"
    folder = root / "h" / "b" / frame
    pq.write_table(table, folder / f"{cell}.parquet", compression="lz4")
    said = {
        name: {"min": low, "max": high, "null_count": 0, "distinct_count": None} for name, (low, high) in stats.items()
    }
    body = {"id": cell, "path": f"{cell}.parquet", "format": format, "partition_values": values or {}}
    body |= {"rows": table.num_rows, "bytes": (folder / f"{cell}.parquet").stat().st_size, "stats": said}
    entry = {"version": version, "timestamp": "2026-01-01T00:00:00Z", "node_id": "n"}
    entry["action"] = {"AddCells": {"cells": [body]}}
    (folder / "_ledger" / f"{version:06d}.json").write_text(json.dumps(entry))


BIG = 2**63
BOUNDS = [
    ("int64", pa.array([1.2, 2.7]), (1.2, 2.7), "x = 3"),
    ("int64", pa.array([-2.7, -1.2]), (-2.7, -1.2), "x = -3"),
    ("uint64", pa.array([BIG + 1, BIG + 3], pa.uint64()), (float(BIG + 1), float(BIG + 3)), f"x = {BIG + 3}"),
    ("uint64", pa.array([3, 4], pa.uint64()), (3.0, 4.0), "x = 4"),
    ("date", pa.array(["2020-03-04", "2020-1-5"]), ("2020-03-04", "2020-03-04"), "x = DATE '2020-01-05'"),
    ("float64", pa.array([float("nan"), 5.0]), (1.0, 2.0), "x = 5"),
    ("string", pa.array(["a", "b"]), ("a", "b"), "x = 'b'"),
]


@pytest.mark.parametrize(("declared", "column", "bounds", "filter"), BOUNDS)
def test_bounds_of_another_program_leave_no_row_out(box, root, declared, column, bounds, filter):
    frame = box.create_frame("h", "b", "f", {"x": declared})
    add_cell(root, pa.table({"x": column}), {"x": bounds})
    assert frame.read(filter=filter).num_rows == 1


def test_bounds_of_another_program_still_leave_cells_out(box, root):
    frame = box.create_frame("h", "b", "f", {"x": "int64"})
    add_cell(root, pa.table({"x": [1.2, 2.7]}), {"x": (1.2, 2.7)})
    facts = box.query("EXPLAIN SELECT * FROM h.b.f WHERE x = 4").to_pylist()
    assert {"property": "cells_scanned", "value": "0"} in facts
    assert frame.read(filter="x = 4").num_rows == 0


@pytest.mark.parametrize(
    ("declared", "column", "low", "text", "filter"),
    [
        ("string", pa.array([1.0]), 1.0, "1", "x = '1.0'"),
        ("float32", pa.array([0.1], pa.float32()), 0.1, "0.1", "x = CAST('0.10000000149011612' AS DOUBLE)"),
        ("string", pa.array(["n"]), "n", "n", "x = 'n'"),
    ],
)
def test_partition_texts_of_another_program_leave_no_row_out(box, root, declared, column, low, text, filter):
    frame = box.create_frame("h", "b", "f", {"x": declared}, ["x"])
    add_cell(root, pa.table({"x": column}), {"x": (low, low)}, values={"x": text})
    assert frame.read(filter=filter).num_rows == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda frame: frame.write(pa.table({"a": ["p"], "b": ["q"], "i": [9]})),
        lambda frame: frame.overwrite(pa.table({"a": ["p"], "b": ["q"], "i": [9]})),
        lambda frame: frame.merge(pa.table({"i": [1], "a": ["p"], "b": ["q"]}), on=["i"]),
        lambda frame: frame.merge(pa.table({"i": [9], "a": ["p"], "b": ["q"]}), on=["i"]),
        lambda frame: frame.update({"i": 1}, {"a": "p"}),
        lambda frame: frame.delete({"i": 1}),
        lambda frame: frame.compact(force=True),
    ],
    ids=["write", "overwrite", "merge", "merge of new rows", "update", "delete", "compact"],
)
def test_cells_get_the_column_order_of_those_that_are_there(box, root, write):
    frame = box.create_frame("h", "b", "f", {"a": "string", "b": "string", "i": "int64"})
    add_cell(root, pa.table({"i": [1, 2], "b": ["B", "B"], "a": ["A", "A"]}), {})
    add_cell(root, pa.table({"i": [3], "b": ["B"], "a": ["A"]}), {}, version=2)
    before = set(root.glob("h/b/f/*.parquet"))
    write(frame)
    added = set(root.glob("h/b/f/*.parquet")) - before
    assert [pq.read_schema(file).names for file in added] == [["i", "b", "a"]]
    assert {(row["a"], row["b"]) for row in frame.read().to_pylist()} <= {("A", "B"), ("p", "q"), ("p", "B")}


def test_a_frame_whose_cells_are_ours_keeps_its_declared_order(box, root):
    frame = box.create_frame("h", "b", "f", {"b": "string", "a": "string"})
    frame.write(pa.table({"a": ["A"], "b": ["B"]}))
    frame.write(pa.table({"a": ["A"], "b": ["B"]}))
    assert {tuple(pq.read_schema(file).names) for file in root.glob("h/b/f/*.parquet")} == {("b", "a")}


def test_a_frame_whose_first_cell_is_gone_can_be_overwritten(box, root):
    frame = box.create_frame("h", "b", "f", {"b": "string", "a": "string"})
    add_cell(root, pa.table({"a": ["A"], "b": ["B"]}), {})
    next(root.glob("h/b/f/*.parquet")).unlink()
    frame.overwrite(pa.table({"a": ["p"], "b": ["q"]}))
    assert frame.read().to_pylist() == [{"b": "q", "a": "p"}]


def test_a_cell_in_a_format_of_the_future_is_refused_by_name(box, root):
    frame = box.create_frame("h", "b", "f", {"x": "int64"})
    add_cell(root, pa.table({"x": [1]}), {}, format="vortex")
    with pytest.raises(CorruptFrameError, match="format 'vortex'"):
        frame.read()


def rewrite_registry(root):
    """As another program does: it keeps the keys it knows, with those of a schema in order."""
    last = max(root.glob("_registry/state_*.json"))
    state = json.loads(last.read_text())
    state["version"] += 1
    frame = state["hives"]["h"]["boxes"]["b"]["frames"]["f"]
    del frame["fields"]
    frame["schema"] = dict(sorted(frame["schema"].items()))
    last.with_name(f"state_{state['version']:06d}.json").write_text(json.dumps(state))


STRICT = {"z": {"type": "int64", "nullable": False}, "a": "string", "d": "decimal128(10, 2)"}


def test_a_frame_is_known_again_after_another_program_rewrote_the_registry(box, root, tmp_path):
    box.create_frame("h", "b", "f", STRICT)
    rewrite_registry(root)
    with apiary(root.as_uri(), tmp_path / "c") as other:
        other.create_hive("another")  # writes the registry once more
    with apiary(root.as_uri(), tmp_path / "c") as other:
        assert other.create_frame("h", "b", "f", STRICT).schema.names == ["z", "a", "d"]
        with pytest.raises(FrameSchemaError, match="other columns"):
            other.create_frame("h", "b", "f", {**STRICT, "z": "int64"})


def test_a_frame_may_be_declared_as_the_ledger_has_it(box):
    fields = [{"name": "z", "data_type": "int64", "nullable": False}, {"name": "a", "type": "utf8"}]
    frame = box.create_frame("h", "b", "f", {"fields": fields})
    assert frame.schema == pa.schema([pa.field("z", pa.int64(), nullable=False), pa.field("a", pa.string())])
    with pytest.raises(FrameSchemaError, match="data_type"):
        box.create_frame("h", "b", "g", {"fields": [{"name": "a"}]})


def test_errors_are_those_that_users_of_the_original_catch(box):
    assert issubclass(OntologiaError, RuntimeError)
    with pytest.raises(RuntimeError) as caught:
        box.frame("h.b.nothing")
    assert isinstance(caught.value, UnknownNameError)
