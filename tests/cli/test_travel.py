"""Data of every kind goes from any engine to any other and is the same, with classes or without."""

import math
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from myapp import kinds

from ontologia import Ontology

ENGINES = ["sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2"]
TREE = {"label": "root", "children": [{"label": "leaf", "children": []}, {"label": "twig"}]}


def things():
    common = {
        "text": 'a "quoted"\nline \\ ✓ \u2028 ',
        "flag": False,
        "day": date(1, 1, 1),
        "raw": b"\x00\xff",
        "no_text": None,
        "some": [1, None, -(2**63)],
        "by_number": {1: b"\x01", -2: b""},
        "instants": [datetime(2026, 1, 1, tzinfo=UTC)],
        "key": "not the key",
        "commit_id": 42,
    }
    reals = (0.1, 2.0, 1e300, math.inf, -math.inf, 5e-324)
    mixed = (7, "7", ["7"], "", [], -7)
    anything = (None, {"a": [1, 2.5, None, True]}, "text", 3, [], False)
    for number in range(6):
        yield kinds.Kinds(
            at=datetime(2026, 1, 1, 12, number, 0, 1, tzinfo=UTC),
            whole=(-1) ** number * (2**63 - 1),
            real=reals[number],
            mixed=mixed[number],
            anything=anything[number],
            tree=TREE if number % 2 else None,
            **common,
        )
    for number in (-1, 2, 10, 9):
        yield kinds.Numbered(number=number)
    yield kinds.Joins(left_key="x", right_key="y")
    yield kinds.Joins(left_key="x", right_key="")
    yield kinds.Joins(left_key="xy", right_key="")


def ontology(target):
    types = {"entity_types": [kinds.Kinds, kinds.Numbered], "relation_types": [kinds.Joins]}
    return Ontology(**target.bindings, **types)


def everything(target):
    with ontology(target) as store:
        return [
            repr(store.query().entities(kinds.Kinds).collect()),
            repr(store.query().entities(kinds.Numbered).collect()),
            repr(store.query().relations(kinds.Joins).collect()),
        ]


def records(folder):
    return {path.name: path.read_text() for path in Path(folder).rglob("*.jsonl")}


@pytest.mark.parametrize("classes", [(), ("--models", "myapp.kinds")], ids=["by schema", "by class"])
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@pytest.mark.parametrize("arrival", ENGINES)
@pytest.mark.parametrize("departure", ["sqlite-v1", "s3-v2"])
@pytest.mark.thorough
def test_every_kind_of_value_travels(onto, initialized, departure, arrival, format, classes):
    source, target = initialized(departure, "source"), initialized(arrival, "target")
    with ontology(source) as store, store.session() as session:
        session.ensure(things())
    onto("export", *source.flags, "--output", "data", "--format", format)
    answer = onto("import", *target.flags, "--input", "data", *classes, "--apply", "--json")
    assert answer.code == 0, answer.err
    assert everything(target) == everything(source)
    for number, store in enumerate((source, target)):
        onto("export", *store.flags, "--output", f"plain-{number}")
    assert records("plain-0") == records("plain-1")
    again = onto("import", *target.flags, "--input", "data", *classes, "--apply", "--on-conflict", "upsert", "--json")
    assert again.json["commit_id"] is None
