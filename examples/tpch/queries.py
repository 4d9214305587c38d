"""Ten queries of TPC-H over the types of `models`, each type a view of its own name.

A relation's keys are text and an entity's key here is a number: Spark compares them as numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ontologia.spark import read
from tpch.models import ENTITIES, RELATIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, store: str, *, as_of: int | None = None) -> None:
    """Every type of the store as a view, in its latest state or as of a commit."""
    for cls in (*ENTITIES, *RELATIONS):
        read(spark, store, cls, as_of=as_of).createOrReplaceTempView(cls.__name__)


QUERIES = {
    # Pricing summary report
    "Q1": """
        SELECT returnflag, linestatus, sum(quantity) AS sum_qty, sum(extendedprice) AS sum_base_price,
               sum(extendedprice * (1 - discount)) AS sum_disc_price,
               sum(extendedprice * (1 - discount) * (1 + tax)) AS sum_charge,
               avg(quantity) AS avg_qty, avg(extendedprice) AS avg_price, avg(discount) AS avg_disc,
               count(*) AS count_order
        FROM Lineitem
        WHERE shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY
        GROUP BY returnflag, linestatus
        ORDER BY returnflag, linestatus
    """,
    # Shipping priority: what the largest orders that have not been shipped are worth
    "Q3": """
        SELECT orderkey, sum(extendedprice * (1 - discount)) AS revenue, orderdate, shippriority
        FROM Customer
        JOIN Placed ON Placed.left_key = custkey
        JOIN Order ON orderkey = Placed.right_key
        JOIN Lineitem ON Lineitem.left_key = orderkey
        WHERE mktsegment = 'BUILDING' AND orderdate < DATE '1995-03-15' AND shipdate > DATE '1995-03-15'
        GROUP BY orderkey, orderdate, shippriority
        ORDER BY revenue DESC, orderdate
        LIMIT 10
    """,
    # Orders of a quarter with a line that came late, by priority
    "Q4": """
        SELECT orderpriority, count(*) AS order_count
        FROM Order
        LEFT SEMI JOIN Lineitem ON Lineitem.left_key = orderkey AND commitdate < receiptdate
        WHERE orderdate >= DATE '1993-07-01' AND orderdate < DATE '1993-10-01'
        GROUP BY orderpriority
        ORDER BY orderpriority
    """,
    # What suppliers sold to customers of their own nation, in Asia
    "Q5": """
        SELECT Nation.name, sum(extendedprice * (1 - discount)) AS revenue
        FROM Region
        JOIN InRegion ON InRegion.right_key = regionkey
        JOIN Nation ON nationkey = InRegion.left_key
        JOIN CustomerNation ON CustomerNation.right_key = nationkey
        JOIN Placed ON Placed.left_key = CustomerNation.left_key
        JOIN Order ON orderkey = Placed.right_key
        JOIN Lineitem ON Lineitem.left_key = orderkey
        JOIN SupplierNation ON SupplierNation.left_key = suppkey AND SupplierNation.right_key = nationkey
        WHERE Region.name = 'ASIA' AND orderdate >= DATE '1994-01-01' AND orderdate < DATE '1995-01-01'
        GROUP BY Nation.name
        ORDER BY revenue DESC
    """,
    # What would have been earned without small discounts
    "Q6": """
        SELECT sum(extendedprice * discount) AS revenue
        FROM Lineitem
        WHERE shipdate >= DATE '1994-01-01' AND shipdate < DATE '1995-01-01'
          AND discount BETWEEN 0.05 AND 0.07 AND quantity < 24
    """,
    # Profit on green parts by nation and year
    "Q9": """
        SELECT Nation.name AS nation, year(orderdate) AS o_year,
               sum(extendedprice * (1 - discount) - supplycost * quantity) AS sum_profit
        FROM Part
        JOIN Lineitem ON Lineitem.right_key = partkey
        JOIN PartSupp ON PartSupp.left_key = Lineitem.right_key AND PartSupp.right_key = suppkey
        JOIN Order ON orderkey = Lineitem.left_key
        JOIN SupplierNation ON SupplierNation.left_key = suppkey
        JOIN Nation ON nationkey = SupplierNation.right_key
        WHERE Part.name LIKE '%green%'
        GROUP BY nation, o_year
        ORDER BY nation, o_year DESC
    """,
    # Customers who sent back most
    "Q10": """
        SELECT custkey, Customer.name, sum(extendedprice * (1 - discount)) AS revenue, acctbal,
               Nation.name AS nation, address, phone, Customer.comment
        FROM Customer
        JOIN CustomerNation ON CustomerNation.left_key = custkey
        JOIN Nation ON nationkey = CustomerNation.right_key
        JOIN Placed ON Placed.left_key = custkey
        JOIN Order ON orderkey = Placed.right_key
        JOIN Lineitem ON Lineitem.left_key = orderkey
        WHERE orderdate >= DATE '1993-10-01' AND orderdate < DATE '1994-01-01' AND returnflag = 'R'
        GROUP BY custkey, Customer.name, acctbal, phone, Nation.name, address, Customer.comment
        ORDER BY revenue DESC
        LIMIT 20
    """,
    # How many customers have how many orders
    "Q13": """
        SELECT c_count, count(*) AS custdist
        FROM (
            SELECT custkey, count(orderkey) AS c_count
            FROM Customer
            LEFT JOIN (
                SELECT left_key, orderkey FROM Placed JOIN Order ON orderkey = right_key
                WHERE comment NOT LIKE '%special%requests%'
            ) ON left_key = custkey
            GROUP BY custkey
        )
        GROUP BY c_count
        ORDER BY custdist DESC, c_count DESC
    """,
    # The share of promotions in a month's revenue
    "Q14": """
        SELECT 100 * sum(if(type LIKE 'PROMO%', extendedprice * (1 - discount), 0))
               / sum(extendedprice * (1 - discount)) AS promo_revenue
        FROM Lineitem
        JOIN Part ON partkey = Lineitem.right_key
        WHERE shipdate >= DATE '1995-09-01' AND shipdate < DATE '1995-10-01'
    """,
    # Revenue of parts sold by air and handed over in person, for three kinds of parts
    "Q19": """
        SELECT sum(extendedprice * (1 - discount)) AS revenue
        FROM Lineitem
        JOIN Part ON partkey = Lineitem.right_key
        WHERE shipmode IN ('AIR', 'AIR REG') AND shipinstruct = 'DELIVER IN PERSON' AND (
            brand = 'Brand#12' AND container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                AND quantity BETWEEN 1 AND 11 AND size BETWEEN 1 AND 5
            OR brand = 'Brand#23' AND container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                AND quantity BETWEEN 10 AND 20 AND size BETWEEN 1 AND 10
            OR brand = 'Brand#34' AND container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                AND quantity BETWEEN 20 AND 30 AND size BETWEEN 1 AND 15
        )
    """,
}
