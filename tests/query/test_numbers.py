"""Ranges of integers and floats, held against Python's own exact comparison of the two."""

import math
import operator

import pytest

from ontologia.query.numbers import floats, integers, value_kind

VALUES = [
    *(0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64 + 1, 10**400, -(10**400)),
    *(0.5, -0.5, 1.5, -0.0, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, math.inf, -math.inf, math.nan),
]
INTEGERS = [value for value in VALUES if isinstance(value, int) and value_kind(value) is int]
FLOATS = [value for value in VALUES if isinstance(value, float)]


def rank(value):
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


@pytest.mark.parametrize("op", ["eq", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:25])
def test_a_range_has_the_numbers_that_pass(op, value):
    low, high = integers(op, value)
    passing = [n for n in INTEGERS if low <= n <= high]
    assert passing == [n for n in INTEGERS if getattr(operator, op)(rank(n), rank(value))]
    bottom, top = map(rank, floats(op, value))
    passing = [x for x in FLOATS if bottom <= rank(x) <= top]
    assert list(map(repr, passing)) == [repr(x) for x in FLOATS if getattr(operator, op)(rank(x), rank(value))]


def test_an_integer_that_needs_more_than_64_bits_is_of_another_kind():
    assert [value_kind(value) for value in (2**63 - 1, 2**63, -(2**63) - 1, 1.0)] == [int, "wide", "wide", float]
