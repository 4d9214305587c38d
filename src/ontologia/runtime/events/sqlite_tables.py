"""The event tables: four as Ontologia 0.3 has them, and three of ours that keep the cost of a claim the same.

`event_queue` has a row for every event that a known handler has not claimed yet. A trigger fills it, so that it is
right whoever writes the event, also 0.3.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ontologia.runtime.events.records import Claim, DeadLetter, SessionRecord, StoredEvent

TABLES = """
CREATE TABLE IF NOT EXISTS events (
    id            TEXT PRIMARY KEY,
    namespace     TEXT NOT NULL,
    type          TEXT NOT NULL,
    payload       TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    priority      INTEGER NOT NULL DEFAULT 100,
    root_event_id TEXT NOT NULL,
    chain_depth   INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS idx_events_namespace_type_order
    ON events(namespace, type, priority DESC, created_at ASC, id ASC);
CREATE TABLE IF NOT EXISTS event_claims (
    event_id         TEXT NOT NULL,
    handler_id       TEXT NOT NULL,
    session_id       TEXT NOT NULL,
    claimed_at       TEXT NOT NULL,
    lease_until      TEXT NOT NULL,
    ack_at           TEXT,
    attempts         INTEGER NOT NULL DEFAULT 0,
    available_at     TEXT NOT NULL,
    last_error       TEXT,
    dead_lettered_at TEXT,
    PRIMARY KEY (event_id, handler_id)
);
CREATE INDEX IF NOT EXISTS idx_event_claims_handler_state
    ON event_claims(handler_id, ack_at, dead_lettered_at, lease_until, available_at);
CREATE INDEX IF NOT EXISTS idx_event_claims_event ON event_claims(event_id);
CREATE TABLE IF NOT EXISTS dead_letters (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id      TEXT NOT NULL,
    handler_id    TEXT NOT NULL,
    namespace     TEXT NOT NULL,
    failed_at     TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
    last_error    TEXT NOT NULL,
    event_type    TEXT NOT NULL,
    event_payload TEXT NOT NULL,
    root_event_id TEXT NOT NULL,
    chain_depth   INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_dead_letters_namespace_failed ON dead_letters(namespace, failed_at DESC);
CREATE TABLE IF NOT EXISTS sessions (
    session_id     TEXT PRIMARY KEY,
    namespace      TEXT NOT NULL,
    started_at     TEXT NOT NULL,
    last_heartbeat TEXT NOT NULL,
    metadata       TEXT
);
CREATE INDEX IF NOT EXISTS idx_sessions_heartbeat ON sessions(last_heartbeat);
CREATE INDEX IF NOT EXISTS idx_sessions_namespace ON sessions(namespace);
CREATE TABLE IF NOT EXISTS event_handlers (
    namespace  TEXT NOT NULL,
    type       TEXT NOT NULL,
    handler_id TEXT NOT NULL,
    last_seen  TEXT NOT NULL,
    PRIMARY KEY (namespace, type, handler_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event_queue (
    namespace  TEXT NOT NULL,
    handler_id TEXT NOT NULL,
    type       TEXT NOT NULL,
    priority   INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    event_id   TEXT NOT NULL,
    PRIMARY KEY (namespace, handler_id, type, priority DESC, created_at, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_event_queue_event ON event_queue(event_id);
CREATE TABLE IF NOT EXISTS event_marks (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
"""

# Apart from the rest, whose statements end with a semicolon: this one has one inside.
TRIGGER = """
CREATE TRIGGER IF NOT EXISTS event_queue_fill AFTER INSERT ON events BEGIN
    INSERT OR IGNORE INTO event_queue (namespace, handler_id, type, priority, created_at, event_id)
    SELECT NEW.namespace, handler_id, NEW.type, NEW.priority, NEW.created_at, NEW.id
    FROM event_handlers WHERE namespace = NEW.namespace AND type = NEW.type; END
"""

QUEUE_EVENTS = """
INSERT OR IGNORE INTO event_queue (namespace, handler_id, type, priority, created_at, event_id)
SELECT namespace, ?, type, priority, created_at, id FROM events e
WHERE namespace = ? AND type = ?
  AND NOT EXISTS (SELECT 1 FROM event_claims c WHERE c.event_id = e.id AND c.handler_id = ?)
"""

EVENT_COLUMNS = "e.id, e.namespace, e.type, e.payload, e.created_at, e.priority, e.root_event_id, e.chain_depth"
CLAIM_COLUMNS = (
    "c.event_id, c.handler_id, c.session_id, c.claimed_at, c.lease_until, c.ack_at, c.attempts, c.available_at, "
    "c.last_error, c.dead_lettered_at"
)
LETTER_COLUMNS = (
    "event_id, handler_id, namespace, failed_at, attempts, last_error, event_type, event_payload, root_event_id, "
    "chain_depth"
)


def event_of(row: Sequence[Any]) -> StoredEvent:
    """The event of a row. A payload that is not a JSON object is kept as text, which no event class takes: a handler
    fails for this event, and goes on with the others."""
    id, namespace, type, payload, *rest = row
    return StoredEvent(id, namespace, type, _read_object(payload), *rest)


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"unreadable": text}


def claim_of(row: Sequence[Any]) -> Claim:
    return Claim(*row)


def letter_of(row: Sequence[Any]) -> DeadLetter:
    names = [name.strip() for name in LETTER_COLUMNS.split(",")]
    values = dict(zip(names, row, strict=True))
    return DeadLetter(**{**values, "event_payload": _read_object(values["event_payload"])})


def session_of(row: Sequence[Any]) -> SessionRecord:
    session_id, namespace, started_at, last_heartbeat, metadata = row
    return SessionRecord(session_id, namespace, started_at, last_heartbeat, _read_object(metadata) if metadata else {})


def marks(count: int) -> str:
    return ", ".join("?" * count)
