"""Events on object storage: no transactions, only conditional puts, so every step can be done again by another.

**Queueing** puts the marker, then the event: where an event is, its marker was. A commit carries its events in its
metadata, so that the relay can queue what its writer did not get to.

**A claim** is created, or replaced in exactly the version that was read. The acknowledgement is such a replacement, and
carries what the handler emitted; a handler that lost its claim cannot send anything.

**Finishing** follows the acknowledgement: queue what was emitted, write the dead letter, hand the marker on to handlers
that are behind, remove it. It comes last, so whoever finds a marker whose claim is finished finishes the rest.
"""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import Commit
from ontologia.errors import StorageBackendError
from ontologia.objects import SYSTEM_CLOCK, Clock, Committed, Objects, Rejected, prove_conditions, system
from ontologia.runtime.events import object_paths as paths
from ontologia.runtime.events.object_events import AT_ONCE, REMEMBERED, ObjectEvents, as_bytes, as_text, is_malformed
from ontologia.runtime.events.object_paths import Marker
from ontologia.runtime.events.records import Claim, DeadLetter, SessionRecord, StoredEvent, instant, seconds_of
from ontologia.runtime.events.store import Held, RemovedEvents, Subscription
from ontologia.runtime.events.types import dead_letter_notice

_log = logging.getLogger(__name__)
OUTBOX = "ontologia.events"  # the key in a commit's metadata
RELAY = "relay"
BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A marker, and the handler it is looked at for."""

    marker: Marker
    subscription: Subscription
    is_shared: bool

    @property
    def order(self) -> tuple[Any, ...]:
        subscription = self.subscription
        return self.marker.name, -subscription.priority, subscription.handler_id


class ObjectEventStore(ObjectEvents):
    """The events of a namespace under the prefix of an `Objects`; it needs nothing else of the storage."""

    def __init__(self, objects: Objects, namespace: str, config: OntologiaConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(objects, namespace, config, clock)
        self._not_before: dict[tuple[str, str], float] = {}
        self._finished: dict[tuple[str, str], None] = {}
        self._spent: list[tuple[StoredEvent, str, bool]] = []
        self._is_relayed = False
        self._relayed_until: int | None = None

    # --- queueing ---

    def announce(self, events: Sequence[StoredEvent], head: Callable[[], int]) -> dict[str, str]:
        """The events go into the metadata. From the head before the first such commit on, the relay looks for them."""
        if not self._is_relayed:
            self._put_if_absent(self._relay_mark(), {"commit_id": head()})
            self._is_relayed = True
        return {OUTBOX: as_text([event.body() for event in events])}

    def enqueue_after(self, events: Sequence[StoredEvent]) -> None:
        self.enqueue(events)

    def enqueue(self, events: Sequence[StoredEvent]) -> None:
        prove_conditions(self.objects)
        self._put_empty(paths.type_queue(event.namespace, event.type) + Marker.of(event).name for event in events)
        self.objects.map(lambda event: self._put_if_absent(paths.event(event), event.body()), events)

    def relay(self, head: Callable[[], int], commits: Callable[[int], Sequence[Commit]]) -> int:
        """Queue the events of commits whose writers died between the commit and the queue (RFC 0009 §10)."""
        now = head()
        if now == self._relayed_until:
            return 0
        key = self._relay_mark()
        found = self._read(key)
        missing: list[StoredEvent] = []
        if found is not None and now > (done := int(found[0]["commit_id"])):
            missing = self._not_queued(self._announce(commits(done)))
            self.enqueue(missing)
            self._replace(key, {"commit_id": now}, found[1])
        self._relayed_until = now  # where there is no mark, nobody has committed with an event yet
        return len(missing)

    def _relay_mark(self) -> str:
        """Commits are counted branch by branch, so how far the relay has come is noted for each."""
        return paths.mark(self.namespace, RELAY if self.branch is None else f"{RELAY}.{self.branch}")

    def _announce(self, commits: Iterable[Commit]) -> list[StoredEvent]:
        found = []
        for commit in commits:
            where = f"the events of commit {commit.id}"
            try:
                bodies = json.loads(commit.metadata.get(OUTBOX) or "[]")
                events = [StoredEvent.read(body, where) for body in bodies]
            except (TypeError, ValueError, StorageBackendError) as problem:  # a note of a user's, by that name
                _log.warning("%s cannot be read, and are passed over: %s", where, problem)
                continue
            found += [event for event in events if event.namespace == self.namespace]
        return found

    def _not_queued(self, events: Sequence[StoredEvent]) -> list[StoredEvent]:
        if not events:
            return []
        first = min(event.created_at for event in events)
        there = {info.key for info in self.objects.tail(f"events/{self.namespace}", paths.events_before(first))}
        return [event for event in events if paths.event(event) not in there]

    def mark(self, name: str) -> Mapping[str, Any] | None:
        found = self._read(paths.mark(self.namespace, name))
        return None if found is None else {key: value for key, value in found[0].items() if key != "writer_id"}

    def advance(
        self, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], events: Sequence[StoredEvent]
    ) -> bool:
        """The events go first: done again after a crash, they are the same, and there already."""
        key = paths.mark(self.namespace, name)
        found = self._read(key)
        current = None if found is None else {key: value for key, value in found[0].items() if key != "writer_id"}
        if current != before:
            return False
        self.enqueue(events)
        return self._replace(key, after, None if found is None else found[1]) is not None

    # --- sessions ---

    def heartbeat(self, session: SessionRecord) -> None:
        self.objects.put(paths.session(self.namespace, session.session_id), as_bytes(session.body()))

    def leave(self, session_id: str) -> None:
        self.objects.delete(paths.session(self.namespace, session_id))

    # --- handlers ---

    def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Make handlers known to the others first, then look for what is there already.

        Whoever ends a claim after that finds the new handler and hands the event on to it. A handler that died before
        it had looked begins again.
        """
        prove_conditions(self.objects)
        now = self.clock.wall()
        for item in subscriptions:
            if not self._sign_up(item, now):
                self._queue_kept(item)
                key = paths.handler(self.namespace, item.type, item.handler_id)
                self.objects.put(key, as_bytes(_handler_body(item, now, caught_up=True)))

    def _sign_up(self, item: Subscription, now: float) -> bool:
        """Write down that a handler is known; whether it has caught up with what was there before it."""
        key = paths.handler(self.namespace, item.type, item.handler_id)
        found = self._read(key)
        caught_up = found is not None and found[0].get("caught_up") is True
        self.objects.put(key, as_bytes(_handler_body(item, now, caught_up=caught_up)))
        return caught_up

    def _queue_kept(self, item: Subscription) -> None:
        """Put markers for a new handler: every event of its type, but for those that nobody has begun with.

        Of a shared marker, whose event has a claim, nobody can say how long it stays: a worker may be about to remove
        it that asked for the known handlers before this one was among them.
        """
        waiting = paths.type_queue(self.namespace, item.type)
        queued = {info.key.removeprefix(waiting) for info in self.objects.list(waiting)}
        claims = f"claims/{self.namespace}/"
        begun = {info.key.removeprefix(claims).partition("/")[0] for info in self.objects.list(claims)}
        keys = [info.key for info in self.objects.list(f"events/{self.namespace}/")]
        own = paths.handler_queue(self.namespace, item.handler_id)
        for first in range(0, len(keys), 1000):
            events = self.objects.map(self._load_readable, keys[first : first + 1000])
            markers = [Marker.of(event) for event in events if event is not None and event.type == item.type]
            wanted = (marker for marker in markers if marker.event_id in begun or marker.name not in queued)
            self._put_empty(sorted(own + marker.name for marker in wanted))

    def _handlers(self) -> dict[str, list[str]]:
        """The known handlers by type, from the names of their objects: one request."""
        found: dict[str, list[str]] = {}
        for info in self.objects.list(f"event_handlers/{self.namespace}/"):
            *_, type, handler = info.key.removesuffix(".json").split("/")
            found.setdefault(paths.decode(type), []).append(paths.decode(handler))
        return found

    # --- claiming ---

    def claim(self, subscriptions: Sequence[Subscription], session_id: str, limit: int) -> list[Held]:
        self.flush()
        candidates = self._candidates(subscriptions)
        passed: list[Candidate] = []
        taken: list[Held] = []
        while len(taken) < limit:
            chunk = list(islice(candidates, min(AT_ONCE, limit - len(taken))))
            if not chunk and passed:
                candidates, passed = iter(passed), []
                continue
            if not chunk:
                break
            outcomes = self.objects.map(lambda item: self._try(item, session_id), chunk)
            taken += [held for held in outcomes if isinstance(held, Held)]
            if outcomes.count(BUSY) * 2 > len(chunk):
                # Others are at work here: go on elsewhere first, rather than behind them from event to event.
                passed += islice(candidates, system().random.randrange(AT_ONCE * 4))
        return sorted(taken, key=lambda held: held.order)

    def _candidates(self, subscriptions: Sequence[Subscription]) -> Iterator[Candidate]:
        """What waits for these handlers, by urgency, read page by page as far as it is asked for."""
        by_type: dict[str, list[Subscription]] = {}
        for item in subscriptions:
            by_type.setdefault(item.type, []).append(item)
        queues = [
            self._queue(paths.type_queue(self.namespace, type), wanted, is_shared=True)
            for type, wanted in by_type.items()
        ]
        queues += [
            self._queue(paths.handler_queue(self.namespace, item.handler_id), [item], is_shared=False)
            for item in subscriptions
        ]
        seen: set[tuple[str, str]] = set()
        for candidate in heapq.merge(*queues, key=lambda item: item.order):
            identity = (candidate.marker.event_id, candidate.subscription.handler_id)
            if identity not in seen and self._not_before.get(identity, 0.0) <= self.clock.wall():
                seen.add(identity)
                yield candidate

    def _queue(self, folder: str, wanted: Sequence[Subscription], *, is_shared: bool) -> Iterator[Candidate]:
        ordered = sorted(wanted, key=lambda item: (-item.priority, item.handler_id))
        for info in self.objects.list(folder):
            marker = Marker.parse(info.key.removeprefix(folder))
            if marker is not None:
                yield from (Candidate(marker, item, is_shared) for item in ordered)

    def _try(self, candidate: Candidate, session_id: str) -> Held | str | None:
        """Claim one event, or learn when to look at it again. One that is damaged does not hold up the others."""
        try:
            return self._claim(candidate, session_id)
        except StorageBackendError as problem:
            if not is_malformed(problem):
                raise
            _log.error("an event is passed over for an hour: %s", problem)
            self._wait(candidate.marker.event_id, candidate.subscription.handler_id, 3600)
            return None

    def _claim(self, candidate: Candidate, session_id: str) -> Held | str | None:
        item, marker = candidate.subscription, candidate.marker
        event = self._load(marker.event_key(self.namespace))
        if event is None:  # its writer has not come that far, or never will
            self._wait(marker.event_id, item.handler_id, self.config.session_heartbeat_interval_ms / 1000)
            return None
        if event.type != item.type:
            return None
        if (event.id, item.handler_id) in self._finished:
            self._spend(event, item.handler_id, is_shared=candidate.is_shared)
            return None
        claim = self.next_claim(None, event.id, item.handler_id, session_id)
        key = paths.claim(self.namespace, event.id, item.handler_id)
        outcome = self._conditional(key, claim.body(), None)
        if isinstance(outcome, Committed):
            return self.hold(item, event, claim, outcome.etag, is_shared=candidate.is_shared)
        return self._take_over(candidate, event, outcome, session_id)

    def _take_over(
        self, candidate: Candidate, event: StoredEvent, found: Rejected, session_id: str
    ) -> Held | str | None:
        item, is_shared = candidate.subscription, candidate.is_shared
        key = paths.claim(self.namespace, event.id, item.handler_id)
        if found.etag is None:
            return None
        old = Claim.read(found.winner, self.objects.url(key))
        if old.finished:
            if "writer_id" in old.other:
                self._finish(event, old, is_shared=is_shared)
            else:  # 0.3 finishes before it writes the claim
                self._spend(event, item.handler_id, is_shared=is_shared)
            return None
        free_at = max(seconds_of(old.lease_until), seconds_of(old.available_at))
        if free_at > self.clock.wall():
            self._wait(event.id, item.handler_id, free_at - self.clock.wall())
            return None if old.was_released else BUSY
        claim = self.next_claim(old, event.id, item.handler_id, session_id)
        etag = self._replace(key, claim.body(), found.etag)
        if etag is None:
            return BUSY
        if claim.finished:
            self._finish(event, claim, is_shared=is_shared)
            return None
        return self.hold(item, event, claim, etag, is_shared=is_shared)

    def _wait(self, event_id: str, handler_id: str, seconds: float) -> None:
        if len(self._not_before) > REMEMBERED:
            now = self.clock.wall()
            self._not_before = {key: until for key, until in self._not_before.items() if until > now}
        self._not_before[event_id, handler_id] = self.clock.wall() + seconds

    # --- what becomes of a claim ---

    def renew(self, held: Sequence[Held]) -> list[Held]:
        def one(item: Held) -> Held | None:
            again = self.prolong(item)
            etag = self._put_claim(item, again.claim)
            return None if etag is None else replace(again, version=etag)

        return [item for item in self.objects.map(one, held) if item is not None]

    def acknowledge(self, held: Held, emitted: Sequence[StoredEvent]) -> bool:
        bodies = tuple(event.body() for event in emitted)
        return self._settle(held, held.claim.acknowledge(self.clock.wall(), bodies))

    def fail(self, held: Held, error: str) -> Claim | None:
        claim = held.claim.fail(error, self.clock.wall(), self.policy)
        return claim if self._settle(held, claim) else None

    def release(self, held: Sequence[Held]) -> None:
        self.objects.map(lambda item: self._settle(item, item.claim.give_back(self.clock.wall())), held)

    def is_ours(self, held: Held) -> bool:
        found = self._read(paths.claim(self.namespace, held.event.id, held.claim.handler_id))
        return found is not None and found[1] == held.version

    def _settle(self, held: Held, claim: Claim) -> bool:
        if self._put_claim(held, claim) is None:
            return False
        if claim.finished:
            self._finish(held.event, claim, is_shared=held.is_shared)
        else:
            until = seconds_of(claim.available_at) - self.clock.wall()
            self._wait(held.event.id, claim.handler_id, max(until, 0.0))
        return True

    def _put_claim(self, held: Held, claim: Claim) -> str | None:
        key = paths.claim(self.namespace, held.event.id, claim.handler_id)
        return None if held.version is None else self._replace(key, claim.body(), held.version)

    def _finish(self, event: StoredEvent, claim: Claim, *, is_shared: bool) -> None:
        """What follows from a claim that ended. Done again by another, it does the same."""
        where = f"the claim of {claim.handler_id} on event {event.id}"
        follow = [StoredEvent.read(body, where) for body in claim.emitted]
        if claim.dead_lettered_at is not None:
            letter = DeadLetter.of(event, claim)
            self.objects.put(paths.dead_letter(self.namespace, event.id, claim.handler_id), as_bytes(letter.body()))
            notice = dead_letter_notice(event, claim)
            follow += [] if notice is None else [notice]
        if follow:
            self.enqueue(follow)
        self._spend(event, claim.handler_id, is_shared=is_shared)

    # --- markers of what is done ---

    def _spend(self, event: StoredEvent, handler_id: str, *, is_shared: bool) -> None:
        """Remember to remove a marker, together with others."""
        if len(self._finished) > REMEMBERED:
            self._finished = dict(islice(self._finished.items(), REMEMBERED // 2, None))
        self._finished[event.id, handler_id] = None
        self._spent.append((event, handler_id, is_shared))
        if len(self._spent) >= self.config.event_claim_limit:
            self.flush()

    def flush(self) -> None:
        """Remove the markers of what is done, after handing them on to other handlers of the type."""
        spent, self._spent = self._spent, []
        if not spent:
            return
        handlers = self._handlers()
        behind: list[str] = []
        done: set[str] = set()
        for event, handler_id, is_shared in spent:
            name = Marker.of(event).name
            done.add(paths.handler_queue(self.namespace, handler_id) + name)
            if not is_shared:  # whoever took it out of the shared queue has handed it on
                continue
            done.add(paths.type_queue(self.namespace, event.type) + name)
            behind += [
                paths.handler_queue(self.namespace, other) + name
                for other in handlers.get(event.type, ())
                if (event.id, other) not in self._finished
            ]
        self._put_empty(sorted(set(behind) - done))
        self.objects.delete_many(sorted(done))

    # --- care ---

    def cleanup(self, older_than_s: float | None = None, *, apply: bool = False, limit: int = 1000) -> RemovedEvents:
        self.flush()
        now = self.clock.wall()
        age = self.config.event_retention_ms / 1000 if older_than_s is None else older_than_s
        before = instant(now - age)
        handlers = self._forget_handlers(before, apply=apply)
        old: list[str] = []
        for info in self.objects.list(f"events/{self.namespace}/"):
            if paths.created_text(info.key) >= paths.events_before(before) or len(old) == limit:
                break
            old.append(info.key)
        judged = self.objects.map(lambda key: self._removable(key, before, handlers), old)
        gone = [item for item in judged if item is not None]
        silent = instant(now - max(age, self.config.session_ttl_ms / 1000))
        sessions = [item.session_id for item in self.sessions() if item.last_heartbeat < silent]
        if apply:
            self.objects.delete_many([key for _, keys in gone for key in keys])
            self.objects.delete_many([paths.session(self.namespace, id) for id in sessions])
        return RemovedEvents([event.id for event, _ in gone], sessions, apply)

    def _removable(
        self, key: str, before: str, handlers: Mapping[str, Sequence[str]]
    ) -> tuple[StoredEvent, list[str]] | None:
        """An old event and all that belongs to it, unless a handler waits for it or was done with it only lately."""
        try:
            event = self._load(key)
            claims = [] if event is None else self.claims(event.id)
        except StorageBackendError as problem:
            if not is_malformed(problem):
                raise
            return None  # damaged: for a person to look at
        if event is None:
            return None
        if any((claim.ack_at or claim.dead_lettered_at or "9") >= before for claim in claims):
            return None
        if not set(handlers.get(event.type, ())) <= {claim.handler_id for claim in claims}:
            return None
        name = Marker.of(event).name
        keys = [paths.type_queue(self.namespace, event.type) + name]
        for claim in claims:
            keys.append(paths.handler_queue(self.namespace, claim.handler_id) + name)
            keys.append(paths.dead_letter(self.namespace, event.id, claim.handler_id))
            keys.append(paths.claim(self.namespace, event.id, claim.handler_id))
        return event, [*keys, key]

    def _forget_handlers(self, before: str, *, apply: bool) -> dict[str, list[str]]:
        """The known handlers without those that nobody has run for so long; they no longer wait for anything."""
        known: dict[str, list[str]] = {}
        for body, key in self._bodies(f"event_handlers/{self.namespace}/"):
            if body["last_seen"] >= before:
                known.setdefault(body["type"], []).append(body["handler_id"])
            elif apply:
                waiting = paths.handler_queue(self.namespace, body["handler_id"])
                self.objects.delete_many([key, *(info.key for info in self.objects.list(waiting))])
        return known

    def _bodies(self, folder: str) -> list[tuple[dict[str, Any], str]]:
        keys = [info.key for info in self.objects.list(folder)]
        found = zip(self.objects.map(self._read, keys), keys, strict=True)
        return [(item[0], key) for item, key in found if item is not None]

    def replay(self, event_id: str, handler_id: str | None = None) -> list[Claim]:
        event = self.event(event_id)
        again = []
        for old in self.claims(event_id) if event is not None else ():
            if event is None or not old.finished or handler_id not in (None, old.handler_id):
                continue
            key = paths.claim(self.namespace, event_id, old.handler_id)
            found = self._read(key)
            claim = old.reset(self.clock.wall())
            if found is None or self._replace(key, claim.body(), found[1]) is None:
                continue
            self.objects.delete(paths.dead_letter(self.namespace, event_id, old.handler_id))
            self._put_empty([paths.handler_queue(self.namespace, old.handler_id) + Marker.of(event).name])
            self._finished.pop((event_id, old.handler_id), None)
            again.append(claim)
        return again


def _handler_body(item: Subscription, now: float, *, caught_up: bool) -> dict[str, Any]:
    return {"handler_id": item.handler_id, "type": item.type, "last_seen": instant(now), "caught_up": caught_up}
