"""What real processes see while they are killed and frozen, and while their clocks are wrong, proves the promised isolation."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ontologia import initialize_storage
from ontologia.omnigraph import Omnigraph
from ontologia.testing.histories import Anomaly, Level, Outcome, check, forbidden
from support.history_client import KEYS, Log, open_logs, read_journals

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("workers_path")]

PROMISED = {"stale": Level.SNAPSHOT, "graph": Level.SNAPSHOT, "if_head": Level.STRICT_SERIALIZABLE}
SECONDS = float(os.environ.get("HISTORY_SECONDS", "5"))


@pytest.fixture
def store(request, tmp_path):
    """The address of an empty store."""
    if request.param == "sqlite":
        return str(tmp_path / "logs.db")
    if request.param == "graph":
        Omnigraph.init(str(tmp_path / "graph"), types=[Log]).close()
        return str(tmp_path / "graph")
    uri = request.getfixturevalue("s3_prefix") if request.param == "s3" else (tmp_path / "logs").as_uri()
    initialize_storage(storage_uri=uri)
    return uri


class Clients:
    """Processes that run transactions, and what happens to them."""

    def __init__(self, uri, guard, folder):
        self.uri, self.guard, self.folder = uri, guard, folder
        self.running = {}
        self.until = time.monotonic() + SECONDS

    def start(self, number):
        left = max(0.5, self.until - time.monotonic())
        ahead = {0: "0", 1: "40", 2: "-40"}[number]
        command = [sys.executable, "-m", "support.history_client", self.uri, self.guard]
        command += [str(self.folder / f"journal-{number}"), str(number), str(left), ahead]
        self.running[number] = subprocess.Popen(command)

    def disturb(self):
        """Kill, freeze and restart clients until time is up."""
        chance = random.Random(1)
        while time.monotonic() < self.until:
            time.sleep(chance.uniform(0.3, 1.0))
            number = chance.choice(list(self.running))
            client = self.running[number]
            if chance.random() < 0.5:
                client.kill()
                client.wait()
                self.start(number)
            elif client.poll() is None:
                client.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.1, 2.0))  # a lease lasts 1.5 s
                client.send_signal(signal.SIGCONT)

    def stop(self):
        codes = [client.wait(60) for client in self.running.values()]
        assert codes == [0] * len(codes)


def final_state(uri, guard):
    if guard == "graph":
        with Omnigraph.open(uri, types=[Log]) as graph:
            logs = graph.query().entities(Log).collect()
    else:
        with open_logs(uri) as onto:
            logs = onto.query().entities(Log).collect()
    return {key: [] for key in KEYS} | {log.id: log.values for log in logs}


@pytest.mark.parametrize(
    ("store", "guard"),
    [
        *[pytest.param(store, guard) for store in ("sqlite", "folder") for guard in ("stale", "if_head")],
        pytest.param("s3", "if_head", marks=pytest.mark.s3),
        pytest.param("graph", "graph"),
    ],
    indirect=["store"],
)
def test_what_processes_see_under_kills_proves_the_promised_isolation(store, guard, tmp_path):
    clients = Clients(store, guard, tmp_path)
    for number in range(3):
        clients.start(number)
    clients.disturb()
    clients.stop()

    history = read_journals(sorted(Path(tmp_path).glob("journal-*")))
    evidence = check(history, final_state(store, guard))

    assert [str(piece) for piece in forbidden(evidence, PROMISED[guard])] == []
    assert Anomaly.STALE_READ not in {piece.anomaly for piece in evidence}
    assert sum(transaction.outcome is Outcome.COMMITTED for transaction in history) > 10
