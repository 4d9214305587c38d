"""Heartbeats: each node says every five seconds that it is alive, what it has, how busy it is and what it has cached.

Nobody elects anybody. Who wants to know who is there reads the files (`_heartbeats/node_{id}.json`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ontologia.apiary.colony.temperature import Load
from ontologia.apiary.entries import decode, encode, instant, instant_text
from ontologia.apiary.names import HEARTBEATS
from ontologia.errors import CorruptFrameError, OntologiaError
from ontologia.files.json_objects import record, rest, text, whole
from ontologia.objects import ObjectNotFound, Objects, Thread, system, utc_now

INTERVAL_S = 5.0
SUSPECT_AFTER_S = 15.0
DEAD_AFTER_S = 30.0
FORGOTTEN_AFTER_S = 3600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Heartbeat:
    """One node, as it last said."""

    node_id: str
    timestamp: datetime
    version: int
    capacity: Mapping[str, int]
    load: Mapping[str, float]
    cache: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "node_id": self.node_id,
            "timestamp": instant_text(self.timestamp),
            "version": self.version,
            "capacity": dict(self.capacity),
            "load": dict(self.load),
            "cache": dict(self.cache),
            **self.more,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Heartbeat:
        return cls(
            text(body, "node_id"),
            instant(text(body, "timestamp")),
            whole(body, "version"),
            _numbers(body, "capacity"),
            _numbers(body, "load"),
            record(body, "cache"),
            rest(body, "node_id", "timestamp", "version", "capacity", "load", "cache"),
        )

    def state(self, now: float) -> str:
        """Alive, suspect or dead by age. A clock that is ahead of ours belongs to a node that lives."""
        age = now - self.timestamp.timestamp()
        return "alive" if age <= SUSPECT_AFTER_S else "suspect" if age <= DEAD_AFTER_S else "dead"

    @property
    def takes_tasks(self) -> bool:
        """Whether the node works on queries of others."""
        return self.more.get("worker") is True

    @property
    def cached_cells(self) -> Mapping[str, int]:
        found = self.cache.get("cached_cells", {})
        return found if isinstance(found, Mapping) else {}


def _numbers(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = record(body, name)
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{key} of {name} must be a number, not {value!r:.80}")
    return found


def load_json(load: Load) -> dict[str, float]:
    return {
        "bees_total": load.bees_total,
        "bees_busy": load.bees_busy,
        "bees_idle": load.bees_idle,
        "memory_pressure": load.memory_pressure,
        "queue_depth": load.queue_depth,
        "colony_temperature": load.temperature,
    }


def all_heartbeats(objects: Objects) -> list[Heartbeat]:
    """Every node that has left a heartbeat, by id. What cannot be read is left out with a warning."""
    keys = [info.key for info in objects.list(f"{HEARTBEATS}/") if info.key.endswith(".json")]

    def read(key: str) -> Heartbeat | None:
        try:
            beat = decode(objects.get(key).data, objects.url(key), Heartbeat.from_json)
            if key != _key(beat.node_id):
                raise CorruptFrameError(f"{objects.url(key)} is of another node, by its id {beat.node_id!r:.80}")
            return beat
        except (OntologiaError, ObjectNotFound) as problem:
            _log.warning("a heartbeat is left out: %s", problem)
            return None

    return sorted((beat for beat in objects.map(read, keys) if beat), key=lambda beat: beat.node_id)


def others_alive(objects: Objects, node_id: str, now: float) -> list[str]:
    """The ids of other nodes that may be at work."""
    return [beat.node_id for beat in all_heartbeats(objects) if beat.node_id != node_id and beat.state(now) != "dead"]


def assignment(cells: Sequence[str], nodes: Sequence[Heartbeat]) -> dict[str, list[str]]:
    """Which node should read which cell (seed, "Cache-aware planning"): one that has it cached, else the one with the
    most idle bees for the cells it already got. Cells by storage key."""
    if not nodes:
        return {}
    given: dict[str, list[str]] = {node.node_id: [] for node in nodes}
    idle = {node.node_id: max(1.0, float(node.load.get("bees_idle", 1))) for node in nodes}
    for cell in cells:
        holders = [node.node_id for node in nodes if cell in node.cached_cells]
        least_busy = min(holders or list(given), key=lambda node_id: (len(given[node_id]) + 1) / idle[node_id])
        given[least_busy].append(cell)
    return {node_id: found for node_id, found in given.items() if found}


class Pulse:
    """Writes the heartbeat of this node until it is stopped."""

    def __init__(self, objects: Objects, node_id: str, say: Callable[[int, datetime], Heartbeat]) -> None:
        self.objects = objects
        self.key = _key(node_id)
        self._say = say
        self._version = 0
        self._stop = system().event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self.beat()
        self._thread = system().start(self._run, "apiary-heartbeat")

    def beat(self) -> None:
        self._version += 1
        beat = self._say(self._version, utc_now())
        self.objects.put(self.key, encode(beat.to_json()))

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            try:
                self.beat()
            except Exception as problem:  # the next one may succeed; a node must not die of its pulse
                _log.warning("a heartbeat was missed: %s", problem)

    def stop(self) -> None:
        """End, and take the heartbeat away: this node is no longer there."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self.objects.delete(self.key)
        except OntologiaError as problem:
            _log.warning("the heartbeat of this node stays behind: %s", problem)


def forget_dead(objects: Objects, now: float) -> None:
    """Remove the files of nodes that have been dead for an hour."""
    for beat in all_heartbeats(objects):
        if now - beat.timestamp.timestamp() > FORGOTTEN_AFTER_S:
            objects.delete(_key(beat.node_id))


def _key(node_id: str) -> str:
    return f"{HEARTBEATS}/node_{node_id}.json"
