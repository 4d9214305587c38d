"""From a source's columns to a type's rows, before any of it is staged."""

from __future__ import annotations

import json

from spark_shop import Customer, Knows

from ontologia.spark.mapping import mapped


def test_the_source_row_goes_along_only_where_a_row_may_still_be_refused(spark):
    rows = [("a", "b", 1), ("a", None, 2)]
    knows = spark.createDataFrame(rows, "left_key string, right_key string, since int")
    found = mapped(knows, Knows.__declaration__, {}).select("__reason", "__source").collect()
    assert [tuple(row) for row in found] == [
        (None, None),
        ("right_key: must have a value", '{"left_key":"a","since":2}'),
    ]
    customer = spark.createDataFrame([("c1", "Ann", -1)], "id string, name string, age int")  # an age is checked later
    found = mapped(customer, Customer.__declaration__, {}).select("__reason", "__source").collect()
    assert (found[0][0], json.loads(found[0][1])) == (None, {"id": "c1", "name": "Ann", "age": -1})
