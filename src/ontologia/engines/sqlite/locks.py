"""Locks by name in a table of the file."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING

from ontologia.config import has_ended
from ontologia.engines.locks import Locks
from ontologia.engines.sqlite.control import now
from ontologia.model import instant_text

if TYPE_CHECKING:
    from ontologia.engines.sqlite.engine import SqliteEngine


class SqliteLocks(Locks):
    """The locks of one file. Each call is one statement, so atomic."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    def acquire(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        """Take a lock that is free, expired, ours already, or of a process that is dead."""
        self._engine.ensure_exists()
        moment = now()
        with self._engine.connections.use() as connection:
            row = connection.execute("SELECT owner_id FROM locks WHERE name = ?", (name,)).fetchone()
            changed = connection.execute(
                """INSERT INTO locks (name, owner_id, acquired_at, expires_at, lease_ttl_ms)
                   VALUES (:name, :owner, :now, :end, :ttl)
                   ON CONFLICT (name) DO UPDATE
                   SET owner_id = :owner, acquired_at = :now, expires_at = :end, lease_ttl_ms = :ttl
                   WHERE locks.owner_id IN (:owner, :dead) OR locks.expires_at <= :now""",
                {
                    "dead": row[0] if row is not None and has_ended(row[0]) else None,
                    "name": name,
                    "owner": owner_id,
                    "now": instant_text(moment),
                    "end": instant_text(moment + timedelta(milliseconds=ttl_ms)),
                    "ttl": ttl_ms,
                },
            ).rowcount
        return changed > 0

    def renew(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        moment = now()
        with self._engine.connections.use() as connection:
            changed = connection.execute(
                "UPDATE locks SET expires_at = ? WHERE name = ? AND owner_id = ? AND expires_at > ?",
                (instant_text(moment + timedelta(milliseconds=ttl_ms)), name, owner_id, instant_text(moment)),
            ).rowcount
        return changed > 0

    def release(self, name: str, owner_id: str) -> bool:
        with self._engine.connections.use() as connection:
            changed = connection.execute("DELETE FROM locks WHERE name = ? AND owner_id = ?", (name, owner_id)).rowcount
        return changed > 0


def lock_holder(connection: sqlite3.Connection, name: str, owner_id: str) -> str | None:
    """Who else holds a lock, until when, and what to do. A process of this machine that is dead holds none."""
    row = connection.execute(
        "SELECT owner_id, expires_at FROM locks WHERE name = ? AND owner_id <> ? AND expires_at > ?",
        (name, owner_id, instant_text(now())),
    ).fetchone()
    if row is None or has_ended(row[0]):
        return None
    return (
        f"{row[0]} holds the write lock until {row[1]}. If it lives it may hold it longer, if it is dead the lock ends "
        "then: try again after that"
    )
