"""What real processes see while they are killed and frozen proves the promised isolation."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from ontologia import initialize_storage
from ontologia.omnigraph import Omnigraph
from ontologia.testing.histories import Anomaly, Level, Outcome, check, forbidden
from support.history_client import KEYS, Log, open_logs, read_journals

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("workers_path")]

PROMISED = {"stale": Level.SNAPSHOT, "graph": Level.SNAPSHOT, "if_head": Level.STRICT_SERIALIZABLE}
TRANSACTIONS = int(os.environ.get("HISTORY_TRANSACTIONS", "200"))


@pytest.fixture
def store(request, tmp_path):
    """The address of a store with empty lists: an object that is made anew declares state, whoever else made it."""
    empty = [Log(id=key) for key in KEYS]
    if request.param == "graph":
        uri = str(tmp_path / "graph")
        with Omnigraph.init(uri, types=[Log]) as graph, graph.transaction() as transaction:
            transaction.upsert(empty)
        return uri
    uri = str(tmp_path / "logs.db")
    if request.param != "sqlite":
        uri = request.getfixturevalue("s3_prefix") if request.param == "s3" else (tmp_path / "logs").as_uri()
        initialize_storage(storage_uri=uri)
    with open_logs(uri) as onto, onto.session() as session:
        session.ensure(empty)
    return uri


class Clients:
    """Processes that run transactions until they are killed. Faults follow their progress, so that a slow machine has as many."""

    def __init__(self, uri, guard, folder):
        self.uri, self.guard, self.folder = uri, guard, folder
        self.running = [self.start(number) for number in range(3)]

    def start(self, number):
        ahead = ["0", "40", "-40"][number]
        command = [sys.executable, "-m", "support.history_client", self.uri, self.guard]
        command += [str(self.folder / f"journal-{number}"), str(number), ahead]
        return subprocess.Popen(command)

    def history(self):
        return read_journals(sorted(self.folder.glob("journal-*")))

    def wait_for(self, transactions):
        """Wait until the journals have this many transactions."""
        while len(self.history()) < transactions:
            assert [client.poll() for client in self.running] == [None] * 3
            time.sleep(0.02)

    def run(self, transactions, faults):
        """Spread kills and freezes over a number of transactions."""
        chance = random.Random(1)
        for fault in range(1, faults + 1):
            self.wait_for(transactions * fault // faults)
            number = chance.randrange(3)
            client = self.running[number]
            if chance.random() < 0.5:
                client.kill()
                client.wait()
                self.running[number] = self.start(number)
            else:
                client.send_signal(signal.SIGSTOP)
                time.sleep(chance.choice([0.05, 1.0, 2.0]))  # a lease lasts 1.5 s
                client.send_signal(signal.SIGCONT)

    def stop(self):
        for client in self.running:
            client.kill()
            client.wait()


@pytest.fixture
def clients(store, guard, tmp_path):
    clients = Clients(store, guard, tmp_path)
    yield clients
    clients.stop()


def final_state(uri, guard):
    if guard == "graph":
        with Omnigraph.open(uri, types=[Log]) as graph:
            logs = graph.query().entities(Log).collect()
    else:
        with open_logs(uri) as onto:
            logs = onto.query().entities(Log).collect()
    return {log.id: log.values for log in logs}


@pytest.mark.parametrize(
    ("store", "guard"),
    [
        pytest.param("sqlite", "stale"),
        pytest.param("sqlite", "if_head", marks=pytest.mark.slow),
        pytest.param("folder", "stale", marks=pytest.mark.slow),
        pytest.param("folder", "if_head"),
        pytest.param("s3", "stale", marks=[pytest.mark.s3, pytest.mark.slow]),
        pytest.param("s3", "if_head", marks=[pytest.mark.s3, pytest.mark.slow]),
        pytest.param("graph", "graph"),
    ],
    indirect=["store"],
)
def test_what_processes_see_under_kills_proves_the_promised_isolation(store, guard, clients):
    clients.run(TRANSACTIONS, faults=TRANSACTIONS // 20)
    clients.stop()

    history = clients.history()
    evidence = check(history, final_state(store, guard))

    assert [str(piece) for piece in forbidden(evidence, PROMISED[guard])] == []
    assert Anomaly.STALE_READ not in {piece.anomaly for piece in evidence}
    assert {transaction.outcome for transaction in history} >= {Outcome.COMMITTED, Outcome.REJECTED}
