"""A client that runs small transactions over lists and writes down what it saw:
`python -m support.history_client URI GUARD JOURNAL CLIENT CLOCK_AHEAD_S`.

Every transaction is in the journal before its commit, with an unknown outcome, and again after it, so that one of a client
that was killed counts as unknown. Values say who appended them: no two clients append the same.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ontologia import Entity, Field, OntologiaConfig, Ontology
from ontologia.errors import CommitOutcomeUnknownError, OntologiaError
from ontologia.omnigraph import Omnigraph
from ontologia.testing.histories import Append, Outcome, Read, Transaction
from support.parquet_shop import AheadClock

KEYS = ("x", "y", "z")
NEVER = 2**62
CONFIG = OntologiaConfig(lock_timeout_ms=5_000, s3_lock_timeout_ms=5_000, s3_lease_ttl_ms=1_500)


class Log(Entity):
    """A list that only grows."""

    id: Field[str] = Field(primary_key=True)
    values: Field[list[int]] = Field(default_factory=list)


def open_logs(uri: str) -> Ontology:
    target = {"storage_uri": uri} if "://" in uri else {"db_path": uri}
    return Ontology(**target, config=CONFIG, entity_types=[Log], relation_types=[])


class TypedClient:
    """Transactions over a typed store; `if_head` commits only on the head that was read, `stale` only on the rows."""

    def __init__(self, uri: str, guard: str, ahead_s: float) -> None:
        self.onto = open_logs(uri)
        self.guard = guard
        lease = getattr(self.onto.repository.engine, "lease", None)
        if ahead_s and lease is not None:
            lease.clock = AheadClock(ahead_s)

    def read(self, keys: list[str]) -> dict[str, Log]:
        self.head = self.onto.repository.get_head_commit_id()
        return {log.id: log for log in self.onto.query().entities(Log).where(Log.id.in_(keys)).collect()}

    def write(self, logs: list[Log]) -> None:
        session = self.onto.session()
        session.ensure(logs)
        session.commit(if_head=self.head if self.guard == "if_head" else None)

    def close(self) -> None:
        self.onto.close()


class GraphClient:
    """Transactions of a graph."""

    def __init__(self, uri: str, guard: str, ahead_s: float) -> None:
        self.graph = Omnigraph.open(uri, types=[Log], config=CONFIG)

    def read(self, keys: list[str]) -> dict[str, Log]:
        self.transaction = self.graph.transaction()
        self.transaction.__enter__()
        return {log.id: log for log in self.transaction.query().entities(Log).where(Log.id.in_(keys)).collect()}

    def write(self, logs: list[Log]) -> None:
        if logs:
            self.transaction.upsert(logs)
        self.transaction.__exit__(None, None, None)

    def close(self) -> None:
        self.graph.close()


def run(uri: str, guard: str, journal: Path, number: int, ahead_s: float) -> None:
    """Until the process is killed."""
    chance = random.Random(os.getpid())
    client = GraphClient(uri, guard, ahead_s) if guard == "graph" else TypedClient(uri, guard, ahead_s)
    values = iter(range(number * 10**9 + os.getpid() * 10**4, NEVER))
    with closing(client), journal.open("a") as lines:

        def note(operations: list[Read | Append], outcome: Outcome, start: int, end: int) -> None:
            lines.write(Transaction(f"p{number}-{os.getpid()}", operations, outcome, start, end).to_json() + "\n")
            lines.flush()

        while True:
            keys = chance.sample(KEYS, chance.randint(1, len(KEYS)))
            start = time.monotonic_ns()
            try:
                logs = client.read(keys)
            except OntologiaError:
                continue
            operations: list[Read | Append] = [Read(key, logs[key].values) for key in keys]
            changed = chance.sample(keys, chance.randint(0, len(keys)))
            for key in changed:
                value = next(values)
                operations.append(Append(key, value))
                logs[key].values = [*logs[key].values, value]
            note(operations, Outcome.UNKNOWN, start, NEVER)
            try:
                client.write([logs[key] for key in changed])
                outcome = Outcome.COMMITTED
            except CommitOutcomeUnknownError:
                outcome = Outcome.UNKNOWN
            except OntologiaError:
                outcome = Outcome.REJECTED
            note(operations, outcome, start, NEVER if outcome is Outcome.UNKNOWN else time.monotonic_ns())


def read_journals(paths: Iterator[Path] | list[Path]) -> list[Transaction]:
    """The last that is known of every transaction. A line that a kill cut off says nothing that was acknowledged."""
    history: dict[tuple[str, int], Transaction] = {}
    for path in paths:
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                transaction = Transaction.from_json(line)
                history[transaction.process, transaction.start] = transaction
    return list(history.values())


if __name__ == "__main__":
    uri, guard, journal, number, ahead_s = sys.argv[1:]
    run(uri, guard, Path(journal), int(number), float(ahead_s))
