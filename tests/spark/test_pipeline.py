"""`Pipeline`: sources into types, checked, compared, and published as one commit."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from pyspark.sql import functions as sql
from spark_shop import Buys, Customer, Everything, Knows, commit, commits, customers, head, session, staged

from ontologia import StorageBackendError, ValidationError
from ontologia.model import key_text
from ontologia.spark import Pipeline
from ontologia.spark.mapping import mapped
from ontologia.spark.pipeline import TypeReport

COLUMNS = "id string, name string, age int"


@pytest.fixture
def files(tmp_path):
    """Customers and purchases as CSV, as somebody else names things."""
    (tmp_path / "customers.csv").write_text(
        'customer_id,full_name,years,labels\nc1, Ann ,30,"[""a""]"\nc2,Bob,40,[]\nc3,Cy,50,[]\n'
    )
    (tmp_path / "purchases.csv").write_text("buyer,seller,day,eur\nc1,c2,mon,1.5\nc2,c3,tue,2\n")
    return tmp_path


def shop_pipeline(spark, uri, files, **settings):
    mapping = {"name": "trim(full_name)", "age": sql.col("years"), "tags": "labels"}
    return (
        Pipeline(spark, uri, **settings)
        .load(files / "customers.csv", into=Customer, key="customer_id", map=mapping)
        .load(
            files / "purchases.csv", into=Buys, left="buyer", right="seller", instance_key="day", map={"amount": "eur"}
        )
    )


def test_sources_are_mapped_into_several_types_in_one_commit(spark, uri, files):
    report = shop_pipeline(spark, uri, files).commit(meta={"source": "crm"})
    assert (report.commit_id, head(uri)) == (1, 1)
    assert report.types == {
        "Customer": TypeReport(read=3, inserted=3, files=report.types["Customer"].files),
        "Buys": TypeReport(read=2, inserted=2, files=report.types["Buys"].files),
    }
    assert customers(uri) == {"c1": ("Ann", 30), "c2": ("Bob", 40), "c3": ("Cy", 50)}
    with session(uri) as opened:
        bought = opened.query().relations(Buys).collect()
        assert opened.query().entities(Customer).where(Customer.id == "c1").first().tags == ["a"]
    assert sorted((one.left_key, one.at, one.amount) for one in bought) == [("c1", "mon", 1.5), ("c2", "tue", 2.0)]
    record = commits(uri)[0]["metadata"]
    assert (record["source"], record["pipeline"]) == ("crm", report.application_id)
    assert (record["rows_read"], record["rows_inserted"], record["rows_updated"]) == ("5", "5", "0")

    again = shop_pipeline(spark, uri, files).commit()
    assert (again.commit_id, head(uri)) == (None, 1)
    assert again.types["Customer"] == TypeReport(read=3, unchanged=3)
    assert staged(uri) == []


def test_a_dry_run_reports_and_writes_nothing(spark, folder):
    commit(folder, Customer(id="c1", name="Ann", age=30), Customer(id="c2", name="Bob", age=40))
    rows = [("c1", "Ann", 31), ("c2", "Bob", 40), ("c3", "Cy", 1), (None, "No key", 1)]
    pipeline = Pipeline(spark, folder, on_invalid="quarantine").load(
        spark.createDataFrame(rows, COLUMNS), into=Customer
    )
    before = sorted(map(str, Path(folder.removeprefix("file://")).rglob("*")))
    report = pipeline.commit(dry_run=True)
    assert report.types["Customer"] == TypeReport(read=4, inserted=1, updated=1, unchanged=1, rejected=1)
    assert (report.dry_run, report.commit_id, report.quarantine) == (True, None, None)
    assert sorted(map(str, Path(folder.removeprefix("file://")).rglob("*"))) == before


def test_rows_that_do_not_fit_abort_the_run_or_go_to_quarantine_with_reason_and_source(spark, tmp_path):
    uri = str(tmp_path / "onto.db")
    rows = [("c1", "Ann", "30"), ("c2", None, "1"), (None, "No key", "1"), ("c3", "Cy", "many"), ("c4", "Di", "-4")]
    frame = spark.createDataFrame(rows, "id string, name string, age string")
    with pytest.raises(ValidationError, match=r"entity Customer: .*\. The source row is \{"):
        Pipeline(spark, uri).load(frame, into=Customer).commit()
    assert head(uri) == 0
    report = Pipeline(spark, uri, on_invalid="quarantine").load(frame, into=Customer).commit()
    assert (report.types["Customer"].inserted, report.types["Customer"].rejected) == (1, 4)
    assert customers(uri) == {"c1": ("Ann", 30)}
    lines = [row.asDict() for row in spark.read.parquet(f"{report.quarantine}entity-Customer").collect()]
    assert sorted(line["reason"] for line in lines) == [
        "age: Input should be greater than or equal to 0",
        "age: cannot be read as int: many",
        "id: must have a value",
        "name: must have a value",
    ]
    assert {"id": "c3", "name": "Cy", "age": "many"} in [json.loads(line["source"]) for line in lines]


def test_duplicates_are_an_error_or_the_last_by_an_order_column(spark, folder):
    rows = [("c1", "old", 1), ("c1", "new", 2), ("c2", "Bob", 3)]
    frame = spark.createDataFrame(rows, COLUMNS).repartition(3)
    with pytest.raises(ValidationError, match="entity Customer 'c1' occurs more than once"):
        Pipeline(spark, folder).load(frame, into=Customer).commit()
    assert head(folder) == 0
    Pipeline(spark, folder).load(frame, into=Customer, order_by="age").commit()
    assert customers(folder) == {"c1": ("new", 2), "c2": ("Bob", 3)}


def test_a_conflict_aborts_is_skipped_or_updates_as_asked(spark, folder):
    commit(folder, Customer(id="c1", name="Ann", age=30))
    frame = spark.createDataFrame([("c1", "Other", 1), ("c9", "New", 1)], COLUMNS)
    with pytest.raises(ValidationError, match="entity Customer 'c1' exists with other values"):
        Pipeline(spark, folder, on_conflict="abort").load(frame, into=Customer).commit()
    assert Pipeline(spark, folder, on_conflict="skip").load(frame, into=Customer).commit().commit_id == 2
    assert customers(folder) == {"c1": ("Ann", 30), "c9": ("New", 1)}
    report = Pipeline(spark, folder).load(frame, into=Customer).commit()
    assert report.types["Customer"] == TypeReport(read=2, updated=1, unchanged=1, files=1)


def test_a_source_that_fails_in_the_middle_leaves_nothing_behind(spark, folder):
    uri = folder
    commit(uri, Customer(id="c1", name="Ann", age=30))

    def fails(name):
        if name == "Bad":
            raise RuntimeError("the source has a hole")
        return name

    frame = spark.createDataFrame([("c2", "Good", 1), ("c3", "Bad", 1)], COLUMNS)
    broken = frame.withColumn("name", sql.udf(fails, "string")("name"))
    others = spark.createDataFrame([("c1", "c2", 1)], "left_key string, right_key string, since int")
    pipeline = Pipeline(spark, uri).load(others, into=Knows).load(broken, into=Customer)
    with pytest.raises(
        StorageBackendError, match="the Spark job failed while loading entity Customer: the source has a hole"
    ):
        pipeline.commit()
    assert (head(uri), customers(uri)) == (1, {"c1": ("Ann", 30)})
    with session(uri) as opened:  # what the first type staged is an orphan, and goes with the next vacuum
        assert opened.repository.vacuum(0.0, apply=True).objects
        assert opened.repository.vacuum(0.0).objects == []


def test_keys_are_stored_alike_in_any_time_zone(spark):
    moment = dt.datetime(2024, 10, 27, 0, 30, 1, 20, tzinfo=dt.UTC)  # twice in the Paris night that ends summer time
    frame = spark.createDataFrame(
        [(moment, moment.date(), 1), (moment + dt.timedelta(hours=1), moment.date(), 1)],
        "left_key timestamp, right_key date, since int",
    )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        rows = mapped(frame, Knows.__declaration__, {}).select("left_key", "right_key").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    later = moment + dt.timedelta(hours=1)
    assert list(map(tuple, rows)) == [(key_text(moment), "2024-10-27"), (key_text(later), "2024-10-27")]


def test_values_and_keys_arrive_as_the_embedded_path_writes_them(spark, folder):
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    commit(
        folder,
        Everything(
            number=7, text="ü", real=1.5, yes=True, moment=moment, day=moment.date(), raw=b"\0", shape={"b": 2, "a": 1}
        ),
        Everything(number=8),
    )
    rows = [(7, "ü", 1.5, True, moment, moment.date(), bytearray(b"\0"), {"b": 2, "a": 1}), (8, *[None] * 7)]
    kinds = "number int, text string, real double, yes boolean, moment timestamp, day date, raw binary, shape map<string,int>"
    report = Pipeline(spark, folder).load(spark.createDataFrame(rows, kinds), into=Everything).commit()
    assert report.types["Everything"] == TypeReport(read=2, unchanged=2)


@pytest.mark.s3
def test_a_run_on_a_bucket(spark, bucket, files):
    assert shop_pipeline(spark, bucket, files).commit().commit_id == 1
    assert shop_pipeline(spark, bucket, files).commit().commit_id is None
    assert len(customers(bucket)) == 3


def test_what_cannot_be_loaded_is_refused_before_any_task_starts(spark, folder, tmp_path):
    frame = spark.createDataFrame([("c1", "Ann", [1])], "id string, name string, age array<int>")
    pipeline = Pipeline(spark, folder)
    with pytest.raises(
        ValidationError, match=r"nothing fills age of entity Customer: map it\. The source has the columns id"
    ):
        pipeline.load(frame.select("id", "name"), into=Customer)
    with pytest.raises(ValidationError, match="age is int, and the source has array<int>: map it"):
        pipeline.load(frame, into=Customer)
    with pytest.raises(ValidationError, match="entity Customer has no field wrong"):
        pipeline.load(frame, into=Customer, map={"wrong": "id"})
    with pytest.raises(ValidationError, match="there is no such file"):
        pipeline.load(tmp_path / "missing.csv", into=Customer)
    with pytest.raises(ValidationError, match="say what it is with format: csv, json"):
        pipeline.load(tmp_path / "data.bin", into=Customer)
    with pytest.raises(TypeError, match="takes an entity or relation class"):
        pipeline.load(frame, into=str)
    with pytest.raises(ValidationError, match="nothing to commit"):
        pipeline.commit()
    with pytest.raises(ValidationError, match="in memory cannot be loaded"):
        Pipeline(spark, ":memory:").load(frame.selectExpr("id", "name", "1 AS age"), into=Customer).commit()
    with pytest.raises(
        ValidationError, match="left_key is a key: text, a whole number, a date or a time, and the source"
    ):
        pipeline.load(frame.selectExpr("1.5D AS left_key", "id AS right_key", "1 AS since"), into=Knows)
    with pytest.raises(ValidationError, match="no_such_column"):
        pipeline.load(frame, into=Customer, map={"age": "no_such_column"})
    with pytest.raises(ValidationError, match=r"cannot be mapped from this source: \[PARSE_SYNTAX_ERROR\]"):
        pipeline.load(frame, into=Customer, map={"age": "age +"})
