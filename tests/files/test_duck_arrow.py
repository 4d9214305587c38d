"""Arrow tables that DuckDB reads: it answers by its own rules, not by those of Arrow."""

import pyarrow as pa
import pyarrow.dataset  # where it is loaded, small tables are read where they are, too
import pytest

from ontologia.files.duck import Duck

NAN = float("nan")
VALUES = [-0.0, 0.0, 2.0, NAN, None]
ROWS = pa.table(
    {
        "f": pa.array(VALUES, pa.float64()),
        'narrow"': pa.array(VALUES, pa.float32()),
        "inside": pa.array([{"f": value} for value in VALUES]),
        "n": range(5),
    }
)


@pytest.fixture(scope="module")
def duck():
    found = Duck("256MB")
    yield found
    found.close()


@pytest.mark.parametrize("column", ["f", '"narrow"""', "inside.f"])
@pytest.mark.parametrize("stream", [False, True])
def test_nan_is_the_greatest_number_and_zero_has_two_forms(duck, column, stream):
    for condition, expected in [
        ("{} >= 2", [2, 3]),
        ("{} > 2", [3]),
        ("{} < 3", [0, 1, 2]),
        ("{} IN (0, 2)", [0, 1, 2]),
        ("{} IN (2, 'nan')", [2, 3]),
        ("{} BETWEEN 0 AND 'nan'", [0, 1, 2, 3]),
        ("{} IS NULL", [4]),
        ("{} IN (SELECT unnest([0.0::DOUBLE, 'nan']))", [0, 1, 3]),
    ]:
        given = ROWS.to_reader() if stream else ROWS
        found = duck.table(f"SELECT n FROM given WHERE {condition.format(column)} ORDER BY n", {}, given=given)
        assert (condition, found["n"].to_pylist()) == (condition, expected)


def test_columns_keep_their_order_and_types(duck):
    assert duck.table("FROM given", {}, given=ROWS).schema == ROWS.schema
