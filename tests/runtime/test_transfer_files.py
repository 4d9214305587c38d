"""Exported files in stretches: every record once, in order, and named by the line or row where it stands."""

import json

import pytest

from ontologia import Entity, Field, Ontology
from ontologia.runtime.transfer import export_data, rows_to_import
from ontologia.runtime.transfer.files import Readers, Split, check_records, splits_of


class Note(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str]


@pytest.fixture
def store():
    with Ontology(":memory:", entity_types=[Note], relation_types=[]) as onto:
        yield onto


def line(number: int) -> bytes:
    fields = {"id": number, "text": "ü" * (number % 5)}
    return json.dumps({"kind": "entity", "type": "Note", "fields": fields}, ensure_ascii=False).encode()


@pytest.fixture
def lines(tmp_path):
    """Lines of many lengths, a byte order mark, blank lines, both kinds of line ends, and none at the end."""
    path = tmp_path / "notes.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + line(1) + b"\n\n" + line(2) + b"\r\n" + line(3) + b"\n   \n" + line(4) + b"\n" + line(5)
    )
    return path


def found(splits: list[Split], readers: Readers) -> list[tuple[str, str]]:
    """Where each record stands, and its key."""
    return [
        (split.place(number), identity[0])
        for split in splits
        for number, _, _, identity, _ in check_records(split, readers)
    ]


def test_stretches_of_any_size_have_every_line_once(store, lines):
    readers = Readers(store, store.engine.catalog(), lines)
    whole = [(f"{lines}:{number}", key) for number, key in ((1, "1"), (3, "2"), (4, "3"), (6, "4"), (7, "5"))]
    assert found([Split(lines)], readers) == whole
    for size in range(1, lines.stat().st_size + 2):
        assert found(splits_of(lines, size), readers) == whole


def test_stretches_of_any_size_have_every_row_once(store, tmp_path):
    import pyarrow.parquet as pq

    with store.session() as session:
        session.ensure(Note(id=number, text="x") for number in range(10))
    export_data(store, tmp_path / "data", format="parquet")
    path = tmp_path / "notes.parquet"
    pq.write_table(pq.ParquetFile(tmp_path / "data" / "entities" / "Note.parquet").read(), path, row_group_size=3)
    readers = Readers(store, store.engine.catalog(), path)
    whole = [(f"{path} row {number + 1}", str(number)) for number in range(10)]
    for size in (1, 100, 150, 300, 10_000):
        assert found(splits_of(path, size), readers) == whole
    assert len(splits_of(path, 1)) == 4
    assert rows_to_import(path) == 10


def test_an_empty_file_is_one_stretch_without_records(store, tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_bytes(b"")
    assert found(splits_of(path, 10), Readers(store, store.engine.catalog(), path)) == []
    assert rows_to_import(path) == 0


def test_lines_are_counted_by_a_sample(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_bytes((line(10) + b"\n") * 50_000)
    assert rows_to_import(path) == pytest.approx(50_000, rel=0.01)
