"""The lock by name: acquire, renew, release, and what happens when its time is up."""

import os
import socket
import subprocess
import threading
import time

import pytest

from ontologia import Entity, Field, LockContentionError, OntologiaConfig, Ontology, initialize_storage, open_repository
from ontologia.config import new_runtime_id

LONG, SHORT = 60_000, 1


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.fixture
def repository(path):
    with open_repository(path, config=OntologiaConfig(lock_timeout_ms=200)) as repository:
        yield repository


def expired(repository, owner):
    """A lock whose time is up."""
    repository.acquire_lock(owner, SHORT)
    while repository.renew_lock(owner, SHORT):
        time.sleep(0.005)


def test_a_free_lock_is_acquired(repository):
    repository.acquire_lock("a", LONG)
    assert repository.renew_lock("a", LONG)


def test_a_lock_of_another_owner_is_contention_after_the_timeout(repository):
    repository.acquire_lock("a", LONG)
    started = time.monotonic()
    with pytest.raises(LockContentionError, match="200 ms"):
        repository.acquire_lock("b", LONG)
    assert time.monotonic() - started > 0.05


def test_an_owner_may_acquire_again(repository):
    repository.acquire_lock("a", LONG)
    repository.acquire_lock("a", LONG)
    assert repository.release_lock("a")


def test_a_released_lock_is_free(repository):
    repository.acquire_lock("a", LONG)
    repository.release_lock("a")
    repository.acquire_lock("b", LONG)
    assert repository.renew_lock("b", LONG)


def test_only_the_owner_releases(repository):
    repository.acquire_lock("a", LONG)
    assert not repository.release_lock("b")


def test_only_the_owner_renews(repository):
    repository.acquire_lock("a", LONG)
    assert not repository.renew_lock("b", LONG)


def test_an_expired_lock_cannot_be_renewed(repository):
    expired(repository, "a")
    assert not repository.renew_lock("a", LONG)


def test_an_expired_lock_is_taken_over(repository):
    expired(repository, "a")
    repository.acquire_lock("b", LONG)
    assert repository.renew_lock("b", LONG)


def test_after_a_takeover_the_old_owner_releases_nothing(repository):
    expired(repository, "a")
    repository.acquire_lock("b", LONG)
    assert (repository.release_lock("a"), repository.renew_lock("b", LONG)) == (False, True)


def test_locks_of_different_names_do_not_meet(repository):
    repository.acquire_lock("a", LONG, name="one")
    repository.acquire_lock("b", LONG, name="two")
    assert repository.renew_lock("a", LONG, name="one")


def test_a_lock_is_seen_by_another_connection(repository, path):
    repository.acquire_lock("a", LONG)
    with open_repository(path) as other, pytest.raises(LockContentionError):
        other.acquire_lock("b", LONG, timeout_ms=20)


def test_of_many_who_want_a_lock_one_gets_it(repository):
    won = []
    threads = [
        threading.Thread(
            target=lambda name=name: repository.engine.locks.acquire("race", name, LONG) and won.append(name)
        )
        for name in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_commit_waits_for_the_write_lock_and_then_gives_up(repository, path):
    repository.acquire_lock("somebody else", LONG)
    with Ontology(path, OntologiaConfig(lock_timeout_ms=200), entity_types=[Thing]) as onto:
        session = onto.session()
        session.ensure(Thing(id="x"))
        started = time.monotonic()
        with pytest.raises(LockContentionError, match="somebody else"):
            session.commit()
        assert time.monotonic() - started > 0.1


def test_a_commit_goes_on_when_the_write_lock_is_released(repository, path):
    repository.acquire_lock("somebody else", LONG)
    release = threading.Timer(0.1, repository.release_lock, ("somebody else",))
    with Ontology(path, OntologiaConfig(lock_timeout_ms=30_000), entity_types=[Thing]) as onto:
        session = onto.session()
        session.ensure(Thing(id="x"))
        release.start()
        assert session.commit() == 1
    release.join()


def test_the_holder_of_the_write_lock_may_commit(path):
    with Ontology(path, OntologiaConfig(runtime_id="me"), entity_types=[Thing]) as onto:
        onto.repository.acquire_lock("me", LONG)
        with onto.session() as session:
            session.ensure(Thing(id="x"))
        assert onto.query().entities(Thing).count() == 1


def test_the_lock_of_a_process_that_was_killed_is_free_and_that_of_a_living_one_is_not(path):
    host, ended = socket.gethostname(), subprocess.Popen(["true"])
    ended.wait()
    here = new_runtime_id().rpartition("-")[2]
    owners = {
        f"{host}-{ended.pid}-{here}": True,
        f"{host}-{os.getppid()}-{here}": False,
        f"elsewhere-{ended.pid}-{here}": False,
        f"{host}-{ended.pid}-{'0' * len(here)}": False,  # a container of this name that numbers its processes itself
        f"worker-{ended.pid}": False,
    }
    with open_repository(path) as repository:
        for owner, is_free in owners.items():
            assert repository.engine.locks.acquire("work", owner, 60_000)
            assert repository.engine.locks.acquire("work", "me", 60_000) == is_free, owner
            assert repository.release_lock("me" if is_free else owner, "work")


def test_an_owner_who_lost_a_lock_on_object_storage_takes_it_again(tmp_path):
    uri = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=uri)
    with open_repository(storage_uri=uri) as one, open_repository(storage_uri=uri) as two:
        one.acquire_lock("a", SHORT)
        two.acquire_lock("b", LONG)
        assert two.release_lock("b")
        one.acquire_lock("a", LONG)
        assert one.renew_lock("a", LONG)
