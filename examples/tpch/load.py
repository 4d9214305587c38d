"""The tables of TPC-H into the types of `models`, all in one commit.

The tables are Parquet files as `tpchgen-cli parquet` writes them. `tpch.toml` says the same for `onto pipeline run`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.spark import Pipeline
from tpch.models import (
    Customer,
    CustomerNation,
    InRegion,
    Lineitem,
    Nation,
    Order,
    Part,
    PartSupp,
    Placed,
    Region,
    Supplier,
    SupplierNation,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(spark: SparkSession, tables: Path, name: str) -> DataFrame:
    """A table with its columns named like our fields: `custkey`, not `c_custkey`."""
    found = spark.read.parquet(str(tables / f"{name}.parquet"))
    return found.toDF(*(column.split("_", 1)[1] for column in found.columns))


def pipeline(spark: SparkSession, tables: Path, store: str) -> Pipeline:
    """A field takes the column of its own name, so that only the ends of relations need saying."""
    region, nation, customer, supplier, part, orders, partsupp, lineitem = (
        table(spark, tables, name)
        for name in ("region", "nation", "customer", "supplier", "part", "orders", "partsupp", "lineitem")
    )
    return (
        Pipeline(spark, store)
        .load(region, into=Region)
        .load(nation, into=Nation)
        .load(nation, into=InRegion, left="nationkey", right="regionkey")
        .load(customer, into=Customer)
        .load(customer, into=CustomerNation, left="custkey", right="nationkey")
        .load(supplier, into=Supplier)
        .load(supplier, into=SupplierNation, left="suppkey", right="nationkey")
        .load(part, into=Part)
        .load(partsupp, into=PartSupp, left="partkey", right="suppkey")
        .load(orders, into=Order)
        .load(orders, into=Placed, left="custkey", right="orderkey")
        .load(lineitem, into=Lineitem, left="orderkey", right="partkey")
    )
