"""A few values as Arrow are the same as pyarrow makes of them, and need no pandas for it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from ontologia.engines.sqlite.columnar import encode
from ontologia.files import arrays

VALUES: list[tuple[list[Any], pa.DataType]] = [
    (["a", None, "", "ø\0x"], pa.string()),
    ([b"a", None, b""], pa.binary()),
    ([1, None, -(2**63), 2**63 - 1], pa.int64()),
    ([1.5, None, float("inf")], pa.float64()),
    ([True, None, False], pa.bool_()),
    ([datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None, datetime.max.replace(tzinfo=UTC)], arrays.INSTANT),
    ([datetime(2020, 2, 3, 4, 5, 6, 7, timezone(timedelta(hours=-5)))], arrays.INSTANT),
    ([], pa.string()),
    ([None, None], pa.int64()),
]


@pytest.mark.parametrize(("values", "kind"), VALUES)
def test_values_become_what_pyarrow_makes_of_them(values: list[Any], kind: pa.DataType) -> None:
    made = arrays._make(values, kind)
    assert made is not None
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


def test_what_is_of_another_kind_is_left_to_pyarrow() -> None:
    assert arrays._make([1, "x"], pa.int64()) is None
    assert arrays._make([2**63], pa.int64()) is None
    assert arrays._make([True], pa.int64()) is None
    with pytest.raises(UnicodeEncodeError):
        arrays.array_of(["\ud800"], pa.string())


CHILD = """
import sys
from ontologia import Entity, Field, Ontology
from ontologia.engines.initializing import initialize_storage

class Place(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[float] = 0.0
    tags: Field[list[str]] = Field(default_factory=list)

where = sys.argv[1]
if "://" in where:
    initialize_storage(storage_uri=where)
onto = Ontology(storage_uri=where) if "://" in where else Ontology(where)
for size in (1.0, 2.0):
    with onto.session() as session:
        session.ensure(Place(id="a", size=size, tags=["x"]))
if "://" not in where:
    onto.query().entities(Place).where(Place.id == "a").collect()
    onto.query().entities(Place).to_arrow()
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("where", ["{}/x.db", "file://{}/store"])
def test_a_commit_imports_no_pandas(where: str, tmp_path: Any) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, where.format(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "False\n", ran.stderr


@pytest.mark.parametrize("chunks", [[], [[]], [[1, 2, 3]], [[1], [], [2, 3]]])
def test_whole_numbers_for_numpy_are_those_of_the_column(chunks: list[list[int]]) -> None:
    for kind in (pa.int64(), pa.uint64()):
        column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)
        assert arrays.numpy_of(column).tolist() == column.to_pylist()
        assert arrays.numpy_of(column.slice(1)).tolist() == column.slice(1).to_pylist()


def test_a_few_values_are_stored_by_sqlite_as_many_are():
    values = {
        arrays.INSTANT: [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None],
        pa.date32(): [date(1, 1, 1), date(2024, 2, 29), None],
        pa.float64(): [0.1, float("nan"), float("-inf"), None],
        pa.string(): ["NaN", "", None],
        pa.int64(): [2**63 - 1, None],
        pa.bool_(): [True, False, None],
        pa.binary(): [b"\0", None],
    }
    for kind, given in values.items():
        for few in (given, given[:1], []):
            column = pa.chunked_array([pa.array(few, kind)] * 2)
            many = pa.chunked_array([pa.array(few * 20, kind)])
            assert encode(column) == encode(many)[: 2 * len(few)]
