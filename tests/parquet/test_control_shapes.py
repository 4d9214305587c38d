"""Control data of another shape is an error of ours that names it, wherever it is read, and repair mends what it can."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ontologia import Entity, Field, OntologiaError, Ontology, initialize_storage

WRONG = ["text", 1e308, -1, 2**70, None, True, [], {}, [1], {"a": 1}]
DEEP = "[" * 100_000


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    tags: Field[list[str]] = Field(default_factory=list)


def places(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value of a JSON document."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in items:
        yield (*at, name)
        yield from places(value, (*at, name))


def changed(text: str) -> Iterator[tuple[str, str]]:
    """The document with another value, or none, at every place, and nested without end."""
    yield "deep", DEEP
    for place in places(json.loads(text)):
        for value in [*WRONG, ...]:
            body = json.loads(text)
            inner = body
            for step in place[:-1]:
                inner = inner[step]
            if value is ...:
                del inner[place[-1]]
            else:
                inner[place[-1]] = value
            yield f"{place} is {value!r}", json.dumps(body)


QUESTIONS = {
    "read": lambda onto: onto.query().entities(Thing).to_arrow(),
    "as_of": lambda onto: onto.query().entities(Thing).as_of(1).count(),
    "log": lambda onto: onto.list_commits(),
    "verify": lambda onto: onto.repository.index_verify(),
}


def errors_of_python(where: dict[str, str], questions=QUESTIONS) -> list[str]:
    """What the store answers with other than rows or an error of ours."""
    found = []
    for name, ask in questions.items():
        try:
            with Ontology(**where, entity_types=[Thing]) as onto:
                ask(onto)
        except OntologiaError:
            pass
        except Exception as problem:
            found.append(f"{name}: {type(problem).__name__}: {problem}")
    return found


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes") / "store"
    initialize_storage(storage_uri=folder.as_uri())
    with Ontology(storage_uri=folder.as_uri(), entity_types=[Thing]) as onto:
        for number in range(2):
            with onto.session() as session:
                session.ensure(Thing(id="a", tags=[str(number)]))
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    "pattern",
    ["meta/head.json", "meta/engine.json", "meta/schema/types.json", "meta/indices/entities/Thing.json", "commits/2-*"],
)
def test_a_control_object_of_any_shape_is_read_or_is_an_error_of_ours(good, tmp_path, pattern):
    wrong = {}
    store = tmp_path / "store"
    shutil.copytree(good, store)
    file = next(
        path for path in sorted(store.rglob("*.json")) if path.match(f"*{pattern}") or path.parent.match(pattern)
    )
    text = file.read_text()
    for change, content in changed(text):
        file.write_text(content)
        if found := errors_of_python({"storage_uri": store.as_uri()}):
            wrong[change] = found
    assert wrong == {}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("entries",), "x"),
        (("entries", 0), "x"),
        (("entries", 0, "size"), "many"),
        (("max_indexed_commit",), "2"),
        ((), DEEP),
    ],
    ids=["entries", "entry", "size", "watermark", "deep"],
)
def test_an_index_of_another_shape_is_repaired(good, tmp_path, place, value):
    store = tmp_path / "store"
    shutil.copytree(good, store)
    file = store / "meta/indices/entities/Thing.json"
    body = json.loads(file.read_text())
    inner = body
    for step in place[:-1]:
        inner = inner[step]
    if place:
        inner[place[-1]] = value
    file.write_text(json.dumps(body) if place else value)
    with Ontology(storage_uri=store.as_uri(), entity_types=[Thing]) as onto:
        assert [item.healthy for item in onto.repository.index_verify().types] == [False]
        onto.repository.index_repair(apply=True)
        assert onto.query().entities(Thing).with_history().count() == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE schema_versions SET schema_json = '[]'",
        'UPDATE schema_versions SET schema_json = \'{"kind": "entity", "name": "Thing", "fields": [{}]}\'',
        f"UPDATE schema_versions SET schema_json = '{DEEP}'",
        "UPDATE commits SET metadata_json = '[1]'",
        "UPDATE commits SET metadata_json = '{'",
        "UPDATE commits SET metadata_json = x'ff'",
    ],
    ids=["schema is a list", "schema without fields", "deep", "metadata is a list", "metadata is no JSON", "bytes"],
)
def test_control_data_of_another_shape_in_a_file_is_an_error_of_ours(tmp_path, change):
    path = str(tmp_path / "onto.db")
    with Ontology(path, entity_types=[Thing]) as onto, onto.session() as session:
        session.ensure(Thing(id="a"))
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    asked = {name: QUESTIONS[name] for name in ("read", "as_of", "log")}
    assert errors_of_python({"db_path": path}, asked) == []
