"""Events in the SQLite file of the ontology: queued in the very transaction of the commit that announces them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ontologia.config import OntologiaConfig
from ontologia.engines.sqlite.connections import Connections
from ontologia.engines.sqlite.control import statements
from ontologia.objects import SYSTEM_CLOCK, Clock
from ontologia.runtime.events.records import Claim, DeadLetter, SessionRecord, StoredEvent, instant
from ontologia.runtime.events.sqlite_tables import (
    CLAIM_COLUMNS,
    EVENT_COLUMNS,
    LETTER_COLUMNS,
    QUEUE_EVENTS,
    TABLES,
    TRIGGER,
    claim_of,
    event_of,
    letter_of,
    marks,
    session_of,
)
from ontologia.runtime.events.store import EventStatus, EventStore, Held, RemovedEvents, Subscription
from ontologia.runtime.events.types import dead_letter_notice

DUE_AT_ONCE = 10  # times the limit: how many claims that are due are looked at to find the most urgent


class SqliteEventStore(EventStore):
    """The event tables beside the ontology's own.

    Writes of one thread join the transaction it has open, so a commit and its events are one. Queueing is as durable
    as a commit. Claims and acknowledgements survive the process, but are not forced to disk one by one: after a loss
    of power some events may be handled again, never lost.
    """

    def __init__(
        self, connections: Connections, namespace: str, config: OntologiaConfig, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(namespace, config, clock)
        self._connections = connections
        self._laid_out = False

    # --- queueing ---

    def enqueue_within(self, events: Sequence[StoredEvent]) -> None:
        self.enqueue(events)

    def enqueue(self, events: Sequence[StoredEvent]) -> None:
        if events:
            with self._writing(durable=True) as connection:
                _insert_events(connection, events)

    def mark(self, name: str) -> Mapping[str, Any] | None:
        with self._reading(OURS_LAST) as connection:
            if connection is None:
                return None
            row = connection.execute(
                "SELECT value FROM event_marks WHERE namespace = ? AND name = ?", (self.namespace, name)
            ).fetchone()
        return None if row is None else json.loads(row[0])

    def advance(
        self, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], events: Sequence[StoredEvent]
    ) -> bool:
        old, new = (None if mark is None else json.dumps(mark, sort_keys=True) for mark in (before, after))
        with self._writing(durable=True) as connection:
            if old is None:
                sql = "INSERT OR IGNORE INTO event_marks (value, namespace, name) VALUES (?, ?, ?)"
                moved = connection.execute(sql, (new, self.namespace, name)).rowcount > 0
            else:
                sql = "UPDATE event_marks SET value = ? WHERE namespace = ? AND name = ? AND value = ?"
                moved = connection.execute(sql, (new, self.namespace, name, old)).rowcount > 0
            if moved:
                _insert_events(connection, events)
        return moved

    # --- sessions ---

    def heartbeat(self, session: SessionRecord) -> None:
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO sessions (session_id, namespace, started_at, last_heartbeat, metadata) "
                "VALUES (?, ?, ?, ?, ?)",
                (
                    session.session_id,
                    session.namespace,
                    session.started_at,
                    session.last_heartbeat,
                    json.dumps(dict(session.metadata), sort_keys=True),
                ),
            )

    def leave(self, session_id: str) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))

    # --- handling ---

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        now = instant(self.clock.wall())
        with self._writing(durable=True) as connection:
            for item in subscriptions:
                identity = (self.namespace, item.type, item.handler_id)
                sql = "UPDATE event_handlers SET last_seen = ? WHERE namespace = ? AND type = ? AND handler_id = ?"
                if not connection.execute(sql, (now, *identity)).rowcount:
                    connection.execute("INSERT INTO event_handlers VALUES (?, ?, ?, ?)", (*identity, now))
                    connection.execute(QUEUE_EVENTS, (item.handler_id, self.namespace, item.type, item.handler_id))

    def claim(self, subscriptions: Sequence[Subscription], session_id: str, limit: int) -> list[Held]:
        with self._connections.use() as connection:  # a session that is idle does not take the write lock
            if not any(self._waiting(connection, item, 1) for item in subscriptions):
                return []
        with self._writing() as connection:
            found = [
                (event, claim, item)
                for item in subscriptions
                for event, claim in self._waiting(connection, item, limit)
            ]
            found.sort(key=lambda one: (*one[0].order, -one[2].priority, one[2].handler_id))
            return [
                held
                for event, claim, item in found[:limit]
                if (held := self._take(connection, event, claim, item, session_id)) is not None
            ]

    def _waiting(
        self, connection: sqlite3.Connection, item: Subscription, limit: int
    ) -> list[tuple[StoredEvent, Claim | None]]:
        return [*self._due(connection, item, limit), *self._find_queued(connection, item, limit)]

    def _find_queued(
        self, connection: sqlite3.Connection, item: Subscription, limit: int
    ) -> Iterator[tuple[StoredEvent, None]]:
        """What this handler has never claimed."""
        rows = connection.execute(
            f"""SELECT {EVENT_COLUMNS} FROM (
                    SELECT event_id FROM event_queue WHERE namespace = ? AND handler_id = ? AND type = ?
                    ORDER BY priority DESC, created_at, event_id LIMIT ?
                ) CROSS JOIN events e ON e.id = event_id""",
            (self.namespace, item.handler_id, item.type, limit),
        )
        return ((event_of(row), None) for row in rows.fetchall())

    def _due(
        self, connection: sqlite3.Connection, item: Subscription, limit: int
    ) -> Iterator[tuple[StoredEvent, Claim]]:
        """What failed and may be tried again, and what others left behind."""
        now = instant(self.clock.wall())
        rows = connection.execute(
            f"""SELECT {EVENT_COLUMNS}, {CLAIM_COLUMNS}
                FROM event_claims c INDEXED BY idx_event_claims_handler_state CROSS JOIN events e ON e.id = c.event_id
                WHERE c.handler_id = ? AND c.ack_at IS NULL AND c.dead_lettered_at IS NULL
                  AND c.lease_until <= ? AND c.available_at <= ? AND e.namespace = ? AND e.type = ?
                ORDER BY c.lease_until LIMIT ?""",
            (item.handler_id, now, now, self.namespace, item.type, DUE_AT_ONCE * limit),
        )
        return ((event_of(row[:8]), claim_of(row[8:])) for row in rows.fetchall())

    def _take(
        self,
        connection: sqlite3.Connection,
        event: StoredEvent,
        found: Claim | None,
        item: Subscription,
        session_id: str,
    ) -> Held | None:
        claim = self.next_claim(found, event.id, item.handler_id, session_id)
        _write_claim(connection, claim)
        if found is None:
            connection.execute(
                "DELETE FROM event_queue WHERE namespace = ? AND handler_id = ? AND type = ? AND priority = ? "
                "AND created_at = ? AND event_id = ?",
                (self.namespace, item.handler_id, item.type, event.priority, event.created_at, event.id),
            )
        if claim.dead_lettered_at is not None:
            _bury(connection, event, claim)
            return None
        return self.hold(item, event, claim)

    def renew(self, held: Sequence[Held]) -> list[Held]:
        with self._writing() as connection:
            return [new for old in held if self._replace(connection, old, (new := self.prolong(old)).claim)]

    def acknowledge(self, held: Held, emitted: Sequence[StoredEvent]) -> bool:
        with self._writing() as connection:
            done = self._replace(connection, held, held.claim.acknowledge(self.clock.wall()))
            if done:
                _insert_events(connection, emitted)
        return done

    def fail(self, held: Held, error: str) -> Claim | None:
        claim = held.claim.fail(error, self.clock.wall(), self.policy)
        with self._writing() as connection:
            if not self._replace(connection, held, claim):
                return None
            if claim.dead_lettered_at is not None:
                _bury(connection, held.event, claim)
        return claim

    def release(self, held: Sequence[Held]) -> None:
        if held:
            with self._writing() as connection:
                for item in held:
                    self._replace(connection, item, item.claim.give_back(self.clock.wall()))

    def is_ours(self, held: Held) -> bool:
        with self._connections.use() as connection:
            row = connection.execute(
                f"SELECT 1 FROM event_claims WHERE {OURS}", (*_identity(held), held.claim.session_id)
            ).fetchone()
        return row is not None and row[0] == 1

    def _replace(self, connection: sqlite3.Connection, held: Held, claim: Claim) -> bool:
        """Write a claim if the one in place is the one we hold."""
        changes = ", ".join(f"{name} = ?" for name in CLAIM_CHANGES)
        values = [getattr(claim, name) for name in CLAIM_CHANGES]
        done = connection.execute(
            f"UPDATE event_claims SET {changes} WHERE {OURS}", (*values, *_identity(held), held.claim.session_id)
        )
        return done.rowcount > 0

    # --- questions ---

    def namespaces(self) -> list[str]:
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT namespace FROM events UNION SELECT namespace FROM sessions UNION SELECT namespace FROM "
                "dead_letters ORDER BY 1"
            )
            return [name for (name,) in rows]

    def sessions(self) -> list[SessionRecord]:
        rows = self._rows(
            "SELECT session_id, namespace, started_at, last_heartbeat, metadata FROM sessions WHERE namespace = ? "
            "ORDER BY started_at, session_id",
            (self.namespace,),
        )
        return [session_of(row) for row in rows]

    def events(self, *, type: str | None = None, status: str | None = None, limit: int = 100) -> list[EventStatus]:
        now = instant(self.clock.wall())
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                f"""SELECT {EVENT_COLUMNS}, {CLAIM_COLUMNS} FROM events e LEFT JOIN event_claims c ON c.event_id = e.id
                    WHERE e.namespace = ? AND (? IS NULL OR e.type = ?)
                    ORDER BY e.created_at DESC, e.id, c.handler_id""",
                (self.namespace, type, type),
            )
            found = []
            for row in rows:
                claim = None if row[8] is None else claim_of(row[8:])
                said = "pending" if claim is None else claim.status(now)
                if status in (None, said):
                    found.append(EventStatus(event_of(row[:8]), claim, said))
                if len(found) == limit:
                    break
        return found

    def dead_letters(self, *, handler_id: str | None = None, limit: int | None = 100) -> list[DeadLetter]:
        rows = self._rows(
            f"SELECT {LETTER_COLUMNS} FROM dead_letters WHERE namespace = ? AND (? IS NULL OR handler_id = ?) "
            "ORDER BY failed_at DESC, id DESC LIMIT ?",
            (self.namespace, handler_id, handler_id, -1 if limit is None else limit),
        )
        return [letter_of(row) for row in rows]

    def event(self, event_id: str) -> StoredEvent | None:
        rows = self._rows(
            f"SELECT {EVENT_COLUMNS} FROM events e WHERE namespace = ? AND id = ?", (self.namespace, event_id)
        )
        return event_of(rows[0]) if rows else None

    def claims(self, event_id: str) -> list[Claim]:
        rows = self._rows(
            f"SELECT {CLAIM_COLUMNS} FROM event_claims c WHERE event_id = ? ORDER BY handler_id", (event_id,)
        )
        return [claim_of(row) for row in rows]

    def chain(self, root_event_id: str) -> list[StoredEvent]:
        rows = self._rows(
            f"SELECT {EVENT_COLUMNS} FROM events e WHERE namespace = ? AND root_event_id = ? "
            "ORDER BY chain_depth, created_at, id",
            (self.namespace, root_event_id),
        )
        return [event_of(row) for row in rows]

    # --- care ---

    def cleanup(self, older_than_s: float | None = None, *, apply: bool = False, limit: int = 1000) -> RemovedEvents:
        age = self.config.event_retention_ms / 1000 if older_than_s is None else older_than_s
        before = instant(self.clock.wall() - age)
        gone = instant(self.clock.wall() - max(age, self.config.session_ttl_ms / 1000))
        with self._writing() if apply else self._reading(OURS_LAST) as connection:
            if connection is None:
                return RemovedEvents([], [], apply)
            if apply:
                self._forget_handlers(connection, before)
            # An index on the time alone is not in the layout of 0.3: rowids come in the order of queueing.
            rows = connection.execute(
                """SELECT e.id FROM events e
                   WHERE e.namespace = ? AND e.created_at < ?
                     AND NOT EXISTS (SELECT 1 FROM event_queue q WHERE q.event_id = e.id)
                     AND NOT EXISTS (SELECT 1 FROM event_claims c WHERE c.event_id = e.id
                                     AND coalesce(c.ack_at, c.dead_lettered_at, '9') >= ?)
                   ORDER BY e.rowid LIMIT ?""",
                (self.namespace, before, before, limit),
            )
            events = [id for (id,) in rows]
            rows = connection.execute(
                "SELECT session_id FROM sessions WHERE namespace = ? AND last_heartbeat < ? ORDER BY session_id",
                (self.namespace, gone),
            )
            sessions = [id for (id,) in rows]
            if apply:
                for table in ("event_claims", "dead_letters"):
                    connection.executemany(f"DELETE FROM {table} WHERE event_id = ?", [(id,) for id in events])
                connection.executemany("DELETE FROM events WHERE id = ?", [(id,) for id in events])
                connection.executemany("DELETE FROM sessions WHERE session_id = ?", [(id,) for id in sessions])
        return RemovedEvents(events, sessions, apply)

    def _forget_handlers(self, connection: sqlite3.Connection, before: str) -> None:
        """Handlers that nobody has run for so long no longer wait for anything."""
        gone = "SELECT handler_id FROM event_handlers WHERE namespace = ? AND last_seen < ?"
        connection.execute(
            f"DELETE FROM event_queue WHERE namespace = ? AND handler_id IN ({gone})",
            (self.namespace, self.namespace, before),
        )
        connection.execute("DELETE FROM event_handlers WHERE namespace = ? AND last_seen < ?", (self.namespace, before))

    def replay(self, event_id: str, handler_id: str | None = None) -> list[Claim]:
        with self._writing(durable=True) as connection:
            finished = [
                claim
                for claim in self.claims(event_id)
                if claim.finished and handler_id in (None, claim.handler_id) and self.event(event_id) is not None
            ]
            again = [claim.reset(self.clock.wall()) for claim in finished]
            for claim in again:
                _write_claim(connection, claim)
                connection.execute(
                    "DELETE FROM dead_letters WHERE event_id = ? AND handler_id = ?", (event_id, claim.handler_id)
                )
        return again

    # --- transactions ---

    @contextmanager
    def _writing(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """The transaction this thread has open, or one of its own."""
        with self._connections.use() as connection:
            connection.roll_back_what_was_abandoned()
            is_joined = connection.in_transaction
            if is_joined:
                self._lay_out(connection)
                yield connection
                return
            connection.own()
            try:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                self._lay_out(connection)
                yield connection
                self._connections.commit(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                connection.owner = None
                connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _reading(self, table: str = "sessions") -> Iterator[sqlite3.Connection | None]:
        """A connection, or None where no event was ever queued: a question lays out nothing.

        The tables of 0.3 are made together, and so are all of them; `table` is one of those a question needs.
        """
        with self._connections.use() as connection:
            yield connection if _has_table(connection, table) else None

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._reading() as connection:
            return [] if connection is None else connection.execute(sql, values).fetchall()

    def _lay_out(self, connection: sqlite3.Connection) -> None:
        """Make the tables that are missing. A transaction that is rolled back takes them with it."""
        if self._laid_out and _has_table(connection, OURS_LAST):
            return
        for statement in (*statements(TABLES), TRIGGER):
            connection.execute(statement)
        self._laid_out = True


OURS_LAST = "event_marks"  # the last of our own tables that is made
OURS = (
    "event_id = ? AND handler_id = ? AND claimed_at = ? AND session_id = ? "
    "AND ack_at IS NULL AND dead_lettered_at IS NULL"
)
CLAIM_CHANGES = ("lease_until", "ack_at", "attempts", "available_at", "last_error", "dead_lettered_at")


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None


def _identity(held: Held) -> tuple[str, str, str]:
    return held.claim.event_id, held.claim.handler_id, held.claim.claimed_at


def _insert_events(connection: sqlite3.Connection, events: Sequence[StoredEvent]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO events (id, namespace, type, payload, created_at, priority, root_event_id, chain_depth) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (e.id, e.namespace, e.type, e.payload_text(), e.created_at, e.priority, e.root_event_id, e.chain_depth)
            for e in events
        ],
    )


def _write_claim(connection: sqlite3.Connection, claim: Claim) -> None:
    names = CLAIM_COLUMNS.replace("c.", "")
    values = [getattr(claim, name.strip()) for name in names.split(",")]
    connection.execute(f"INSERT OR REPLACE INTO event_claims ({names}) VALUES ({marks(len(values))})", values)


def _bury(connection: sqlite3.Connection, event: StoredEvent, claim: Claim) -> None:
    """Write a dead letter, and the event that tells of it."""
    letter = replace(DeadLetter.of(event, claim), event_payload=event.payload_text())  # type: ignore[arg-type]
    values = [getattr(letter, name.strip()) for name in LETTER_COLUMNS.split(",")]
    connection.execute(f"INSERT INTO dead_letters ({LETTER_COLUMNS}) VALUES ({marks(len(values))})", values)
    notice = dead_letter_notice(event, claim)
    if notice is not None:
        _insert_events(connection, [notice])
