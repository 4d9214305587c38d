"""Which values fill a field, and as what: one table for loads in process and on Spark.

A conversion is in the table only where every value has one plain meaning, whatever the settings of a session are. What
would round, cut or guess is refused, value by value. `convert` is the table over Arrow columns; the same rules as
expressions of Spark are in `spark.loading.conversions`, and a test holds both against each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.model import Column

# The years 1 to 9999, which is what a date of Python's can say: days, and microseconds, since 1970.
DAYS = (-719_162, 2_932_896)
MICROSECONDS = (DAYS[0] * 86_400_000_000, (DAYS[1] + 1) * 86_400_000_000 - 1)
DAY_MICROSECONDS = 86_400_000_000
INT64 = (-(2**63), 2**63 - 1)
EXACT_FLOATS = 2**53
"""Up to here every whole number is a float."""
SECONDS = 20_000_000_000
"""A number of seconds since 1970 up to the year 2603. Greater ones are milliseconds to some, and are refused."""


class Rule(Enum):
    """How a value of one kind becomes a field's value."""

    AS_IS = "as it is"
    SPELLED = "as keys are spelled: digits, ISO dates, instants in UTC"
    UTF8 = "as UTF-8"
    WHOLE = "if it is whole and fits in 64 bits"
    EXACT = "if it is exact as a float, up to 2^53"
    NEAREST = "the nearest float"
    ZERO_OR_ONE = "if it is 0 or 1"
    IN_UTC = "in UTC"
    MIDNIGHT = "midnight in UTC"
    AT_MIDNIGHT = "if it is midnight in UTC"
    SECONDS = "seconds since 1970, up to the year 2603"
    READ = "read by its grammar"


KINDS = {
    "text": "a text",
    "int": "a whole number",
    "float": "a float",
    "decimal": "a decimal",
    "bool": "a truth value",
    "instant": "a timestamp",
    "local": "a timestamp without a zone",
    "date": "a date",
    "bytes": "bytes",
    "null": "nothing",
}
"""What a source's column may hold, and how it is called in a reason."""

TABLE: dict[str, dict[str, Rule]] = {
    "str": {
        "text": Rule.AS_IS,
        "int": Rule.SPELLED,
        "date": Rule.SPELLED,
        "instant": Rule.SPELLED,
        "local": Rule.SPELLED,
        "bytes": Rule.UTF8,
    },
    "int": {"int": Rule.AS_IS, "float": Rule.WHOLE, "decimal": Rule.WHOLE, "text": Rule.READ},
    "float": {"float": Rule.AS_IS, "int": Rule.EXACT, "decimal": Rule.NEAREST, "text": Rule.READ},
    "bool": {
        "bool": Rule.AS_IS,
        "int": Rule.ZERO_OR_ONE,
        "float": Rule.ZERO_OR_ONE,
        "decimal": Rule.ZERO_OR_ONE,
        "text": Rule.READ,
    },
    "datetime": {
        "instant": Rule.AS_IS,
        "local": Rule.IN_UTC,
        "date": Rule.MIDNIGHT,
        "int": Rule.SECONDS,
        "text": Rule.READ,
    },
    "date": {"date": Rule.AS_IS, "instant": Rule.AT_MIDNIGHT, "local": Rule.AT_MIDNIGHT, "text": Rule.READ},
    "bytes": {"bytes": Rule.AS_IS, "text": Rule.UTF8},
}
"""By the scalar of a field and the kind of what fills it. A pair that is not here is refused.

A decimal without places after the point is a whole number here, as databases have their keys.
"""

# What text may say, in the words that regular expressions of Python, Java and Arrow share.
BLANK = r"[ \t\r\n]*"
DAY = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
TIME = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{1,6}0*)?)?"
OFFSET = r"[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?)"
ZONE = rf"Z|UTC|GMT|{OFFSET}|[A-Z][A-Za-z_]+(?:/[A-Z][A-Za-z_+-]+)+"
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
GRAMMAR = {
    "int": rf"{BLANK}[+-]?[0-9]+(?:\.0+)?{BLANK}",
    "float": rf"{BLANK}(?:{NUMBER}|(?i:nan|[+-]?inf(?:inity)?)){BLANK}",
    "datetime": rf"{BLANK}{DAY}(?:[T ]{TIME} ?(?:{ZONE})?)?{BLANK}",
    "date": rf"{BLANK}{DAY}(?:[T ]00:00(?::00(?:\.0+)?)?(?:Z|[+-]00:?00)?)?{BLANK}",
}
WORDS = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), False),
}
NAMED_INFINITE = r"(?i)inf"


def kind_of(source: pa.DataType) -> str | None:
    """What a column of this type holds, as the table calls it; None for what no field takes as it is."""
    is_ = pa.types
    if is_.is_string(source) or is_.is_large_string(source) or is_.is_string_view(source):
        return "text"
    if is_.is_integer(source) or (is_.is_decimal(source) and source.scale == 0):
        return "int"
    if is_.is_decimal(source):
        return "decimal"
    if is_.is_timestamp(source):
        return "local" if source.tz is None else "instant"
    named = {"float": is_.is_floating, "bool": is_.is_boolean, "date": is_.is_date, "null": is_.is_null}
    for name, holds in named.items():
        if holds(source):
            return name
    if is_.is_binary(source) or is_.is_large_binary(source) or is_.is_fixed_size_binary(source):
        return "bytes"
    return None


def rule_of(scalar: str, kind: str) -> Rule | None:
    """How a value of this kind fills a field of this scalar; None where it cannot."""
    return Rule.AS_IS if kind == "null" else TABLE[scalar].get(kind)


def describe_refusal(name: str, kind: str, scalar: str) -> str:
    """What is said of a row whose value is of a kind that the field does not take."""
    return f"{name}: {KINDS[kind]} cannot become {scalar}: map it"


class Converted(NamedTuple):
    """A column's values as a field has them, None where they do not fit; and where that is so."""

    values: pa.ChunkedArray
    lost: pa.ChunkedArray


def convert(column: Column, given: pa.ChunkedArray) -> Converted:
    """The table over one column that fills a scalar field."""
    scalar, kind = column.scalar or "str", kind_of(given.type)
    rule = None if kind is None else rule_of(scalar, kind)
    if rule is None:
        values = pa.chunked_array([pa.nulls(len(given), column.arrow_type)])
    elif kind == "null":
        values = given.cast(column.arrow_type)
    else:
        values = _by_rule(scalar, kind or "", rule, given, column.arrow_type)
    values = _within(scalar, values)
    return Converted(values, pc.and_(pc.is_valid(given), pc.is_null(values)))


def _by_rule(scalar: str, kind: str, rule: Rule, given: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if rule is Rule.READ:
        return _each(given, READERS[scalar], target)
    if rule is Rule.SPELLED:
        return spell(kind, given)
    if rule is Rule.UTF8 and kind == "bytes":
        return _each(given, _decode, target)
    if rule is Rule.WHOLE:
        given = _where(given, pc.equal(pc.floor(given), given))
        return _fitting(given, target, *((-(2.0**63), 2.0**63) if kind == "float" else ()))
    if rule is Rule.EXACT:
        return pc.cast(_fitting(given, pa.int64(), -EXACT_FLOATS, EXACT_FLOATS + 1), target)
    if rule is Rule.NEAREST:
        return _each(given, float, target)
    if rule is Rule.ZERO_OR_ONE and pa.types.is_decimal(given.type):  # one with no digit before the point has no 1
        return _each(given, {0: False, 1: True}.get, target)
    if rule is Rule.ZERO_OR_ONE:
        is_one = pc.equal(given, pa.scalar(1).cast(given.type))
        return _where(is_one, pc.or_(is_one, pc.equal(given, pa.scalar(0).cast(given.type))))
    if rule is Rule.SECONDS:
        seconds = _fitting(given, pa.int64(), -SECONDS, SECONDS + 1)
        return pc.multiply(seconds, 1_000_000).cast(target)
    if rule is Rule.AT_MIDNIGHT:
        moments = _micros(given)
        return pc.cast(_where(moments, pc.equal(_floor(moments), moments)), pa.timestamp("us")).cast(target)
    if scalar == "datetime":
        return (_micros(given) if kind != "date" else given.cast(pa.timestamp("us")).cast(pa.int64())).cast(target)
    if scalar == "int":
        return _fitting(given, target)
    if scalar == "date" and pa.types.is_date64(given.type):
        return given.cast(pa.timestamp("ms")).cast(target)
    return given.cast(target)


def spell(kind: str, given: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as the text of keys, as `key_text` has it."""
    if kind in ("instant", "local"):
        micros = _within("datetime", _micros(given).cast(pa.timestamp("us", tz="UTC")))
        moments = micros.cast(pa.timestamp("us"))
        return pc.binary_join_element_wise(pc.strftime(moments, format="%Y-%m-%dT%H:%M:%S"), pa.scalar("+00:00"), "")
    if kind == "date":
        given = _within("date", given.cast(pa.date32()))
    if pa.types.is_decimal(given.type):
        return _each(given, lambda number: str(int(number)), pa.string())
    return given.cast(pa.string())


def _within(scalar: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times that Python's calendar has; None for others."""
    limits = {"date": (pa.int32(), DAYS), "datetime": (pa.int64(), MICROSECONDS)}.get(scalar)
    if limits is None:
        return values
    numbers, (first, last) = values.cast(limits[0]), limits[1]
    return _where(values, pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last)))


def _micros(given: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps as microseconds since 1970; None for those that say more, and for those that are out of reach."""
    numbers, unit = given.cast(pa.int64()), given.type.unit
    if unit == "ns":
        micros = pc.divide(numbers, 1_000)
        return _where(micros, pc.equal(pc.multiply(micros, 1_000), numbers))
    by = {"us": 1, "ms": 1_000, "s": 1_000_000}[unit]
    return pc.multiply(_fitting(numbers, pa.int64(), MICROSECONDS[0] // by, MICROSECONDS[1] // by + 1), by)


def _floor(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    days = pc.cast(pc.cast(micros, pa.timestamp("us")), pa.date32(), safe=False)
    return days.cast(pa.timestamp("us")).cast(pa.int64())


def _where(values: pa.ChunkedArray, holds: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.fill_null(holds, False), values, pa.scalar(None, values.type))


def _fitting(given: pa.ChunkedArray, target: pa.DataType, first: float = INT64[0], end: float = 2**63) -> Any:
    """Numbers from one on and below another, as `target`; None for others."""
    if pa.types.is_decimal(given.type) or pa.types.is_uint64(given.type):
        return _each(given, lambda number: int(number) if first <= number < end else None, target)
    if not pa.types.is_floating(given.type):
        given = given.cast(pa.int64())
        first, end = max(int(first), INT64[0]), int(end)
        below = pc.less(given, end) if end <= INT64[1] else pc.is_valid(given)
        return _where(given, pc.and_(pc.greater_equal(given, first), below)).cast(target)
    given = given.cast(pa.float64())
    inside = pc.and_(pc.greater_equal(given, float(first)), pc.less(given, float(end)))
    return _where(given, inside).cast(target)


def _each(given: pa.ChunkedArray, read: Callable[[Any], Any], target: pa.DataType) -> pa.ChunkedArray:
    """Every distinct value as it is read."""
    distinct = pa.concat_arrays([pa.array([], given.type), *given.chunks]).dictionary_encode()
    found = pa.array([read(value) for value in distinct.dictionary.to_pylist()], target)
    return pa.chunked_array([found.take(distinct.indices)], target)


def _decode(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


# --- what text says ---

_GRAMMAR = {scalar: re.compile(text) for scalar, text in GRAMMAR.items()}


def read_int(text: str) -> int | None:
    if not _GRAMMAR["int"].fullmatch(text):
        return None
    found = int(text.strip().partition(".")[0])
    return found if INT64[0] <= found <= INT64[1] else None


def read_float(text: str) -> float | None:
    """A number as the nearest float. One that is too great for any is refused, not taken for infinite."""
    if not _GRAMMAR["float"].fullmatch(text):
        return None
    found = float(text)
    return None if found in (float("inf"), float("-inf")) and not re.search(NAMED_INFINITE, text) else found


def read_bool(text: str) -> bool | None:
    return WORDS.get(text.strip(" \t\r\n").lower())


def read_date(text: str) -> date | None:
    if not _GRAMMAR["date"].fullmatch(text):
        return None
    try:
        return date(*map(int, re.findall("[0-9]+", text)[:3]))
    except ValueError:
        return None


_MOMENT = re.compile(rf"({DAY})(?:[T ]({TIME}) ?({ZONE})?)?")


def read_datetime(text: str) -> datetime | None:
    """A time as an instant. One without a zone is in UTC."""
    if not _GRAMMAR["datetime"].fullmatch(text):
        return None
    said = _MOMENT.search(text)
    assert said is not None
    day, time, zone = said.groups()
    clock, _, fraction = (time or "0:0").partition(".")
    year, month, day_of_month = map(int, day.split("-"))
    hour, minute, second = [*map(int, clock.split(":")), 0][:3]
    micros = int(fraction[:6].ljust(6, "0"))
    try:
        return datetime(year, month, day_of_month, hour, minute, second, micros, _zone(zone)).astimezone(UTC)
    except (ValueError, OverflowError, ZoneInfoNotFoundError):
        return None


def _zone(said: str | None) -> Any:
    if said is None or said in ("Z", "UTC", "GMT"):
        return UTC
    if "/" in said:
        return ZoneInfo(said)
    offset = timedelta(hours=int(said[1:3]), minutes=int(said[-2:]) if len(said) > 3 else 0)
    return timezone(-offset if said[0] == "-" else offset)


READERS: dict[str, Callable[[str], Any]] = {
    "int": read_int,
    "float": read_float,
    "bool": read_bool,
    "datetime": read_datetime,
    "date": read_date,
}
