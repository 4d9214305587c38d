"""Errors at every door of Spark begin with our sentence, and stay exceptions of PySpark where its own calls raise them."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from ontologia.errors import ValidationError
from ontologia.spark import attach, read
from ontologia.spark.sentences import sentence_of
from support.spark_shop import Customer, commit, new_store

COLUMNS = "id string, name string, age int, tags array<string>"
NOBODY = "Nobody is not in this store; it has entity Customer"


def said(work, kind=PySparkException):
    with pytest.raises(kind) as caught:
        work()
    return str(caught.value)


def test_errors_of_every_door_begin_with_our_sentence(spark, folder, tmp_path):
    commit(folder, Customer(id="c1", name="Ann", age=1))
    attach(spark, folder, "spoken")
    frame = spark.createDataFrame([("c1", "Ann", -1, [])], COLUMNS)

    def read(**options):
        return spark.read.format("ontologia").options(**options)

    def write(rows, **options):
        rows.write.format("ontologia").options(**options).mode("append").save(folder)

    def stream(frame, name, sink="noop", **options):
        writer = frame.writeStream.format(sink).options(**options, checkpointLocation=str(tmp_path / name))
        started = writer.trigger(availableNow=True).start(folder if sink == "ontologia" else None)
        return lambda: started.awaitTermination()

    other = new_store((tmp_path / "other").as_uri())
    commit(other, Customer(id="c1", name="Ann", age=1))
    lost = read(type="Customer").load(other)
    for file in (tmp_path / "other").rglob("*.parquet"):
        file.unlink()
    plain = spark.readStream.format("ontologia").option("type", "Customer").load(folder)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": "c1", "name": "x", "age": -1, "tags": []}')
    rows = spark.readStream.schema(COLUMNS).json(str(tmp_path / "in"))
    refused = "entity Customer: age: Input should be greater than or equal to 0. The source row is"
    doors = {
        "read": (lambda: read(type="Nobody").load(folder), NOBODY),
        "its schema": (lambda: read(type="Customer").schema("id int").load(folder).collect(), "entity Customer.id is"),
        "its task": (lost.collect, "a data file is part of the history, and it is gone"),
        "write": (lambda: write(frame, type="Nobody"), NOBODY),
        "a row": (lambda: write(frame, models="support.spark_shop:Customer"), refused),
        "its commit": (
            lambda: write(frame.union(frame), type="Customer"),
            "entity Customer 'c1' occurs more than once",
        ),
        "readStream": (lambda: spark.readStream.format("ontologia").option("type", "Nobody").load(folder), NOBODY),
        "a stream": (stream(plain, "one"), "a stream delivers changes: add"),
        "writeStream": (stream(rows, "two", "ontologia", models="support.spark_shop:Customer"), refused),
        "CREATE TABLE": (
            lambda: spark.sql(f"CREATE TABLE n USING ontologia OPTIONS (path '{folder}', type 'Nobody')"),
            NOBODY,
        ),
        "INSERT": (
            lambda: spark.sql("INSERT INTO spoken.Customer_changes SELECT * FROM spoken.Customer_changes"),
            "Spark does not tell",
        ),
        "saveAsTable": (
            lambda: (
                frame.write.format("ontologia")
                .options(type="Customer", path=folder)
                .saveAsTable("spoken.T", mode="append")
            ),
            "saveAsTable cannot note",
        ),
    }
    found = {door: said(work) for door, (work, _) in doors.items()}
    assert {door: text for door, text in found.items() if not text.startswith(doors[door][1])} == {}


def test_the_exception_keeps_its_class_and_its_condition(spark, folder):
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("ontologia").option("type", "Nobody").load(folder)
    assert str(caught.value) == "Nobody is not in this store; it has no types yet [PYTHON_DATA_SOURCE_ERROR]"
    assert caught.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"


def test_a_sentence_is_found_in_what_spark_makes_of_it_and_nothing_else_is_touched():
    report = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [X] Failed: ontologia.errors.LostError: a\nb: c\n"
    )
    assert (
        sentence_of(f"{report} SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===") == "a\nb: c [STREAM_FAILED]"
    )
    assert sentence_of("An exception was thrown:\nontologia.errors.LostError: gone") == "gone"
    assert sentence_of("[PATH_NOT_FOUND] Path does not exist: file:/ontologia.db. SQLSTATE: 42K03") is None


@pytest.mark.parametrize("window", [{"as_of": -1}, {"since": -1}])
def test_a_negative_commit_is_an_error_as_it_is_everywhere_else(folder, window):
    commit(folder, Customer(id="c1", name="Ann", age=1))
    (name,) = window
    with pytest.raises(ValidationError, match=f"{name} is a commit id, zero or more, not -1"):
        read(None, folder, Customer, **window)
