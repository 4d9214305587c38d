"""Types as tables: made by SQL or by `attach`, read and written by name, as of any commit."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit

from ontologia import Entity, Field, Session, ValidationError
from ontologia.spark import attach, read
from support.spark_shop import Customer, Knows, commit, customers, new_store, staged


@pytest.fixture
def shop(spark, folder):
    """A store with history, attached as a schema."""
    uri = folder
    commit(uri, Customer(id="a", name="Ann", age=1), Knows(left_key="a", right_key="b", since=7))
    commit(uri, Customer(id="a", name="Ann", age=2), Customer(id="b", name="Bob", age=5))
    made = attach(spark, uri, "shop")
    yield uri, made
    spark.sql("DROP SCHEMA shop CASCADE")


def asked(spark, text):
    return sorted(tuple(row) for row in spark.sql(text).collect())


def test_every_type_its_history_and_its_changes_are_tables(spark, shop):
    uri, made = shop
    assert set(made) >= {"shop.Customer", "shop.Customer_history", "shop.Customer_changes", "shop.Knows"}
    assert asked(spark, "SELECT id, age FROM shop.Customer") == [("a", 2), ("b", 5)]
    assert asked(spark, "SELECT commit_id, id, age FROM shop.customer_history WHERE id = 'a'") == [
        (1, "a", 1),
        (2, "a", 2),
    ]
    changes = "SELECT commit_id, operation, id FROM shop.Customer_changes"
    assert asked(spark, changes) == [(1, "insert", "a"), (2, "insert", "b"), (2, "update_version", "a")]
    joined = "SELECT name, since FROM shop.Knows JOIN shop.Customer ON left_key = id"
    assert asked(spark, joined) == [("Ann", 7)]
    commit(uri, Customer(id="c", name="Cy", age=9))
    counts = "SELECT (SELECT count(*) FROM shop.Customer), (SELECT count(*) FROM shop.Customer_changes)"
    assert asked(spark, counts) == [(2, 3)]
    assert attach(spark, uri, "shop") == made
    assert asked(spark, counts) == [(3, 4)]


def test_a_column_that_only_the_catalog_has_is_named_with_what_to_do(spark, shop):
    uri, made = shop
    spark.sql("ALTER TABLE shop.Customer_changes ADD COLUMNS (points INT)")
    with pytest.raises(PySparkException) as refused:
        spark.sql("SELECT id FROM shop.Customer_changes").collect()
    assert str(refused.value).startswith("entity Customer has no column 'points'; it has ")
    assert "ALTER TABLE changes the table in Spark's catalog alone: drop the table" in str(refused.value)
    assert attach(spark, uri, "shop") == made
    assert asked(spark, "SELECT id, age FROM shop.Customer") == [("a", 2), ("b", 5)]


def test_sql_travels_in_time(spark, shop):
    uri, _ = shop
    assert "shop_1.Customer" in attach(spark, uri, "shop_1", as_of=1)
    try:
        assert asked(spark, "SELECT id, age FROM shop_1.Customer") == [("a", 1)]
        apart = "SELECT n.id FROM shop.Customer n LEFT ANTI JOIN shop_1.Customer o ON n.id = o.id"
        assert asked(spark, apart) == [("b",)]
        assert asked(spark, "SELECT id FROM shop.Customer UNION ALL SELECT id FROM shop_1.Customer") == [
            ("a",),
            ("a",),
            ("b",),
        ]
    finally:
        spark.sql("DROP SCHEMA shop_1 CASCADE")
    with pytest.raises(PySparkException, match="a table takes no options, and was given asof"):
        spark.sql("SELECT * FROM shop.Customer_changes WITH (asOf = 1)").collect()


def test_no_row_is_written_by_the_name_of_a_table(spark, shop, tmp_path):
    """Spark tells a source the columns of the rows, and not the table: these would go to where they come from."""
    uri, _ = shop
    other = new_store((tmp_path / "other").as_uri())
    commit(other, Customer(id="z", name="Zoe", age=1))
    attach(spark, other, "other_shop")
    before = customers(uri), customers(other)
    try:
        for statement in (
            "INSERT INTO shop.Customer SELECT * FROM other_shop.Customer",
            "INSERT INTO shop.Customer VALUES ('c', 'Cy', 3, '[]', null)",
            "INSERT OVERWRITE shop.Customer VALUES ('c', 'Cy', 3, '[]', null)",
            "INSERT INTO shop.Customer_history VALUES (9, 'c', 'Cy', 3, '[]', null, false)",
        ):
            with pytest.raises(PySparkException, match=r"none are written by a table's name: write|[Vv]iew|VIEW"):
                spark.sql(statement)
        with pytest.raises(PySparkException, match=r"none are written by a table's name|[Vv]iew|VIEW"):
            spark.table("other_shop.Customer").write.insertInto("shop.Customer")
    finally:
        spark.sql("DROP SCHEMA other_shop CASCADE")
    assert (customers(uri), customers(other)) == before


def test_a_table_is_made_by_sql_and_by_the_catalog(spark, tmp_path):
    for uri in (str(tmp_path / "a b.db"), new_store((tmp_path / "a store").as_uri())):
        commit(uri, Customer(id="a", name="Ann", age=1))
        try:
            spark.sql(f"CREATE TABLE made USING ontologia OPTIONS (path '{uri}', type 'Customer', asOf 1)")
            spark.catalog.createTable("also", path=uri, source="ontologia", type="Customer")
            commit(uri, Customer(id="b", name="Bob", age=1))
            assert (spark.table("made").count(), spark.table("also").count()) == (1, 2)
            assert [field.name for field in spark.table("made").schema] == ["id", "name", "age", "tags", "note"]
        finally:
            spark.sql("DROP TABLE IF EXISTS made")
            spark.sql("DROP TABLE IF EXISTS also")
        assert customers(uri).keys() == {"a", "b"}


def test_a_table_that_cannot_be_read_is_refused_before_anything_is_written(spark, folder):
    commit(folder, Customer(id="a", name="Ann", age=1))
    with pytest.raises(PySparkException, match="Wrong is not in this store"):
        spark.sql(f"CREATE TABLE wrong USING ontologia OPTIONS (path '{folder}', type 'Wrong')")
    with pytest.raises(PySparkException, match="there is no option 'typ'"):
        spark.sql(f"CREATE TABLE wrong USING ontologia OPTIONS (path '{folder}', typ 'Customer')")
    with pytest.raises(PySparkException, match="none are written by a table's name"):
        spark.sql(f"CREATE TABLE wrong USING ontologia OPTIONS (path '{folder}', type 'Customer') AS SELECT 'a' AS id")
    rows = read(spark, folder, Customer).withColumn("age", lit(7))
    written = rows.write.format("ontologia").options(type="Customer", path=folder)
    with pytest.raises(PySparkException, match="saveAsTable cannot note where the rows of a table are"):
        written.mode("append").saveAsTable("wrong")
    with pytest.raises(PySparkException, match="saveAsTable cannot note where the rows of a table are"):
        rows.writeTo("wrong").using("ontologia").option("type", "Customer").option("path", folder).create()
    assert not spark.catalog.tableExists("wrong")
    assert (customers(folder), staged(folder)) == ({"a": ("Ann", 1)}, [])
    written.mode("append").save()
    assert customers(folder) == {"a": ("Ann", 7)}


class Odd(Entity, name="a-b c"):
    id: Field[str] = Field(primary_key=True)


class Same(Entity, name="a_b_C"):
    id: Field[str] = Field(primary_key=True)


def test_types_whose_names_no_catalog_has_are_told_apart(spark, folder):
    with Session(folder, entity_types=[Odd, Same]) as session:
        session.ensure([Odd(id="odd"), Same(id="same")])
        session.commit()
    try:
        made = attach(spark, folder, "odd_shop")
        assert [name for name in made if "_history" not in name and "_changes" not in name] == [
            "odd_shop.a_b_c",
            "odd_shop.a_b_C_entity",
        ]
        assert asked(spark, "SELECT * FROM `odd_shop`.a_b_c") == [("odd",)]
        assert asked(spark, "SELECT * FROM `odd_shop`.a_b_C_entity") == [("same",)]
    finally:
        spark.sql("DROP SCHEMA `odd_shop` CASCADE")


def test_a_table_of_somebody_else_is_not_dropped(spark, shop):
    uri, _ = shop
    spark.sql("CREATE SCHEMA theirs")
    try:
        for kind, made in (
            ("VIEW", "AS SELECT 1 AS x"),
            ("VIEW", "AS SELECT * FROM shop.Customer"),
            ("TABLE", "USING parquet AS SELECT * FROM shop.Customer"),
        ):
            spark.sql(f"CREATE {kind} theirs.Customer {made}")
            with pytest.raises(ValidationError, match="is there already, and no table of ontologia"):
                attach(spark, uri, "theirs")
            assert spark.table("theirs.Customer").count(), made
            spark.sql(f"DROP {kind} theirs.Customer")
    finally:
        spark.sql("DROP SCHEMA theirs CASCADE")


class Known(Entity, name="Customer"):
    """Who buys."""

    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    """What we call them."""
    age: Field[int]
    tags: Field[list[str]] = Field(default_factory=list)
    note: Field[str | None] = None


def test_a_question_to_a_table_reads_its_columns_and_filters_in_files_of_known_size(spark, shop):
    plan = spark.sql("SELECT age FROM shop.Customer WHERE id = 'a'")._jdf.queryExecution()
    scan = plan.executedPlan().toString()
    assert "EqualTo(id,a)" in scan
    assert "name" not in scan.partition("ReadSchema")[2]
    assert "EiB" not in spark.sql("EXPLAIN COST SELECT age FROM shop.Customer").first()[0]


def test_a_table_has_the_docstrings_of_its_class(spark, folder):
    uri = folder
    commit(uri, Customer(id="a", name="Ann", age=1))
    try:
        attach(spark, uri, "noted", types=[Known])
        assert spark.catalog.getTable("noted.Customer").description == "Who buys."
        assert {row.name: row.description for row in spark.catalog.listColumns("noted.Customer")}[
            "name"
        ] == "What we call them."
    finally:
        spark.sql("DROP SCHEMA noted CASCADE")


def test_tables_show_removals_compacted_and_recent_rows_as_read_does(spark, folder):
    def check():
        try:
            attach(spark, folder, "stepwise")
            for name, terms in (("Customer", {}), ("Customer_history", {"history": True})):
                found, wanted = spark.table(f"stepwise.{name}"), read(spark, folder, "Customer", **terms)
                assert found.columns == wanted.columns
                assert sorted(map(repr, found.collect())) == sorted(map(repr, wanted.collect()))
        finally:
            spark.sql("DROP SCHEMA stepwise CASCADE")

    commit(folder, *(Customer(id=key, name=key, age=1) for key in "abcd"))
    check()
    with Session(folder, entity_types=[Customer]) as session:
        session.remove(Customer, "a")
        session.ensure(Customer(id="b", name="b", age=2))
        session.commit()
        check()
        session.engine.compact(apply=True)
        check()
        session.remove(Customer, "c")
        session.ensure([Customer(id="a", name="a", age=3), Customer(id="b", name="b", age=3)])
        session.commit()
    check()
    head = read(spark, folder, "Customer", as_of=1).count()
    try:
        attach(spark, folder, "first", as_of=1)
        assert (spark.table("first.Customer").count(), head) == (4, 4)
    finally:
        spark.sql("DROP SCHEMA first CASCADE")
