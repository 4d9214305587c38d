"""From a source's columns to a type's rows: expressions, casts and checks, all as Spark columns.

A row that does not fit is not an error here. It gets a reason, and the pipeline decides what to do with it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.model import Column, Declaration, encode_json
from ontologia.model.typespec import accepts_none
from ontologia.spark.checking import checks_of
from ontologia.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

REASON, SOURCE, ORDER = "__reason", "__source", "__order"
# The years 1 to 9999, which is what a date of Python's can say: days, and microseconds, since 1970.
DAYS = (-719_162, 2_932_896)
MICROSECONDS = (DAYS[0] * 86_400_000_000, (DAYS[1] + 1) * 86_400_000_000 - 1)
Expression = "str | SparkColumn"


def mapped(
    source: DataFrame,
    declaration: Declaration,
    expressions: Mapping[str, Any],
    *,
    order_by: Any = None,
) -> DataFrame:
    """Rows as storage has them (identity, fields), with the reason against each, the source row, and its order.

    The source row is text as long as the row itself. It goes along only where a row may still be refused: one with a
    reason, and one with a value that executors have to look at.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sql

    chosen = _chosen(source, declaration, expressions)
    order = sql.lit(None).cast("string") if order_by is None else _ordered(source, _expression(order_by))
    try:
        picked = source.select(
            *(column.alias(name) for name, column in chosen.items()),
            order.alias(ORDER),
            sql.to_json(sql.struct(*(f"`{name}`" for name in source.columns))).alias(SOURCE),
        )
        types = {field.name: field.dataType for field in picked.schema}
    except AnalysisException as refusal:
        raise ValidationError(f"{declaration.ref} cannot be mapped from this source: {_line(refusal)}") from refusal
    columns, problems, suspects = [], [], []
    for name, text, problem in _identity(declaration, types):
        columns.append(text.alias(name))
        problems.append(problem)
    checks = checks_of(declaration)
    for column in declaration.schema.columns:
        check = checks.get(column.physical)
        if column.name not in chosen:  # the declared default
            columns.append(_default(declaration, column).alias(column.physical))
            if check is not None and check.refuses(column, _default_value(declaration, column)):
                suspects.append(sql.lit(True))
            continue
        value, problem = _converted(column, types[column.name])
        given = sql.col(f"`{column.name}`")
        if not _takes_none(column) and declaration.options[column.name].required:
            problem = _first(_missing(column.name, given), problem)
        elif not _takes_none(column):  # an empty cell says nothing, so the default holds
            value = sql.when(given.isNull(), _default(declaration, column)).otherwise(value)
        columns.append(value.alias(column.physical))
        problems.append(problem)
        if check is not None:
            suspects.append(check.suspects(column, value))
    said = [problem for problem in problems if problem is not None]
    wrong = reduce(operator.or_, (problem.isNotNull() for problem in said), sql.lit(False))
    origin = sql.when(reduce(operator.or_, suspects, wrong), sql.col(SOURCE))
    reason = sql.when(wrong, sql.concat_ws("; ", *said))
    return picked.select(*columns, reason.alias(REASON), origin.alias(SOURCE), sql.col(ORDER))


def _chosen(source: DataFrame, declaration: Declaration, expressions: Mapping[str, Any]) -> dict[str, SparkColumn]:
    """Which expression fills which field; a field takes the column of its own name unless told otherwise."""
    from pyspark.sql import functions as sql

    keys = ["left_key", "right_key"] if declaration.ref.kind == "relation" else []
    names = [*keys, *declaration.options]
    unknown = set(expressions) - set(names)
    if unknown:
        raise ValidationError(f"{declaration.ref} has no field {', '.join(sorted(unknown))}; it has {', '.join(names)}")
    chosen, missing = {}, []
    for name in names:
        if name in expressions:
            chosen[name] = _expression(expressions[name])
        elif name in source.columns:
            chosen[name] = sql.col(f"`{name}`")
        elif name in keys or declaration.options[name].required:
            missing.append(name)
    if missing:
        have = ", ".join(source.columns)
        raise ValidationError(
            f"nothing fills {', '.join(missing)} of {declaration.ref}: map it. The source has the columns {have}"
        )
    return chosen


def _ordered(source: DataFrame, order: SparkColumn) -> SparkColumn:
    """What decides which row is the last. Text that reads as a number counts as one: in a CSV file all is text."""
    from pyspark.sql import functions as sql
    from pyspark.sql import types

    if not isinstance(source.select(order).schema[0].dataType, types.StringType):
        return order
    return sql.struct(order.try_cast("double").alias("number"), order.alias("text"))


def _expression(text: Any) -> SparkColumn:
    from pyspark.sql import functions as sql

    return sql.expr(text) if isinstance(text, str) else text


def _line(refusal: Exception) -> str:
    """The line of Spark's refusal that says what is wrong; the rest shows its plan."""
    return str(refusal).strip().splitlines()[0]


def _identity(
    declaration: Declaration, types: Mapping[str, DataType]
) -> list[tuple[str, SparkColumn, SparkColumn | None]]:
    """The identity columns as text, each with the reason why a row has none."""
    from pyspark.sql import functions as sql

    if declaration.ref.kind == "entity":
        key = declaration.schema.by_name[declaration.primary_key or ""]
        value, _ = _converted(key, types[key.name])
        stored = spark_type(key.spark_type)
        return [("entity_key", _key_text(key.name, value, stored), None)]
    found: list[tuple[str, SparkColumn, SparkColumn | None]] = []
    for name in ("left_key", "right_key"):
        end = sql.col(f"`{name}`")
        found.append((name, _key_text(name, end, types[name]), _missing(name, end)))
    if declaration.instance_key is None:
        found.append(("instance_key", sql.lit(""), None))
    else:
        given = declaration.instance_key
        instance = _key_text(given, sql.col(f"`{given}`"), types[given])
        blank = sql.when(sql.trim(instance) == "", sql.lit(f"{given}: a key must not be blank"))
        found.append(("instance_key", instance, sql.coalesce(_missing(given, instance), blank)))
    return found


def _key_text(name: str, value: SparkColumn, found: DataType) -> SparkColumn:
    """A key as the text it is stored under, as `key_text` has it."""
    from pyspark.sql import functions as sql
    from pyspark.sql import types

    if isinstance(found, (types.TimestampType, types.TimestampNTZType)):
        # Formatting would use the session's time zone. Time since 1970 has none, and neither has this sum.
        seconds = sql.unix_micros(value.cast("timestamp")).cast("decimal(24,0)") / 1_000_000
        since = sql.make_dt_interval(secs=seconds.cast("decimal(18,6)"))
        text = (sql.lit("1970-01-01").cast("timestamp_ntz") + since).cast("string")
        fraction = sql.rpad(sql.split_part(text, sql.lit("."), sql.lit(2)), 6, "0")
        whole = sql.translate(sql.substring(text, 1, 19), " ", "T")
        return sql.concat(whole, sql.lit("."), fraction, sql.lit("+00:00"))
    if not isinstance(found, (types.StringType, types.IntegralType, types.DateType)):
        raise ValidationError(
            f"{name} is a key: text, a whole number, a date or a time, and the source "
            f"has {found.simpleString()}: map it"
        )
    return value.cast("string")


def _converted(column: Column, found: DataType) -> tuple[SparkColumn, SparkColumn | None]:
    """A source value as a field's value, and the reason where it is none; no reason where it always is one."""
    from pyspark.sql import functions as sql
    from pyspark.sql import types

    given = sql.col(f"`{column.name}`")
    nested = isinstance(found, (types.StructType, types.ArrayType, types.MapType))
    if column.scalar is None:
        text = sql.to_json(given) if nested else given.cast("string")
        if not isinstance(found, types.StringType):
            return text, None
        return text, sql.when(given.isNotNull() & sql.try_parse_json(text).isNull(), _said(column, given, "JSON"))
    if nested:
        raise ValidationError(
            f"{column.name} is {column.describe()}, and the source has {found.simpleString()}: map it"
        )
    target = spark_type(column.spark_type)
    is_same = found == target or (isinstance(found, types.IntegralType) and column.scalar == "int")
    value = given.try_cast(target)
    lost = [] if is_same else [given.isNotNull() & value.isNull()]
    if column.scalar == "int" and isinstance(found, (types.FractionalType, types.DecimalType)):
        lost.append(given != sql.floor(given))  # a cast would cut the fraction off
    if column.scalar in ("date", "datetime"):
        lost.append(~value.between(*_calendar(column.scalar)))
    return value, sql.when(reduce(operator.or_, lost), _said(column, given, column.scalar)) if lost else None


def _calendar(scalar: str) -> tuple[SparkColumn, SparkColumn]:
    """The first and the last value that Python's calendar has: Spark's goes further."""
    from pyspark.sql import functions as sql

    if scalar == "date":
        first, last = (sql.date_from_unix_date(sql.lit(days)) for days in DAYS)
    else:
        first, last = (sql.timestamp_micros(sql.lit(moment)) for moment in MICROSECONDS)
    return first, last


def _first(problem: SparkColumn, other: SparkColumn | None) -> SparkColumn:
    from pyspark.sql import functions as sql

    return problem if other is None else sql.coalesce(problem, other)


def _takes_none(column: Column) -> bool:
    return accepts_none(column.spec) if column.scalar is None else column.nullable


def _missing(name: str, given: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as sql

    return sql.when(given.isNull(), sql.lit(f"{name}: must have a value"))


def _said(column: Column, given: SparkColumn, expected: str) -> SparkColumn:
    from pyspark.sql import functions as sql

    return sql.concat(sql.lit(f"{column.name}: cannot be read as {expected}: "), given.cast("string"))


def _default(declaration: Declaration, column: Column) -> SparkColumn:
    from pyspark.sql import functions as sql

    return sql.lit(_default_value(declaration, column)).cast(spark_type(column.spark_type))


def _default_value(declaration: Declaration, column: Column) -> Any:
    value = declaration.options[column.name].make_default()
    return value if column.scalar is not None or value is None else encode_json(value)
