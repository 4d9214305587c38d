"""`Event`: something that happened, declared as a class, and the envelope that every one travels in."""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Self

from ontologia.model import Declared, Field, TypeRef, instant_text
from ontologia.model.declarations import compile_now, declare, defining_names
from ontologia.model.values import plain
from ontologia.objects import new_uuid, utc_now
from ontologia.runtime.events.records import Claim, StoredEvent

DEFAULT_PRIORITY = 100
LARGEST_PRIORITY = 10**9
ENVELOPE = ("id", "created_at", "priority", "root_event_id", "chain_depth")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of an event besides its payload. `root_event_id` is the first event of its chain."""

    id: str
    created_at: datetime
    priority: int
    root_event_id: str
    chain_depth: int


def type_name(class_name: str) -> str:
    """A class name in dotted lower case: `UserCreated` is `user.created`, `HTTPServerDown` is `http.server.down`."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", ".", class_name)
    return re.sub(r"[._]+", ".", parts).strip(".").lower()


def _check_name(cls: type, name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise TypeError(
            f"{cls.__name__ or 'an event class'}: {name!r} cannot be the name of an event; "
            "set __event_type_name__ to one such as 'user.created'"
        )
    return name


def _check_priority(cls: type, priority: Any) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > LARGEST_PRIORITY:
        raise ValueError(f"{cls.__name__}: a priority is a whole number up to {LARGEST_PRIORITY:,}, not {priority!r}")
    return priority


class Event(Declared):
    """Something that happened. Subclass it and declare what it says; construction validates.

    >>> class StockChanged(Event):
    ...     sku: Field[str]
    ...     left: Field[int]
    >>> StockChanged.__event_type_name__
    'stock.changed'
    >>> StockChanged(sku="tea", left=3, priority=500)
    StockChanged(sku='tea', left=3)

    It is stored under a name derived from the class, or set by `__event_type_name__`. Of two events the one with the
    higher `priority` is handled first, then the older one. Events with equal payloads are equal.
    """

    __slots__ = ("__envelope__",)

    __event_type_name__: ClassVar[str]
    __event_type__: ClassVar[str]  #: the same
    __priority__: ClassVar[int] = DEFAULT_PRIORITY

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = cls.__dict__.get("__event_type_name__", None)
        cls.__event_type_name__ = _check_name(cls, type_name(cls.__name__) if name is None else name)
        cls.__event_type__ = cls.__event_type_name__
        own = inspect.get_annotations(cls)
        if isinstance(cls.__dict__.get("priority"), int):
            cls.__priority__ = _check_priority(cls, cls.__dict__["priority"])
            cls.__annotations__ = {name: annotation for name, annotation in own.items() if name != "priority"}
            del cls.priority  # the property is that of every event
        for field in ENVELOPE:
            if field in inspect.get_annotations(cls):
                raise TypeError(f"{cls.__name__}.{field}: every event has {field!r} already; choose another field name")
        declaration = declare(cls, TypeRef("entity", cls.__event_type_name__), defining_names())
        for field, options in declaration.options.items():
            if options.primary_key or options.instance_key:
                raise TypeError(f"{cls.__name__}.{field}: an event has an id of its own, and no keys")
        compile_now(declaration)

    def __init__(self, /, **values: Any) -> None:
        if type(self) is Event:
            raise TypeError("Event is there to be subclassed: class Synced(Event): source: Field[str]")
        priority = _check_priority(type(self), values.pop("priority", self.__priority__))
        super().__init__(**values)
        id = str(new_uuid())
        self._seal(Envelope(id, utc_now(), priority, id, 0))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "priority":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _seal(self, envelope: Envelope) -> None:
        object.__setattr__(self, "__envelope__", envelope)

    @property
    def envelope(self) -> Envelope:
        return self.__envelope__  # type: ignore[attr-defined, no-any-return]

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def created_at(self) -> datetime:
        return self.envelope.created_at

    @property
    def priority(self) -> int:
        """Higher is handled sooner; 100 unless the class (`priority: int = 50`) or the event says otherwise."""
        return self.envelope.priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self._seal(replace(self.envelope, priority=_check_priority(type(self), priority)))

    @property
    def root_event_id(self) -> str:
        """The first event of the chain; its own id for one that no handler emitted."""
        return self.envelope.root_event_id

    @property
    def chain_depth(self) -> int:
        """How many events lie between this one and the root of its chain, plus one; 0 for the root."""
        return self.envelope.chain_depth

    def descend_from(self, parent: StoredEvent) -> None:
        """Make this event a child of another one."""
        old = self.envelope
        self._seal(replace(old, root_event_id=parent.root_event_id, chain_depth=parent.chain_depth + 1))

    # --- as it is stored ---

    def to_record(self, namespace: str) -> StoredEvent:
        """This event as a record."""
        envelope = self.envelope
        return StoredEvent(
            id=envelope.id,
            namespace=namespace,
            type=self.__event_type_name__,
            payload=plain(self.__dict__),
            created_at=instant_text(envelope.created_at),
            priority=envelope.priority,
            root_event_id=envelope.root_event_id,
            chain_depth=envelope.chain_depth,
        )

    @classmethod
    def from_record(cls, record: StoredEvent) -> Self:
        """The event of a record. A payload that does not fit the class is Pydantic's ValidationError."""
        event = cls.__new__(cls)
        event.__dict__ = cls.__declaration__.adapter.validator.validate_json(record.payload_text())
        created_at = datetime.fromisoformat(record.created_at)
        event._seal(
            Envelope(record.id, created_at, record.priority, record.root_event_id, record.chain_depth),
        )
        return event

    @classmethod
    def model_validate(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping, with the same checks as the constructor."""
        return cls(**values)


class EventDeadLetter(Event):
    """A handler failed for an event as often as it may. Handle it to be told; the event itself can be replayed."""

    __event_type_name__ = "event.dead_letter"

    event_id: Field[str]
    handler_id: Field[str]
    attempts: Field[int]
    last_error: Field[str]


class CommitMade(Event):
    """A store that is fed into this queue has a new commit; `feed` is the name of the feed."""

    feed: Field[str]
    commit_id: Field[int]


def dead_letter_notice(event: StoredEvent, claim: Claim) -> StoredEvent | None:
    """The event that tells of a dead letter, the same whoever makes it. There are no notices about notices."""
    if event.type == EventDeadLetter.__event_type_name__:
        return None
    failed_at = claim.dead_lettered_at or claim.claimed_at
    payload = {
        "attempts": claim.attempts,
        "event_id": event.id,
        "handler_id": claim.handler_id,
        "last_error": claim.last_error or "",
    }
    return StoredEvent(
        id=derive_id("dead letter", event.id, claim.handler_id, failed_at),
        namespace=event.namespace,
        type=EventDeadLetter.__event_type_name__,
        payload=payload,
        created_at=failed_at,
        priority=DEFAULT_PRIORITY,
        root_event_id=event.root_event_id,
        chain_depth=event.chain_depth + 1,
    )


def derive_id(*parts: str) -> str:
    """An event id that follows from what it is about, so that making the event twice makes it once."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "\n".join(("ontologia", *parts))))
