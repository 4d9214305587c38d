"""Spark reads a store of Ontologia 0.3 as it reads any other."""

import pytest

from ontologia import Ontology
from ontologia.spark import read
from support.shop_03 import Customer, Order, Product, shop
from support.writer_03 import write


@pytest.mark.parametrize("form", ["sqlite-v1", "bucket-v2"])
def test_rows_windows_and_questions_of_a_store_of_0_3(spark, tmp_path, form):
    uri = write(shop(), tmp_path, form)
    rows = read(spark, uri, "Customer").orderBy("id").collect()
    assert [(row.id, row.full_name, row.age) for row in rows] == [
        ("c1", "Alice", 41.0),
        ("c2", "Bö 🦊", 28.0),
        ("c3", "Dora", 33.5),
    ]
    assert [row.price for row in read(spark, uri, Product, as_of=1).orderBy("sku").collect()] == [4.5, 2.0]
    assert read(spark, uri, "Order", history=True).count() == 3
    assert spark.read.format("ontologia").option("type", "Product").load(uri).count() == 2
    with Ontology(uri, entity_types=[Customer, Product], relation_types=[Order]) as onto:
        grown = onto.query().entities(Customer).where(Customer.age > 30).to_spark(spark)
        assert sorted(row.id for row in grown.collect()) == ["c1", "c3"]
