"""The columns of a read on Spark: structured fields as text, structs and variants, odd names, comments."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NotRequired

import pytest
from typing_extensions import TypedDict

from ontologia import Entity, Field, Session, ValidationError
from ontologia.spark import attach, read
from support.spark_reads import loaded


class Cased(Entity):
    """Spark takes two of its fields for one, unless the session says otherwise."""

    id: Field[str] = Field(primary_key=True)
    a: Field[int]
    """Small."""
    A: Field[list[int]]


class Inner(TypedDict):
    size: int
    at: NotRequired[datetime]


class Shaped(Entity):
    id: Field[str] = Field(primary_key=True)
    parts: Field[list[Inner]]
    by: Field[dict[str, list[float]] | None] = None
    loose: Field[int | str | None] = None
    anything: Field[Any] = None


def test_structured_fields_come_as_text_as_structs_or_as_variants(spark, folder):
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    with Session(folder, entity_types=[Shaped]) as opened:
        parts = [{"size": 1}, {"size": 2**40, "at": moment}]
        opened.ensure(Shaped(id="a", parts=parts, by={"x": [1.5, float("nan")]}, loose="7", anything={"k": [1]}))
        opened.commit()
    text = read(spark, folder, Shaped).first()
    assert text.parts == '[{"size":1},{"at":"2024-01-01T00:00:00.000000+00:00","size":1099511627776}]'
    row = read(spark, folder, Shaped, nested="struct").first()
    assert [part.asDict() for part in row.parts] == [
        {"at": None, "size": 1},
        {"at": "2024-01-01T00:00:00.000000+00:00", "size": 2**40},
    ]
    assert (row.by["x"][0], row.by["x"][1] != row.by["x"][1]) == (1.5, True)
    assert (row.loose, row.anything) == ('"7"', '{"k":[1]}')
    found = read(spark, folder, Shaped, nested="variant").selectExpr(
        "parts:[1].size::bigint", "loose::string", "anything:k[0]::int"
    )
    assert tuple(found.first()) == (2**40, "7", 1)
    with pytest.raises(ValidationError, match="nested is one of json, struct, variant"):
        read(spark, folder, Shaped, nested="xml")
    asked = ["parts[1].size", "parts[0].at", "by['x'][0]", "isnan(by['x'][1])", "loose", "anything"]
    expected = (2**40, None, 1.5, True, '"7"', '{"k":[1]}')
    options = {"type": "Shaped", "nested": "struct"}
    assert tuple(loaded(spark, folder, "Shaped", nested="struct").selectExpr(*asked).first()) == expected
    stream = spark.readStream.format("ontologia").options(**options, changes="true").load(folder)
    rows = []
    stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.selectExpr(*asked).collect())).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert list(map(tuple, rows)) == [expected]
    attach(spark, folder, "shaped", nested="struct")
    assert tuple(spark.sql(f"SELECT {', '.join(asked)} FROM shaped.Shaped_history").first()) == expected
    variants = loaded(spark, folder, "Shaped", nested="variant")
    assert tuple(variants.selectExpr("parts:[1].size::bigint", "loose::string", "anything:k[0]::int").first()) == (
        *(2**40, "7", 1),
    )


def test_a_field_may_be_called_anything(spark, folder):
    name = "back`tick .x"
    odd = type(
        "Odd", (Entity,), {"__annotations__": {"id": Field[str], name: Field[int]}, "id": Field(primary_key=True)}
    )
    with Session(folder, entity_types=[odd]) as opened:
        opened.ensure(odd(id="a", **{name: 1}))
        opened.commit()
    for found in (read(spark, folder, odd), loaded(spark, folder, "Odd"), read(spark, folder, odd, nested="struct")):
        assert (found.columns, [tuple(row) for row in found.collect()]) == (["id", name], [("a", 1)])


@pytest.mark.parametrize("sensitive", ["false", "true"])
def test_fields_that_differ_in_case_alone_are_told_apart(spark, folder, sensitive):
    spark.conf.set("spark.sql.caseSensitive", sensitive)
    with Session(folder, entity_types=[Cased]) as opened:
        opened.ensure(Cased(id="x", a=1, A=[2]))
        opened.commit()
        frames = [
            read(spark, folder, Cased),
            read(spark, folder, Cased, where=Cased.a == 1),
            read(spark, folder, Cased, nested="struct"),
            opened.query().entities(Cased).to_spark(spark),
            loaded(spark, folder, "Cased"),
        ]
    try:
        assert [tuple(frame.first()) for frame in frames] == [("x", 1, [2] if n == 2 else "[2]") for n in range(5)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


class Documented(Entity):
    """Something
    that is described.

    At length.
    """

    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0
    """How large it is,
    in metres."""


def test_docstrings_become_comments_of_columns_and_tables(spark, folder):
    with Session(folder, entity_types=[Documented]) as opened:
        opened.ensure(Documented(id="a", size=3))
        opened.commit()
    found = read(spark, folder, Documented)
    assert [(field.name, field.metadata) for field in found.schema] == [
        ("id", {}),
        ("size", {"comment": "How large it is, in metres."}),
    ]
    assert found.where("size > 2").first().id == "a"
    try:
        attach(spark, folder, "documented", types=[Documented])
        table = spark.table("documented.Documented")
        assert (table.schema["size"].metadata, table.first().size) == (found.schema["size"].metadata, 3)
    finally:
        spark.sql("DROP SCHEMA documented CASCADE")
