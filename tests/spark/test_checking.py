"""Checks of whole columns: comparisons clear what they can, Pydantic says what is wrong with the rest."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import pydantic
import pytest
from annotated_types import Ge, Gt, Interval, Len, MaxLen, MinLen, MultipleOf

from ontologia import Entity, Field, Relation, ValidationError
from ontologia.runtime.intake.checks import Check, Limit, checks_of, instance_column, limits_of
from ontologia.spark import Pipeline
from ontologia.spark.loading.mapping import map_rows


class Sized(Entity):
    id: Field[str] = Field(primary_key=True)
    count: Field[Annotated[int, Ge(0)]]
    share: Field[Annotated[float, Interval(ge=0, lt=1)] | None] = None
    code: Field[Annotated[str, Len(2, 3)]] = "ab"
    even: Field[Annotated[int, MultipleOf(2)]] = 2
    tags: Field[list[str]] = Field(default_factory=list)


class Joined(Relation[Sized, Sized]):
    at: Field[Annotated[str, MaxLen(3)]] = Field(instance_key=True)


class Linked(Relation[Sized, Sized]):
    at: Field[str] = Field(instance_key=True)


CHECKS = checks_of(Sized.__declaration__)
COLUMNS = Sized.__declaration__.schema.by_name


def checked(name, *values):
    column = COLUMNS[name]
    found, problems = CHECKS[name].of(column, pa.chunked_array([list(values)], column.arrow_type))
    return found.to_pylist(), problems


@pytest.mark.parametrize(
    ("annotation", "limits"),
    [
        (Annotated[int, Ge(1)], (Limit("ge", 1),)),
        (Annotated[int, Ge(1)] | None, (Limit("ge", 1),)),
        (Annotated[float | None, Interval(gt=0.5, le=2)], (Limit("gt", 0.5), Limit("le", 2))),
        (Annotated[str, Len(1, 9)], (Limit("min_length", 1), Limit("max_length", 9))),
        (Annotated[int, pydantic.Field(gt=0, description="many")], (Limit("gt", 0),)),
        (Annotated[Annotated[str, MinLen(1)], MaxLen(2)], (Limit("min_length", 1), Limit("max_length", 2))),
        (Annotated[int, MultipleOf(2)], None),
        (Annotated[int, Gt(0.5)], None),
        (Annotated[int, Ge(2**60)], None),
        (Annotated[str, pydantic.StringConstraints(min_length=1, strip_whitespace=True)], None),
        (Annotated[int | str, Ge(1)], None),
    ],
)
def test_limits_are_known_where_they_say_all_that_an_annotation_demands(annotation, limits):
    assert limits_of(annotation) == limits


def test_values_beyond_a_limit_are_found_by_row_in_the_words_of_the_validator():
    assert checked("count", 1, -1, None, 0) == (
        [1, -1, None, 0],
        {1: "count: Input should be greater than or equal to 0"},
    )
    _, problems = checked("share", 0.5, 1.0, float("nan"), None)
    assert list(problems) == [1, 2]
    _, problems = checked("code", "äö", "a", "abcd")
    assert [problem.split(":")[0] for problem in problems.values()] == ["code", "code"]


def test_where_only_the_validator_knows_it_sees_each_distinct_value_once():
    seen = []

    class Counting:
        def validate_json(self, text):
            seen.append(text)
            return CHECKS["tags"].validator.validate_json(text)

    values = pa.chunked_array([['["a"]', "[1]"], ['[ "a" ]', "[1]", None]], pa.string())
    found, problems = Check(Counting()).of(COLUMNS["tags"], values)
    assert seen == ['["a"]', "[1]", '[ "a" ]']
    assert (found.to_pylist()[::2], list(problems)) == (['["a"]', '["a"]', None], [1, 3])
    assert checked("even", 2, 3)[1] == {1: "even: Input should be a multiple of 2"}


def test_an_instance_key_has_a_check_where_it_says_more_than_a_text():
    check = checks_of(Joined.__declaration__)["instance_key"]
    _, problems = check.of(instance_column("at"), pa.chunked_array([["mon", "monday"]]))
    assert problems == {1: "at: String should have at most 3 characters"}
    assert checks_of(Linked.__declaration__) == {}


def test_spark_marks_the_rows_that_the_validator_would_refuse(spark):
    rows = [("a", 1, 0.5, "ab"), ("b", -1, 0.5, "ab"), ("c", 1, float("nan"), "ab"), ("d", 1, None, "abcd")]
    frame = spark.createDataFrame(rows, "id string, count int, share double, code string")
    found = map_rows(frame, Sized.__declaration__, {}).where("__source IS NOT NULL").select("entity_key").collect()
    assert [row.entity_key for row in found] == ["b", "c", "d"]


def test_a_limit_inside_a_union_is_checked_by_a_load(spark, folder):
    frame = spark.createDataFrame([("a", 1, 2.0)], "id string, count int, share double")
    with pytest.raises(ValidationError, match="share: Input should be less than 1"):
        Pipeline(spark, folder).load(frame, into=Sized).commit()
