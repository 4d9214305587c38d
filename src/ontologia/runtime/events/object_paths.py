"""Where events lie under a prefix: four folders as Ontologia 0.3 has them, and three of ours.

    events/{namespace}/{created_at}_{id}.json              the events, by age
    claims/{namespace}/{event}/{handler}.json              who handles what, and how it ended
    dead_letters/{namespace}/{event}/{handler}.json
    sessions/{namespace}/{session}.json

    event_queue/{namespace}/types/{type}/{marker}          what waits, by urgency: one empty object per event,
    event_queue/{namespace}/handlers/{handler}/{marker}    or per handler that is behind the others of its type
    event_handlers/{namespace}/{type}/{handler}.json       handlers that are known
    event_marks/{namespace}/{name}.json                    how far schedules, feeds and the relay have come

The name of a marker has all it takes to find the next event: listing a folder gives its events in the order they are to
be handled, and one page is enough however many there are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ontologia.runtime.events.records import StoredEvent

_PRIORITY_TOP = 10**10
_MARKER = re.compile(r"(\d{11})_([^_]+)_(.+)")
_PLAIN = re.compile(r"[A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Marker:
    """The name of a waiting event: priority, age, id."""

    name: str
    priority: int
    created_at: str
    event_id: str

    @classmethod
    def parse(cls, name: str) -> Marker | None:
        found = _MARKER.fullmatch(name)
        return None if found is None else cls(name, _PRIORITY_TOP - int(found[1]), found[2], found[3])

    @classmethod
    def of(cls, event: StoredEvent) -> Marker:
        stamp = _stamp(event.created_at)
        return cls(f"{_PRIORITY_TOP - event.priority:011d}_{stamp}_{event.id}", event.priority, stamp, event.id)

    def event_key(self, namespace: str) -> str:
        return f"events/{namespace}/{self.created_at}_{self.event_id}.json"


def _stamp(created_at: str) -> str:
    return created_at.replace(":", "-")


def event(item: StoredEvent) -> str:
    return f"events/{item.namespace}/{_stamp(item.created_at)}_{item.id}.json"


def events_before(created_at: str) -> str:
    """A name that sorts before those of all events from this time on."""
    return _stamp(created_at)


def created_text(key: str) -> str:
    """The time in an event's key, as text that sorts like the times of other keys."""
    return key.rpartition("/")[2].partition("_")[0]


def event_id(key: str) -> str:
    return key.rpartition("/")[2].partition("_")[2].removesuffix(".json")


def claim(namespace: str, event_id: str, handler_id: str) -> str:
    return f"claims/{namespace}/{event_id}/{encode(handler_id)}.json"


def dead_letter(namespace: str, event_id: str, handler_id: str) -> str:
    return f"dead_letters/{namespace}/{event_id}/{encode(handler_id)}.json"


def session(namespace: str, session_id: str) -> str:
    return f"sessions/{namespace}/{encode(session_id)}.json"


def type_queue(namespace: str, type: str) -> str:
    return f"event_queue/{namespace}/types/{encode(type)}/"


def handler_queue(namespace: str, handler_id: str) -> str:
    return f"event_queue/{namespace}/handlers/{encode(handler_id)}/"


def handler(namespace: str, type: str, handler_id: str) -> str:
    return f"event_handlers/{namespace}/{encode(type)}/{encode(handler_id)}.json"


def mark(namespace: str, name: str) -> str:
    return f"event_marks/{namespace}/{encode(name)}.json"


def encode(name: str) -> str:
    """A name as one part of a path: letters, digits and `._-` as they are, every other byte as `=XX`."""
    return "".join(
        letter if _PLAIN.fullmatch(letter) else "".join(f"={byte:02X}" for byte in letter.encode()) for letter in name
    )


def decode(part: str) -> str:
    plain = re.sub(rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), part.encode())
    return plain.decode()
