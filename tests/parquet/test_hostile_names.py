"""Names that are patterns, paths or beginnings of each other: each type keeps its own rows, through everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ontologia import Entity, Field, Ontology, initialize_storage
from ontologia.files.names import decode_name, encode_name
from ontologia.files.quoting import exact_path, quote_name

NAMES = [
    "order",
    "order-line",
    "order/item",
    "order-1",
    "A*",
    "AB",
    "A?",
    "a[b]",
    'quote "',
    "it's",
    "..",
    "ü ñ",
    "~2F",
]


def declare(stored: str) -> type[Entity]:
    class Thing(Entity, name=stored):
        id: Field[str] = Field(primary_key=True)
        v: Field[int] = 0

    return Thing


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_types_whose_names_look_alike_keep_their_rows_through_drop_compaction_and_vacuum(tmp_path, version):
    uri = (tmp_path / "a?c [x]").as_uri()
    initialize_storage(storage_uri=uri, engine_version=version)
    types = {name: declare(name) for name in NAMES}
    with Ontology(storage_uri=uri, entity_types=list(types.values())) as onto:
        for number in range(3):
            with onto.session() as session:
                session.ensure(cls(id=name, v=number) for name, cls in types.items())
        onto.repository.compact(apply=True)
        preview: Any = onto.drop_types(["order"], purge_history=True)
        onto.drop_types(["order"], purge_history=True, dry_run=False, token=preview.token)
        onto.repository.vacuum(0, apply=True)
        for name, cls in types.items():
            found = [] if name == "order" else [(name, 2)]
            assert [(thing.id, thing.v) for thing in onto.query().entities(cls).collect()] == found
            assert onto.query().entities(cls).with_history().count() == 3 * len(found)


@settings(deadline=None)
@given(st.text(min_size=1))
def test_a_name_is_one_part_of_a_path_and_comes_back(name):
    part = encode_name(name)
    assert decode_name(part) == name
    assert not set(part) & set("/\\*?[]{}'\"% \0")
    assert part not in (".", "..")


def test_identifiers_and_paths_are_quoted_whole():
    assert quote_name('a"; DROP TABLE x; --') == '"a""; DROP TABLE x; --"'
    assert exact_path("/a*/b?[c]") == "/a[*]/b[?][[]c]"
