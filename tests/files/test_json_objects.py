"""Control objects are read with checks: whatever is wrong with one, the error names it and says what."""

from __future__ import annotations

import json

import pytest

from ontologia.errors import StorageBackendError
from ontologia.files.json_objects import (
    flag,
    optional_whole,
    parse,
    record,
    records,
    rest,
    text,
    texts,
    whole,
)

URL = "s3://bucket/meta/head.json"


def read(body):
    return (
        whole(body, "number"),
        optional_whole(body, "size"),
        text(body, "name"),
        flag(body, "done"),
        record(body, "inner"),
        records(body, "items"),
        texts(body, "names"),
        rest(body, "number", "size", "name", "done", "inner", "items", "names"),
    )


GOOD = {"number": 1, "size": 2, "name": "n", "done": True, "inner": {}, "items": [{}], "names": ["a"], "new": 7}


def test_an_object_of_the_right_shape_is_read_and_unknown_keys_are_kept():
    assert parse(json.dumps(GOOD), URL, read) == (1, 2, "n", True, {}, [{}], ["a"], {"new": 7})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"number": "1"}, "number must be a whole number"),
        ({"number": True}, "number must be a whole number"),
        ({"number": 2**63}, "of 64 bits"),
        ({"number": -1}, "at least 0"),
        ({"size": "many"}, "size must be a whole number"),
        ({"name": 5}, "name must be text, not 5"),
        ({"done": "yes"}, "done must be true or false"),
        ({"inner": []}, "inner must be a JSON object"),
        ({"items": "text"}, "items must be a list, not 'text'"),
        ({"items": ["text"]}, "an item of items must be a JSON object"),
        ({"names": [1]}, "names must be a list of texts, and has 1"),
        ({"names": "x" * 1000}, "names must be a list, not 'x+… \\(str\\)"),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_object(change, reason):
    with pytest.raises(StorageBackendError, match=f"^{URL} is malformed: .*{reason}"):
        parse(json.dumps(GOOD | change), URL, read)


def test_a_missing_key_is_named():
    with pytest.raises(StorageBackendError, match=r"is malformed: 'number' is missing\."):
        parse("{}", URL, read)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_json_object_or_nested_without_end_is_malformed(data):
    with pytest.raises(StorageBackendError, match=f"^{URL} is malformed"):
        parse(data, URL, dict)


@pytest.mark.parametrize("wrong", [AttributeError, IndexError, OverflowError, RecursionError])
def test_an_error_of_pythons_in_reading_an_object_names_the_object(wrong):
    def fail(body):
        raise wrong("what it said")

    with pytest.raises(StorageBackendError, match=f"^{URL} is malformed: what it said"):
        parse("{}", URL, fail)


def test_the_error_says_what_to_do_about_the_object():
    with pytest.raises(StorageBackendError, match=r"`onto recover` makes it anew$"):
        parse("{", URL, dict, "`onto recover` makes it anew")
