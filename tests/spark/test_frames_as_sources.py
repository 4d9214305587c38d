"""A load takes frames of pandas and polars and Arrow tables as it takes those of Spark."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ontologia.spark import Pipeline
from support.spark_shop import Customer, customers

ROWS = {"id": ["c1", "c2"], "name": ["Ann", "Bob"], "age": [30, None]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_a_frame_is_a_source_and_a_missing_number_is_missing(spark, folder, make):
    report = (
        Pipeline(spark, folder)
        .load(make(ROWS), into=Customer, map={"age": "cast(coalesce(age, 7) as bigint)"})
        .commit()
    )
    assert report.types["Customer"].inserted == 2
    assert customers(folder) == {"c1": ("Ann", 30), "c2": ("Bob", 7)}


def test_what_is_no_source_is_refused_with_what_is(spark, folder):
    with pytest.raises(
        TypeError, match="DataFrame of Spark, pandas or polars, an Arrow table, files, or a jdbc: address, not dict"
    ):
        Pipeline(spark, folder).load(ROWS, into=Customer)
