"""A field may be called like anything that files, indexes and statements of this engine have names for."""

from __future__ import annotations

import pytest

from ontologia import Entity, Field, Ontology, initialize_storage

NAMES = (
    *(
        "operation",
        "superseded_by",
        "commit_id",
        "schema_version_id",
        "entity_key",
        "left_key",
        "instance_key",
        "place",
    ),
    *(
        "known",
        "rank",
        "t",
        "fields_json",
        "entity_type",
        "touched_keys",
        "files",
        "key",
        "Operation",
        "own",
        "earlier",
    ),
)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough
def test_a_field_of_any_name_is_committed_compacted_and_found(tmp_path, name, version):
    body = {
        "__annotations__": {"id": Field[str], name: Field[int]},
        "id": Field(primary_key=True),
        name: Field(default=0),
    }
    cls = type("Named", (Entity,), body)
    uri = tmp_path.as_uri()
    initialize_storage(storage_uri=uri, engine_version=version)
    with Ontology(storage_uri=uri, entity_types=[cls]) as onto:
        things = onto.query().entities(cls)
        for number in (1, 2):
            with onto.session() as session:
                session.ensure([cls(id="a", **{name: number}), cls(id="b", **{name: 5})])
        for _ in range(2):
            assert [getattr(thing, name) for thing in things.collect()] == [2, 5]
            assert [getattr(thing, name) for thing in things.with_history().collect()] == [1, 5, 2]
            assert things.as_of(1).where(cls.__declaration__.expression(name) == 1).count() == 1
            onto.repository.compact(apply=True)
