"""Histories in files: out of any store, and back into any other one, every commit and version as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ontologia import Entity, Field, Ontology, RemovalsUnsupportedError, Session, ValidationError, copy_history
from ontologia.engines.dispatch import open_repository
from ontologia.errors import UnreadableFileError
from ontologia.runtime.store import Store
from ontologia.runtime.transfer import copy_state, export_data, export_history, import_data
from support.copied_shop import CASES, everything, place, shop


def exported(origin: str, folder: Path, **options) -> Path:
    with Store(open_repository(origin), {}) as store:
        export_history(store, folder, **options)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    "source", [name if name == "s3/v2" else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_history_in_files_becomes_the_same_store_again(source, format, tmp_path):
    removals = source.endswith("v2")
    origin = shop(source, tmp_path / "source", removals=removals)
    folder = exported(origin, tmp_path / "export", format=format)
    for name in ("sqlite/v2", "s3/v2"):
        (tmp_path / name[:2]).mkdir()
        report = copy_history(folder, place(name, tmp_path / name[:2]))
        assert everything(report.target) == everything(origin)
    if removals:
        with pytest.raises(RemovalsUnsupportedError, match="copy it to v2"):
            copy_history(folder, tmp_path / "v1.db", engine_version="v1")


class Note(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = ""


class NoteWithTags(Entity, name="Note"):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = ""
    tags: Field[list[str]] = Field(default_factory=list)


@pytest.fixture
def notes(tmp_path: Path) -> str:
    """Three commits: two notes, one of them goes, and comes again."""
    with Session(tmp_path / "onto.db", entity_types=[Note]) as session:
        session.ensure([Note(id="a", text="stays"), Note(id="b", text="goes")])
        session.commit(meta={"why": "begin"})
        session.remove(Note, "b")
        session.commit()
        session.ensure(Note(id="b", text="comes again"))
        session.commit()
    return str(tmp_path / "onto.db")


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_all_versions_since_the_beginning_are_a_history_where_nothing_was_migrated(notes, tmp_path, format):
    with Ontology(notes, entity_types=[Note]) as onto:
        export_data(onto, tmp_path / "all", history_since=0, format=format)
        export_data(onto, tmp_path / "later", history_since=1)
    report = copy_history(tmp_path / "all", tmp_path / "copy.db")
    assert (report.rows, everything(str(tmp_path / "copy.db"))) == (4, everything(notes))
    with pytest.raises(ValidationError, match="has a state, or a part of a history"):
        copy_history(tmp_path / "later", tmp_path / "other.db")


def test_versions_that_a_migration_left_behind_are_missing_from_a_plain_export_so_it_is_no_history(notes, tmp_path):
    with Session(notes, entity_types=[NoteWithTags]) as session:
        session.migrate(dry_run=False, force=True)
        export_data(session, tmp_path / "all", history_since=0)
    with pytest.raises(ValidationError, match="export the store again with onto export --with-history"):
        copy_history(tmp_path / "all", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_rows_under_several_schemas_are_not_imported_as_one_commit(notes, tmp_path):
    with Session(notes, entity_types=[NoteWithTags]) as session:
        session.migrate(dry_run=False, force=True)
    folder = exported(notes, tmp_path / "export")
    with (
        Session(tmp_path / "other.db", entity_types=[NoteWithTags]) as other,
        pytest.raises(ValidationError, match=r"a history with several schema versions.*with --with-history"),
    ):
        import_data(other, folder, dry_run=False)


def test_a_state_in_files_becomes_a_store_of_one_commit_and_a_cut_off_one_goes_on(notes, tmp_path):
    with Ontology(notes, entity_types=[Note]) as onto:
        export_data(onto, tmp_path / "now")
    open_repository(tmp_path / "copy.db").close()  # as far as it came
    assert copy_state(tmp_path / "now", tmp_path / "copy.db").commit_id == 1
    with Ontology(tmp_path / "copy.db", entity_types=[Note]) as onto:
        assert [note.text for note in onto.query().entities(Note).collect()] == ["stays", "comes again"]
    with pytest.raises(ValidationError, match="holds an ontology already"):
        copy_state(tmp_path / "now", tmp_path / "copy.db")


def test_files_that_are_not_what_they_should_be_are_named(notes, tmp_path):
    folder = exported(notes, tmp_path / "export")
    lines = (folder / "entities/Note/v1.jsonl").read_text().splitlines()
    for line, told in (
        ("{", "v1.jsonl:1: not JSON"),
        ("[]", "v1.jsonl:1: a record of a history is a JSON object that says its commit_id"),
        (lines[0].replace('"stays"', "7"), "v1.jsonl:1: entity Note 'a': text: Input should be a valid string"),
    ):
        (folder / "entities/Note/v1.jsonl").write_text("\n".join([line, *lines[1:]]))
        with pytest.raises(ValidationError, match=told):
            copy_history(folder, tmp_path / "copy.db")
    (folder / "entities/Note/v1.jsonl").unlink()
    with pytest.raises(UnreadableFileError, match=r"v1\.jsonl cannot be read"):
        copy_history(folder, tmp_path / "copy.db")
    (folder / "export.json").write_text("{}")
    with pytest.raises(ValidationError, match="has a state"):
        copy_history(folder, tmp_path / "other.db")


# --- of 0.3 ---


class Customer(Entity):
    """What it is now: `full_name` was `name`, and 0.3 leaves a field with a default out."""

    id: Field[str] = Field(primary_key=True)
    full_name: Field[str]
    channel: Field[str] = "web"
    tags: Field[list[str]] = Field(default_factory=list)


def records_of_03(folder: Path, *rows: tuple[str, int, dict]) -> Path:
    folder.mkdir()
    records = [
        {
            "type_kind": "entity",
            "type_name": "Customer",
            "key": key,
            "fields": {"id": key, **fields},
            "commit_id": commit,
        }
        for key, commit, fields in rows
    ]
    (folder / "Customer.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "Region.jsonl").write_text("")
    return folder


def test_a_history_that_03_exported_has_its_rows_in_their_commits(tmp_path):
    folder = records_of_03(
        tmp_path / "export",
        ("a", 1, {"name": "Ann", "age": 1, "joined": "2024"}),
        ("a", 3, {"name": "Ann", "age": 1.5, "joined": None}),
        ("b", 3, {"name": "Bob", "age": 2}),
        ("a", 4, {"name": "Ann", "full_name": "Ann", "tags": ["x"]}),
        ("b", 4, {"full_name": "Bob"}),
        ("b", 5, {"full_name": "first word"}),
        ("b", 5, {"full_name": "Bobby"}),
    )
    with pytest.raises(ValidationError, match="entity Customer is not among the classes"):
        copy_history(folder, tmp_path / "copy.db")
    report = copy_history(folder, tmp_path / "copy.db", types=[Customer])
    assert (report.head, report.rows) == (5, 6)
    with Ontology(tmp_path / "copy.db", entity_types=[Customer]) as onto:
        assert [commit["id"] for commit in onto.list_commits()] == [5, 4, 3, 2, 1]
        assert "Ontologia 0.3" in onto.list_commits()[0]["metadata"]["source"]
        found = onto.query().entities(Customer).with_history()
        rows = [(row.meta().commit_id, row.id, row.full_name, row.channel, row.tags) for row in found.collect()]
        earlier, _ = onto.query().entities(Customer).with_history().as_stored()
    assert sorted(rows) == [(4, "a", "Ann", "web", ["x"]), (4, "b", "Bob", "web", []), (5, "b", "Bobby", "web", [])]
    assert earlier.schema_version_id == 1
    assert [(row["name"], row["age"], row["joined"]) for row in earlier.table.to_pylist()] == [
        ("Ann", 1.0, "2024"),
        ("Ann", 1.5, None),
        ("Bob", 2.0, None),
    ]


def test_what_03_exported_without_commits_is_a_state(tmp_path):
    folder = records_of_03(tmp_path / "export", ("a", 1, {"full_name": "Ann"}))
    text = (folder / "Customer.jsonl").read_text().replace(', "commit_id": 1', "")
    (folder / "Customer.jsonl").write_text(text)
    with pytest.raises(ValidationError, match="copy it without --with-history, as one commit"):
        copy_history(folder, tmp_path / "copy.db", types=[Customer])
    assert copy_state(folder, tmp_path / "copy.db", types=[Customer]).commit_id == 1
