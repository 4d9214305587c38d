"""Literals of a condition as values of the column they are compared with, where DuckDB compares the two as they are.

Where it would convert one of them first (a text to a number, a column to a date, digits cut off by a cast), what is
compared is no longer what is written, and what the ledger knows of a column says nothing about it: such a literal is
not understood here, and leaves no cell out.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontologia.apiary.values import bound_value

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_DIGITS = re.compile(r"-?(\d+)(?:\.(\d+))?")
_FLOAT = re.compile(r"-?(\d+(\.\d+)?([eE][+-]?\d+)?|inf)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?)?")
_EXACT_DIGITS = 18  #: next to any integer, these fit into the 38 digits of a decimal; more may be compared as floats
_FLOAT_DIGITS = 15  #: a float holds these exactly


@dataclass(frozen=True)
class Span:
    """The least and the most that a literal can stand for, and how it is compared: DuckDB finds one way for all the
    literals of an IN or a BETWEEN, so that those of one kind only tell what it is."""

    least: Any
    most: Any
    kind: str

    @classmethod
    def of(cls, value: Any, kind: str) -> Span:
        return cls(value, value, kind)


def span(tree: Expr, arrow: pa.DataType) -> Span | None:
    """What a literal stands for next to a column of a type; None if DuckDB would convert one of the two."""
    from sqlglot import exp

    kinds = pa.types
    if isinstance(tree, exp.Boolean):
        return Span.of(bool(tree.this), "boolean") if kinds.is_boolean(arrow) else None
    if kinds.is_integer(arrow) or kinds.is_decimal(arrow) or kinds.is_floating(arrow):
        return _number(tree, arrow)
    text, cast = _text(tree)
    if text is None:
        return None
    if kinds.is_string(arrow):
        return Span.of(text, "text") if cast is None else None
    if kinds.is_date(arrow):
        return _day(text, cast, arrow)
    return _instant(text, cast, arrow) if kinds.is_timestamp(arrow) else None


def _text(tree: Expr) -> tuple[str | None, str | None]:
    """A text, and the type it is cast to, if it is."""
    from sqlglot import exp

    cast = None
    if type(tree) is exp.Cast:
        cast, tree = tree.to.sql(dialect="duckdb"), tree.this
    is_text = isinstance(tree, exp.Literal) and tree.is_string
    return (str(tree.this), cast) if is_text else (None, None)


# --- numbers -----------------------------------------------------------------------------------------------------


def _number(tree: Expr, arrow: pa.DataType) -> Span | None:
    text, cast = _text(tree)
    if text is None:
        return _number_as_written(tree, arrow)
    if cast == "DOUBLE":
        return _double(text, arrow)
    digits = _DIGITS.fullmatch(text)
    decimal = re.fullmatch(r"DECIMAL\((\d+), (\d+)\)", cast or "")
    if digits is None or decimal is None:
        return None
    width, scale = int(decimal[1]), int(decimal[2])
    if len(digits[2] or "") > scale or len(digits[1].lstrip("0")) > width - scale:
        return None  # the cast rounds, or fails
    if pa.types.is_floating(arrow):
        return _near(float(text), arrow)
    return Span.of(Decimal(text), "exact" if pa.types.is_decimal(arrow) or width <= _EXACT_DIGITS else "long")


def _number_as_written(tree: Expr, arrow: pa.DataType) -> Span | None:
    """A number as it is written, with its sign."""
    from sqlglot import exp

    negative = False
    while isinstance(tree, exp.Neg | exp.Paren):
        negative = negative != isinstance(tree, exp.Neg)
        tree = tree.this
    if not isinstance(tree, exp.Literal) or tree.is_string:
        return None
    text = ("-" if negative else "") + str(tree.this)
    digits = _DIGITS.fullmatch(text)
    if pa.types.is_floating(arrow):
        return None if _FLOAT.fullmatch(text) is None else _near(float(text), arrow, _digits(text))
    if digits is None:
        return None
    if digits[2] is not None:
        return Span.of(Decimal(text), "exact") if _digits(text) <= _EXACT_DIGITS else None
    whole = int(text)
    if abs(whole) < 1 << 63:
        return Span.of(whole, "exact")
    return Span.of(whole, "long") if pa.types.is_integer(arrow) and abs(whole) < 10**38 else None


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text.lower().partition("e")[0]))


def _double(text: str, arrow: pa.DataType) -> Span | None:
    """A text that is cast to a float of 64 bits, with which decimals, and large integers, are compared as floats."""
    if _FLOAT.fullmatch(text) is None:
        return None
    value = float(text)
    if pa.types.is_floating(arrow):
        return _near(value, arrow)
    return Span.of(value, "double") if pa.types.is_integer(arrow) and abs(value) < 1 << 53 else None


def _near(value: float, arrow: pa.DataType, digits: int = 0) -> Span | None:
    """A float, and those next to it where it is not certain which of them DuckDB makes of so many digits."""
    found = [value]
    if digits > _FLOAT_DIGITS:
        found += [value * (1 - 1e-15), value * (1 + 1e-15)]
    if arrow != pa.float64():  # a column of 32 bits may be compared as such
        try:
            found += [struct.unpack("f", struct.pack("f", each))[0] for each in found]
        except OverflowError:
            return None
    return Span(min(found), max(found), "float")


# --- days and instants -------------------------------------------------------------------------------------------


def _day(text: str, cast: str | None, arrow: pa.DataType) -> Span | None:
    day = bound_value(text, arrow) if cast in (None, "DATE") and _DAY.fullmatch(text) else None
    return None if day is None else Span.of(day, "day")


def _instant(text: str, cast: str | None, arrow: Any) -> Span | None:
    """An instant with an offset for a column with a time zone, and without one for a column without; or a day, which
    is its midnight."""
    own = "TIMESTAMP" if arrow.tz is None else "TIMESTAMPTZ"
    is_day = cast == "DATE" and arrow.tz is None and _DAY.fullmatch(text)
    if not is_day and (cast not in (None, own) or not _INSTANT.fullmatch(text)):
        return None
    moment: datetime | None = bound_value(text, arrow)
    return None if moment is None else Span.of(moment, "instant")
