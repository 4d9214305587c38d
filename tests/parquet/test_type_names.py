"""Any name is encoded into a part of a key; one that is too long for that is refused before anything is written."""

import pytest

from ontologia import Entity, Field, Ontology, ValidationError, initialize_storage


def declared(name):
    body = {"__annotations__": {"id": Field[str]}, "id": Field(primary_key=True)}
    return type("Odd", (Entity,), body, name=name)


@pytest.fixture(params=["v1", "v2"])
def uri(request, tmp_path):
    found = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=found, engine_version=request.param)
    return found


@pytest.mark.parametrize("name", ["x" * 1_000, "é/" * 60])
def test_a_name_that_is_too_long_for_a_key_is_refused_and_nothing_is_written(uri, tmp_path, name):
    before = sorted(tmp_path.rglob("*"))
    with Ontology(storage_uri=uri, entity_types=[declared(name)]) as onto:
        session = onto.session()
        session.ensure(declared(name)(id="1"))
        with pytest.raises(ValidationError, match="cannot be kept in a bucket"):
            session.commit()
    assert [
        path
        for path in sorted(tmp_path.rglob("*"))
        if path not in before and "locks" not in str(path) and "probe" not in str(path)
    ] == []


@pytest.mark.parametrize(
    "name", ["../x", "a/../b", ".", "..", "a\nb", "a\\b", "a//b", "/a", "a/", "é", "a b", "'", '"']
)
def test_any_other_name_is_kept_and_stays_inside_the_store(uri, tmp_path, name):
    cls = declared(name)
    with Ontology(storage_uri=uri, entity_types=[cls]) as onto:
        with onto.session() as session:
            session.ensure(cls(id="1"))
        assert onto.query().entities(cls).count() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
