"""Emptying a SQLite store leaves the processes that have it open in the same file."""

import os
import sqlite3

import pytest

from ontologia import EngineVersionError, Entity, Field, Ontology, ValidationError, initialize_storage


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def reset(path, engine_version):
    token = initialize_storage(path, engine_version=engine_version, dry_run=True, force=True).token
    initialize_storage(path, engine_version=engine_version, force=True, token=token)


@pytest.fixture
def service(path):
    """An ontology that was open before the store was emptied, and stays so."""
    with Ontology(path, entity_types=[Thing]) as service:
        with service.session() as session:
            session.ensure(Thing(id="before"))
        yield service


def stored(path):
    with Ontology(path, entity_types=[Thing]) as fresh:
        return [thing.id for thing in fresh.query().entities(Thing).collect()]


def test_a_commit_of_an_open_process_is_in_the_file_after_a_reset(service, path, engine_version):
    reset(path, engine_version)
    with service.session() as session:
        session.ensure(Thing(id="after"))
    assert stored(path) == ["after"]


def test_an_open_process_sees_that_the_store_was_emptied(service, path, engine_version):
    assert service.query().entities(Thing).count() == 1
    reset(path, engine_version)
    assert (service.query().entities(Thing).count(), service.repository.get_head_commit_id()) == (0, 0)


def test_an_open_process_is_told_when_the_engine_changed(service, path, engine_version):
    service.query().entities(Thing).count()
    reset(path, "v1" if engine_version == "v2" else "v2")
    with pytest.raises(EngineVersionError, match="open it again"):
        service.query().entities(Thing).count()


def test_the_file_is_the_same_one(service, path, engine_version):
    before = os.stat(path).st_ino
    reset(path, engine_version)
    assert os.stat(path).st_ino == before


def test_a_commit_after_the_preview_makes_its_token_stale(service, path, engine_version):
    token = initialize_storage(path, engine_version=engine_version, dry_run=True, force=True).token
    with service.session() as session:
        session.ensure(Thing(id="late"))
    with pytest.raises(ValidationError, match="token"):
        initialize_storage(path, engine_version=engine_version, force=True, token=token)
    assert stored(path) == ["before", "late"]


def test_nothing_of_the_old_store_stays(service, path, engine_version):
    reset(path, engine_version)
    with sqlite3.connect(path) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names - {"storage_meta"}]
    assert not any("Thing" in name for name in names)
    assert counts == [0] * len(counts)
