"""Keys as callers name them: every spelling of a key means the same row, and what cannot be one is an error."""

from datetime import UTC, date, datetime

import pytest

from ontologia import Entity, Field, Relation, ValidationError
from ontologia.model.keys import parse_identity


class Text(Entity, name="keys_Text"):
    id: Field[str] = Field(primary_key=True)


class Number(Entity, name="keys_Number"):
    id: Field[int] = Field(primary_key=True)


class Day(Entity, name="keys_Day"):
    id: Field[date] = Field(primary_key=True)


class Moment(Entity, name="keys_Moment"):
    id: Field[datetime] = Field(primary_key=True)


class Held(Relation[Moment, Number], name="keys_Held"):
    pass


class Seen(Relation[Text, Text], name="keys_Seen"):
    where: Field[str] = Field(instance_key=True)


NEW_YEAR = "2020-01-01T00:00:00.000000+00:00"
ENDS = [cls.__declaration__.schema for cls in (Moment, Number, Text)]


def named(cls, key):
    return parse_identity(cls.__declaration__.schema, key, ENDS)


@pytest.mark.parametrize(
    ("cls", "key", "stored"),
    [
        (Text, "07", "07"),
        (Text, "", ""),
        (Number, 7, "7"),
        (Number, "07", "7"),
        (Number, "-3", "-3"),
        (Day, date(2020, 1, 1), "2020-01-01"),
        (Day, "20200101", "2020-01-01"),
        (Moment, datetime(2020, 1, 1), NEW_YEAR),
        (Moment, "2020-01-01", NEW_YEAR),
        (Moment, "2020-01-01T00:00:00Z", NEW_YEAR),
        (Moment, "2020-01-01T01:00:00+01:00", NEW_YEAR),
    ],
)
def test_every_spelling_of_a_key_is_the_key(cls, key, stored):
    assert named(cls, key) == (stored,)


@pytest.mark.parametrize(
    ("cls", "key"),
    [
        *((Text, key) for key in (None, 1, ["x"], ("x",), b"x", True, "\ud800", iter)),
        *((Number, key) for key in (1.0, True, "x", "1.0", None, date(2020, 1, 1))),
        *((Day, key) for key in (datetime(2020, 1, 1, tzinfo=UTC), 5, "soon")),
        *((Moment, key) for key in (date(2020, 1, 1), 5, "soon", "9999-12-31T23:59:59-12:00")),
        *((Held, key) for key in ("a/b", ("a",), ("a", "b", "c"), ("a", 1.0), ("a", None), ("a", True))),
        *((Seen, key) for key in (("a", "b"), ("a", "b", 1), ("a", "b", None))),
    ],
    ids=str,
)
def test_what_cannot_be_a_key_is_an_error(cls, key):
    with pytest.raises(ValidationError, match=r"is not a key of|is named by|not Unicode|outside the years"):
        named(cls, key)


def test_the_ends_of_a_relation_are_spelled_as_the_keys_they_mean():
    assert named(Held, ("2020-01-01", "007")) == (NEW_YEAR, "7", "")
    assert named(Held, (datetime(2020, 1, 1, tzinfo=UTC), 7)) == (NEW_YEAR, "7", "")
    assert named(Held, ("no moment", "no number")) == ("no moment", "no number", "")
    assert named(Seen, ("a", "b", "here")) == ("a", "b", "here")
