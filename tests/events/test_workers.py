"""Workers in real processes: each event to one of them, a killed one's come back, a signal ends one cleanly."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from ontologia import OntologiaConfig, Session, initialize_storage
from support.events_shop import StockLow

QUICK = {"event_poll_interval_ms": 50, "event_claim_limit": 5}


class Workers:
    """Processes that handle events of one target, and what they wrote down."""

    def __init__(self, target: str, log: Path, environment: dict[str, str]) -> None:
        self.target = target
        self.log = log
        self.environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.running: list[subprocess.Popen] = []

    def start(self, count: int = 1, mode: str = "quick", **settings) -> list[subprocess.Popen]:
        command = [sys.executable, "-m", "support.events_worker", self.target, str(self.log), mode]
        started = [
            subprocess.Popen(
                [*command, json.dumps(QUICK | settings)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self.environment,
            )
            for _ in range(count)
        ]
        self.running += started
        for process in started:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        return started

    def wait_until_registered(self, count: int) -> None:
        """Until so many sessions run; from then on signals end them cleanly."""
        with Session(self.target, "shop") as session:
            deadline = time.monotonic() + 120
            while len(session.events.sessions()) < count:
                assert time.monotonic() < deadline, "the workers did not begin within two minutes"
                time.sleep(0.05)

    def lines(self, what: str) -> list[tuple[str, int]]:
        if not self.log.exists():
            return []
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [(sku, pid) for kind, sku, pid in rows if kind == what]

    def wait_for(self, what: str, count: int) -> list[tuple[str, int]]:
        deadline = time.monotonic() + 120
        while len(found := self.lines(what)) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} events within two minutes"
            time.sleep(0.02)
        return found

    def end(self, process: subprocess.Popen, number: int) -> tuple[int, str, str]:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture(params=["sqlite", pytest.param("s3", marks=pytest.mark.s3)])
def workers(request, tmp_path, monkeypatch):
    target, environment = str(tmp_path / "onto.db"), {}
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        environment = server.environment
        for key, value in environment.items():
            monkeypatch.setenv(key, value)
        target = server.uri(f"events-workers/{uuid.uuid4().hex}")
        initialize_storage(storage_uri=target)
    made = Workers(target, tmp_path / "handled.log", environment)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def send(workers, count: int, **settings) -> list[str]:
    skus = [str(number) for number in range(count)]
    with Session(workers.target, "shop", config=OntologiaConfig(**settings)) as session:
        session.commit(event=[StockLow(sku=sku) for sku in skus])
    return skus


def statuses(workers) -> set[str]:
    with Session(workers.target, "shop") as session:
        return {state.status for state in session.events.events(limit=10_000)}


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_each_event_is_handled_by_one_of_many_workers(workers, count):
    skus = send(workers, 150)
    started = workers.start(count)
    workers.wait_for("end", len(skus))
    workers.wait_until_registered(count)
    for process in started:
        assert workers.end(process, signal.SIGTERM)[0] == 0
    handled = workers.lines("end")
    assert sorted(sku for sku, _ in handled) == sorted(skus)
    assert len(workers.lines("begin")) == len(skus)
    assert statuses(workers) == {"acked"}


@pytest.mark.thorough
def test_a_killed_workers_events_come_back_after_the_lease(workers):
    skus = send(workers, 8)
    (victim,) = workers.start(mode="hang", event_claim_lease_ms=2000)
    workers.wait_for("begin", 1)
    victim.kill()
    victim.wait()
    (survivor,) = workers.start(event_claim_lease_ms=2000)
    handled = workers.wait_for("end", len(skus))
    workers.end(survivor, signal.SIGTERM)
    assert sorted(sku for sku, _ in handled) == sorted(skus)
    assert {pid for _, pid in handled} == {survivor.pid}
    assert len(workers.lines("begin")) == len(skus) + 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.thorough
@pytest.mark.slow_on("s3-ctrl-c")
def test_a_signal_lets_the_handler_finish_and_releases_the_rest(workers, number):
    skus = send(workers, 12)
    (first,) = workers.start(mode="slow", event_claim_limit=10, event_claim_lease_ms=3_600_000)
    workers.wait_for("begin", 2)
    code, out, err = workers.end(first, number)
    assert (code, out, err) == (0, "done\n", "")
    assert workers.lines("begin") == workers.lines("end")
    assert len(workers.lines("end")) < len(skus)
    (second,) = workers.start()  # what was released is free at once, the lease being an hour
    workers.wait_for("end", len(skus))
    workers.end(second, number)
    assert sorted(sku for sku, _ in workers.lines("end")) == sorted(skus)


def test_a_signal_ends_a_worker_that_waits(workers):
    (idle,) = workers.start(event_poll_interval_ms=600_000)
    workers.wait_until_registered(1)
    assert workers.end(idle, signal.SIGTERM)[0] == 0
    with Session(workers.target, "shop") as session:
        assert session.events.sessions() == []
