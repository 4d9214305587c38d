"""Exports and removals: a state has none, a history says which they are, and is not imported as if they were there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ontologia import Entity, Field, Session, ValidationError
from ontologia.runtime.transfer import export_data, import_data


class Note(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = ""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = Session(tmp_path / "onto.db", entity_types=[Note])
    session.ensure([Note(id="a", text="stays"), Note(id="b", text="goes")])
    session.commit()
    session.remove(Note, "b")
    session.commit()
    return session


def test_an_export_of_a_state_has_no_removed_rows_and_is_imported(session: Session, tmp_path: Path) -> None:
    assert export_data(session, tmp_path / "now").rows == 1
    assert export_data(session, tmp_path / "then", as_of=1).rows == 2
    with Session(tmp_path / "other.db", entity_types=[Note]) as other:
        import_data(other, tmp_path / "now", dry_run=False)
        assert [note.id for note in other.query().entities(Note).collect()] == ["a"]


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_an_export_of_history_says_what_is_a_removal_and_is_no_state(
    session: Session, tmp_path: Path, format: str
) -> None:
    export_data(session, tmp_path / "all", history_since=0, with_metadata=True, format=format)  # type: ignore[arg-type]
    file = tmp_path / "all" / "entities" / f"Note.{format}"
    if format == "jsonl":
        records = [json.loads(line) for line in file.read_text().splitlines()]
        assert [(r["key"], r["commit_id"], r.get("removed")) for r in records] == [
            ("a", 1, None),
            ("b", 1, None),
            ("b", 2, True),
        ]
    else:
        assert pq.read_table(file).column("superseded_by").to_pylist() == [None, None, 2]
    with (
        Session(tmp_path / "other.db", entity_types=[Note]) as other,
        pytest.raises(ValidationError, match=r"Note\.\w+.*3.*: this is a removal, of an export of history"),
    ):
        import_data(other, tmp_path / "all", dry_run=False)
