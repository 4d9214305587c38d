"""SQLite v2 on disk, to the letter (RFC 0009 §3, §5): the file is opened with nothing but sqlite3."""

import json
import re
import sqlite3
from datetime import UTC, date, datetime
from typing import Any, TypedDict

import pytest

from ontologia import Entity, Field, Ontology, Relation

STORAGE_META = """
CREATE TABLE storage_meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
)
"""
TYPE_LAYOUT_CATALOG = """
CREATE TABLE type_layout_catalog (
    type_kind             TEXT NOT NULL,  -- 'entity' or 'relation'
    type_name             TEXT NOT NULL,
    schema_version_id     INTEGER NOT NULL,
    table_name            TEXT NOT NULL,
    activation_commit_id  INTEGER NOT NULL,
    is_current            INTEGER NOT NULL DEFAULT 0,
    created_at            TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (type_kind, type_name, schema_version_id)
)
"""


class Address(TypedDict):
    street: str
    zip: int


class Tree(TypedDict):
    children: "list[Tree]"


class Everything(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = "t"
    number: Field[int] = 7
    real: Field[float] = 1.5
    flag: Field[bool] = True
    instant: Field[datetime] = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    day: Field[date] = date(2024, 1, 2)
    data: Field[bytes] = b"\x00\xff"
    maybe_text: Field[str | None] = None
    maybe_number: Field[int | None] = None
    maybe_real: Field[float | None] = None
    maybe_flag: Field[bool | None] = None
    maybe_instant: Field[datetime | None] = None
    maybe_day: Field[date | None] = None
    maybe_data: Field[bytes | None] = None
    items: Field[list[int]] = [1, 2]  # noqa: RUF012
    mapping: Field[dict[str, int]] = {"b": 1, "a": 2}  # noqa: RUF012
    address: Field[Address] = {"zip": 1, "street": "s"}  # noqa: RUF012
    tree: Field[Tree] = {"children": [{"children": []}]}  # noqa: RUF012
    mixed: Field[str | int] = 3
    maybe_mixed: Field[str | int | None] = None
    anything: Field[Any] = {"x": [1, None, True]}  # noqa: RUF012


class Joins(Relation[Everything, Everything]):
    number: Field[str] = Field(instance_key=True)
    weight: Field[float] = 0.5


SCALARS = {
    "text": ("TEXT", "t"),
    "number": ("INTEGER", 7),
    "real": ("REAL", 1.5),
    "flag": ("INTEGER", 1),
    "instant": ("TEXT", "2024-01-02T03:04:05.000006+00:00"),
    "day": ("TEXT", "2024-01-02"),
    "data": ("BLOB", b"\x00\xff"),
}
JSON = {
    "items": "[1,2]",
    "mapping": '{"a":2,"b":1}',
    "address": '{"street":"s","zip":1}',
    "tree": '{"children":[{"children":[]}]}',
    "mixed": "3",
    "anything": '{"x":[1,null,true]}',
}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "onto.db")


@pytest.fixture
def file(path):
    """A store with one entity and one relation, opened with sqlite3."""
    with Ontology(path, entity_types=[Everything], relation_types=[Joins]) as onto, onto.session() as session:
        session.ensure(Everything(id="e1"))
        session.ensure(Joins(left_key="e1", right_key="e1", number="n1"))
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    yield connection
    connection.close()


def words(statement):
    return re.sub(r"\s+", " ", statement).strip()


def columns(file, table):
    return {row["name"]: row for row in file.execute("SELECT * FROM pragma_table_info(?)", (table,))}


@pytest.mark.parametrize(
    ("table", "statement"), [("storage_meta", STORAGE_META), ("type_layout_catalog", TYPE_LAYOUT_CATALOG)]
)
def test_the_control_tables_are_created_as_specified(file, table, statement):
    (created,) = file.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    assert words(created) == words(statement)


def test_the_shared_control_tables_are_there(file):
    names = {row["name"] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names >= {"commits", "schema_registry", "schema_versions", "locks", "storage_meta", "type_layout_catalog"}


def test_the_file_is_in_wal_mode(file):
    assert file.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_each_type_and_version_has_its_own_table(file):
    names = {row["name"] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names >= {"entity_Everything_v1", "relation_Joins_v1"}


def test_the_catalog_maps_types_to_tables(file):
    rows = file.execute(
        "SELECT type_kind, type_name, schema_version_id, table_name, activation_commit_id, is_current "
        "FROM type_layout_catalog ORDER BY type_kind"
    )
    assert [tuple(row) for row in rows] == [
        ("entity", "Everything", 1, "entity_Everything_v1", 1, 1),
        ("relation", "Joins", 1, "relation_Joins_v1", 1, 1),
    ]


@pytest.mark.parametrize("table", ["entity_Everything_v1", "relation_Joins_v1"])
def test_there_is_no_fields_json(file, table):
    assert "fields_json" not in columns(file, table)


def test_an_entity_table_has_identity_commit_and_version(file):
    row = file.execute("SELECT entity_key, commit_id, schema_version_id FROM entity_Everything_v1").fetchone()
    assert tuple(row) == ("e1", 1, 1)


def test_a_relation_table_has_endpoints_and_instance_key(file):
    row = file.execute("SELECT left_key, right_key, instance_key, weight FROM relation_Joins_v1").fetchone()
    assert tuple(row) == ("e1", "e1", "n1", 0.5)


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_has_a_typed_column(file, name):
    column = columns(file, "entity_Everything_v1")[name]
    assert (column["type"], column["notnull"]) == (SCALARS[name][0], 1)


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_is_stored_as_itself(file, name):
    (value,) = file.execute(f"SELECT {name} FROM entity_Everything_v1").fetchone()
    assert (type(value), value) == (type(SCALARS[name][1]), SCALARS[name][1])


@pytest.mark.parametrize("name", SCALARS)
def test_an_optional_scalar_has_the_same_column_and_may_be_null(file, name):
    column = columns(file, "entity_Everything_v1")[f"maybe_{name}"]
    (value,) = file.execute(f"SELECT maybe_{name} FROM entity_Everything_v1").fetchone()
    assert (column["type"], column["notnull"], value) == (SCALARS[name][0], 0, None)


@pytest.mark.parametrize("name", [*JSON, "maybe_mixed"])
def test_everything_else_has_a_text_column(file, name):
    assert columns(file, "entity_Everything_v1")[name]["type"] == "TEXT"


@pytest.mark.parametrize("name", JSON)
def test_everything_else_is_stored_as_canonical_json(file, name):
    (value,) = file.execute(f"SELECT {name} FROM entity_Everything_v1").fetchone()
    assert value == JSON[name]


def test_a_missing_structured_value_is_null_and_not_the_text_null(file):
    assert file.execute("SELECT maybe_mixed FROM entity_Everything_v1").fetchone()[0] is None


def test_a_commit_has_a_row_in_the_log(file):
    row = file.execute("SELECT id, metadata_json FROM commits").fetchone()
    assert (row["id"], json.loads(row["metadata_json"])) == (1, {})


def test_storage_info_summarises_every_type(path, file):
    with Ontology(path) as onto:
        assert onto.storage_info() == {
            "backend": "sqlite",
            "engine_version": "v2",
            "db_path": path,
            "type_layouts": {
                "Everything": {
                    "type_kind": "entity",
                    "current_schema_version_id": 1,
                    "activation_commit_id": 1,
                    "historical_versions": [],
                },
                "Joins": {
                    "type_kind": "relation",
                    "current_schema_version_id": 1,
                    "activation_commit_id": 1,
                    "historical_versions": [],
                },
            },
        }


def test_v1_keeps_fields_as_one_json_document(tmp_path):
    from ontologia import open_repository

    path = str(tmp_path / "v1.db")
    open_repository(path, engine_version="v1").close()
    with Ontology(path, entity_types=[Everything]) as onto, onto.session() as session:
        session.ensure(Everything(id="e1"))
    ((document,),) = sqlite3.connect(path).execute("SELECT fields_json FROM entity_history").fetchall()
    assert json.loads(document)["instant"] == "2024-01-02T03:04:05.000006+00:00"
