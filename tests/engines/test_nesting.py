"""No store is made inside another, and none is emptied that has another inside."""

import uuid

import pytest

from ontologia import (
    Entity,
    Field,
    Ontology,
    ValidationError,
    copy_history,
    initialize_storage,
)
from ontologia.apiary import Apiary
from ontologia.engines import nesting
from ontologia.engines.parquet import setup
from ontologia.errors import StorageBackendError
from ontologia.objects import Objects, open_objects
from ontologia.omnigraph import Omnigraph


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.fixture(params=["file", "memory"])
def outer(request, tmp_path):
    where = (tmp_path / "outer").as_uri() if request.param == "file" else f"memory://{uuid.uuid4().hex}/outer"
    initialize_storage(storage_uri=where)
    return where


def test_a_store_is_not_made_inside_another(outer, tmp_path):
    with Ontology(str(tmp_path / "source.db"), entity_types=[Thing]) as source, source.session() as session:
        session.ensure(Thing(id="a"))
    makers = {
        "init": lambda place: initialize_storage(storage_uri=place),
        "dry run": lambda place: initialize_storage(storage_uri=place, dry_run=True),
        "copy": lambda place: copy_history(tmp_path / "source.db", place),
    }
    if outer.startswith("file:"):
        makers["init of a graph"] = lambda place: initialize_storage(storage_uri=place, engine="omnigraph")
        makers["graph"] = Omnigraph.init
    for name, make in makers.items():
        for inner in ("inner", "much/deeper"):
            with pytest.raises(ValidationError, match=f"{inner} lies inside the store at .*/outer, and would go"):
                make(f"{outer}/{inner}")
            assert list(open_objects(f"{outer}/{inner}").list()) == [], name


def test_a_store_is_not_made_inside_a_graph(tmp_path):
    Omnigraph.init(tmp_path / "graph").close()
    with pytest.raises(ValidationError, match=r"inside the store at .*/graph"):
        initialize_storage(storage_uri=(tmp_path / "graph" / "inner").as_uri())


def test_a_store_is_made_beside_another(outer):
    initialize_storage(storage_uri=f"{outer}2")
    assert setup.read_version(open_objects(f"{outer}2")) == "v2"


def test_a_store_with_another_inside_is_not_emptied(outer, tmp_path):
    setup.initialize(open_objects(f"{outer}/inner"), "v2")  # as earlier releases let one
    for options in ({"dry_run": True}, {"token": "any"}):
        with pytest.raises(ValidationError, match=r"has another store inside, at .*/outer/inner, which would go"):
            initialize_storage(storage_uri=outer, force=True, **options)
    assert setup.read_version(open_objects(f"{outer}/inner")) == "v2"


def test_a_store_with_frames_inside_is_not_emptied(tmp_path):
    place = (tmp_path / "outer").as_uri()
    initialize_storage(storage_uri=place)
    with Apiary("test", f"{place}/frames"):
        pass
    with pytest.raises(ValidationError, match=r"another store inside, at .*/outer/frames"):
        initialize_storage(storage_uri=place, force=True, dry_run=True)


def test_a_store_that_lies_inside_another_already_can_be_emptied(outer):
    setup.initialize(open_objects(f"{outer}/inner"), "v2")
    token = initialize_storage(storage_uri=f"{outer}/inner", force=True, dry_run=True).token
    assert initialize_storage(storage_uri=f"{outer}/inner", force=True, token=token).initialized


def test_prefixes_above_that_may_not_be_asked_are_no_hindrance(monkeypatch):
    def refuse(self, key):
        raise StorageBackendError("no", context={"kind": "access_denied"})

    place = open_objects(f"memory://{uuid.uuid4().hex}/a/b/c")
    monkeypatch.setattr(Objects, "exists", refuse)
    nesting.check_outside(place)


def test_few_prefixes_above_are_asked():
    place = open_objects(f"memory://{uuid.uuid4().hex}/" + "/".join("abcdefghijklmnop"))
    asked = [outer.prefix for outer in nesting._around(place)]
    assert (len(asked), asked[0]) == (nesting.PARENTS_ASKED, "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o")
