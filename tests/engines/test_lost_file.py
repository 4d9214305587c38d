"""A SQLite file that is deleted, moved or replaced while it is open takes no commit that would be gone with it."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology, StorageBackendError, open_repository
from ontologia.engines.sqlite.connections import Connections
from ontologia.runtime.events.records import SessionRecord
from ontologia.runtime.events.sqlite_store import SqliteEventStore


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "onto.db"


@pytest.fixture(params=["v1", "v2"])
def onto(path, request):
    open_repository(str(path), engine_version=request.param).close()
    with Ontology(str(path), entity_types=[Customer]) as found:
        commit(found, "a")
        yield found


def commit(onto, *keys):
    with onto.session() as session:
        session.ensure(Customer(id=key) for key in keys)


def delete(path: Path):
    for file in path.parent.glob("onto.db*"):
        file.unlink()


def replace(path: Path):
    other = path.parent / "other.db"
    with Ontology(str(other), entity_types=[Customer]) as another:
        commit(another, "z")
    delete(path)
    os.rename(other, path)


@pytest.mark.parametrize(("lose", "word"), [(delete, "deleted or moved"), (replace, "replaced by another file")])
def test_a_commit_into_a_file_that_is_gone_is_refused(onto, path, lose, word):
    session = onto.session()
    session.ensure(Customer(id="b"))
    lose(path)
    with pytest.raises(StorageBackendError, match=rf"onto\.db was {word} since .* nothing was committed"):
        session.commit()


def test_another_thread_makes_no_empty_file_where_one_was_deleted(onto, path):
    delete(path)
    problems = []

    def write():
        try:
            commit(onto, "b")
        except StorageBackendError as problem:
            problems.append(str(problem))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert ("deleted or moved" in problems[0], path.exists()) == (True, False)


def test_a_file_that_was_put_back_takes_commits_again(onto, path):
    os.rename(path, f"{path}.away")
    with pytest.raises(StorageBackendError, match="put the file back"):
        commit(onto, "b")
    os.rename(f"{path}.away", path)
    commit(onto, "c")
    assert onto.query().entities(Customer).order_by(Customer.id).collect() == [Customer(id="a"), Customer(id="c")]


def test_a_store_that_is_opened_by_another_name_of_the_file_takes_commits(onto, path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    with Ontology(str(tmp_path / "link.db"), entity_types=[Customer]) as linked:
        commit(linked, "b")
    assert onto.query().entities(Customer).count() == 2


def test_events_are_not_queued_in_a_file_that_is_gone(path):
    connections = Connections(str(path), 1_000)
    events = SqliteEventStore(connections, "default", OntologiaConfig())
    heartbeat = SessionRecord("s", "default", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", {})
    events.heartbeat(heartbeat)
    shutil.move(path, f"{path}.away")
    with pytest.raises(StorageBackendError, match="deleted or moved"):
        events.heartbeat(heartbeat)
    connections.close()


def test_a_store_in_memory_has_no_file_to_lose():
    with Ontology(":memory:", entity_types=[Customer]) as onto:
        commit(onto, "a")
        assert onto.query().entities(Customer).count() == 1
