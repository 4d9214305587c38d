"""`Pipeline`: sources into types, checked, compared, and published as one commit."""

from __future__ import annotations

import datetime as dt
import json
import threading
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import StringConstraints, field_validator, model_validator
from pyspark.sql import functions as sql

from ontologia import Entity, Field, OntologiaConfig, Ontology, Relation, Session, StorageBackendError, ValidationError
from ontologia.model import key_text
from ontologia.runtime.intake.quarantine import QUARANTINE
from ontologia.runtime.intake.reports import TypeReport
from ontologia.spark import Pipeline, compact, export_data
from ontologia.spark.loading.mapping import map_rows
from support.spark_shop import (
    Buys,
    Customer,
    Everything,
    Knows,
    commit,
    commits,
    customers,
    head,
    new_store,
    session,
    staged,
)

COLUMNS = "id string, name string, age int"


class Tidy(Entity):
    id: Field[Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]] = Field(primary_key=True)
    size: Field[int]


class Coded(Entity):
    id: Field[Annotated[str, StringConstraints(pattern="^[a-z]$")]] = Field(primary_key=True)


class Vetted(Entity):
    id: Field[str] = Field(primary_key=True)

    @field_validator("id")
    @classmethod
    def _lower(cls, value: str) -> str:
        return value.lower()


class Ordered(Entity):
    id: Field[str] = Field(primary_key=True)
    low: Field[int] = 0

    @model_validator(mode="after")
    def _positive(self) -> Ordered:
        return self


class VettedPair(Relation[Customer, Customer]):
    weight: Field[int] = 0

    @field_validator("weight")
    @classmethod
    def _any(cls, value: int) -> int:
        return value


class Timed(Entity):
    at: Field[dt.datetime] = Field(primary_key=True)
    then: Field[dt.datetime]
    many: Field[list[dt.datetime]]
    some: Field[dict[str, int | None]]
    raw: Field[dict[str, list[bytes]]]


OddNames = type(
    "OddNames",
    (Entity,),
    {
        "__annotations__": {"id": Field[str], "a.b": Field[int], "back`tick": Field[str]},
        "__module__": __name__,
        "id": Field(primary_key=True),
    },
)


def session_of(uri, *types):
    return Session(uri, entity_types=types, config=OntologiaConfig())


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


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
@pytest.mark.slow_on("sqlite")
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
    assert (report.defaulted, report.ignored) == ({"Customer": ("tags", "note")}, {"Customer": ()})
    assert sorted(map(str, Path(folder.removeprefix("file://")).rglob("*"))) == before


def test_fields_without_a_column_keep_what_is_stored_where_that_is_asked_for(spark, folder):
    commit(folder, Customer(id="c1", name="Ann", age=30, tags=["a"], note="n"), Customer(id="c2", name="Bob", age=40))
    rows = spark.createDataFrame([("c1", "Anna", 30), ("c2", "Bob", 40), ("c3", "Cy", 1)], COLUMNS)
    report = Pipeline(spark, folder).load(rows, into=Customer, missing="keep").commit()
    files = report.types["Customer"].files
    assert report.types["Customer"] == TypeReport(read=3, inserted=1, updated=1, unchanged=1, files=files)
    with session(folder) as opened:
        found = opened.query().entities(Customer).collect()
    assert [(one.name, one.tags, one.note) for one in found] == [
        ("Anna", ["a"], "n"),
        ("Bob", [], None),
        ("Cy", [], None),
    ]
    loads = Pipeline(spark, folder).load(rows, into=Customer, missing="keep")
    with pytest.raises(ValidationError, match="all of them fill the same fields"):
        loads.load(rows.selectExpr("*", "'x' AS note"), into=Customer, missing="keep")


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


@pytest.mark.slow_on("sqlite")
def test_text_that_is_not_utf8_is_set_aside_and_the_rest_can_be_read(spark, uri):
    rows = "('c1', cast(unhex('ff41') AS string)), (cast(unhex('ff') AS string), 'Bob'), ('c3', 'Cy')"
    frame = spark.sql(f"SELECT col1 AS id, col2 AS name, 1 AS age FROM VALUES {rows}")
    with pytest.raises(ValidationError, match="cannot be read as UTF-8 text: \ufffd"):
        Pipeline(spark, uri).load(frame, into=Customer).commit()
    report = Pipeline(spark, uri, on_invalid="quarantine").load(frame, into=Customer).commit()
    assert customers(uri) == {"c3": ("Cy", 1)}
    aside = spark.read.parquet(f"{report.quarantine}entity-Customer").collect()
    assert sorted((row.reason, json.loads(row.source)["id"]) for row in aside) == [
        ("id: cannot be read as UTF-8 text: \ufffd", "\ufffd"),
        ("name: cannot be read as UTF-8 text: \ufffdA", "c1"),
    ]


@pytest.mark.slow_on("sqlite")
def test_a_key_that_its_validator_changes_is_one_identity(spark, uri):
    with session_of(uri, Tidy) as opened:
        opened.ensure([Tidy(id=" A ", size=1)])
        opened.commit()
    frame = spark.createDataFrame([("A ", 1), (" B", 2)], "id string, size int")
    report = Pipeline(spark, uri).load(frame, into=Tidy).commit()
    assert report.types["Tidy"] == TypeReport(read=2, inserted=1, unchanged=1, files=report.types["Tidy"].files)
    with session_of(uri, Tidy) as opened:
        found = opened.query().entities(Tidy).collect()
    assert sorted((one.id, one.meta().key, one.size) for one in found) == [("a", "a", 1), ("b", "b", 2)]
    twice = spark.createDataFrame([("C", 1), ("c", 2)], "id string, size int").repartition(2, "size")
    with pytest.raises(ValidationError, match="entity Tidy 'c' occurs more than once"):
        Pipeline(spark, uri).load(twice, into=Tidy).commit()


def test_a_key_that_its_validator_refuses_is_a_row_that_does_not_fit(spark, folder):
    frame = spark.createDataFrame([("a",), ("A",)], "id string")
    report = Pipeline(spark, folder, on_invalid="quarantine").load(frame, into=Coded).commit()
    assert report.types["Coded"] == TypeReport(read=2, inserted=1, rejected=1, files=1)
    aside = spark.read.parquet(f"{report.quarantine}entity-Coded").collect()
    assert [row.reason for row in aside] == ["id: String should match pattern '^[a-z]$'"]


@pytest.mark.parametrize("cls", [Vetted, Ordered, VettedPair])
@pytest.mark.parametrize("mode", ["upsert", "sync"])
def test_a_class_with_validators_is_refused_with_what_to_do(spark, folder, cls, mode):
    people = spark.createDataFrame([("c1", "Ann", 1)], COLUMNS)
    frame = spark.createDataFrame([("A", "B")], "id string, other string")
    ends = {"left": "id", "right": "other"} if cls is VettedPair else {}
    pipeline = Pipeline(spark, folder).load(people, into=Customer)
    with pytest.raises(ValidationError) as caught:
        pipeline.load(frame, into=cls, mode=mode, **ends).commit()
    assert str(caught.value) == (
        f"{cls.__name__} has @field_validator or @model_validator, which do not run on Spark: load it in process, "
        "without a Spark session, or say it with Field(ge=…, pattern=…, …) or Annotated"
    )
    assert head(folder) == 0


def test_times_and_nested_values_are_those_of_the_embedded_path_in_any_session(spark, folder):
    moment = dt.datetime(2024, 3, 31, 2, 30, 0, 1, tzinfo=dt.UTC)  # an hour that this night has not in Berlin
    row = {"some": {"a": 1, "b": None}, "raw": {"k": [b"\0\xff"]}}
    with session_of(folder, Timed) as opened:
        opened.ensure([Timed(at=moment, then=moment.replace(tzinfo=None), many=[moment], **row)])
        opened.commit()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = spark.sql(
            "SELECT timestamp_ntz'2024-03-31 02:30:00.000001' AS at, '2024-03-31 02:30:00.000001' AS then, "
            "array(timestamp'2024-03-31 04:30:00.000001') AS many, named_struct('a', 1, 'b', null) AS some, "
            "map('k', array(unhex('00ff'))) AS raw"
        )
        report = Pipeline(spark, folder).load(frame, into=Timed).commit()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert report.types["Timed"] == TypeReport(read=1, unchanged=1)


def test_a_run_that_fails_leaves_the_quarantine_of_another_in_the_same_second(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda *_: "20240101T000000")
    uri = str(tmp_path / "onto.db")
    frame = spark.createDataFrame([("c1", "Ann", 1), (None, "No key", 1)], COLUMNS)
    Pipeline(spark, uri, on_invalid="quarantine").load(frame, into=Customer).commit()
    with pytest.raises(ValidationError):
        Pipeline(spark, uri).load(frame, into=Customer).commit()
    assert len(list(Path(f"{uri}.staging/{QUARANTINE}").rglob("*.parquet"))) == 1


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
        rows = map_rows(frame, Knows.__declaration__, {}).select("left_key", "right_key").collect()
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


def test_rows_that_are_the_last_alike_are_an_error_unless_a_rule_tells_them_apart(spark, folder):
    rows = spark.createDataFrame(
        [("a", "A", n, 1, n % 7) for n in range(20)], "id string, name string, age int, at int, b int"
    )
    one = rows.where("age = 19")
    with pytest.raises(ValidationError, match="entity Customer 'a' has several rows that order_by takes for the last"):
        Pipeline(spark, folder).load(rows, into=Customer, order_by="at").commit()
    for parts, commit_id in ((1, 1), (3, None)):
        loaded = Pipeline(spark, folder).load(
            rows.repartition(parts), into=Customer, order_by="at", on_tie="greatest"
        )  # the same row, however often it is asked for
        found = loaded.commit()
        assert (found.commit_id, customers(folder), found.types["Customer"].ties) == (commit_id, {"a": ("A", 19)}, 1)
    again = Pipeline(spark, folder).load(one.union(one), into=Customer, order_by="at").commit()
    assert (again.commit_id, again.types["Customer"].ties) == (None, 0)
    told_apart = Pipeline(spark, folder).load(rows, into=Customer, order_by=["at", "b", "-age"]).commit()
    assert (customers(folder)["a"], told_apart.types["Customer"].ties) == (("A", 6), 0)


def test_pipelines_in_threads_leave_the_settings_of_the_session(spark, tmp_path):
    names = [f"spark.sql.execution.arrow.{name}" for name in ("maxRecordsPerBatch", "maxBytesPerBatch")]
    before = [spark.conf.get(name) for name in names]
    seen = []

    def work(number):
        uri = new_store((tmp_path / f"s{number}").as_uri())
        rows = spark.range(100).selectExpr("cast(id AS string) id", "'A' AS name", "id AS age")
        Pipeline(spark, uri).load(rows, into=Customer).commit()
        seen.append([spark.conf.get(name) for name in names])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [before] * 3


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
    with pytest.raises(ValidationError, match="say what it is with format='csv'"):
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


@pytest.mark.parametrize(
    ("into", "given", "message"),
    [
        (Customer, {"left": "id"}, "entity Customer has no left: its identity is key"),
        (Customer, {"instance_key": "id", "right": "id"}, "entity Customer has no right and no instance_key"),
        (Knows, {"key": "id"}, "relation Knows has no key: its identity is left, right"),
        (Knows, {"instance_key": "id"}, "relation Knows has no instance_key"),
        (Customer, {"on_duplicate": "Last"}, "on_duplicate is one of error, last, not 'Last'"),
        (Customer, {"on_duplicate": "last"}, "on_duplicate='last' needs order_by"),
    ],
)
def test_what_a_type_does_not_have_and_choices_that_there_are_not_are_refused(spark, folder, into, given, message):
    frame = spark.createDataFrame([("c1", "Ann", 1)], COLUMNS)
    with pytest.raises(ValidationError, match=message):
        Pipeline(spark, folder).load(frame, into=into, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"on_invalid": "Abort"}, "on_invalid is one of abort, quarantine, not 'Abort'"),
        ({"on_conflict": "merge"}, "on_conflict is one of abort, skip, upsert, not 'merge'"),
    ],
)
def test_a_pipeline_takes_only_the_choices_that_there_are(spark, folder, given, message):
    with pytest.raises(ValidationError, match=message):
        Pipeline(spark, folder, **given)


def test_the_loads_of_one_type_agree_on_what_the_last_row_is(spark, folder):
    frame = spark.createDataFrame([("c1", "Ann", 1)], COLUMNS)
    pipeline = Pipeline(spark, folder).load(frame, into=Customer, order_by="age")
    for other in ({}, {"order_by": "age", "on_duplicate": "error"}):
        with pytest.raises(ValidationError, match="give all of them order_by, on_duplicate and on_tie, or none"):
            pipeline.load(frame, into=Customer, **other)
    with pytest.raises(ValidationError, match="entity Customer is ordered by int and string: make them of one type"):
        pipeline.load(frame, into=Customer, order_by="name")
    pipeline.load(frame.selectExpr("id", "'New' AS name", "age"), into=Customer, order_by="age + 1L").commit()
    assert customers(folder) == {"c1": ("New", 1)}


def test_fields_of_any_name_are_loaded_compacted_and_exported(spark, tmp_path):
    uri = new_store((tmp_path / "odd names").as_uri())
    frame = spark.createDataFrame([("k1", 1, "x"), ("k2", 2, "y")], ["id", "a.b", "back`tick"])
    loaded = Pipeline(spark, uri).load(frame, into=OddNames).commit()
    assert loaded.types["OddNames"].inserted == 2
    Pipeline(spark, uri).load(frame.limit(1).withColumn("a.b", sql.lit(7)), into=OddNames).commit()
    with Ontology(storage_uri=uri, entity_types=[OddNames]) as onto:
        compact(spark, onto, apply=True)
        rows = onto.query().entities(OddNames).to_arrow().to_pylist()
        export_data(spark, onto, tmp_path / "export")
    assert [(row["id"], row["back`tick"]) for row in rows] == [("k1", "x"), ("k2", "y")]
    assert sorted(row["a.b"] for row in rows) in ([1, 7], [2, 7])
    assert list((tmp_path / "export").rglob("*.jsonl"))


def test_a_load_that_is_refused_makes_no_file(spark, tmp_path):
    rows = spark.createDataFrame([("a", "Ann", "old")], "id string, name string, age string")
    with pytest.raises(ValidationError, match="age: cannot be read as int"):
        Pipeline(spark, str(tmp_path / "new.db")).load(rows, into=Customer).commit()
    assert list(tmp_path.iterdir()) == []
