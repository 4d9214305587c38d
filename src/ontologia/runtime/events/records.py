"""What the event bus stores, one class per table or object: read with checks, unknown keys kept when written back.

The layouts are those of Ontologia 0.3, so that its queues are read on. Times are ISO texts in UTC, whose order is the
order of time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from ontologia.errors import StorageBackendError, ValidationError


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it lies in the queue. It never changes."""

    id: str
    namespace: str
    type: str
    payload: Mapping[str, Any]
    created_at: str
    priority: int
    root_event_id: str
    chain_depth: int

    @property
    def order(self) -> tuple[int, str, str]:
        """Events are handled by priority, then by age."""
        return -self.priority, self.created_at, self.id

    def payload_text(self) -> str:
        return json.dumps(self.payload, sort_keys=True)

    @classmethod
    def read(cls, body: Any, where: str) -> Self:
        return cls(**_members(cls, body, where))

    def body(self) -> dict[str, Any]:
        return _body(self)


@dataclass(frozen=True, slots=True)
class Claim:
    """One handler's hold on one event: a lease while it is being handled, its outcome afterwards.

    `attempts` counts failures. While a claim waits to be tried again, nobody has it: `lease_until` and `available_at`
    are both the time from which it may be claimed. `emitted` is ours: the events that left with the acknowledgement,
    on stores where the two cannot be one transaction.
    """

    event_id: str
    handler_id: str
    session_id: str
    claimed_at: str
    lease_until: str
    ack_at: str | None = None
    attempts: int = 0
    available_at: str = ""
    last_error: str | None = None
    dead_lettered_at: str | None = None
    emitted: tuple[Mapping[str, Any], ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.ack_at is not None or self.dead_lettered_at is not None

    @property
    def was_released(self) -> bool:
        """Whether its last holder gave it back. A lease that just ran out was left by one that died or hung."""
        return self.available_at >= self.lease_until

    def status(self, now: str) -> str:
        if self.ack_at is not None:
            return "acked"
        if self.dead_lettered_at is not None:
            return "dead_lettered"
        if self.was_released:
            return "pending" if self.last_error is None else "retrying"
        return "claimed" if self.lease_until > now else "expired"

    @classmethod
    def starting(cls, event_id: str, handler_id: str, session_id: str, now: float, lease_s: float) -> Self:
        return cls(event_id, handler_id, session_id, instant(now), instant(now + lease_s), available_at=instant(now))

    def take_over(self, session_id: str, now: float, lease_s: float) -> Self:
        return replace(
            self,
            session_id=session_id,
            claimed_at=instant(now),
            lease_until=instant(now + lease_s),
            available_at=instant(now),
        )

    def prolong(self, now: float, lease_s: float) -> Self:
        return replace(self, lease_until=instant(now + lease_s))

    def give_back(self, now: float) -> Self:
        """As if it had never been claimed, but for what failed before."""
        return replace(self, lease_until=instant(now), available_at=instant(now))

    def acknowledge(self, now: float, emitted: tuple[Mapping[str, Any], ...] = ()) -> Self:
        return replace(self, ack_at=instant(now), emitted=emitted)

    def fail(self, error: str, now: float, policy: RetryPolicy) -> Self:
        """One attempt more: to be tried again later, or given up."""
        attempts = self.attempts + 1
        if attempts >= policy.max_attempts:
            moment = instant(now)
            return replace(
                self,
                attempts=attempts,
                last_error=error,
                dead_lettered_at=moment,
                lease_until=moment,
                available_at=moment,
            )
        again = instant(now + policy.pause_s(attempts))
        return replace(self, attempts=attempts, last_error=error, lease_until=again, available_at=again)

    def left_behind(self, now: float, policy: RetryPolicy) -> Self:
        """Its holder died or hung: that is a failed attempt as well, or an event that kills would do so for ever."""
        reason = f"session {self.session_id} did not finish before its lease ran out at {self.lease_until}"
        return self.fail(reason, now, policy)

    def reset(self, now: float) -> Self:
        """Ready to be handled again from the first attempt on."""
        cleared = replace(self, ack_at=None, dead_lettered_at=None, attempts=0, last_error=None, emitted=())
        return cleared.give_back(now)

    @classmethod
    def read(cls, body: Any, where: str) -> Self:
        known = _members(cls, body, where, optional=("emitted", "other", "last_error", "dead_lettered_at", "ack_at"))
        own = {item.name for item in fields(cls)}
        known["emitted"] = tuple(known.get("emitted") or ())
        return cls(**known, other={key: value for key, value in body.items() if key not in own})

    def body(self) -> dict[str, Any]:
        found = _body(self)
        other = found.pop("other")
        if not found["emitted"]:
            del found["emitted"]
        return {**other, **found}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a handler is tried, and how long it waits in between."""

    max_attempts: int
    base_s: float
    max_s: float

    def pause_s(self, attempts: int) -> float:
        return min(self.base_s * 2.0 ** min(attempts - 1, 60), self.max_s)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a handler gave up on. Objects of 0.3 do not say what event it was; its own object does."""

    event_id: str
    handler_id: str
    namespace: str
    failed_at: str
    attempts: int
    last_error: str
    event_type: str = ""
    event_payload: Mapping[str, Any] = field(default_factory=dict)
    root_event_id: str = ""
    chain_depth: int = 0

    @classmethod
    def of(cls, event: StoredEvent, claim: Claim) -> Self:
        return cls(
            event.id,
            claim.handler_id,
            event.namespace,
            claim.dead_lettered_at or "",
            claim.attempts,
            claim.last_error or "",
            event.type,
            event.payload,
            event.root_event_id,
            event.chain_depth,
        )

    @classmethod
    def read(cls, body: Any, where: str) -> Self:
        return cls(
            **_members(cls, body, where, optional=("event_type", "event_payload", "root_event_id", "chain_depth"))
        )

    def body(self) -> dict[str, Any]:
        return _body(self)


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session that runs handlers, or did."""

    session_id: str
    namespace: str
    started_at: str
    last_heartbeat: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def is_alive(self, now: float, ttl_s: float) -> bool:
        return self.last_heartbeat >= instant(now - ttl_s)

    @classmethod
    def read(cls, body: Any, where: str) -> Self:
        known = _members(cls, body, where, optional=("metadata",))
        known["metadata"] = known.get("metadata") or {}
        return cls(**known)

    def body(self) -> dict[str, Any]:
        return _body(self)


def instant(seconds: float) -> str:
    """Seconds since the epoch as text: always with microseconds, so that texts compare as times do."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def check_namespace(namespace: Any) -> str:
    """A namespace is part of a path: one name, without slashes."""
    if (
        not isinstance(namespace, str)
        or not namespace.strip()
        or not namespace.isprintable()
        or namespace in (".", "..")
        or set(namespace) & set("/\\")
        or len(namespace) > 100
    ):
        raise ValidationError(
            f"{namespace!r} cannot be a namespace: it is one name of up to 100 printable letters, without slashes"
        )
    return namespace


def _body(record: Any) -> dict[str, Any]:
    return {item.name: getattr(record, item.name) for item in fields(record)}


def _members(cls: Any, body: Any, where: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The members of a record, by name; texts, numbers and objects are what they should be."""
    if not isinstance(body, dict):
        raise StorageBackendError(f"{where}: this is not a {cls.__name__}, but {str(body)[:100]!r}")
    found = {}
    for item in fields(cls):
        if item.name not in body:
            if item.name in optional:
                continue
            raise StorageBackendError(f"{where}: {item.name} is missing, so this is not a {cls.__name__}")
        value = body[item.name]
        kind = str(item.type)
        wrong = (
            (kind == "str" and not isinstance(value, str))
            or (kind == "int" and (isinstance(value, bool) or not isinstance(value, int)))
            or (kind.startswith("Mapping") and not isinstance(value, dict) and item.name not in optional)
        )
        if wrong:
            raise StorageBackendError(f"{where}: {item.name} of a {cls.__name__} is {kind}, not {value!r}")
        found[item.name] = value
    return found
