"""What a place for events must do. One class per kind of storage; the loop, sessions and the console know only this.

The promises, whatever the storage:

- An event of a visible commit is in the queue, now or after `relay`. It is never lost; it may be handled twice.
- A claim is a lease of one handler on one event. Of all sessions that want it, one has it.
- Whoever lost a claim cannot acknowledge it, fail it, or send what its handler emitted.
- The cost of a claim does not depend on how many events wait, or were handled before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ontologia.config import OntologiaConfig
from ontologia.errors import LeaseExpiredError
from ontologia.objects import SYSTEM_CLOCK, Clock
from ontologia.runtime.events.records import (
    Claim,
    DeadLetter,
    RetryPolicy,
    SessionRecord,
    StoredEvent,
    check_namespace,
    seconds_of,
)

if TYPE_CHECKING:
    from ontologia.engines.catalog import Commit


@dataclass(frozen=True, slots=True)
class Subscription:
    """A handler that wants the events of one type. `priority` orders the handlers of one event."""

    handler_id: str
    type: str
    priority: int = 100


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that is ours, its event, and what the store knows it by."""

    subscription: Subscription
    event: StoredEvent
    claim: Claim
    steady_until: float
    version: Any = None
    is_shared: bool = False
    """Whether it was found in a queue that several handlers look at."""

    @property
    def order(self) -> tuple[Any, ...]:
        return *self.event.order, -self.subscription.priority, self.subscription.handler_id


@dataclass(frozen=True, slots=True)
class EventStatus:
    """An event and how one handler is doing with it; `claim` is None where none has begun."""

    event: StoredEvent
    claim: Claim | None
    status: str


@dataclass(frozen=True, slots=True)
class RemovedEvents:
    """What a cleanup removed, or would remove."""

    events: list[str]
    sessions: list[str]
    applied: bool


class EventStore(ABC):
    """The events of one namespace."""

    branch: str | None = None
    """The branch of a graph whose commits this store relays; None where there are none."""

    def __init__(self, namespace: str, config: OntologiaConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self.namespace = check_namespace(namespace)
        self.config = config
        self.clock = clock
        self.lease_s = config.event_claim_lease_ms / 1000
        self.policy = RetryPolicy(
            config.event_max_attempts, config.event_backoff_base_ms / 1000, config.event_backoff_max_ms / 1000
        )

    # --- with a commit, in this order ---

    def announce(self, events: Sequence[StoredEvent], head: Callable[[], int]) -> dict[str, str]:
        """Before a commit: what must be in its metadata, so that its events are not lost."""
        return {}

    def enqueue_within(self, events: Sequence[StoredEvent]) -> None:  # noqa: B027
        """Inside the commit's transaction, where the storage has one."""

    def enqueue_after(self, events: Sequence[StoredEvent]) -> None:  # noqa: B027
        """After the commit point, where the storage has no transaction."""

    def relay(self, head: Callable[[], int], commits: Callable[[int], Sequence[Commit]]) -> int:
        """Put into the queue what commits announced and their writers did not get to; how many."""
        return 0

    # --- without one ---

    @abstractmethod
    def enqueue(self, events: Sequence[StoredEvent]) -> None:
        """Put events into the queue. One that is there already stays as it is."""

    @abstractmethod
    def mark(self, name: str) -> Mapping[str, Any] | None:
        """How far a schedule or a feed has come."""

    @abstractmethod
    def advance(
        self, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], events: Sequence[StoredEvent]
    ) -> bool:
        """Move a mark and enqueue what lies between; False, and nothing more, if somebody else has moved it."""

    # --- sessions ---

    @abstractmethod
    def heartbeat(self, session: SessionRecord) -> None:
        """Write down that a session lives."""

    @abstractmethod
    def leave(self, session_id: str) -> None:
        """Forget a session."""

    # --- handling ---

    @abstractmethod
    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Make handlers known, and say that they still are. A new one gets every kept event of its type."""

    @abstractmethod
    def claim(self, subscriptions: Sequence[Subscription], session_id: str, limit: int) -> list[Held]:
        """Up to `limit` events for these handlers, by priority, then by age."""

    @abstractmethod
    def renew(self, held: Sequence[Held]) -> list[Held]:
        """Start the leases anew; those that are still ours."""

    @abstractmethod
    def acknowledge(self, held: Held, emitted: Sequence[StoredEvent]) -> bool:
        """The handler succeeded: what it emitted leaves with this. False if the claim is no longer ours."""

    @abstractmethod
    def fail(self, held: Held, error: str) -> Claim | None:
        """The handler failed: to be tried again, or a dead letter. None if the claim is no longer ours."""

    @abstractmethod
    def release(self, held: Sequence[Held]) -> None:
        """Give claims back that were not tried."""

    @abstractmethod
    def is_ours(self, held: Held) -> bool:
        """Whether a claim is still ours, by the store's own word."""

    def guard(self, held: Held) -> None:
        """Raise `LeaseExpiredError` unless a claim is ours, by the store's word and by both clocks."""
        left = min(seconds_of(held.claim.lease_until) - self.clock.wall(), held.steady_until - self.clock.steady())
        if left <= 0 or not self.is_ours(held):
            raise LeaseExpiredError(
                f"the lease of {held.claim.handler_id} on event {held.event.id} ran out at {held.claim.lease_until}, "
                "and another session may be handling it: nothing was committed. Do less in one handler, or raise "
                "OntologiaConfig.event_claim_lease_ms"
            )

    def flush(self) -> None:  # noqa: B027
        """Do now what was put off to be done for several events at once."""

    # --- questions ---

    @abstractmethod
    def namespaces(self) -> list[str]: ...

    @abstractmethod
    def sessions(self) -> list[SessionRecord]: ...

    @abstractmethod
    def events(self, *, type: str | None = None, status: str | None = None, limit: int = 100) -> list[EventStatus]:
        """Events newest first, one line per handler that has dealt with them."""

    @abstractmethod
    def dead_letters(self, *, handler_id: str | None = None, limit: int | None = 100) -> list[DeadLetter]:
        """Newest first."""

    @abstractmethod
    def event(self, event_id: str) -> StoredEvent | None: ...

    @abstractmethod
    def claims(self, event_id: str) -> list[Claim]: ...

    @abstractmethod
    def chain(self, root_event_id: str) -> list[StoredEvent]:
        """An event and all that descend from it, oldest first."""

    # --- care ---

    @abstractmethod
    def cleanup(self, older_than_s: float | None = None, *, apply: bool = False, limit: int = 1000) -> RemovedEvents:
        """Remove events that were handled long ago, and sessions that are gone. Nothing that somebody waits for."""

    @abstractmethod
    def replay(self, event_id: str, handler_id: str | None = None) -> list[Claim]:
        """Make a finished event ready again, for one handler or for all that finished it; the claims reset."""

    # --- what stores share ---

    def hold(
        self,
        subscription: Subscription,
        event: StoredEvent,
        claim: Claim,
        version: Any = None,
        *,
        is_shared: bool = False,
    ) -> Held:
        return Held(subscription, event, claim, self.clock.steady() + self.lease_s, version, is_shared)

    def next_claim(self, found: Claim | None, event_id: str, handler_id: str, session_id: str) -> Claim:
        """The claim a session may put in the place of what it found, or a dead letter if it was left once too often."""
        now = self.clock.wall()
        if found is None:
            return Claim.starting(event_id, handler_id, session_id, now, self.lease_s)
        if not found.was_released:
            found = found.left_behind(now, self.policy)
            if found.finished:
                return found
        return found.take_over(session_id, now, self.lease_s)

    def prolong(self, held: Held) -> Held:
        claim = held.claim.prolong(self.clock.wall(), self.lease_s)
        return replace(held, claim=claim, steady_until=self.clock.steady() + self.lease_s)
