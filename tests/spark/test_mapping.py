"""From a source's columns to a type's rows, before any of it is staged."""

from __future__ import annotations

import datetime as dt
import json
from typing import Annotated, Any, NotRequired

import pytest
from pydantic import StringConstraints
from pyspark.sql import functions as sql
from typing_extensions import TypedDict

from ontologia import Entity, Field, Relation, ValidationError
from ontologia.model import encode_json, key_text
from ontologia.runtime.intake.rows import fit_columns
from ontologia.spark.loading.mapping import BLANKS, REASON, map_rows
from ontologia.spark.types import arrow_schema_of
from support.spark_shop import Buys, Customer, Everything, Knows

Tidied = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]


class Tidy(Entity):
    id: Field[Tidied] = Field(primary_key=True)


class Tied(Relation[Tidy, Tidy]):
    at: Field[Annotated[Tidied, StringConstraints(max_length=3)]] = Field(instance_key=True)


class Given(Entity):
    id: Field[str] = Field("one", primary_key=True)
    size: Field[int] = 1


class Made(Entity):
    id: Field[str] = Field(default_factory=lambda: "made", primary_key=True)


class Cased(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    Name: Field[str]


class Moments(Entity):
    at: Field[dt.datetime] = Field(primary_key=True)
    then: Field[dt.datetime | None] = None


class Loose(Entity):
    id: Field[int] = Field(primary_key=True)
    many: Field[list[dt.datetime] | None] = None
    some: Field[dict[str, int | None] | None] = None
    by_day: Field[dict[dt.date, list[bytes]] | None] = None
    anything: Field[Any] = None


@pytest.fixture
def berlin(spark):
    """A session whose clock is not UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def rows_of(frame, cls, **expressions):
    return [row.asDict() for row in map_rows(frame, cls.__declaration__, expressions).collect()]


def reasons(frame, cls, **expressions):
    return [row["__reason"] for row in rows_of(frame, cls, **expressions)]


def test_the_source_row_goes_along_only_where_a_row_may_still_be_refused(spark):
    rows = [("a", "b", 1), ("a", None, 2)]
    knows = spark.createDataFrame(rows, "left_key string, right_key string, since int")
    found = map_rows(knows, Knows.__declaration__, {}).select("__reason", "__source").collect()
    assert [tuple(row) for row in found] == [
        (None, None),
        ("right_key: must have a value", '{"left_key":"a","since":2}'),
    ]
    customer = spark.createDataFrame([("c1", "Ann", -1)], "id string, name string, age int")  # an age is checked later
    found = map_rows(customer, Customer.__declaration__, {}).select("__reason", "__source").collect()
    assert (found[0][0], json.loads(found[0][1])) == (None, {"id": "c1", "name": "Ann", "age": -1})


def test_text_that_is_not_utf8_has_a_reason_that_can_be_read(spark):
    bad = "cast(unhex('ff41') AS string)"
    frame = spark.sql(f"SELECT {bad} AS bad, unhex('ff41') AS raw, 'a' AS good, array('a', {bad}) AS items")
    said = "cannot be read as UTF-8 text: \ufffdA"
    assert reasons(frame, Customer, id="bad", name="good", age="1") == [f"id: {said}"]
    assert reasons(frame, Customer, id="good", name="bad", age="1") == [f"name: {said}"]
    assert reasons(frame, Customer, id="good", name="raw", age="1") == [f"name: {said}"]
    assert reasons(frame, Customer, id="good", name="good", age="bad") == ["age: cannot be read as int: \ufffdA"]
    assert reasons(frame, Customer, id="good", name="good", age="1", tags="items") == [
        "tags: has text that is not valid UTF-8"
    ]
    text = "concat('[\"', bad, '\"]')"
    assert reasons(frame, Customer, id="good", name="good", age="1", tags=text) == [
        'tags: cannot be read as JSON: ["\ufffdA"]'
    ]
    deep = "map('k', named_struct('a', array(bad)))"
    assert reasons(frame, Loose, id="1", anything=deep) == ["anything: has text that is not valid UTF-8"]
    ends = {"left_key": "bad", "right_key": "good", "at": "bad", "amount": "1"}
    assert reasons(frame, Buys, **ends) == [f"left_key: {said}; at: {said}"]
    assert json.loads(rows_of(frame, Buys, **ends)[0]["__source"])["bad"] == "\ufffdA"


def test_an_identity_is_the_key_as_its_validator_leaves_it(spark):
    frame = spark.createDataFrame([(" A ", "B", " MON "), ("c", "d", "friday")], "a string, b string, c string")
    assert [row["entity_key"] for row in rows_of(frame, Tidy, id="a")] == ["a", "c"]
    tied = rows_of(frame, Tied, left_key="a", right_key="b", at="c")
    assert [(row["left_key"], row["instance_key"]) for row in tied] == [(" A ", "mon"), ("c", None)]
    assert [row["__reason"] for row in tied] == [None, "at: String should have at most 3 characters"]
    garbled = frame.limit(1).select(sql.expr("cast(unhex('ff41') AS string)").alias("id"))
    assert reasons(garbled, Tidy) == ["id: cannot be read as UTF-8 text: \ufffdA"]


def test_a_time_without_a_zone_is_utc_in_any_session(berlin):
    """02:30 does not exist in that Berlin night."""
    utc = dt.datetime(2024, 3, 31, 2, 30, tzinfo=dt.UTC)
    day = utc.replace(hour=0, minute=0)
    given = {
        "timestamp_ntz'2024-03-31 02:30:00'": utc,
        "'2024-03-31 02:30:00'": utc,
        "'2024-03-31T02:30'": utc,
        "' 2024-3-31 02:30:00.000 '": utc,
        "'2024-03-31T02:30:00Z'": utc,
        "'2024-03-31T04:30:00.0+02:00'": utc,
        "'2024-03-30 18:30:00-08:00'": utc,
        "'2024-03-31 04:30:00 Europe/Helsinki'": utc - dt.timedelta(hours=1),
        "timestamp'2024-03-31 04:30:00'": utc,
        "date'2024-03-31'": day,
        "'2024-03-31'": day,
        "1711852200": utc,
    }
    for text, moment in given.items():
        frame = map_rows(berlin.range(1), Moments.__declaration__, {"at": text, "then": text})
        found = frame.selectExpr("entity_key", "unix_micros(at) AS at", "unix_micros(then) AS then", "__reason").first()
        micros = int(moment.timestamp()) * 1_000_000
        assert tuple(found) == (key_text(moment), micros, micros, None), text
    ends = {"left_key": "timestamp_ntz'2024-03-31 02:30:00.5'", "right_key": "timestamp'2024-03-31 04:30:00'"}
    row = rows_of(berlin.range(1), Knows, **ends, since="1")[0]
    assert (row["left_key"], row["right_key"]) == ("2024-03-31T02:30:00.500000+00:00", key_text(utc))


def test_a_time_without_a_day_and_one_that_no_calendar_has_are_refused(spark):
    frame = spark.createDataFrame([("12:30",), ("2024-02-30",), ("soon",), ("12024-01-01",)], "at string")
    found = map_rows(frame, Moments.__declaration__, {}).select("__reason").collect()
    assert [row[0] for row in found] == [f"at: cannot be read as datetime: {row.at}" for row in frame.collect()]


NESTED = {
    "many": "array(timestamp'2024-01-01 00:00:00.000001Z', timestamp'2024-01-01 01:00:00+01:00')",
    "some": "named_struct('a', 1, 'b', cast(null AS int))",
    "by_day": "map(date'2024-05-06', array(unhex('00ff'), null))",
}
ANYTHING = [
    "named_struct('at', timestamp_ntz'2024-01-01 00:00:00', 'raw', unhex('0a'), 'none', cast(null AS int))",
    "map(timestamp'2024-01-01 00:00:00Z', unhex('0a'))",
    "array(named_struct('day', date'2024-01-01', 'real', double('NaN')))",
    "timestamp'2024-01-01 00:00:00Z'",
    "date'2024-01-01'",
    "unhex('0a')",
    "double('Infinity')",
    "true",
    "5",
]


@pytest.mark.parametrize("anything", ANYTHING)
def test_nested_values_are_stored_as_the_writer_stores_them(berlin, anything):
    nested = {name: text for name, text in NESTED.items() if name != "by_day"}
    frame = berlin.range(1).selectExpr("id", *(f"{text} AS {name}" for name, text in nested.items()))
    frame = frame.withColumn("anything", sql.expr(anything))
    declaration = Loose.__declaration__
    written, rejected = fit_columns(arrow_schema_of(frame.schema), declaration.schema, declaration).take(
        frame.toArrow()
    )
    row = rows_of(frame, Loose)[0]
    assert (rejected, row["__reason"]) == ([], None)
    for name in (*nested, "anything"):
        assert encode_json(json.loads(row[name])) == written.column(name)[0].as_py(), name
    assert json.loads(row["many"]) == ["2024-01-01T00:00:00.000001+00:00", "2024-01-01T00:00:00.000000+00:00"]


def test_bytes_in_nested_values_are_hex_and_keys_of_maps_are_keys(spark):
    row = rows_of(spark.range(1), Loose, by_day=NESTED["by_day"])[0]
    assert row["by_day"] == '{"2024-05-06":["00ff",null]}'
    with pytest.raises(ValidationError, match=r"is a key: text, .* and the source has binary"):
        rows_of(spark.range(1), Loose, by_day="map(unhex('00'), 1)")


def test_a_key_with_a_default_needs_no_value_and_no_column(spark):
    frame = spark.createDataFrame([("a", 1), (None, 2)], "id string, size int")
    assert [(row["entity_key"], row["id"], row["__reason"]) for row in rows_of(frame, Given)] == [
        ("a", "a", None),
        ("one", "one", None),
    ]
    assert rows_of(frame.select("size").limit(1), Given)[0]["entity_key"] == "one"


def test_a_key_that_a_factory_makes_is_asked_of_every_row(spark):
    with pytest.raises(ValidationError, match="nothing fills id of entity Made"):
        rows_of(spark.range(1).select("id").withColumnRenamed("id", "other"), Made)
    assert reasons(spark.createDataFrame([(None,)], "id string"), Made) == ["id: must have a value"]


def test_an_instance_key_of_any_white_space_is_blank(spark):
    frame = spark.createDataFrame([(text,) for text in ("", "\t", BLANKS, "a\t")], "at string")
    found = reasons(frame, Buys, left_key="'a'", right_key="'b'", amount="1")
    assert found == [*["at: a key must not be blank"] * 3, None]


def test_fields_whose_names_differ_in_case_alone_are_told_apart(spark):
    frame = spark.createDataFrame([("1", "a", "b")], "id string, x string, y string")
    row = rows_of(frame, Cased, name="x", Name="y")[0]
    physical = {column.name: column.physical for column in Cased.__declaration__.schema.columns}
    assert (row[physical["name"]], row[physical["Name"]]) == ("a", "b")


def test_a_column_that_is_spelled_otherwise_than_a_field_is_refused_by_name(spark):
    frame = spark.sql("SELECT 1 AS number, 'x' AS TEXT, 2.0D AS ` real`, 3 AS other")
    with pytest.raises(ValidationError, match=r"'TEXT' for text, ' real' for real.*map=\{\"text\": \"`TEXT`\""):
        rows_of(frame, Everything)
    row = rows_of(frame, Everything, text="`TEXT`", real="` real`")[0]
    assert (row["text"], row["real"]) == ("x", 2.0)


class Numbered(Entity):
    id: Field[int] = Field(primary_key=True)


class Dated(Entity):
    at: Field[dt.datetime] = Field(primary_key=True)


class Between(Relation[Numbered, Dated]):
    pass


def test_an_end_is_spelled_as_the_key_of_the_entity_there(berlin):
    given = {"007": "2024-03-31 02:30", "7.0": "2024-03-31T04:30:00+02:00"}
    frame = berlin.createDataFrame(list(given.items()), "n string, t string")
    keys = {row["entity_key"] for row in rows_of(frame, Numbered, id="n")}
    times = {row["entity_key"] for row in rows_of(frame, Dated, at="t")}
    ends = {(row["left_key"], row["right_key"]) for row in rows_of(frame, Between, left_key="n", right_key="t")}
    assert (keys, times) == ({"7"}, {"2024-03-31T02:30:00.000000+00:00"})
    assert ends == {("7", "2024-03-31T02:30:00.000000+00:00")}
    assert reasons(frame.limit(1), Between, left_key="'x'", right_key="t") == ["left_key: cannot be read as int: x"]


class Defaults(Entity):
    id: Field[str] = Field(primary_key=True)
    at: Field[dt.datetime] = dt.datetime(1500, 1, 1, 12)
    day: Field[dt.date] = dt.date(1500, 1, 1)


def test_defaults_follow_no_zone_and_no_calendar_of_the_session(berlin):
    frame = map_rows(berlin.sql("SELECT 'a' AS id"), Defaults.__declaration__, {})
    assert tuple(frame.selectExpr("unix_micros(at)", "unix_date(day)").first()) == (
        (dt.datetime(1500, 1, 1, 12) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1),
        (dt.date(1500, 1, 1) - dt.date(1970, 1, 1)).days,
    )


def test_columns_that_no_field_takes_may_have_any_names(spark):
    frame = spark.sql("SELECT 1 AS number, 2 AS b, 3 AS B, 4 AS `c``d`, 5 AS `e.f`")
    assert reasons(frame, Everything, text="`c``d`") == [None]
    row = rows_of(frame.withColumn("number", sql.lit("x")), Everything)[0]
    assert row["__source"] == '{"number":"x","b":2,"B":3,"c`d":4,"e.f":5}'


def test_an_order_that_the_source_does_not_have_is_refused(spark):
    with pytest.raises(ValidationError, match="no_such_column"):
        map_rows(spark.range(1), Everything.__declaration__, {"number": "id"}, order_by="no_such_column")


class Part(TypedDict):
    size: int
    colour: NotRequired[str]


class Bought(TypedDict):
    price: float | None


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    parts: Field[list[Part]]
    bought: Field[Bought | None] = None


def test_a_member_that_is_null_is_kept_where_it_may_be_none_and_else_not_there(spark):
    text = '{"id": "a", "parts": [{"size": 1}, {"size": 2, "colour": "red"}], "bought": {"price": null}}'
    kinds = "id string, parts array<struct<size: bigint, colour: string>>, bought struct<price: double>"
    source = spark.read.schema(kinds).json(spark.sparkContext.parallelize([text]))
    (row,) = map_rows(source, Thing.__declaration__, {}).collect()
    assert json.loads(row.parts) == [{"size": 1}, {"size": 2, "colour": "red"}]
    assert json.loads(row.bought) == {"price": None}


def test_a_row_whose_expression_fails_does_not_fit_and_the_others_do(spark):
    frame = spark.createDataFrame([("a", "5"), ("b", "abc"), ("c", None)], "id string, n string")
    rows = map_rows(frame, Everything.__declaration__, {"number": "1", "text": "id", "real": "cast(n as int) + 0.5"})
    found = {row["text"]: (row["real"], row[REASON]) for row in rows.collect()}
    assert found == {"a": (5.5, None), "b": (None, "real: cast(n as int) + 0.5 fails for this row"), "c": (None, None)}
