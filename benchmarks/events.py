"""Events through queueing, claiming, handling and acknowledging, beside the same steps by hand; and how costs grow."""

from __future__ import annotations

import itertools
import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.report import Case
from ontologia import Entity, Event, Field, OntologiaConfig, Session, initialize_storage, on_event
from ontologia.objects import open_objects
from ontologia.runtime.events.store import Subscription
from ontologia.testing.s3server import s3_server

EVENTS = 1_000
A_COMMIT = 100
ON_S3 = 200
BUCKET = "ontologia-bench-events"


class StockLow(Event):
    sku: Field[str]
    left: Field[int]


class Product(Entity):
    sku: Field[str] = Field(primary_key=True)
    left: Field[int]


@on_event(StockLow)
def handle(ctx) -> None:
    """As little as a handler can do."""


def through(session: Session, count: int, a_commit: int) -> None:
    """So many events, `a_commit` of them with each commit, and every one handled."""
    for first in range(0, count, a_commit):
        session.ensure(Product(sku="tea", left=next(_left)))
        session.commit(event=[StockLow(sku=str(first + place), left=place) for place in range(a_commit)])
    assert session.run([handle], max_iterations=1) == count


_left = itertools.count()


def queues(folder: Path) -> Iterator[Case]:
    """Events through queueing, claiming, handling and acknowledging, beside the same steps by hand."""
    yield from on_sqlite(folder)
    yield from on_s3(folder)


def on_sqlite(folder: Path) -> Iterator[Case]:
    """1,000 events in less than a second is the goal. Beside it the plainest queue that is as durable, by hand."""
    with ExitStack() as stack:
        session = stack.enter_context(Session(str(folder / "events.db"), "bench"))
        plain = sqlite3.connect(folder / "plain.db", isolation_level=None)
        stack.callback(plain.close)
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("CREATE TABLE queue (id TEXT PRIMARY KEY, payload TEXT, lease_until TEXT, ack_at TEXT)")
        plain.execute("CREATE INDEX waiting ON queue (id) WHERE lease_until IS NULL")

        def by_hand() -> None:
            for _ in range(0, EVENTS, A_COMMIT):
                plain.execute("PRAGMA synchronous = FULL")
                plain.execute("BEGIN IMMEDIATE")
                rows = [(uuid.uuid4().hex, json.dumps({"sku": "tea", "left": place})) for place in range(A_COMMIT)]
                plain.executemany("INSERT INTO queue (id, payload) VALUES (?, ?)", rows)
                plain.execute("COMMIT")
            plain.execute("PRAGMA synchronous = NORMAL")
            claim = (
                "UPDATE queue SET lease_until = '9' WHERE id IN "
                "(SELECT id FROM queue WHERE lease_until IS NULL LIMIT 100) RETURNING id, payload"
            )
            while claimed := plain.execute(claim).fetchall():
                for id, payload in claimed:
                    json.loads(payload)
                    plain.execute("UPDATE queue SET ack_at = '1' WHERE id = ?", (id,))

        yield Case(
            f"{EVENTS:,} events, {A_COMMIT} a commit", "commit(event=…), run()", "one table by hand", None,
            lambda: through(session, EVENTS, A_COMMIT), by_hand, runs=3,
        )  # fmt: skip
        yield growth(stack, folder)


def growth(stack: ExitStack, folder: Path) -> Case:
    """A claim of a hundred, acknowledged, where 100,000 wait, beside one where 1,000 do."""
    wanted = [Subscription("bench.handler", "stock.low")]

    def queue(count: int):
        session = stack.enter_context(Session(str(folder / f"queue-{count}.db"), "bench"))
        session.events.subscribe(wanted)
        for _ in range(count // 10_000 or 1):
            events = [StockLow(sku="tea", left=1).to_record("bench") for _ in range(min(count, 10_000))]
            session.events.enqueue(events)
        return session.events

    def claim(store) -> None:
        for held in store.claim(wanted, "bench", 10):
            store.acknowledge(held, [])

    long, short = queue(100_000), queue(1_000)
    return Case(
        "claim and acknowledge ten of 100,000 events", "100,000 wait", "1,000 wait", 1.3,
        lambda: claim(long), lambda: claim(short), repeat=10,
    )  # fmt: skip


def on_s3(folder: Path) -> Iterator[Case]:
    """50 events a second on a loopback server is the goal: 200 in less than four seconds."""
    with ExitStack() as stack:
        server = stack.enter_context(s3_server())
        server.create_bucket(BUCKET)
        uri = server.uri(f"{BUCKET}/events")
        config = OntologiaConfig(cache_directory=str(folder / "cache"))
        initialize_storage(storage_uri=uri, config=config)
        session = stack.enter_context(Session(uri, "bench", config=config))
        objects = open_objects(server.uri(f"{BUCKET}/by-hand"))

        def by_hand() -> None:
            """The least there is: an event, a claim, an acknowledgement, each one object written once."""
            keys = [uuid.uuid4().hex for _ in range(ON_S3)]
            objects.map(lambda key: objects.put(f"events/{key}", b"{}"), keys)
            etags = objects.map(lambda key: objects.put_if_absent(f"claims/{key}", b'{"claimed": 1}'), keys)
            for key, etag in zip(keys, etags, strict=True):
                objects.get(f"events/{key}")
                objects.put_if_match(f"claims/{key}", b'{"acked": 1}', etag)

        yield Case(
            f"{ON_S3} events on S3, {A_COMMIT} a commit", "commit(event=…), run()", "three objects each, by hand", None,
            lambda: through(session, ON_S3, A_COMMIT), by_hand, runs=3,
        )  # fmt: skip
