"""One ontology, many threads; and a fork in the middle."""

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology

pytestmark = pytest.mark.thorough


class Counter(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int] = 0


@pytest.fixture
def onto(path):
    with Ontology(path, OntologiaConfig(lock_timeout_ms=60_000), entity_types=[Counter]) as onto:
        yield onto


def run_all(*functions):
    failures = []

    def guarded(function):
        try:
            function()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_threads_write_at_once_and_nothing_is_lost(onto):
    def write(name):
        for number in range(10):
            with onto.session() as session:
                session.ensure(Counter(id=f"{name}-{number}"))

    run_all(*(lambda name=name: write(name) for name in "abcdef"))
    assert onto.query().entities(Counter).count() == 60


def test_threads_get_commit_ids_without_gaps(onto):
    ids = []

    def write(name):
        for number in range(10):
            session = onto.session()
            session.ensure(Counter(id=f"{name}-{number}"))
            ids.append(session.commit())

    run_all(*(lambda name=name: write(name) for name in "abcd"))
    assert sorted(ids) == list(range(1, 41))


def test_readers_beside_a_writer_see_whole_commits(onto):
    done = threading.Event()
    seen = []

    def write():
        for value in range(1, 30):
            with onto.session() as session:
                session.ensure(Counter(id=str(number), value=value) for number in range(20))
        done.set()

    def read():
        while not done.is_set():
            seen.append({counter.value for counter in onto.query().entities(Counter).collect()})

    run_all(write, read, read)
    assert [values for values in seen if len(values) > 1] == []


def test_a_thread_that_ends_leaves_no_open_file(onto):
    onto.query().entities(Counter).count()
    before = open_files()
    for _ in range(20):
        run_all(lambda: onto.query().entities(Counter).count())
    assert open_files() <= before + 2  # SQLite keeps a descriptor for the next connection to the same file


def test_an_ontology_that_is_closed_leaves_no_open_file(path):
    before = open_files()
    with Ontology(path, entity_types=[Counter]) as onto:
        onto.query().entities(Counter).count()
    assert open_files() == before


def test_one_memory_store_serves_all_threads():
    with Ontology(":memory:", entity_types=[Counter]) as onto:

        def write(name):
            with onto.session() as session:
                session.ensure(Counter(id=name))

        run_all(*(lambda name=name: write(name) for name in "abcd"))
        assert onto.query().entities(Counter).count() == 4


FORK = """
import os, sys
from ontologia import Entity, Field, Ontology

class Counter(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int] = 0

onto = Ontology(sys.argv[1], entity_types=[Counter])
with onto.session() as session:
    session.ensure(Counter(id="parent"))
go, ready = os.pipe()
child = os.fork()
if child == 0:
    with onto.session() as session:
        session.ensure(Counter(id="child, while the parent lives"))
    os.read(go, 1)
    with onto.session() as session:
        session.ensure(Counter(id="child, after the parent has closed"))
    os._exit(0)
{parent}
onto.close()
os.write(ready, b"x")
assert os.waitpid(child, 0)[1] == 0
"""


def forked(path, parent):
    subprocess.run([sys.executable, "-c", FORK.replace("{parent}", parent), path], check=True, timeout=60)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    with Ontology(path, entity_types=[Counter]) as onto:
        return [counter.id for counter in onto.query().entities(Counter).collect()]


def test_a_forked_child_keeps_writing_after_its_parent_has_closed(path):
    assert forked(path, "") == ["child, after the parent has closed", "child, while the parent lives", "parent"]


def test_parent_and_forked_child_write_beside_each_other(path):
    parent = "with onto.session() as session: session.ensure(Counter(id='parent, after the fork'))"
    assert forked(path, parent) == [
        "child, after the parent has closed",
        "child, while the parent lives",
        "parent",
        "parent, after the fork",
    ]


class CounterWithNote(Entity, name="Counter"):
    id: Field[str] = Field(primary_key=True)
    value: Field[int] = 0
    note: Field[str | None] = None


def test_a_query_keeps_its_own_diagnostics_though_another_thread_asks_meanwhile(onto, path, monkeypatch):
    with onto.session() as session:
        session.ensure(Counter(id="c"))
    with Ontology(path, entity_types=[CounterWithNote]) as later:
        later.migrate(dry_run=False, force=True)
        query = later.query().entities(CounterWithNote)
        compiled, others = later.engine._statement, []

        def statement(*given):
            """Compiling takes long enough for somebody else to ask."""
            monkeypatch.setattr(later.engine, "_statement", compiled)
            asked = threading.Thread(target=lambda: others.append(query.collect().diagnostics))
            asked.start()
            asked.join()
            return compiled(*given)

        monkeypatch.setattr(later.engine, "_statement", statement)
        found = query.as_of(1).collect().diagnostics
        assert [item["reason"] for item in found] == ["commit_before_activation"]
        assert later.engine.get_last_query_diagnostics() == list(found)
        assert others == [[]] or others == [()]
