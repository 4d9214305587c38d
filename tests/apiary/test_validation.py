"""Rows against a schema: every row of the seed's table "Schema Validation Rules", and inputs of every kind."""

import datetime as dt
import io
import warnings
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia.apiary import ExtraColumnsWarning
from ontologia.apiary.incoming import to_ipc
from ontologia.errors import FrameSchemaError, ValidationError
from ontologia.objects import open_objects
from support.frames import cells_at, readings


@pytest.fixture
def typed(ap):
    """A frame with one column of a type."""
    ap.create_hive("h")
    ap.create_box("h", "b")

    def make(kind, name="f"):
        return ap.create_frame("h", "b", name, {"a": kind})

    return make


SAFE = [
    (pa.int32(), "float64"),
    (pa.int8(), "int64"),
    (pa.uint8(), "int16"),
    (pa.int64(), "float64"),
    (pa.int16(), "float32"),
    (pa.float32(), "float64"),
    (pa.large_string(), "string"),
    (pa.dictionary(pa.int8(), pa.string()), "string"),
    (pa.timestamp("ms"), "timestamp"),
    (pa.timestamp("ns"), "timestamp"),
    (pa.date32(), "timestamp"),
    (pa.date64(), "date32"),
    (pa.large_binary(), "binary"),
    (pa.decimal128(5, 2), "decimal128(10, 3)"),
    (pa.null(), "int32"),
]
UNSAFE = [
    (pa.float64(), "int32"),
    (pa.int64(), "int32"),
    (pa.int64(), "float32"),
    (pa.int8(), "uint8"),
    (pa.uint64(), "int64"),
    (pa.float64(), "float32"),
    (pa.string(), "int64"),
    (pa.int64(), "string"),
    (pa.bool_(), "int8"),
    (pa.timestamp("us", "UTC"), "timestamp"),
    (pa.timestamp("us"), "date"),
    (pa.decimal128(10, 3), "decimal128(5, 2)"),
    (pa.list_(pa.int64()), "string"),
]


@pytest.mark.parametrize(("given", "declared"), SAFE, ids=str)
def test_a_type_that_fits_is_cast(typed, given, declared):
    frame = typed(declared)
    frame.write(pa.table({"a": pa.array([None], given)}))
    assert frame.read().schema.field("a").type == frame.schema.field("a").type


@pytest.mark.parametrize(("given", "declared"), UNSAFE, ids=str)
def test_a_type_that_does_not_fit_is_an_error_whatever_the_values(typed, root, given, declared):
    frame = typed(declared)
    with pytest.raises(FrameSchemaError, match="does not go into it without loss"):
        frame.write(pa.table({"a": pa.array([None], given)}))
    assert (frame.version, list(root.rglob("*.parquet"))) == (0, [])


def test_int32_becomes_float64(typed):
    frame = typed("float64")
    frame.write(pa.table({"a": pa.array([1, 2], pa.int32())}))
    assert frame.read().to_pylist() == [{"a": 1.0}, {"a": 2.0}]


@pytest.mark.parametrize(
    ("values", "declared"),
    [(pa.array([2**53 + 1], pa.int64()), "float64"), (pa.array([1], pa.timestamp("ns")), "timestamp")],
    ids=["beyond 2^53", "a nanosecond"],
)
def test_a_value_that_a_cast_would_change_is_an_error(typed, values, declared):
    with pytest.raises(FrameSchemaError, match="a value does not go into it"):
        typed(declared).write(pa.table({"a": values}))


def test_extra_columns_are_dropped_with_a_warning(frame):
    rows = readings(("north", 1.0, 1)).append_column("colour", pa.array(["red"]))
    with pytest.warns(ExtraColumnsWarning, match="no column colour"):
        frame.write(rows)
    assert frame.read().column_names == ["region", "temp", "id"]


def test_a_missing_nullable_column_is_filled_with_null(frame):
    frame.write(pa.table({"region": ["north"], "id": [1]}))
    assert frame.read().to_pylist() == [{"region": "north", "temp": None, "id": 1}]


@pytest.mark.parametrize("missing", ["id", "region"])
def test_a_missing_column_that_is_needed_is_an_error(frame, root, missing):
    with pytest.raises(FrameSchemaError, match=f"needs a value for {missing}"):
        frame.write(readings(("north", 1.0, 1)).drop_columns([missing]))
    assert list(root.rglob("*.parquet")) == []


def test_a_null_in_a_column_that_must_not_be_null_is_an_error(frame):
    with pytest.raises(FrameSchemaError, match="'id' must not be null"):
        frame.write(pa.table({"region": ["north"], "id": pa.array([None], pa.int64())}))


def test_a_null_in_a_partition_column_is_an_error(frame, root):
    with pytest.raises(FrameSchemaError, match="partitioned by 'region', and 1 row has null"):
        frame.write(pa.table({"region": ["north", None], "id": [1, 2]}))
    assert (frame.version, list(root.rglob("*.parquet"))) == (0, [])


def test_columns_may_come_in_any_order_and_are_matched_by_name(frame):
    frame.write(readings(("north", 1.0, 1)).select(["id", "temp", "region"]))
    assert frame.read().to_pylist() == [{"region": "north", "temp": 1.0, "id": 1}]


def test_a_column_that_comes_twice_is_an_error(frame):
    twice = pa.Table.from_arrays([pa.array(["n"]), pa.array([1]), pa.array([2])], names=["region", "id", "id"])
    with pytest.raises(FrameSchemaError, match="a column twice: id"):
        frame.write(twice)


@pytest.mark.parametrize(
    "given",
    [
        lambda rows: rows,
        lambda rows: rows.to_batches()[0],
        lambda rows: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=1)),
        lambda rows: rows.to_pandas(),
        lambda rows: pl.from_arrow(rows),
        lambda rows: pl.from_arrow(rows).lazy(),
        lambda rows: rows.to_pylist(),
        lambda rows: to_ipc(rows),
    ],
    ids=["table", "batch", "reader", "pandas", "polars", "lazy polars", "dicts", "ipc"],
)
def test_rows_may_come_in_anything_that_has_columns(frame, given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame.write(given(readings(("north", 1.0, 1), ("south", None, 2))))
    assert frame.read().to_pylist() == [
        {"region": "north", "temp": 1.0, "id": 1},
        {"region": "south", "temp": None, "id": 2},
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (7, "does not hold rows"),
        (b"not arrow", "not an Arrow IPC stream"),
        ([{"region": "n", "id": "seven"}], "'id' is int64"),
        ([{"region": "n", "id": 1.5}], "1.5 is a float, not an int"),
        ([{"region": "n", "id": True}], "True is a bool, not an int"),
        (pd.Series([1]), "does not hold rows"),
    ],
)
def test_what_is_no_rows_is_refused(frame, given, says):
    with pytest.raises(FrameSchemaError, match=says):
        frame.write(given)


VALUES = {
    "int8": -128,
    "int16": 32767,
    "int32": -(2**31),
    "int64": 2**63 - 1,
    "uint8": 255,
    "uint16": 65535,
    "uint32": 2**32 - 1,
    "uint64": 2**64 - 1,
    "float16": 0.5,
    "float32": 0.25,
    "float64": 1e300,
    "string": "it's \u00e4 'test'\n",
    "boolean": True,
    "date": dt.date(1582, 10, 15),
    "timestamp": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    "timestamp[us, tz=UTC]": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "binary": b"\x00\xff",
    "decimal128(38, 9)": Decimal("12345678901234567890123456789.123456789"),
}


def test_every_type_comes_back_as_it_went_in(ap, typed):
    typed("int64")
    schema = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    frame = ap.create_frame("h", "b", "all", schema)
    row = dict(zip(schema, VALUES.values(), strict=True))
    frame.write([row, dict.fromkeys(schema)])
    frame.compact(force=True)
    assert frame.read().to_pylist() == [row, dict.fromkeys(schema)]
    assert frame.read().schema == pa.schema([pa.field(f.name, f.type) for f in frame.schema])
    assert ap.query("SELECT count(*) AS n FROM h.b.all").to_pylist() == [{"n": 2}]


def test_every_type_can_be_filtered_by_its_value(ap, typed):
    for number, (kind, value) in enumerate(VALUES.items()):
        frame = typed(kind, f"f{number}")
        frame.write([{"a": value}])
        frame.write([{"a": None}])
        assert frame.read(filter={"a": value}).num_rows == 1, kind
        assert frame.read(filter=[("a", "!=", value)]).num_rows == 0, kind
        assert frame.read(filter={"a": None}).num_rows == 1, kind


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda ap, frame: frame.write(5), "does not hold rows"),
        (lambda ap, frame: frame.write("x"), "does not hold rows"),
        (lambda ap, frame: frame.write(readings(), timeout="soon"), "timeout is a number of seconds"),
        (lambda ap, frame: frame.write(readings(), timeout=-1), "timeout is a number of seconds"),
        (lambda ap, frame: frame.write(readings(), backpressure="none"), "backpressure is one of"),
        (lambda ap, frame: frame.read(filter=5), "a filter is"),
        (lambda ap, frame: frame.read(columns="id"), "columns is a list"),
        (lambda ap, frame: frame.history("all"), "limit is a whole number"),
        (lambda ap, frame: frame.vacuum(keep_versions="all"), "keep_versions is a whole number"),
        (lambda ap, frame: frame.compact(engine="flink"), "engine is local or spark"),
        (lambda ap, frame: ap.query(None), "a statement is a text"),
        (lambda ap, frame: ap.frame(None), "a frame is named"),
        (
            lambda ap, frame: ap.create_frame("analytics", "sensors", "g", {"a": "int64"}, properties=["a"]),
            "properties",
        ),
    ],
)
def test_arguments_that_mean_nothing_are_refused_with_what_would(ap, frame, call, says):
    with pytest.raises((ValidationError, FrameSchemaError), match=says):
        call(ap, frame)


def test_what_pandas_notes_of_itself_stays_out_of_cells(uri, frame):
    frame.write(pd.DataFrame({"region": ["north"], "temp": [1.0], "id": [1]}))
    (key,) = cells_at(uri)
    assert set(pq.read_schema(io.BytesIO(open_objects(uri).get(key).data)).metadata or {}) <= {b"ARROW:schema"}


def test_a_named_index_of_pandas_is_a_column(ap, root):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "f", {"id": "int64", "region": "string", "v": "float64"})
    rows = pd.DataFrame({"id": [1, 2], "region": ["n", "s"], "v": [0.1, 0.2]})
    frame.write(rows.set_index("id"))
    frame.write(rows.astype({"region": "category"}).set_index(["id", "region"]))
    frame.write(rows.set_index(pd.Index([7, 8])))
    assert frame.read().to_pylist() == rows.to_dict("records") * 3
    with pytest.warns(ExtraColumnsWarning, match="odd"):
        frame.write(rows.set_index(pd.Index([7, 8], name="odd")))
    with pytest.raises(ValidationError, match="both a column and an index"):
        frame.write(rows.set_index("id", drop=False))


def test_a_partition_value_beyond_the_years_of_python_is_refused(ap, root):
    ap.create_hive("h")
    ap.create_box("h", "b")
    frame = ap.create_frame("h", "b", "f", {"d": "date"}, ["d"])
    with pytest.raises(FrameSchemaError, match="after 9999"):
        frame.write(pa.table({"d": pa.array([3_000_000], pa.int32()).cast(pa.date32())}))
