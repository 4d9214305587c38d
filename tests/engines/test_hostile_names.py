"""Names from strangers, through every door of a SQLite store: declared, exported, imported, migrated, dropped, purged.

An export may name types and fields as it likes. Whatever it says is a name, and nothing else happens.
"""

import json
import sqlite3
from random import Random

import pytest

from ontologia import Entity, Field, Ontology, ValidationError, count, export_data, import_data
from ontologia.model import TypeRef
from ontologia.testing.differential.worlds import FIELD_NAMES, TYPE_NAMES

INJECTIONS = [
    '"; DROP TABLE commits; --',
    "'; DROP TABLE commits; --",
    'x") ; DELETE FROM commits; --',
    "x' || (SELECT load_extension('x')) || '",
    '$."a"',
    "a]b[c",
    "%s{}{0}",
    "A*",
    "A?",
    "[A]",
    "order/item",
    "../../etc",
    "NULL",
    "x\u2028y",
]
NAMES = [*TYPE_NAMES, *FIELD_NAMES, *INJECTIONS]


def entity(type_name, fields):
    body = {
        "__annotations__": {"key": Field[str], **dict.fromkeys(fields, Field[str | None])},
        "key": Field(primary_key=True),
        **{name: Field(default=None, index=True) for name in fields},
    }
    return type("Stranger", (Entity,), body, name=type_name)


def rows(onto, name):
    return [{k: v for k, v in row.items() if k != "commit_id"} for row in onto.repository.query_entities(name)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.thorough
def test_types_and_fields_of_any_names_live_side_by_side(path, tmp_path, seed):
    rng = Random(seed)
    names = rng.sample(NAMES, 5)
    classes = {name: entity(name, rng.sample([n for n in NAMES if n != "key"], 8)) for name in names}
    with Ontology(path, entity_types=classes.values()) as onto:
        for turn in ("old", "new"):
            with onto.session() as session:
                session.ensure(
                    cls(
                        key="k",
                        **{field: f"{name} {field} {turn}" for field in cls.__entity_fields__ if field != "key"},
                    )
                    for name, cls in classes.items()
                )
        for name, cls in classes.items():
            for field in cls.__entity_fields__:
                value = "k" if field == "key" else f"{name} {field} new"
                query = onto.query().entities(cls)
                operand = getattr(cls, field)
                assert query.where(operand == value).order_by(operand).first().__dict__[field] == value
                assert query.group_by(operand).agg(**{"how many?": count()}) == [{field: value, "how many?": 1}]
        before = {name: rows(onto, name) for name in names}
        export_data(onto, tmp_path / "out")
        with Ontology(str(tmp_path / "copy.db")) as copy:
            import_data(copy, tmp_path / "out", dry_run=False)
            assert {name: rows(copy, name) for name in names} == before
        dropped, *kept = names
        preview = onto.drop_types([dropped], purge_history=True)
        onto.drop_types([dropped], purge_history=True, dry_run=False, token=preview.token)
        assert {name: rows(onto, name) for name in kept} == {name: before[name] for name in kept}
        assert TypeRef("entity", dropped) not in onto.engine.catalog().layouts


def exported(folder, type_name, field):
    """An export as a stranger might write it."""
    text = {"kind": "primitive", "name": "str"}
    fields = [{"name": "id", "type": text, "primary_key": True}, {"name": field, "type": text, "index": True}]
    schema = {"kind": "entity", "name": type_name, "fields": fields}
    (folder / "entities").mkdir(parents=True)
    (folder / "export.json").write_text(json.dumps({"types": [{"schema": schema}]}))
    record = {"kind": "entity", "type": type_name, "key": "k", "fields": {"id": "k", field: "v"}}
    (folder / "entities" / "T.jsonl").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize("field", INJECTIONS)
def test_a_field_that_a_stranger_named_is_only_a_name(path, tmp_path, field):
    with Ontology(path) as onto:
        import_data(onto, exported(tmp_path / "in", "T", field), dry_run=False)
        found = onto.repository.query_entities("T", where=[onto.repository.field("entity", "T", "id") == "k"])
        assert found == [{"commit_id": 1, "id": "k", field: "v"}]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM commits").fetchone() == (1,)


@pytest.mark.parametrize("name", ["", " ", "a\0b", "\ud800", 7, None])
def test_what_cannot_be_a_name_is_refused_at_the_door(path, tmp_path, name):
    with Ontology(path) as onto:
        with pytest.raises(ValidationError, match="malformed"):
            import_data(onto, exported(tmp_path / "type", name, "x"), dry_run=False)
        with pytest.raises(ValidationError, match="malformed"):
            import_data(onto, exported(tmp_path / "field", "T", name), dry_run=False)
        assert onto.list_commits() == []


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_a_class_with_such_a_field_is_refused(name):
    with pytest.raises(TypeError, match="cannot be the name of a field"):
        entity("Thing", [name])
