"""Real processes on one file: nothing lost, ids without gaps, and contention only after the timeout."""

import sqlite3
import subprocess
import sys
import time

import pytest

from ontologia import Entity, Field, LockContentionError, OntologiaConfig, Ontology

pytestmark = pytest.mark.thorough

MODEL = """
import sys
from ontologia import Entity, Field, OntologiaConfig, Ontology

class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int] = 0

config = OntologiaConfig(lock_timeout_ms=60_000)
"""
WRITER = (
    MODEL
    + """
name = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
with Ontology(sys.argv[1], config, entity_types=[Item]) as onto:
    for number in range(int(sys.argv[3])):
        session = onto.session()
        session.ensure([Item(id=f"{name}-{number}", value=number), Item(id="shared", value=hash((name, number)))])
        print(session.commit(), flush=True)
"""
)
READER = (
    MODEL
    + """
print("ready", flush=True)
sys.stdin.readline()
import time
with Ontology(sys.argv[1], config, entity_types=[Item]) as onto:
    last = 0
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        count, head = onto.query().entities(Item).count(), onto.repository.get_head_commit_id()
        table = onto.query().entities(Item).to_arrow()
        assert len(set(table.column("id").to_pylist())) == table.num_rows
        assert last <= count <= table.num_rows
        last = table.num_rows
"""
)
CREATOR = (
    MODEL
    + """
print("ready", flush=True)
sys.stdin.readline()
with Ontology(sys.argv[1], config, entity_types=[Item]) as onto:
    with onto.session() as session:
        session.ensure(Item(id=sys.argv[2]))
"""
)


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int] = 0


class Children:
    """Processes that wait at a line until all of them are ready."""

    def __init__(self):
        self.running = []

    def add(self, program, *arguments):
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(child)

    def run(self):
        """Let them all go, and give what each of them printed."""
        for child in self.running:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
        for child in self.running:
            child.stdin.write("go\n")
            child.stdin.flush()
        outputs = [child.communicate(timeout=120) for child in self.running]
        assert [error for _, error in outputs] == ["" for _ in outputs]
        return [output.split() for output, _ in outputs]


@pytest.fixture
def children():
    children = Children()
    yield children
    for child in children.running:
        if child.poll() is None:
            child.kill()
            child.wait()


def sound(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()


@pytest.mark.slow_on("v1")
def test_four_processes_write_at_once_and_nothing_is_lost(path, children):
    for name in "abcd":
        children.add(WRITER, path, name, "25")
    children.run()
    with Ontology(path, entity_types=[Item]) as onto:
        found = {item.id for item in onto.query().entities(Item).collect()}
    assert (found, sound(path)) == ({"shared"} | {f"{name}-{n}" for name in "abcd" for n in range(25)}, True)


@pytest.mark.slow_on("v1")
def test_four_processes_get_ids_that_are_unique_and_without_gaps(path, children):
    for name in "abcd":
        children.add(WRITER, path, name, "25")
    ids = [int(id) for output in children.run() for id in output]
    assert sorted(ids) == list(range(1, 101))


@pytest.mark.slow
def test_readers_beside_writers_see_a_store_that_only_grows(path, children):
    for name in "ab":
        children.add(WRITER, path, name, "20")
        children.add(READER, path)
    children.run()
    with Ontology(path, entity_types=[Item]) as onto:
        assert onto.query().entities(Item).count() == 41


@pytest.mark.slow
def test_processes_that_create_the_same_new_file_at_once_share_it(tmp_path, children):
    path = str(tmp_path / "new.db")
    names = [f"p{number}" for number in range(6)]
    for name in names:
        children.add(CREATOR, path, name)
    children.run()
    with Ontology(path, entity_types=[Item]) as onto:
        assert [item.id for item in onto.query().entities(Item).collect()] == names


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


@pytest.fixture
def holder(path):
    """A process that holds the write lock of the file until it is told to let go."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    yield child
    if child.poll() is None:
        child.communicate("go\n", timeout=30)


def test_contention_is_reported_only_after_the_timeout(path, holder):
    with Ontology(path, OntologiaConfig(lock_timeout_ms=600), entity_types=[Item]) as onto:
        session = onto.session()
        session.ensure(Item(id="x"))
        started = time.monotonic()
        with pytest.raises(LockContentionError, match="600 ms"):
            session.commit()
        assert time.monotonic() - started > 0.5


def test_readers_are_not_kept_waiting_by_a_writer(path, holder):
    with Ontology(path, OntologiaConfig(lock_timeout_ms=1), entity_types=[Item]) as onto:
        assert onto.query().entities(Item).count() == 0


def test_after_contention_the_same_session_commits(path, holder):
    with Ontology(path, OntologiaConfig(lock_timeout_ms=50), entity_types=[Item]) as onto:
        session = onto.session()
        session.ensure(Item(id="x"))
        with pytest.raises(LockContentionError):
            session.commit()
        holder.communicate("go\n", timeout=30)
        assert session.commit() == 1


def test_a_session_sees_what_another_process_committed(path, children):
    with Ontology(path, entity_types=[Item]) as onto:
        assert onto.query().entities(Item).count() == 0
        children.add(CREATOR, path, "theirs")
        children.run()
        assert [item.id for item in onto.query().entities(Item).collect()] == ["theirs"]
