"""Events and handlers: what happened, who is told, and how it is made sure that nobody is forgotten.

Types, handlers, schedules and feeds are what users see; the loop drives them; stores keep queue and claims, one in the
ontology's own SQLite file and one on object storage. Nothing here knows how rows are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ontologia.runtime.events.store import EventStore

if TYPE_CHECKING:
    from ontologia.engines.base import Engine


def open_event_store(engine: Engine, namespace: str | None = None) -> EventStore:
    """The events that lie beside an ontology: in its file, or under its prefix."""
    from ontologia.objects import Objects

    name = engine.config.default_namespace if namespace is None else namespace
    engine.ensure_exists()
    place = engine.event_place()
    if isinstance(place, Objects):
        from ontologia.runtime.events.object_store import ObjectEventStore

        store = ObjectEventStore(place, name, engine.config)
        store.branch = engine.location.branch
        return store
    from ontologia.runtime.events.sqlite_store import SqliteEventStore

    return SqliteEventStore(place, name, engine.config)
