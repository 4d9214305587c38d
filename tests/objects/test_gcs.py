"""`gs://`, on a stand-in for Google Cloud Storage: conditions go by generation, and the engines work on it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology
from ontologia.engines.initializing import initialize_storage
from ontologia.errors import StorageBackendError
from ontologia.objects import ConditionFailed, open_objects, prove_conditions
from support.gcs_server import GcsServer, gcs_server


class Star(Entity):
    name: Field[str] = Field(primary_key=True)
    magnitude: Field[float]


def test_a_version_is_a_generation_so_that_equal_bytes_put_twice_are_two(
    gcs: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{gcs.host}")
    objects = open_objects(f"gs://bucket/{uuid.uuid4().hex}")
    first = objects.put("a", b"same")
    second = objects.put("a", b"same")
    assert int(first) < int(second)
    with pytest.raises(ConditionFailed):
        objects.put_if_match("a", b"other", first)
    assert objects.get("a").etag == second


def test_a_server_that_ignores_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with gcs_server(obeys=False) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.host)
        objects = open_objects("gs://bucket/prefix")
        with pytest.raises(StorageBackendError, match="gs://bucket/prefix ignores the If-None-Match condition"):
            prove_conditions(objects)
        assert list(objects.list()) == []


def test_an_ontology_on_a_bucket_is_committed_to_queried_compacted_and_vacuumed(
    gcs: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.host)
    uri = f"gs://bucket/{uuid.uuid4().hex}"
    initialize_storage(storage_uri=uri)
    config = OntologiaConfig(cache_directory=str(tmp_path))
    with Ontology(storage_uri=uri, config=config, entity_types=[Star]) as onto:
        for magnitude in (1.0, 2.0):
            with onto.session() as session:
                session.ensure([Star(name="Vega", magnitude=magnitude), Star(name="Deneb", magnitude=1.25)])
        onto.repository.compact(apply=True)
        onto.repository.vacuum(0, apply=True)
    with Ontology(storage_uri=uri, config=config, entity_types=[Star]) as onto:
        query = onto.query().entities(Star).where(Star.name == "Vega")
        assert [query.as_of(1).first().magnitude, query.first().magnitude] == [1.0, 2.0]
        assert onto.repository.index_verify().healthy
