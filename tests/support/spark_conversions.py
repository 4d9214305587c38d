"""Values of every kind that Spark has, and sessions with every setting that could change them."""

from __future__ import annotations

import datetime as dt
import random
from contextlib import contextmanager
from decimal import Decimal

import pyarrow as pa

from ontologia import Entity, Field
from ontologia.runtime.intake import conversions as table


class Every(Entity):
    text: Field[str] = Field(primary_key=True)
    number: Field[int | None] = None
    real: Field[float | None] = None
    truth: Field[bool | None] = None
    moment: Field[dt.datetime | None] = None
    day: Field[dt.date | None] = None
    raw: Field[bytes | None] = None


SETTINGS = {
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.session.timeZone": ("UTC", "America/St_Johns"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    "spark.sql.caseSensitive": ("false", "true"),
}
TEXTS = """
0|1|-1|+7| 12 |12.0|12.|12.5|1_000|0x10|1e3|1E-3|.5|5.|12d|12f|0x1p3|--1|+|-|NaN|nan|inf|-Infinity|+inf|infinit|1e999|-1e999|
9223372036854775807|9223372036854775808|-9223372036854775808|-9223372036854775809|9007199254740993|0.1|00012|\t3\n|\u00a04|١٢|
true|FALSE|t|F|yes|No|on|OFF|y|n|tru|2|
2024-01-01|2024-1-1|2024-01-01 |2024-02-30|2023-02-29|2024-02-29|12024-01-01|0000-01-01|0001-01-01|9999-12-31|10000-01-01|2024|2024-05|
2024-01-01T00:00:00|2024-01-01 00:00|2024-01-01T00:00:00.000Z|2024-01-01T00:00:00+00:00|2024-01-01T00:00:01|2024-01-01 garbage|
2024-01-01Tfoo|2024-01-01T|1582-10-10|1582-10-04|1500-02-29|1900-02-29|2024-01-01T12:00:00+02:00|2024-01-01 12:00:00 +02:00|
2024-01-01T12:00Z|2024-01-01 12:00:00.5 Europe/Berlin|2024-03-31 02:30:00 Europe/Berlin|2024-10-27 02:30:00 Europe/Berlin|
2024-01-01 12:00:00 No/Where|2024-01-01 12:00:00 UTC|2024-01-01 12:00:00GMT|2024-01-01 12:00:00 EST|2024-01-01T12:00:00-0330|
2024-01-01T12:00:00+02|2024-01-01T12:00:00+18:00|2024-01-01T12:00:00+18:30|2024-01-01T12:00:00+19:00|2024-01-01T12:00:00+02:60|
2024-01-01T12:00:00.1234567|2024-01-01T12:00:00.123456000|2024-01-01T24:00:00|2024-01-01T12:60:00|2024-01-01T12:00:60|12:00|12:00:00|
0001-01-01T00:00:00+01:00|9999-12-31T23:59:59.999999|9999-12-31T23:59:59-01:00|now|today|epoch|2024-01-01T12:00:00z|2024-01-01t12:00:00|
2024-01-01T1:2:3|2024-01-01T12|1711852200|-1711852200||  |x|ü|\u2028|12\u2028
""".replace("\n", "")
LARGE = (
    0,
    1,
    -1,
    2,
    2**31,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    -(2**63),
    20_000_000_000,
    20_000_000_001,
    -20_000_000_001,
)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    0.5,
    -1.5,
    1e7,
    2.0**53,
    2.0**63,
    -(2.0**63),
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    1.0000000001,
)
MICROS = (
    0,
    1,
    -1,
    750_000,
    86_400_000_000,
    86_399_999_999,
    *table.MICROSECONDS,
    table.MICROSECONDS[0] - 1,
    table.MICROSECONDS[1] + 1,
)


def sources(chance: random.Random) -> dict[str, pa.Array]:
    """Columns of every kind that Spark has, with the values that are at the edges and some by chance."""
    whole = [*LARGE, *(chance.randint(-(2 ** chance.randint(1, 62)), 2 ** chance.randint(1, 62)) for _ in range(30))]
    real = [*FLOATS, *(chance.choice((chance.gauss(0, 1e6), float(chance.randint(-9, 9)))) for _ in range(30))]
    micros = [*MICROS, *(chance.randint(*table.MICROSECONDS) for _ in range(30))]
    days = [
        0,
        -141_428,
        -141_427,
        *table.DAYS,
        table.DAYS[0] - 1,
        table.DAYS[1] + 1,
        *(chance.randint(*table.DAYS) for _ in range(30)),
    ]
    texts = [*TEXTS.split("|"), *(_said(chance) for _ in range(60))]
    return {
        "text": pa.array([*texts, None]),
        "tiny": pa.array([0, 1, 2, -1, 127, None], pa.int8()),
        "whole": pa.array([*whole, None], pa.int64()),
        "digits": pa.array([Decimal(number) * 7 for number in whole], pa.decimal128(38, 0)),
        "price": pa.array([Decimal(number % 10**20).scaleb(-2) for number in whole], pa.decimal128(38, 2)),
        "real": pa.array([*real, None], pa.float64()),
        "single": pa.array([*FLOATS, None], pa.float32()),
        "truth": pa.array([True, False, None]),
        "instant": pa.array([*micros, None], pa.timestamp("us", "UTC")),
        "local": pa.array([*micros, None], pa.timestamp("us")),
        "day": pa.array([*days, None], pa.date32()),
        "raw": pa.array([b"", b"a", b"\xc3\xbc", b"\xff", None], pa.binary()),
    }


def _said(chance: random.Random) -> str:
    """A value of some kind as text, now and then with a sign too many."""
    moment = dt.datetime(1, 1, 1) + dt.timedelta(microseconds=chance.randint(0, 315_000_000_000_000_000))
    said = chance.choice(
        (
            moment.isoformat(),
            moment.date().isoformat(),
            str(chance.gauss(0, 1e9)),
            str(chance.randint(-(10**20), 10**20)),
        )
    )
    said += chance.choice(("", "", "Z", "+05:30", " ", "0"))
    place = chance.randrange(len(said) + 1)
    return said if chance.random() < 0.7 else said[:place] + chance.choice("0 :-.eT+") + said[place:]


@contextmanager
def session_with(spark, settings):
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
