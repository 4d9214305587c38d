"""TPC-H as an ontology: six entities, and every foreign key a relation.

Fields keep the names of the benchmark without their prefixes. Where TPC-H has decimals, these have `float`.
"""

from __future__ import annotations

from datetime import date

from ontologia import Entity, Field, Relation


class Region(Entity):
    regionkey: Field[int] = Field(primary_key=True)
    name: Field[str]
    comment: Field[str]


class Nation(Entity):
    nationkey: Field[int] = Field(primary_key=True)
    name: Field[str]
    comment: Field[str]


class Customer(Entity):
    custkey: Field[int] = Field(primary_key=True)
    name: Field[str]
    address: Field[str]
    phone: Field[str]
    acctbal: Field[float]
    mktsegment: Field[str] = Field(index=True)
    comment: Field[str]


class Supplier(Entity):
    suppkey: Field[int] = Field(primary_key=True)
    name: Field[str]
    address: Field[str]
    phone: Field[str]
    acctbal: Field[float]
    comment: Field[str]


class Part(Entity):
    partkey: Field[int] = Field(primary_key=True)
    name: Field[str]
    mfgr: Field[str]
    brand: Field[str]
    type: Field[str]
    size: Field[int]
    container: Field[str]
    retailprice: Field[float]
    comment: Field[str]


class Order(Entity):
    orderkey: Field[int] = Field(primary_key=True)
    orderstatus: Field[str]
    totalprice: Field[float]
    orderdate: Field[date]
    orderpriority: Field[str]
    clerk: Field[str]
    shippriority: Field[int]
    comment: Field[str]


class InRegion(Relation[Nation, Region]): ...


class CustomerNation(Relation[Customer, Nation]): ...


class SupplierNation(Relation[Supplier, Nation]): ...


class Placed(Relation[Customer, Order]): ...


class PartSupp(Relation[Part, Supplier]):
    availqty: Field[int]
    supplycost: Field[float]
    comment: Field[str]


class Lineitem(Relation[Order, Part]):
    linenumber: Field[str] = Field(instance_key=True)  # an order may have the same part on two lines
    suppkey: Field[int]  # a relation joins two; the third one is a field
    quantity: Field[float]
    extendedprice: Field[float]
    discount: Field[float]
    tax: Field[float]
    returnflag: Field[str]
    linestatus: Field[str]
    shipdate: Field[date] = Field(index=True)
    commitdate: Field[date]
    receiptdate: Field[date]
    shipinstruct: Field[str]
    shipmode: Field[str]
    comment: Field[str]


ENTITIES = [Region, Nation, Customer, Supplier, Part, Order]
RELATIONS = [InRegion, CustomerNation, SupplierNation, Placed, PartSupp, Lineitem]
