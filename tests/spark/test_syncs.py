"""Rows that a source lacks or names are removed on Spark: in the commit of the run, bounded, and kept by history."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from ontologia import RemovalLimitError, ValidationError
from ontologia.runtime.intake.reports import TypeReport
from ontologia.spark import Pipeline, compact, read
from support.spark_shop import Customer, Knows, commit, commits, customers, head, new_store, session

COLUMNS = "id string, name string, age int"
ANN, BOB, CY = ("a", "Ann", 1), ("b", "Bob", 2), ("c", "Cy", 3)


def filled(uri):
    commit(uri, *(Customer(id=key, name=name, age=age) for key, name, age in (ANN, BOB, CY)))
    return uri


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
@pytest.mark.slow_on("sqlite")
def test_a_sync_inserts_updates_and_removes_in_one_commit(spark, uri):
    filled(uri)
    rows = spark.createDataFrame([ANN, ("b", "Bob", 9), ("d", "Di", 4)], COLUMNS)

    def sync(**terms):
        return Pipeline(spark, uri).load(rows, into=Customer, mode="sync", **terms)

    with pytest.raises(RemovalLimitError, match="the source lacks 1 of the rows that the store has, and 0 may go"):
        sync(max_removals=0).commit()
    assert sync().commit(dry_run=True).types["Customer"].removed == 1
    assert head(uri) == 1
    report = sync(max_removals=1).commit()
    assert report.commit_id == 2
    files = report.types["Customer"].files
    assert report.types["Customer"] == TypeReport(read=3, inserted=1, updated=1, unchanged=1, removed=1, files=files)
    now = {"a": ("Ann", 1), "b": ("Bob", 9), "d": ("Di", 4)}
    assert customers(uri) == now
    assert commits(uri)[0]["metadata"]["rows_removed"] == "1"
    assert sorted(row.id for row in read(spark, uri, Customer).collect()) == ["a", "b", "d"]
    assert sorted(row.id for row in read(spark, uri, Customer, as_of=1).collect()) == ["a", "b", "c"]
    changes = spark.read.format("ontologia").options(type="Customer", changes="true", since="1").load(uri)
    assert sorted((row.operation, row.id) for row in changes.collect()) == [
        ("insert", "d"),
        ("remove", "c"),
        ("update_version", "b"),
    ]
    assert sync().commit().commit_id is None
    if "://" in uri:
        with session(uri) as opened:
            compact(spark, opened, apply=True)
        assert customers(uri) == now


def test_a_sync_of_rows_that_do_not_fit_or_of_none_is_refused(spark, folder):
    filled(folder)

    def sync(*rows, **terms):
        frame = spark.createDataFrame(list(rows), "id string, name string, age string")
        return (
            Pipeline(spark, folder, on_invalid="quarantine").load(frame, into=Customer, mode="sync", **terms).commit()
        )

    with pytest.raises(ValidationError, match="1 rows of the source do not fit, and so mode='sync' cannot tell"):
        sync(("a", "Ann", "1"), ("b", "Bob", "old"))
    with pytest.raises(RemovalLimitError, match="the source has no rows, and the store 3"):
        sync()
    assert customers(folder).keys() == {"a", "b", "c"}
    assert sync(max_removals=3).types["Customer"].removed == 3
    assert customers(folder) == {}


def test_rows_that_a_dataframe_names_are_removed(spark, folder):
    filled(folder)
    commit(folder, Knows(left_key="a", right_key="b", since=1), Knows(left_key="b", right_key="c", since=2))
    people = spark.createDataFrame([("c",), ("nobody",), ("c",)], "person string")
    known = spark.createDataFrame([("a", "b")], "left_key string, right_key string")
    run = Pipeline(spark, folder).remove(people, of=Customer, key="person").remove(known, of=Knows)
    report = run.commit()
    assert (report.commit_id, {name: found.removed for name, found in report.types.items()}) == (
        3,
        {"Customer": 1, "Knows": 1},
    )
    assert set(customers(folder)) == {"a", "b"}
    with session(folder) as opened:
        assert [(one.left_key, one.since) for one in opened.query().relations(Knows).collect()] == [("b", 2)]
    with pytest.raises(ValidationError, match=r"must have a value\. Nothing was removed"):
        Pipeline(spark, folder).remove(people.selectExpr("null AS person"), of=Customer, key="person").commit()
    with pytest.raises(ValidationError, match="nothing says id of the entity Customer to remove"):
        Pipeline(spark, folder).remove(people, of=Customer)
    with pytest.raises(ValidationError, match="is loaded and removed from in one run"):
        run.load(spark.createDataFrame([ANN], COLUMNS), into=Customer).commit()


def test_an_overwrite_is_a_sync_and_refused_where_rows_are_never_removed(spark, folder, tmp_path):
    filled(folder)

    def overwrite(rows, uri=folder, **options):
        frame = spark.createDataFrame(rows, f"{COLUMNS}, tags array<string>, note string")
        frame.write.format("ontologia").options(type="Customer", **options).mode("overwrite").save(uri)

    kept = [(*ANN, [], None), ("d", "Di", 4, [], None)]
    with pytest.raises(PySparkException, match="the source lacks 2 of the rows that the store has, and 1 may go"):
        overwrite(kept, maxRemovals="1")
    assert head(folder) == 1
    overwrite(kept, maxRemovals="2")
    assert (head(folder), customers(folder)) == (2, {"a": ("Ann", 1), "d": ("Di", 4)})
    first = new_store((tmp_path / "v1").as_uri(), "v1")
    filled(first)
    with pytest.raises(PySparkException, match="a store keeps its history: write with"):
        overwrite(kept, first)
    with pytest.raises(ValidationError, match="cannot be removed here: engine v1 keeps every row"):
        Pipeline(spark, first).load(spark.createDataFrame([ANN], COLUMNS), into=Customer, mode="sync").commit()


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
@pytest.mark.slow_on("sqlite")
def test_a_source_that_changes_while_it_is_synced_gives_each_key_one_fate(spark, uri, tmp_path):
    filled(uri)
    reads = tmp_path / "reads"

    @sql.udf("boolean")
    def is_there(key):  # b is deleted in the source after it was read twice
        if key != "b":
            return True
        with reads.open("a") as file:
            file.write("x")
        return reads.stat().st_size <= 2

    source = spark.createDataFrame([("a", "Ann", 9), ("b", "Bob", 9)], COLUMNS).coalesce(1)
    changing = source.where(is_there.asNondeterministic()("id"))
    report = Pipeline(spark, uri).load(changing, into=Customer, mode="sync").commit()
    assert (report.types["Customer"].updated, report.types["Customer"].removed) == (2, 1)
    assert customers(uri) == {"a": ("Ann", 9), "b": ("Bob", 9)}


def test_a_first_sync_of_rows_that_do_not_fit_is_refused(spark, folder):
    rows = spark.createDataFrame([("a", "Ann", "1"), ("b", "Bob", "old")], "id string, name string, age string")
    with pytest.raises(ValidationError, match="1 rows of the source do not fit"):
        Pipeline(spark, folder, on_invalid="quarantine").load(rows, into=Customer, mode="sync").commit()
    assert head(folder) == 0


def test_a_sync_over_several_ranges_removes_in_each(spark, folder, monkeypatch):
    monkeypatch.setattr("ontologia.spark.loading.staging.ROWS_COMPARED", 5)
    pairs = [(f"{left:02d}", f"{right:02d}") for left in range(6) for right in range(6)]
    commit(folder, *(Knows(left_key=left, right_key=right, since=1) for left, right in pairs))
    kept = [pair for place, pair in enumerate(pairs) if place % 3]
    rows = spark.createDataFrame([(*pair, 1) for pair in kept], "left_key string, right_key string, since int")
    report = Pipeline(spark, folder).load(rows, into=Knows, mode="sync").commit()
    assert report.types["Knows"].removed == 12
    with session(folder) as opened:
        assert sorted((one.left_key, one.right_key) for one in opened.query().relations(Knows).collect()) == kept
