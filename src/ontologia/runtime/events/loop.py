"""The run loop: look for events, claim some, handle them one by one, and look after everything else in between."""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ontologia.errors import HandlerError, LockContentionError, OntologiaError, StorageBackendError
from ontologia.objects import Thread, is_transient, new_uuid, system
from ontologia.runtime.events.feeds import CommitFeed
from ontologia.runtime.events.handlers import Handler, HandlerContext, collect_handlers
from ontologia.runtime.events.records import SessionRecord, instant
from ontologia.runtime.events.schedules import Schedule, Timetable
from ontologia.runtime.events.store import EventStore, Held
from ontologia.runtime.events.wakeup import Wakeup

if TYPE_CHECKING:
    from ontologia.runtime.session import Session

_log = logging.getLogger(__name__)
HOUSEKEEPING_S = 3600.0


class EventLoop:
    """One session at work. `run` is its life; `stop` may be called from anywhere."""

    def __init__(
        self,
        session: Session,
        store: EventStore,
        handlers: Sequence[Callable[..., Any]],
        schedules: Sequence[Schedule] | None = (),
        feeds: Sequence[CommitFeed] | None = (),
        *,
        wait: Callable[[float], None] | None = None,
        keep_alive: bool = True,
    ) -> None:
        self._session = session
        self._store = store
        self._handlers = collect_handlers(handlers)
        self._subscriptions = [handler.subscription for handler in self._handlers.values()]
        self._timetable = Timetable(list(schedules or ()), store)
        self._feeds = _check_feeds(feeds or ())
        if not (self._handlers or schedules or feeds):
            raise HandlerError("run() has nothing to do: give it handlers, schedules or feeds")
        self._config = store.config
        self._wakeup = Wakeup()
        self._wait = wait or self._wakeup.wait
        self._keep_alive = keep_alive
        self._lock = system().lock()  # of `_waiting`, which the keeper renews
        self._waiting: deque[Held] = deque()
        self._record = _new_record(session, store)
        self._next_beat = 0.0
        self._next_housekeeping = 0.0
        self._trouble_s = 0.0

    def stop(self) -> None:
        """End `run` after the event that is being handled."""
        self._wakeup.stop()

    def run(self, max_iterations: int | None = None) -> int:
        """Work until stopped, or for so many rounds; how many events were handled."""
        handled, rounds = 0, 0
        with self._wakeup.on_signals(), self._register():
            while not self._wakeup.stopping and (max_iterations is None or rounds < max_iterations):
                count = self._round()
                handled += count
                rounds += 1
                if not count and rounds != max_iterations:
                    self._wait(self._pause_s())
        return handled

    @contextmanager
    def _register(self) -> Iterator[None]:
        """Known to the store as a living session; nothing stays claimed afterwards."""
        keeper = _Keeper(self)
        self._beat()
        self._store.subscribe(self._subscriptions)
        try:
            if self._keep_alive:
                keeper.start()
            yield
        finally:
            keeper.stop()
            self._wakeup.close()
            self._leave()

    def _leave(self) -> None:
        try:
            self._store.release(self._take_back())
            self._store.flush()
            self._store.leave(self._record.session_id)
        except OntologiaError as problem:  # leases end by themselves
            _log.warning("session %s could not say goodbye: %s", self._record.session_id, problem)

    # --- one round ---

    def _round(self) -> int:
        """Everything there is to do now; how many events were handled. A store that is busy is asked again later."""
        try:
            self._duties()
            handled = self._handle_waiting()
            self._trouble_s = 0.0
            return handled
        except (LockContentionError, StorageBackendError) as problem:
            if not isinstance(problem, LockContentionError) and not is_transient(problem):
                raise
            poll = self._config.event_poll_interval_ms / 1000
            self._trouble_s = min(max(self._trouble_s * 2, poll), self._config.event_backoff_max_ms / 1000)
            _log.warning("the events cannot be reached, trying again in %.1f s: %s", self._trouble_s, problem)
            return 0

    def _pause_s(self) -> float:
        if self._trouble_s:
            return self._trouble_s
        poll, due = self._config.event_poll_interval_ms / 1000, self._timetable.seconds_to_next()
        return poll if due is None else min(poll, due)

    def _duties(self) -> None:
        """What is due besides handling: feeds and schedules, the relay, and now and then the cleaning."""
        for feed in self._feeds:
            feed.send_new(self._store)
        self._timetable.send_due()
        now = self._store.clock.steady()
        if now >= self._next_beat:
            self._next_beat = now + self._config.session_heartbeat_interval_ms / 1000
            session = self._session
            self._store.relay(session.repository.get_head_commit_id, lambda since: session.engine.commits(since=since))
            if not self._keep_alive:
                self._beat()
        if now >= self._next_housekeeping:
            if self._next_housekeeping:
                self._store.subscribe(self._subscriptions)
            self._next_housekeeping = now + HOUSEKEEPING_S
            self._store.cleanup(apply=True)

    def _handle_waiting(self) -> int:
        handled = 0
        most = self._config.max_events_per_iteration
        while handled < most and not self._wakeup.stopping:
            held = self._next(most - handled)
            if held is None:
                break
            self._handle(held)
            handled += 1
        return handled

    def _next(self, most: int) -> Held | None:
        """The next event, from what is claimed already, or from what can be."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
        if not self._subscriptions:
            return None
        limit = min(self._config.event_claim_limit, most)
        claimed = self._store.claim(self._subscriptions, self._record.session_id, limit)
        with self._lock:
            self._waiting.extend(claimed)
            return self._waiting.popleft() if self._waiting else None

    def _take_back(self) -> list[Held]:
        with self._lock:
            held = list(self._waiting)
            self._waiting.clear()
        return held

    # --- one event ---

    def _handle(self, held: Held) -> None:
        """Run a handler outside any lock or transaction, and settle its claim by what came of it."""
        handler = self._handlers[held.subscription.handler_id]
        try:
            context = self._call(handler, held)
        except Exception as problem:
            self._session.discard()
            self._fail(held, handler, problem)
        except BaseException:  # a second Ctrl-C: not the handler's fault
            self._session.discard()
            self._store.release([held])
            raise
        else:
            self._session.discard()
            if not self._store.acknowledge(held, context.emitted()):
                self._tell_lost(held)

    def _call(self, handler: Handler, held: Held) -> HandlerContext[Any]:
        event = handler.event_class.from_record(held.event)
        context = HandlerContext(self._session, self._store, held, event)
        with self._session.guard(lambda: self._store.guard(held), handler.cause(held.event)):
            handler.function(context)
        return context

    def _fail(self, held: Held, handler: Handler, problem: Exception) -> None:
        error = str(problem) or type(problem).__name__
        claim = self._store.fail(held, error)
        if claim is None:
            self._tell_lost(held)
            return
        what = f"{handler.id} failed for {held.event.type} {held.event.id}, attempt {claim.attempts}"
        if claim.dead_lettered_at is not None:
            _log.error("%s, and gives up: %s", what, error, exc_info=problem)
        else:
            _log.warning("%s, tried again from %s: %s", what, claim.available_at, error, exc_info=problem)

    def _tell_lost(self, held: Held) -> None:
        _log.warning(
            "%s took longer for %s %s than its lease, and another session has taken it over: what it emitted is "
            "dropped. Raise event_claim_lease_ms, or do less in one handler",
            held.subscription.handler_id,
            held.event.type,
            held.event.id,
        )

    # --- staying alive ---

    def _beat(self) -> None:
        self._record = replace(self._record, last_heartbeat=instant(self._store.clock.wall()))
        self._store.heartbeat(self._record)

    def keep(self) -> None:
        """Say that we live, and renew the leases of what waits behind a slow handler. Called by the keeper."""
        self._beat()
        with self._lock:
            old = [item for item in self._waiting if self._is_ageing(item)]
            if old:
                renewed = {item.order: item for item in self._store.renew(old)}
                gone = {item.order for item in old} - renewed.keys()
                self._waiting = deque(renewed.get(i.order, i) for i in self._waiting if i.order not in gone)

    def _is_ageing(self, held: Held) -> bool:
        return held.steady_until - self._store.clock.steady() < self._store.lease_s * 2 / 3


class _Keeper:
    """A thread that keeps a session and its claims alive while handlers take their time."""

    def __init__(self, loop: EventLoop) -> None:
        config = loop._config
        self._loop = loop
        self._interval_s = min(config.session_heartbeat_interval_ms, config.event_claim_lease_ms / 3) / 1000
        self._end = system().event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = system().start(self._keep, "event keeper")

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        while not self._end.wait(self._interval_s):
            try:
                self._loop.keep()
            except OntologiaError as problem:
                _log.warning("the session could not say that it lives: %s", problem)


def _check_feeds(feeds: Sequence[CommitFeed]) -> list[CommitFeed]:
    for feed in feeds:
        if not isinstance(feed, CommitFeed):
            raise TypeError(f"feeds are CommitFeed(name, store), not {feed!r}")
    if len({feed.name for feed in feeds}) < len(feeds):
        raise HandlerError("two feeds have one name, and would share their place in the log")
    return list(feeds)


def _new_record(session: Session, store: EventStore) -> SessionRecord:
    metadata: dict[str, Any] = {
        **session.instance_metadata,
        "hostname": socket.gethostname(),
        "namespace": store.namespace,
        "pid": os.getpid(),
    }
    now = instant(store.clock.wall())
    return SessionRecord(str(new_uuid()), store.namespace, now, now, metadata)
