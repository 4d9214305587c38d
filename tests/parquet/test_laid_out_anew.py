"""A store that somebody re-initializes or deletes: nothing of the old one is taken for the new one's, or comes back."""

from __future__ import annotations

import shutil

import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology, initialize_storage
from ontologia.errors import UninitializedStorageError


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    v: Field[str] = ""


def fill(onto: Ontology, word: str) -> None:
    for number in range(3):
        with onto.session() as session:
            session.ensure(Thing(id=f"k{number}", v=word))
    onto.repository.compact(apply=True)


def reset(uri: str) -> None:
    token = initialize_storage(storage_uri=uri, dry_run=True, force=True).token
    initialize_storage(storage_uri=uri, force=True, token=token)


def values(onto: Ontology) -> set[str]:
    return {thing.v for thing in onto.query().entities(Thing).collect()}


def test_a_process_that_stays_open_compares_and_reads_what_is_there_now(tmp_path):
    uri = (tmp_path / "s").as_uri()
    initialize_storage(storage_uri=uri)
    with Ontology(storage_uri=uri, entity_types=[Thing]) as service:
        fill(service, "old")
        with service.session() as session:
            session.ensure(Thing(id="k0", v="old"))  # the comparison reads the snapshot, and remembers it
        reset(uri)
        with Ontology(storage_uri=uri, entity_types=[Thing]) as other:
            fill(other, "new")
        assert values(service) == {"new"}
        session = service.session()
        session.ensure(Thing(id="k0", v="old"))
        assert session.commit() == 4


def test_a_cache_on_disk_does_not_answer_for_another_store(tmp_path, s3_prefix):
    warm, cold = (OntologiaConfig(cache_directory=str(tmp_path / name)) for name in ("warm", "cold"))
    for word in ("old", "new"):
        initialize_storage(storage_uri=s3_prefix) if word == "old" else reset(s3_prefix)
        with Ontology(storage_uri=s3_prefix, config=cold, entity_types=[Thing]) as writer:
            fill(writer, word)
        with Ontology(storage_uri=s3_prefix, config=warm, entity_types=[Thing]) as reader:
            assert values(reader) == {word}


def test_a_commit_into_a_store_that_was_deleted_leaves_nothing_there(tmp_path):
    folder = tmp_path / "s"
    initialize_storage(storage_uri=folder.as_uri())
    with Ontology(storage_uri=folder.as_uri(), entity_types=[Thing]) as onto:
        session = onto.session()
        session.ensure(Thing(id="k0"))
        shutil.rmtree(folder)
        with pytest.raises(UninitializedStorageError):
            session.commit()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
