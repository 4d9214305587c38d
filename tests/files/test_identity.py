"""The order of identities: found by numbers, and the same that texts have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ontologia.files import identity
from ontologia.files.identity import sort_by_identity

TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "a", "a\0", "ab", "order-1", "order-10", "order-1\0", "order-1234567", "order-12345678", "é", "ÿ"]
    ),
    st.integers(0, 10_000).map("order-{:012}".format),
)


def by_text(table: pa.Table, names: list[str]) -> list[dict[str, object]]:
    def key(row: dict[str, object]) -> list[object]:
        return [value.encode() if isinstance(value, str) else value for value in (row[name] for name in names)]

    return sorted(table.to_pylist(), key=key)


@settings(deadline=None)
@given(keys=st.lists(TEXTS, max_size=60), chunks=st.integers(1, 4))
def test_keys_come_in_the_order_of_their_bytes(keys, chunks):
    table = pa.table({"entity_key": keys, "place": range(len(keys))}, schema=SCHEMA)
    size = -(-len(keys) // chunks) or 1
    table = pa.concat_tables([table.slice(start, size) for start in range(0, len(keys), size)] or [table])
    assert sort_by_identity(table, ["entity_key"]).to_pylist() == by_text(table, ["entity_key"])


SCHEMA = pa.schema([("entity_key", pa.string()), ("place", pa.int64())])


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.sampled_from(["hub", "hubs", "left", ""]), TEXTS, TEXTS), max_size=60))
def test_the_rest_of_an_identity_decides_where_its_first_part_is_the_same(rows):
    names = ["left_key", "right_key", "instance_key"]
    table = pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], pa.schema([(name, pa.string()) for name in names])
    )
    assert sort_by_identity(table, names).to_pylist() == by_text(table, names)


def test_a_slice_is_sorted_by_its_own_keys():
    table = pa.table({"entity_key": ["z", "y", "b", "c", "a", "x"]}).slice(2, 3)
    assert sort_by_identity(table, ["entity_key"]).column(0).to_pylist() == ["a", "b", "c"]


def test_rows_in_order_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(identity, "_order", lambda *_: pytest.fail("sorted what is in order"))
    table = pa.table({"entity_key": ["a", "a", "b"]})
    assert sort_by_identity(table, ["entity_key"]) is table
