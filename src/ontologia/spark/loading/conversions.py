"""The table of conversions as expressions of Spark.

Nothing here may follow a setting of the session: no cast between times and dates, no type by a name that a setting
gives another meaning, no cast of text that its grammar has not let through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sql
from pyspark.sql import types
from pyspark.sql.types import DataType, TimestampType

from ontologia.model import Column
from ontologia.runtime.intake.conversions import (
    DAY,
    DAY_MICROSECONDS,
    DAYS,
    EXACT_FLOATS,
    GRAMMAR,
    MICROSECONDS,
    NAMED_INFINITE,
    SECONDS,
    TIME,
    WORDS,
    ZONE,
    Rule,
    rule_of,
)
from ontologia.spark.types import spark_type

TRIMMED = " \t\r\n"


class SourceValue(NamedTuple):
    """What the source has for a field or a key, and its type there."""

    value: SparkColumn
    kind: DataType


def kind_of(source: DataType) -> str | None:
    """What a column of this type holds, as the table calls it; None for what no scalar field takes."""
    if isinstance(source, types.DecimalType):
        return "decimal" if source.scale else "int"
    named: dict[str, type[DataType] | tuple[type[DataType], ...]] = {
        "text": types.StringType,
        "int": types.IntegralType,
        "float": types.FractionalType,
        "bool": types.BooleanType,
        "instant": types.TimestampType,
        "local": types.TimestampNTZType,
        "date": types.DateType,
        "bytes": types.BinaryType,
        "null": types.NullType,
    }
    return next((name for name, kinds in named.items() if isinstance(source, kinds)), None)


def convert(column: Column, given: SourceValue) -> tuple[SparkColumn, SparkColumn | None]:
    """A source value as a scalar field's value, and whether it is lost; None where it never is."""
    scalar, kind = column.scalar or "str", kind_of(given.kind)
    target = spark_type(column.spark_type)
    rule = None if kind is None else rule_of(scalar, kind)
    if rule is None or kind is None:
        return sql.lit(None).cast(target), given.value.isNotNull()
    if rule is Rule.AS_IS:
        return _as_it_is(scalar, kind, given, target)
    value = _BY_RULE[rule](scalar, kind, given).cast(target)
    unfit = value.isNull()
    if scalar in ("date", "datetime"):
        unfit = unfit | ~value.between(*calendar(scalar))
    if scalar == "float" and rule is Rule.READ:  # a number that is too great for any is not infinite
        unfit = unfit | (value.isin(float("inf"), float("-inf")) & ~given.value.rlike(NAMED_INFINITE))
    return value, given.value.isNotNull() & unfit


def _as_it_is(scalar: str, kind: str, given: SourceValue, target: DataType) -> tuple[SparkColumn, SparkColumn | None]:
    value = given.value.try_cast(target)
    if kind == "text":
        return value, ~sql.is_valid_utf8(given.value)
    if scalar in ("date", "datetime") and kind != "null":
        return value, ~value.between(*calendar(scalar))
    if isinstance(given.kind, types.DecimalType):
        return value, given.value.isNotNull() & value.isNull()
    return value, None


def calendar(scalar: str) -> tuple[SparkColumn, SparkColumn]:
    """The first and the last value that Python's calendar has: Spark's goes further."""
    if scalar == "date":
        first, last = (sql.date_from_unix_date(sql.lit(days)) for days in DAYS)
    else:
        first, last = (sql.timestamp_micros(sql.lit(moment)) for moment in MICROSECONDS)
    return first, last


def spell(kind: str, value: SparkColumn) -> SparkColumn:
    """A value as the text of keys, as `key_text` has it."""
    if kind == "instant":
        # Formatting would use the session's time zone. Time since 1970 has none, and neither has this sum.
        seconds = sql.unix_micros(value).cast("decimal(24,0)") / 1_000_000
        value = epoch() + sql.make_dt_interval(secs=seconds.cast("decimal(18,6)"))
    text = value.cast("string")
    if kind not in ("instant", "local"):
        return text
    fraction = sql.rpad(sql.split_part(text, sql.lit("."), sql.lit(2)), 6, "0")
    whole = sql.translate(sql.substring(text, 1, 19), " ", "T")
    return sql.concat(whole, sql.lit("."), fraction, sql.lit("+00:00"))


def in_utc(value: SparkColumn) -> SparkColumn:
    """A time without a zone as an instant."""
    seconds = (value - epoch()).cast("interval second").cast("decimal(20,6)")
    return sql.timestamp_seconds(seconds)


def epoch() -> SparkColumn:
    return sql.lit("1970-01-01").cast("timestamp_ntz")


# --- the rules ---


def _spell(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    """Times outside the calendar of Python have no spelling."""
    value = spell(kind, given.value)
    if kind == "int":
        return value
    moment = in_utc(given.value) if kind == "local" else given.value
    return sql.when(moment.between(*calendar("date" if kind == "date" else "datetime")), value)


def _utf8(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    return sql.try_validate_utf8(given.value.cast("string")) if kind == "bytes" else given.value.cast("binary")


def _whole(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    value = given.value
    if kind == "decimal":
        return sql.when(value % 1 == 0, value.try_cast("bigint"))  # compared with its floor, it would be rounded
    value = value.cast("double")
    fits = (value >= -(2.0**63)) & (value < 2.0**63) & (value == sql.rint(value))
    return sql.when(fits, value.try_cast("bigint"))


def _exact(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    return sql.when(given.value.between(-EXACT_FLOATS, EXACT_FLOATS), given.value.cast("double"))


def _nearest(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    return given.value.cast("double")


def _zero_or_one(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    return sql.when(given.value == 1, True).when(given.value == 0, False)


def _in_utc(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    return in_utc(given.value)


def _midnight(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    seconds = sql.unix_date(given.value).cast("bigint") * 86_400
    return sql.when(given.value.between(*calendar("date")), sql.timestamp_seconds(seconds))


def _at_midnight(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    micros = sql.unix_micros(in_utc(given.value) if kind == "local" else given.value)
    days = ((micros - sql.pmod(micros, sql.lit(DAY_MICROSECONDS))) / DAY_MICROSECONDS).cast("int")
    return sql.when(sql.pmod(micros, sql.lit(DAY_MICROSECONDS)) == 0, sql.date_from_unix_date(days))


def _seconds(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    return sql.when(given.value.between(-SECONDS, SECONDS), sql.timestamp_seconds(given.value.cast("bigint")))


def _read(scalar: str, kind: str, given: SourceValue) -> SparkColumn:
    text = given.value
    if scalar == "bool":
        word = sql.lower(sql.btrim(text, sql.lit(TRIMMED)))
        said = {truth: [name for name, means in WORDS.items() if means is truth] for truth in (True, False)}
        return sql.when(word.isin(said[True]), True).when(word.isin(said[False]), False)
    match scalar:
        case "int":
            value = sql.regexp_extract(text, "[+-]?[0-9]+", 0).try_cast("bigint")
        case "float":
            value = sql.btrim(text, sql.lit(TRIMMED)).try_cast("double")
        case "date":
            value = sql.regexp_extract(text, DAY, 0).try_cast("date")
        case _:
            value = _moment(text)
    whole = rf"^(?:{GRAMMAR[scalar]})\z"  # in Java, $ is also before a last line break of any kind
    return sql.when(text.rlike(whole), value)


def read_number(text: SparkColumn) -> SparkColumn:
    """Text as the number that a float field would take it for; None where it takes none."""
    value = _read("float", "text", SourceValue(text, types.StringType()))
    is_named = text.rlike(NAMED_INFINITE)
    return sql.when(~value.isin(float("inf"), float("-inf")) | is_named, value)


def _moment(text: SparkColumn) -> SparkColumn:
    """Text as an instant: spelled out first, with seconds and a zone, so that only one reading is left."""
    parts = rf"({DAY})(?:[T ]({TIME}) ?({ZONE})?)?"
    day, time, zone = (sql.regexp_extract(text, parts, number) for number in (1, 2, 3))
    time = sql.when(time == "", "00:00:00").when(time.rlike("^[^:]+:[^:]+$"), sql.concat(time, sql.lit(":00")))
    zone = sql.when(zone.isin("", "UTC", "GMT"), "Z").otherwise(zone)
    full = sql.regexp_extract(text, parts, 2)
    return sql.concat(day, sql.lit(" "), time.otherwise(full), zone).try_cast(TimestampType())


_BY_RULE: dict[Rule, Callable[[str, str, SourceValue], SparkColumn]] = {
    Rule.SPELLED: _spell,
    Rule.UTF8: _utf8,
    Rule.WHOLE: _whole,
    Rule.EXACT: _exact,
    Rule.NEAREST: _nearest,
    Rule.ZERO_OR_ONE: _zero_or_one,
    Rule.IN_UTC: _in_utc,
    Rule.MIDNIGHT: _midnight,
    Rule.AT_MIDNIGHT: _at_midnight,
    Rule.SECONDS: _seconds,
    Rule.READ: _read,
}
