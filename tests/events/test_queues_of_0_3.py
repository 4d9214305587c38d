"""Queues that Ontologia 0.3 left behind are read on, and what is written now has the same layout."""

import json
import sqlite3
import uuid

import pytest

from ontologia import EventDeadLetter, Session, initialize_storage, on_event
from ontologia.objects import open_objects
from support.events_shop import StockLow

OLD = "2026-11-15T19:26:11.878111+00:00"
LATER = "2026-11-15T19:26:41.880985+00:00"
DONE, OPEN, LEFT, DEAD = (f"{number}d171a57-9052-4e11-9443-c1453b9982cf" for number in range(4))
EVENT_KEYS = ["chain_depth", "created_at", "id", "namespace", "payload", "priority", "root_event_id", "type"]
CLAIM_KEYS = [
    "ack_at",
    "attempts",
    "available_at",
    "claimed_at",
    "dead_lettered_at",
    "event_id",
    "handler_id",
    "last_error",
    "lease_until",
    "session_id",
]

TABLES_OF_0_3 = """
CREATE TABLE events (id TEXT PRIMARY KEY, namespace TEXT NOT NULL, type TEXT NOT NULL, payload TEXT NOT NULL,
    created_at TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 100, root_event_id TEXT NOT NULL,
    chain_depth INTEGER NOT NULL DEFAULT 0);
CREATE INDEX idx_events_namespace_type_order ON events(namespace, type, priority DESC, created_at ASC, id ASC);
CREATE TABLE event_claims (event_id TEXT NOT NULL, handler_id TEXT NOT NULL, session_id TEXT NOT NULL,
    claimed_at TEXT NOT NULL, lease_until TEXT NOT NULL, ack_at TEXT, attempts INTEGER NOT NULL DEFAULT 0,
    available_at TEXT NOT NULL, last_error TEXT, dead_lettered_at TEXT, PRIMARY KEY (event_id, handler_id));
CREATE INDEX idx_event_claims_handler_state
    ON event_claims(handler_id, ack_at, dead_lettered_at, lease_until, available_at);
CREATE INDEX idx_event_claims_event ON event_claims(event_id);
CREATE TABLE dead_letters (id INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL, handler_id TEXT NOT NULL,
    namespace TEXT NOT NULL, failed_at TEXT NOT NULL, attempts INTEGER NOT NULL, last_error TEXT NOT NULL,
    event_type TEXT NOT NULL, event_payload TEXT NOT NULL, root_event_id TEXT NOT NULL, chain_depth INTEGER NOT NULL);
CREATE INDEX idx_dead_letters_namespace_failed ON dead_letters(namespace, failed_at DESC);
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, started_at TEXT NOT NULL,
    last_heartbeat TEXT NOT NULL, metadata TEXT);
CREATE INDEX idx_sessions_heartbeat ON sessions(last_heartbeat);
CREATE INDEX idx_sessions_namespace ON sessions(namespace);
"""


def event(id: str, sku: str) -> dict:
    return {
        "id": id,
        "namespace": "shop",
        "type": "stock.low",
        "payload": {"left": 3, "sku": sku},
        "created_at": OLD,
        "priority": 100,
        "root_event_id": id,
        "chain_depth": 0,
    }


def claim(id: str, handler_id: str, **state) -> dict:
    body = dict.fromkeys(CLAIM_KEYS) | {
        "event_id": id,
        "handler_id": handler_id,
        "session_id": "0a899c43-6237-46ee-a76d-ccfc2af01449",
        "claimed_at": OLD,
        "lease_until": LATER,
        "available_at": OLD,
        "attempts": 0,
    }
    return body | state


def contents(handler_id: str) -> tuple[list[dict], list[dict]]:
    """One event that was handled, one that waits, one whose worker died, one that was given up."""
    events = [event(DONE, "done"), event(OPEN, "open"), event(LEFT, "left"), event(DEAD, "dead")]
    claims = [
        claim(DONE, handler_id, ack_at=LATER),
        claim(LEFT, handler_id),
        claim(DEAD, handler_id, attempts=1, last_error="no mail server", dead_lettered_at=LATER, lease_until=OLD),
    ]
    return events, claims


@pytest.fixture(params=["sqlite", "objects"])
def old(request, tmp_path, note):
    """A store with a queue of 0.3 in it, under the name of our handler."""
    events, claims = contents(note.__on_event__.id)
    if request.param == "sqlite":
        target = str(tmp_path / "onto.db")
        initialize_storage(target)
        with sqlite3.connect(target) as connection:
            connection.executescript(TABLES_OF_0_3)
            for table, rows in (("events", events), ("event_claims", claims)):
                for row in rows:
                    values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
                    names = ", ".join(row)
                    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", values)
            connection.execute(
                "INSERT INTO dead_letters VALUES (1, ?, ?, 'shop', ?, 1, 'no mail server', 'stock.low', '{}', ?, 0)",
                (DEAD, note.__on_event__.id, LATER, DEAD),
            )
        connection.close()
        return target
    target = f"memory://old-{uuid.uuid4().hex}"
    initialize_storage(storage_uri=target)
    objects = open_objects(target)

    def put(key: str, body: dict) -> None:
        objects.put(key, json.dumps(body, sort_keys=True, separators=(",", ":")).encode())

    for body in events:
        put(f"events/shop/{OLD.replace(':', '-')}_{body['id']}.json", body)
    for body in claims:
        handler = body["handler_id"].replace("<", "=3C").replace(">", "=3E")
        put(f"claims/shop/{body['event_id']}/{handler}.json", body)
    handler = note.__on_event__.id.replace("<", "=3C").replace(">", "=3E")
    letter = {
        "attempts": 1,
        "event_id": DEAD,
        "failed_at": LATER,
        "handler_id": note.__on_event__.id,
        "last_error": "no mail server",
        "namespace": "shop",
    }
    put(f"dead_letters/shop/{DEAD}/{handler}.json", letter)
    return target


def test_what_waits_is_handled_and_what_is_done_is_not(old, note, seen):
    with Session(old, "shop") as session:
        session.run([note], max_iterations=2)
        states = sorted((state.event.payload["sku"], state.status) for state in session.events.events())
    assert sorted(seen) == ["left", "open"]
    assert states == [("dead", "dead_lettered"), ("done", "acked"), ("left", "acked"), ("open", "acked")]


def test_a_dead_letter_is_listed_and_replayed(old, note, seen):
    with Session(old, "shop") as session:
        (letter,) = session.events.dead_letters()
        assert (letter.event_id, letter.last_error) == (DEAD, "no mail server")
        session.events.replay(DEAD)
        session.run([note], max_iterations=2)
        assert session.events.dead_letters() == []
    assert sorted(seen) == ["dead", "left", "open"]


def test_an_event_that_0_3_writes_while_we_run_is_handled(tmp_path, note, seen):
    target = str(tmp_path / "onto.db")
    with Session(target, "shop") as session:
        session.run([note], max_iterations=1)
        with sqlite3.connect(target) as connection:
            row = event(OPEN, "new")
            values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
            connection.execute(f"INSERT INTO events ({', '.join(row)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        connection.close()
        session.run([note], max_iterations=1)
    assert seen == ["new"]


def test_the_tables_are_those_of_0_3(tmp_path):
    target = str(tmp_path / "onto.db")
    with Session(target, "shop") as session:
        session.commit(event=StockLow(sku="tea"))

    def shape(connection, table):
        return [row[1:] for row in connection.execute(f"PRAGMA table_info({table})")]

    expected = sqlite3.connect(":memory:")
    expected.executescript(TABLES_OF_0_3)
    found = sqlite3.connect(target)
    for table in ("events", "event_claims", "dead_letters", "sessions"):
        assert shape(found, table) == shape(expected, table)
    indexes = "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'idx_%'"
    assert set(expected.execute(indexes)) <= set(found.execute(indexes))
    (row,) = found.execute("SELECT payload, created_at FROM events")
    assert row[0] == '{"left": 0, "sku": "tea"}'
    assert row[1].endswith("+00:00")
    found.close()
    expected.close()


def test_the_objects_are_those_of_0_3():
    target = f"memory://new-{uuid.uuid4().hex}"
    initialize_storage(storage_uri=target)

    @on_event(StockLow)
    def hopeless(ctx):
        raise RuntimeError("no mail server")

    hopeless.__on_event__.function.__qualname__ = "hopeless"
    from ontologia import OntologiaConfig

    with Session(target, "shop", config=OntologiaConfig(event_max_attempts=1)) as session:
        sent = StockLow(sku="tea")
        session.commit(event=sent)
        session.run([hopeless], max_iterations=1)
    objects = open_objects(target)
    stamp = sent.created_at.isoformat(timespec="microseconds").replace(":", "-")
    handler = f"{__name__}.hopeless"

    def read(key: str) -> dict:
        return json.loads(objects.get(key).data)

    assert sorted(read(f"events/shop/{stamp}_{sent.id}.json")) == EVENT_KEYS
    assert sorted(read(f"claims/shop/{sent.id}/{handler}.json")) == sorted([*CLAIM_KEYS, "writer_id"])
    letter = read(f"dead_letters/shop/{sent.id}/{handler}.json")
    assert {"attempts", "event_id", "failed_at", "handler_id", "last_error", "namespace"} <= set(letter)
    (notice,) = [info.key for info in objects.list("events/shop/") if sent.id not in info.key]
    assert read(notice)["type"] == EventDeadLetter.__event_type_name__ == "event.dead_letter"
