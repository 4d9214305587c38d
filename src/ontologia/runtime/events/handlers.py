"""`@on_event` and what a handler is given: the event, a session, and a lease."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ontologia.errors import EventLoopLimitError, HandlerError
from ontologia.model import Declared
from ontologia.runtime.events.records import StoredEvent
from ontologia.runtime.events.store import EventStore, Held, Subscription
from ontologia.runtime.events.types import Event

if TYPE_CHECKING:
    from ontologia.runtime.session import Session

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and the events it wants."""

    function: Callable[[HandlerContext[Any]], object]
    event_class: type[Event]
    priority: int

    @property
    def id(self) -> str:
        """The name it is known by in the store: the module and the name of the function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def cause(self, event: StoredEvent) -> dict[str, str]:
        """What a commit that it makes for an event says of that."""
        return {"event_id": event.id, "event_type": event.type, "handler_id": self.id}

    @property
    def subscription(self) -> Subscription:
        return Subscription(self.id, self.event_class.__event_type_name__, self.priority)


def on_event(event_class: type[Event], *, priority: int = 100) -> Callable[[F], F]:
    """Make a function a handler of one event class. It takes one `HandlerContext`.

    >>> @on_event(StockLow)                      # doctest: +SKIP
    ... def reorder(ctx):
    ...     ctx.ensure(Order(number=f"re-{ctx.event.sku}", sku=ctx.event.sku))
    ...     ctx.commit()

    Of several handlers of one event, the one with the higher `priority` runs first. A handler is known in the store
    by its module and name: renamed, it is a new one, and gets the events that are kept.
    """
    if not isinstance(event_class, type) or not issubclass(event_class, Event) or event_class is Event:
        raise HandlerError(f"@on_event takes a class derived from Event, not {event_class!r}")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise HandlerError(f"@on_event: a priority is a whole number, not {priority!r}")

    def register(function: F) -> F:
        name = getattr(function, "__qualname__", repr(function))
        if hasattr(function, "__on_event__"):
            raise HandlerError(f"{name} is a handler already: write another function for another event")
        if inspect.iscoroutinefunction(function):
            raise HandlerError(f"{name} is a coroutine; handlers are plain functions, each has a thread to itself")
        try:
            inspect.signature(function).bind(object())
        except TypeError as problem:
            raise HandlerError(f"{name} must take one argument, the HandlerContext ({problem})") from None
        function.__on_event__ = Handler(function, event_class, priority)  # type: ignore[attr-defined]
        return function

    return register


def collect_handlers(functions: Iterable[Callable[..., Any]]) -> dict[str, Handler]:
    """The handlers of these functions by id."""
    if not isinstance(functions, (list, tuple, set, frozenset)):
        raise HandlerError(f"run() takes a list of handlers, not {functions!r}")
    found: dict[str, Handler] = {}
    for function in functions:
        handler = getattr(function, "__on_event__", None)
        if not isinstance(handler, Handler):
            raise HandlerError(f"{function!r} is not a handler: decorate it with @on_event(SomeEvent)")
        if handler.id in found:
            raise HandlerError(
                f"two handlers are called {handler.id}, and the store would take them for one: rename one of them"
            )
        found[handler.id] = handler
    return found


E = TypeVar("E", bound=Event)


class HandlerContext(Generic[E]):
    """What a handler works with. Only `commit()` persists; what was emitted leaves when the handler returns.

    `HandlerContext[StockLow]` is the annotation of a handler of `StockLow`.
    """

    event: E

    def __init__(self, session: Session, store: EventStore, held: Held, event: E) -> None:
        self.event = event
        self.session = session
        self._store = store
        self._held = held
        self._emitted: list[StoredEvent] = []

    @property
    def lease_until(self) -> datetime:
        """Until when this event is ours. After that, `commit()` refuses, and another session may take it over."""
        return datetime.fromisoformat(self._held.claim.lease_until).astimezone(UTC)

    def ensure(self, objects: Declared | Iterable[Declared], *, if_unchanged: bool = False) -> None:
        """Declare state, as `Session.ensure` does."""
        self.session.ensure(objects, if_unchanged=if_unchanged)

    def add_commit_meta(self, key: str, value: str) -> None:
        """Put a note on the next commit."""
        self.session.add_commit_meta(key, value)

    def emit(self, event: Event) -> None:
        """Let an event follow from this one. It leaves when the handler has succeeded, and not otherwise."""
        self._emitted.append(self._follow(event).to_record(self._store.namespace))

    def _follow(self, event: Event) -> Event:
        """An event as the next one of this chain."""
        if not isinstance(event, Event):
            raise TypeError(f"emit() and commit() take an event, not {event!r}")
        limit = self._store.config.max_event_chain_depth
        parent = self._held.event
        if parent.chain_depth + 1 > limit:
            raise EventLoopLimitError(
                f"{event.__event_type_name__} would be event {parent.chain_depth + 1} of the chain that began with "
                f"{parent.root_event_id}, and max_event_chain_depth is {limit}: do handlers cause each other's events?"
            )
        event.descend_from(parent)
        return event

    def commit(self, event: Event | None = None) -> int | None:
        """Write what was ensured, as one commit, if the event is still ours. Returns its id, or None.

        An `event` follows from the one that is handled, and goes into the queue with the commit, also where nothing
        differs. A handler that fails afterwards is run again, and sends it again: `emit` waits until it has succeeded.
        """
        return self.session.commit(event=None if event is None else self._follow(event))

    def emitted(self) -> Sequence[StoredEvent]:
        """What is to be sent."""
        return self._emitted

    def __repr__(self) -> str:
        return f"HandlerContext({self.event!r}, lease_until={self.lease_until.isoformat()})"
