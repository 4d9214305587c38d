"""What lies in the folders of events: read with checks, kept in memory if it never changes, written on condition."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ontologia.config import OntologiaConfig
from ontologia.errors import StorageBackendError, ValidationError
from ontologia.objects import (
    SYSTEM_CLOCK,
    Clock,
    Committed,
    ConditionFailed,
    ObjectNotFound,
    Objects,
    Rejected,
    conditional_put,
)
from ontologia.runtime.events import object_paths as paths
from ontologia.runtime.events.records import Claim, DeadLetter, SessionRecord, StoredEvent, instant
from ontologia.runtime.events.store import EventStatus, EventStore

_log = logging.getLogger(__name__)
AT_ONCE = 16  # requests side by side
REMEMBERED = 10_000  # events and claims kept in memory


class ObjectEvents(EventStore):
    """The objects of a namespace, and the questions that can be asked of them."""

    def __init__(self, objects: Objects, namespace: str, config: OntologiaConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(namespace, config, clock)
        self.objects = objects
        self._events: dict[str, StoredEvent] = {}

    # --- questions ---

    def namespaces(self) -> list[str]:
        infos = (info for folder in ("events/", "sessions/", "dead_letters/") for info in self.objects.list(folder))
        return sorted({info.key.split("/")[1] for info in infos})

    def sessions(self) -> list[SessionRecord]:
        return self._all(f"sessions/{self.namespace}/", SessionRecord.read, lambda item: item.started_at)

    def events(self, *, type: str | None = None, status: str | None = None, limit: int = 100) -> list[EventStatus]:
        now = instant(self.clock.wall())
        keys = [info.key for info in self.objects.list(f"events/{self.namespace}/")]
        found: list[EventStatus] = []
        for last in range(len(keys), 0, -AT_ONCE):
            chunk = keys[max(last - AT_ONCE, 0) : last][::-1]
            loaded = [event for event in self.objects.map(self._load_readable, chunk) if event is not None]
            for event in loaded:
                if type not in (None, event.type):
                    continue
                claims: list[Claim | None] = [*self.claims(event.id)]
                for claim in claims or [None]:
                    said = "pending" if claim is None else claim.status(now)
                    if status in (None, said):
                        found.append(EventStatus(event, claim, said))
            if len(found) >= limit:
                break
        return found[:limit]

    def dead_letters(self, *, handler_id: str | None = None, limit: int | None = 100) -> list[DeadLetter]:
        letters = self._all(f"dead_letters/{self.namespace}/", DeadLetter.read, lambda item: item.failed_at)[::-1]
        return [item for item in letters if handler_id in (None, item.handler_id)][:limit]

    def event(self, event_id: str) -> StoredEvent | None:
        for info in self.objects.list(f"events/{self.namespace}/"):
            if paths.event_id(info.key) == event_id:
                return self._load(info.key)
        return None

    def claims(self, event_id: str) -> list[Claim]:
        if "/" in event_id or not event_id:
            raise ValidationError(f"{event_id!r} is not the id of an event")
        return self._all(f"claims/{self.namespace}/{event_id}/", Claim.read, lambda item: item.handler_id)

    def chain(self, root_event_id: str) -> list[StoredEvent]:
        keys = [info.key for info in self.objects.list(f"events/{self.namespace}/")]
        events = [event for event in self.objects.map(self._load_readable, keys) if event is not None]
        return sorted(
            (event for event in events if event.root_event_id == root_event_id),
            key=lambda event: (event.chain_depth, event.created_at, event.id),
        )

    def _all(self, folder: str, read: Callable[[Any, str], Any], order: Callable[[Any], Any]) -> list[Any]:
        def one(key: str) -> Any:
            found = self._read(key)
            return None if found is None else read(found[0], self.objects.url(key))

        keys = [info.key for info in self.objects.list(folder)]
        return sorted((item for item in self.objects.map(one, keys) if item is not None), key=order)

    # --- objects ---

    def _load(self, key: str) -> StoredEvent | None:
        event = self._events.get(key)
        if event is None:
            found = self._read(key)
            if found is None:
                return None
            event = StoredEvent.read(found[0], self.objects.url(key))
            if len(self._events) > REMEMBERED:
                self._events.clear()
            self._events[key] = event
        return event

    def _load_readable(self, key: str) -> StoredEvent | None:
        """An event, or None where the object is damaged: what looks at many is not stopped by one."""
        try:
            return self._load(key)
        except StorageBackendError as problem:
            if not is_malformed(problem):
                raise
            _log.error("an event is passed over: %s", problem)
            return None

    def _read(self, key: str) -> tuple[dict[str, Any], str] | None:
        try:
            blob = self.objects.get(key)
        except ObjectNotFound:
            return None
        try:
            body = json.loads(blob.data)
        except (ValueError, RecursionError) as problem:
            raise StorageBackendError(f"{self.objects.url(key)}: this is not JSON ({problem})") from problem
        if not isinstance(body, dict):
            raise StorageBackendError(f"{self.objects.url(key)}: this is not a JSON object")
        return body, blob.etag

    def _put_empty(self, keys: Iterable[str]) -> None:
        self.objects.map(lambda key: self.objects.put(key, b"{}"), keys)

    def _put_if_absent(self, key: str, body: Mapping[str, Any]) -> bool:
        """Create an object that is the same whoever writes it; False if it is there already."""
        try:
            self.objects.put_if_absent(key, as_bytes(body))
        except ConditionFailed:
            return False
        except StorageBackendError:  # the answer was lost, perhaps: a plain put of the same bytes settles it
            self.objects.put(key, as_bytes(body))
        return True

    def _replace(self, key: str, body: Mapping[str, Any], etag: str | None) -> str | None:
        """Replace exactly this version; the new one, or None if it was another."""
        outcome = self._conditional(key, body, etag)
        return outcome.etag if isinstance(outcome, Committed) else None

    def _conditional(self, key: str, body: Mapping[str, Any], etag: str | None) -> Committed | Rejected:
        return conditional_put(
            self.objects,
            key,
            body,
            etag=etag,
            buried=lambda winner: False,
            budget_s=self.config.s3_request_timeout_s * 2,
        )


def is_malformed(problem: StorageBackendError) -> bool:
    """Whether an object was read and made no sense; failures of the storage say where they happened."""
    return not problem.context


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def as_bytes(body: Mapping[str, Any]) -> bytes:
    return as_text(body).encode()
