"""A process killed at any point of a commit or a migration leaves the state before it or the one after it, whole.

Commit n writes rows that are a function of n, and the number is acknowledged in a file once the commit has returned.
After every kill the store is checked, and compared with what the numbers say it must hold.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from ontologia import Entity, Field, Ontology, open_repository

pytestmark = pytest.mark.slow

KILLS = 12
SMALL, LARGE = 2, 200

# Imports everything once and then forks a child for every line, so that a kill costs little more than its work.
NURSERY = """
import os, sys
from ontologia import Entity, Field, Ontology, Relation

class Account(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int]
    text: Field[str] = Field(index=True)

class Moves(Relation[Account, Account]):
    value: Field[int]

def commits(path, size, acknowledge):
    KEYS = [f"a{number}" for number in range(size)]
    onto = Ontology(path, entity_types=[Account], relation_types=[Moves])
    while True:
        n = onto.repository.get_head_commit_id() + 1
        session = onto.session()
        session.ensure(Account(id=key, value=n, text=f"{n} " * 200) for key in KEYS)
        session.ensure(Moves(left_key=KEYS[n % size], right_key=KEYS[0], value=n))
        assert session.commit() == n
        acknowledge(n)

def version(n):
    body = {"__annotations__": {"id": Field[str], f"value_{n}": Field[int]}, "id": Field(primary_key=True)}
    return type("Account", (Entity,), body, name="Account")

def migrations(path, size, acknowledge):
    onto = Ontology(path)
    found = onto.repository.get_current_schema_version("entity", "Account")
    n = 0 if found is None else found.schema_version_id
    if n == 0:
        first, n = version(1), 1
        with onto.session() as session:
            session.ensure(first(id=f"a{number}", value_1=number) for number in range(size))
        acknowledge(n)
    while True:
        upgrade = lambda row: {"id": row["id"], f"value_{n + 1}": row[f"value_{n}"] + 1}
        with Ontology(path, entity_types=[version(n + 1)]) as onto:
            onto.migrate(dry_run=False, force=True, upgraders={("Account", n): upgrade})
        n += 1
        acknowledge(n)

with Ontology(":memory:", entity_types=[Account]) as onto:  # import what is imported late
    with onto.session() as session:
        session.ensure(Account(id="a", value=1, text=""))
    onto.query().entities(Account).to_arrow()

def die_at(statement):
    # Kill this process right before it runs its n-th statement.
    from ontologia.engines.sqlite.connections import Connections

    connect, seen = Connections._connect, []

    def step(_):
        seen.append(1)
        if len(seen) == statement:
            os.kill(os.getpid(), 9)

    def traced(self):
        connection = connect(self)
        connection.set_trace_callback(step)
        return connection

    Connections._connect = traced

for line in sys.stdin:
    work, path, size, log, statement = line.split()
    child = os.fork()
    if child == 0:
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            die_at(int(statement))
            globals()[work](path, int(size), lambda n: os.write(file, f"{n}\\n".encode()))
        finally:
            os._exit(1)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)
"""


class Account(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int]
    text: Field[str] = Field(index=True)


class Nursery:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, work, path, size, log, statement=0):
        self.process.stdin.write(f"{work} {path} {size} {log} {statement}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def dies_at(self, work, path, size, log, statement):
        """Let a child work until it is about to run its n-th statement; give its last acknowledgement."""
        self.start(work, path, size, log, statement)
        assert int(self.process.stdout.readline()) == signal.SIGKILL
        return self.acknowledged(log)

    def kill_one(self, work, path, size, log, delay):
        """Let a child work, kill it a while after it has acknowledged something, and give its last acknowledgement."""
        before = self.acknowledged(log)
        child = self.start(work, path, size, log)
        until = time.monotonic() + 60
        while self.acknowledged(log) == before and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        assert int(self.process.stdout.readline()) == signal.SIGKILL
        return self.acknowledged(log)

    def acknowledged(self, log):
        if not os.path.exists(log):
            return 0
        with open(log) as file:
            lines = file.read().rpartition("\n")[0].split()
        return int(lines[-1]) if lines else 0


@pytest.fixture
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.process.stdin.close()
    nursery.process.wait(30)


def sound(path):
    """The number of commits of a file that is whole and whose commits have no gap."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        ids = [id for (id,) in connection.execute("SELECT id FROM commits ORDER BY id")]
        assert ids == list(range(1, len(ids) + 1))
        return len(ids)
    finally:
        connection.close()


def whole_commit(path, size):
    """The head of a store in which every account has the value that the last commit gave it."""
    head = sound(path)
    with Ontology(path, entity_types=[Account]) as onto:
        rows = onto.query().entities(Account).to_arrow().to_pylist()
    wanted = [{"id": f"a{n}", "value": head, "text": f"{head} " * 200} for n in range(size)] if head else []
    assert sorted(rows, key=lambda row: row["id"]) == sorted(wanted, key=lambda row: row["id"])
    return head


def whole_version(path, size):
    """The head of a store in which every account was carried through every version, once."""
    head = sound(path)
    body = {"__annotations__": {"id": Field[str], f"value_{head}": Field[int]}, "id": Field(primary_key=True)}
    current = type("Account", (Entity,), body, name="Account")
    with Ontology(path, entity_types=[current]) as onto:
        assert onto.migrate().has_changes is False
        rows = onto.query().entities(current).collect()
    found = {account.id: getattr(account, f"value_{head}") for account in rows}
    assert found == ({f"a{number}": number + head - 1 for number in range(size)} if head else {})
    return head


@pytest.mark.parametrize(("work", "whole"), [("commits", whole_commit), ("migrations", whole_version)])
def test_a_process_killed_at_random_leaves_the_state_before_or_after(path, tmp_path, nursery, work, whole):
    chance = random.Random(7)
    for _ in range(KILLS):
        acknowledged = nursery.kill_one(work, path, LARGE, str(tmp_path / "log"), chance.uniform(0, 0.03))
        assert whole(path, LARGE) in (acknowledged, acknowledged + 1)


@pytest.mark.parametrize(("work", "whole"), [("commits", whole_commit), ("migrations", whole_version)])
def test_a_process_killed_before_any_of_its_statements_leaves_the_state_before_or_after(
    path, tmp_path, nursery, work, whole
):
    log = str(tmp_path / "log")
    for statement in range(1, 200):
        acknowledged = nursery.dies_at(work, path, SMALL, log, statement)
        assert whole(path, SMALL) in (acknowledged, acknowledged + 1)
        if acknowledged >= 2:  # it has come through a whole commit or migration: no statement of one is left
            return
    pytest.fail("the work was never done")


def test_a_process_killed_while_it_lays_out_a_new_file_leaves_one_that_opens(tmp_path, nursery):
    for statement in range(1, 200):
        path, log = str(tmp_path / f"{statement}.db"), str(tmp_path / f"{statement}.log")
        acknowledged = nursery.dies_at("commits", path, SMALL, log, statement)
        open_repository(path).close()
        assert whole_commit(path, SMALL) in (acknowledged, acknowledged + 1)
        if acknowledged:
            return
    pytest.fail("the work was never done")


def test_after_many_kills_every_commit_is_in_the_history_once(path, tmp_path, nursery):
    for delay in (0.0, 0.01, 0.02, 0.03):
        nursery.kill_one("commits", path, LARGE, str(tmp_path / "log"), delay)
    head = whole_commit(path, LARGE)
    with Ontology(path, entity_types=[Account]) as onto:
        history = onto.query().entities(Account).with_history().to_arrow()
        assert history.column("value").to_pylist() == [n for n in range(1, head + 1) for _ in range(LARGE)]
        assert [len(onto.list_commit_changes(n)) for n in range(1, head + 1)] == [LARGE + 1] * head
        assert onto.query().entities(Account).where(Account.text == f"{head} " * 200).count() == LARGE
