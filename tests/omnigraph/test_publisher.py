"""The commit point: expected versions, exact conflicts, the retry budget, and answers that get lost."""

import threading

import pytest

from ontologia.errors import (
    ConcurrentWriteError,
    ExpectedVersionMismatchError,
    HeadMismatchError,
    StorageBackendError,
    TableDriftError,
)
from ontologia.omnigraph import publisher as publishing
from ontologia.omnigraph.manifest import CommitRecord, Pin
from ontologia.omnigraph.names import MANIFEST, new_ulid
from ontologia.omnigraph.publisher import PUBLISHER_RETRY_BUDGET, Publication
from ontologia.testing.stores import ManualClock
from support.graph_shop import FIRM, PERSON, contents, drift, new_graph, people, put, reopened


def record():
    return CommitRecord(new_ulid(), None, None, None, 1)


@pytest.fixture
def filled(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1), FIRM: people(x=1)})
    return graph


def test_one_write_to_the_manifest_flips_all_tables_at_once(filled):
    before = filled.manifest().version
    put(filled, {PERSON: people(a=2), FIRM: people(x=2)})
    after = filled.manifest()
    assert after.version == before + 1
    assert [pin.published_at for pin in after.pins.values()] == [after.version, after.version]


def test_a_stale_expected_version_is_a_mismatch_with_the_actual_one(filled):
    publication = Publication(expected={PERSON: 1})
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        filled.publisher.publish("main", publication, record())
    assert (caught.value.table_key, caught.value.expected, caught.value.actual) == (PERSON, 1, 2)


def test_an_empty_expected_map_checks_no_versions(filled):
    before = filled.manifest().version
    filled.publisher.publish("main", Publication(), record())
    assert filled.manifest().version == before + 1


def test_the_same_version_cannot_be_published_twice(filled):
    pin = filled.manifest().pins[PERSON]
    with pytest.raises(ExpectedVersionMismatchError):
        filled.publisher.publish("main", Publication([pin]), record())


def test_versions_of_an_unregistered_table_are_refused(filled):
    with pytest.raises(StorageBackendError, match="not registered"):
        filled.publisher.publish("main", Publication([Pin("node:Nobody", "nodes/x", 1, None, 0)]), record())


def test_contention_is_retried_five_times_and_then_named(filled, monkeypatch):
    attempts = []

    def lose(dataset, rows):
        attempts.append(1)
        raise OSError("Too many concurrent writers. Attempted 0 retries.")

    monkeypatch.setattr(publishing, "_merge", lose)
    monkeypatch.setattr(publishing, "SYSTEM_CLOCK", ManualClock())
    with pytest.raises(HeadMismatchError, match="6 races"):
        filled.publisher.publish("main", Publication(), record())
    assert len(attempts) == PUBLISHER_RETRY_BUDGET + 1 == 6


def test_each_retry_checks_expected_versions_again(filled, monkeypatch):
    """A concurrent advance shows as a mismatch, and is never rebased through."""
    merge = publishing._merge
    other = reopened(filled)

    def lose_once(dataset, rows):
        monkeypatch.setattr(publishing, "_merge", merge)
        put(other, {PERSON: people(a=9)})
        merge(dataset, rows)

    monkeypatch.setattr(publishing, "_merge", lose_once)
    pin = filled.manifest().pins[PERSON]
    publication = Publication([Pin(PERSON, pin.path, 7, None, 1)], expected={PERSON: pin.version})
    with pytest.raises(ExpectedVersionMismatchError):
        filled.publisher.publish("main", publication, record())


def test_of_two_publishes_from_one_state_exactly_one_lands_whatever_tables_they_touch(filled):
    """The head row is in both, so Lance cannot rebase one over the other."""
    rows = publishing._rows(filled.manifest(), Publication(), record())
    first, second = filled.datasets.open(MANIFEST), filled.datasets.open(MANIFEST)
    publishing._merge(first, rows)
    with pytest.raises(OSError, match="Too many concurrent writers"):
        publishing._merge(second, publishing._rows(filled.manifest(), Publication(), record()))


def test_a_publish_whose_answer_got_lost_is_found_to_have_happened(filled, monkeypatch):
    merge = publishing._merge

    def forgetful(dataset, rows):
        merge(dataset, rows)
        raise OSError("connection reset")

    monkeypatch.setattr(publishing, "_merge", forgetful)
    done = put(filled, {PERSON: people(a=5)})
    monkeypatch.undo()
    assert contents(filled)[PERSON] == people(a=5)
    assert filled.manifest().head.graph_commit_id == done.graph_commit_id


def test_a_publish_that_fails_leaves_the_graph_as_it_was(filled, monkeypatch):
    def fail(dataset, rows):
        monkeypatch.undo()  # storage is back for the recovery that follows
        raise OSError("no route to host")

    before = contents(filled)
    monkeypatch.setattr(publishing, "_merge", fail)
    with pytest.raises(StorageBackendError, match="no route"):
        put(filled, {PERSON: people(a=5)})
    assert contents(filled) == before
    assert drift(filled) == {}
    assert filled.sidecars.names() == []


def test_a_commit_that_lands_on_top_of_a_strangers_is_undone(filled):
    """A writer stalled past its lease commits to the table between our look and our commit."""
    pin = filled.manifest().pins[PERSON]

    def step(name, about):
        if name == "B" and about == PERSON:
            stranger = filled.datasets.open(pin.path)
            filled.datasets.commit(stranger, filled.datasets.stage_upsert(stranger, rows("z", 9)), "stalled")

    def rows(name, age):
        import pyarrow as pa

        from support.graph_shop import NODE

        return pa.Table.from_pylist(list(people(**{name: age}).values()), schema=NODE)

    before = contents(filled)
    filled.step = step
    with pytest.raises((ConcurrentWriteError, StorageBackendError)):
        put(filled, {PERSON: people(a=5)})
    filled.step = lambda name, about: None
    assert contents(filled) == before
    put(filled, {PERSON: people(a=6)})
    assert contents(filled)[PERSON] == people(a=6)


def test_a_version_that_the_graph_did_not_make_is_refused_and_left_to_repair(filled):
    pin = filled.manifest().pins[PERSON]
    filled.datasets.open(pin.path).delete("id = 'a'")
    with pytest.raises(TableDriftError, match="repair"):
        put(filled, {PERSON: people(b=2)})


@pytest.mark.thorough
@pytest.mark.slow_on("s3")
def test_the_manifest_compacts_itself(graph):
    put(graph, {PERSON: people(a=0)})
    for number in range(60):
        put(graph, {PERSON: people(a=number)})
    assert len(graph.datasets.open(MANIFEST).get_fragments()) < 30
    assert len(list(graph.commits())) == 62


def test_threads_of_one_process_commit_one_after_the_other(graph):
    put(graph, {PERSON: people(start=0)})

    def work(name):
        for number in range(3):
            put(graph, {PERSON: people(**{f"{name}{number}": number})})

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(contents(graph)[PERSON]) == 10
