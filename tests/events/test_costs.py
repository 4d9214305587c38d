"""What a claim costs: the same, however many events wait, and however many were handled before.

Requests are counted on object storage, steps of the virtual machine on SQLite, where one step reads at most one row.
"""

import json
import uuid
from contextlib import contextmanager

import pytest

from ontologia import OntologiaConfig, Session, initialize_storage, on_event
from ontologia.objects import open_objects
from ontologia.runtime.events import object_paths as paths
from ontologia.runtime.events.loop import EventLoop
from ontologia.runtime.events.object_store import ObjectEventStore
from ontologia.runtime.events.records import Claim, instant
from ontologia.runtime.events.store import Subscription
from ontologia.testing.stores import ManualClock
from support.events_shop import StockLow

NOW = 1_800_000_000.0
MANY = 100_000
WANTED = Subscription("shop.reorder", "stock.low")


def waiting(count: int, begin: float = NOW):
    """Events as they lie in a queue, each younger than the one before."""
    template = StockLow(sku="tea").to_record("shop")
    values = template.body()
    for number in range(count):
        id = f"{number:08d}-{uuid.uuid4().hex}"
        yield type(template)(**values | {"id": id, "root_event_id": id, "created_at": instant(begin + number / 1e3)})


@contextmanager
def steps_of(session):
    """How many steps SQLite takes while in the block."""
    count = [0]

    def step():
        count[0] += 1

    with session.engine.connections.use() as connection:
        connection.set_progress_handler(step, 1)
        try:
            yield count
        finally:
            connection.set_progress_handler(None, 1)


def cost_on_sqlite(path, queued: int, handled: int) -> int:
    with Session(str(path), "shop") as session:
        store = session.events
        store.clock = ManualClock(NOW + MANY)
        store.subscribe([WANTED])
        store.enqueue(list(waiting(queued)))
        with store._writing() as connection:
            done = [Claim.starting(event.id, WANTED.handler_id, "x", NOW, 30) for event in waiting(handled, NOW - 1e6)]
            connection.executemany(
                "INSERT INTO event_claims VALUES (?, ?, 'x', ?, ?, ?, 0, ?, NULL, NULL)",
                [(c.event_id, c.handler_id, c.claimed_at, c.lease_until, c.claimed_at, c.claimed_at) for c in done],
            )
        store.claim([WANTED], "warm", 10)
        with steps_of(session) as count:
            assert len(store.claim([WANTED], "me", 100)) == 100
    return count[0]


@pytest.mark.thorough
def test_a_claim_on_sqlite_reads_as_many_rows_from_a_long_queue_as_from_a_short_one(tmp_path):
    short = cost_on_sqlite(tmp_path / "short.db", 1_000, 0)
    long = cost_on_sqlite(tmp_path / "long.db", MANY, MANY)
    assert long < short * 1.2, (short, long)


def bucket(queued: int, handled: int):
    """A bucket with so many events in it, put there without the store's help."""
    uri = f"memory://costs-{uuid.uuid4().hex}"
    objects = open_objects(uri)
    for event in waiting(queued):
        objects.put(paths.type_queue("shop", event.type) + paths.Marker.of(event).name, b"{}")
        objects.put(paths.event(event), json.dumps(event.body()).encode())
    for event in waiting(handled, NOW - 1e6):
        objects.put(paths.event(event), b"{}")
        objects.put(paths.claim("shop", event.id, WANTED.handler_id), b"{}")
    caught_up = {"handler_id": WANTED.handler_id, "type": WANTED.type, "last_seen": instant(NOW), "caught_up": True}
    objects.put(paths.handler("shop", WANTED.type, WANTED.handler_id), json.dumps(caught_up).encode())
    return objects


def cost_on_objects(queued: int, handled: int) -> dict[str, int]:
    objects = bucket(queued, handled)
    store = ObjectEventStore(objects, "shop", OntologiaConfig(), ManualClock(NOW + MANY))
    store.subscribe([WANTED])
    with objects.counting() as count:
        held = store.claim([WANTED], "me", 100)
        assert [item.event.id[:8] for item in held] == [f"{number:08d}" for number in range(100)]
        for item in held:
            assert store.acknowledge(item, [])
        store.flush()
    return count.by_operation


@pytest.mark.thorough
def test_a_claim_on_object_storage_makes_as_many_requests_on_a_long_queue_as_on_a_short_one():
    short, long = cost_on_objects(1_000, 0), cost_on_objects(MANY, MANY // 5)
    assert long == short
    # A hundred events: read each, claim it, acknowledge it; list two queues and the handlers; remove the markers at once.
    assert long == {"get": 100, "put_if_absent": 100, "put_if_match": 100, "list": 3, "delete_many": 1}


def test_an_idle_worker_makes_a_bounded_number_of_requests_a_minute():
    """The number that docs/events.md names."""
    uri = f"memory://idle-{uuid.uuid4().hex}"
    initialize_storage(storage_uri=uri)
    clock = ManualClock(NOW)
    with Session(uri, "shop") as session:
        session.events.clock = clock
        handler = on_event(StockLow)(lambda ctx: None)
        EventLoop(session, session.events, [handler], wait=clock.sleep, keep_alive=False).run(30)
        with session.engine.objects.counting() as count:
            EventLoop(session, session.events, [handler], wait=clock.sleep, keep_alive=False).run(61)
        assert clock.now - NOW == pytest.approx(29 + 60)
    # Every second two queues are listed; every five seconds the head is read and a heartbeat written; some at the ends.
    assert count.by_operation["list"] <= 2 * 61 + 5
    assert count.total <= 2 * 61 + 2 * 13 + 12, count.by_operation
