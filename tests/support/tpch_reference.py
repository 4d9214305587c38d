"""The reference: the text of TPC-H on DuckDB, over the generated files with their exact decimals.

`PUBLISHED` are answers that the specification prints for scale 1, rounded as it prints them.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

STANDARD = {
    "Q1": """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
            avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
            count(*) as count_order
        from lineitem
        where l_shipdate <= date '1998-12-01' - interval '90' day
        group by l_returnflag, l_linestatus
        order by l_returnflag, l_linestatus
    """,
    "Q3": """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
            and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate
        limit 10
    """,
    "Q4": """
        select o_orderpriority, count(*) as order_count
        from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval '3' month
            and exists (
                select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate
            )
        group by o_orderpriority
        order by o_orderpriority
    """,
    "Q5": """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
            and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
            and r_name = 'ASIA'
            and o_orderdate >= date '1994-01-01' and o_orderdate < date '1994-01-01' + interval '1' year
        group by n_name
        order by revenue desc
    """,
    "Q6": """
        select sum(l_extendedprice * l_discount) as revenue
        from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
            and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24
    """,
    "Q9": """
        select nation, o_year, sum(amount) as sum_profit
        from (
            select n_name as nation, extract(year from o_orderdate) as o_year,
                l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
            from part, supplier, lineitem, partsupp, orders, nation
            where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey
                and p_partkey = l_partkey and o_orderkey = l_orderkey and s_nationkey = n_nationkey
                and p_name like '%green%'
        ) as profit
        group by nation, o_year
        order by nation, o_year desc
    """,
    "Q10": """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name,
            c_address, c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey
            and o_orderdate >= date '1993-10-01' and o_orderdate < date '1993-10-01' + interval '3' month
            and l_returnflag = 'R' and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        order by revenue desc
        limit 20
    """,
    "Q13": """
        select c_count, count(*) as custdist
        from (
            select c_custkey, count(o_orderkey)
            from customer left outer join orders on c_custkey = o_custkey
                and o_comment not like '%special%requests%'
            group by c_custkey
        ) as c_orders (c_custkey, c_count)
        group by c_count
        order by custdist desc, c_count desc
    """,
    "Q14": """
        select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
            / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
        from lineitem, part
        where l_partkey = p_partkey
            and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-09-01' + interval '1' month
    """,
    "Q19": """
        select sum(l_extendedprice * (1 - l_discount)) as revenue
        from lineitem, part
        where (
            p_partkey = l_partkey and p_brand = 'Brand#12'
            and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
            and l_quantity >= 1 and l_quantity <= 1 + 10 and p_size between 1 and 5
            and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON'
        ) or (
            p_partkey = l_partkey and p_brand = 'Brand#23'
            and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
            and l_quantity >= 10 and l_quantity <= 10 + 10 and p_size between 1 and 10
            and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON'
        ) or (
            p_partkey = l_partkey and p_brand = 'Brand#34'
            and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
            and l_quantity >= 20 and l_quantity <= 20 + 10 and p_size between 1 and 15
            and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON'
        )
    """,
}

# Money has two decimals, counts none; keys and names are as they are.
PUBLISHED: dict[str, list[tuple[Any, ...]]] = {
    "Q1": [
        ("A", "F", 37734107.00, 56586554400.73, 53758257134.87, 55909065222.83, 25.52, 38273.13, 0.05, 1478493),
        ("N", "F", 991417.00, 1487504710.38, 1413082168.05, 1469649223.19, 25.52, 38284.47, 0.05, 38854),
        ("N", "O", 74476040.00, 111701729697.74, 106118230307.61, 110367043872.50, 25.50, 38249.12, 0.05, 2920374),
        ("R", "F", 37719753.00, 56568041380.90, 53741292684.60, 55889619119.83, 25.51, 38250.85, 0.05, 1478870),
    ],
    "Q3": [(2456423, 406181.01, date(1995, 3, 5), 0)],
    "Q4": [
        ("1-URGENT", 10594),
        ("2-HIGH", 10476),
        ("3-MEDIUM", 10410),
        ("4-NOT SPECIFIED", 10556),
        ("5-LOW", 10487),
    ],
    "Q5": [
        ("INDONESIA", 55502041.17),
        ("VIETNAM", 55295087.00),
        ("CHINA", 53724494.26),
        ("INDIA", 52035512.00),
        ("JAPAN", 45410175.70),
    ],
    "Q6": [(123141078.23,)],
    "Q14": [(16.38,)],
    "Q19": [(3083843.06,)],
}


def reference(tables: Path, **columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """The answers to all queries, from an engine that never saw our store. `columns` selects a table as changed."""
    import duckdb

    with duckdb.connect() as connection:
        for name in TABLES:
            file = tables / f"{name}.parquet"
            connection.execute(f"create view {name} as select {columns.get(name, '*')} from read_parquet('{file}')")
        return {name: connection.execute(text).fetchall() for name, text in STANDARD.items()}
