"""The registry: which hives, boxes and frames there are (seed, "The Registry").

Every state is a whole document under a number; the highest number is the truth. A create adds one version by a
conditional put, and creating what is there already adds none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ontologia.apiary.entries import decode, encode, instant, instant_text
from ontologia.apiary.names import CHECKPOINT, CHECKPOINTS, REGISTRY, FrameName, check_name, number_text
from ontologia.apiary.numbering import newest_first, numbers_from
from ontologia.apiary.types import FrameSchema, arrow_type, type_name
from ontologia.errors import ConcurrentWriteError, FrameSchemaError, OntologiaError, UnknownNameError, ValidationError
from ontologia.files.json_objects import record, rest, text, texts, whole
from ontologia.objects import (
    SYSTEM_CLOCK,
    Clock,
    Committed,
    Objects,
    conditional_put,
    pauses,
    prove_conditions,
    system,
)

MAX_PARTITIONS = 10_000
CHECKPOINT_EVERY = 100
COMMIT_BUDGET_S = 60.0
STATE = "state_"
_log = logging.getLogger(__name__)


def _properties(body: Mapping[str, Any]) -> Mapping[str, str]:
    return record(body, "properties") if "properties" in body else {}


@dataclass(frozen=True)
class FrameEntry:
    """What the registry says of a frame."""

    schema: FrameSchema
    partition_by: tuple[str, ...]
    created_at: datetime
    max_partitions: int = MAX_PARTITIONS
    properties: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    has_fields: bool = True

    def to_json(self) -> dict[str, Any]:
        """The flat schema, as the original has it; `fields` keeps what it loses: the order, and what may be null. Where
        it rewrote the registry they are gone, and only the ledger knows."""
        return {
            "schema": self.schema.flat,
            "partition_by": list(self.partition_by),
            "created_at": instant_text(self.created_at),
            "max_partitions": self.max_partitions,
            "properties": dict(self.properties),
            **({"fields": self.schema.to_json()["fields"]} if self.has_fields else {}),
            **self.more,
        }

    def completed(self, stored: Callable[[], FrameSchema | None]) -> FrameEntry:
        """The same with the schema of the ledger, if the registry does not have all of it."""
        schema = None if self.has_fields else stored()
        return self if schema is None else replace(self, schema=schema, has_fields=True)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FrameEntry:
        stored = body["schema"] if "fields" not in body else {"fields": body["fields"]}
        return cls(
            schema=FrameSchema.from_json(stored),
            partition_by=tuple(texts(body, "partition_by")) if "partition_by" in body else (),
            created_at=instant(text(body, "created_at")),
            max_partitions=whole(body, "max_partitions") if "max_partitions" in body else MAX_PARTITIONS,
            properties=_properties(body),
            more=rest(body, "schema", "partition_by", "created_at", "max_partitions", "properties", "fields"),
            has_fields="fields" in body,
        )


@dataclass(frozen=True)
class BoxEntry:
    """A box: frames by name."""

    created_at: datetime
    frames: dict[str, FrameEntry] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "frames": {name: frame.to_json() for name, frame in self.frames.items()},
            "created_at": instant_text(self.created_at),
            "properties": dict(self.properties),
            **self.more,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> BoxEntry:
        return cls(
            instant(text(body, "created_at")),
            {name: FrameEntry.from_json(said) for name, said in record(body, "frames").items()},
            _properties(body),
            rest(body, "frames", "created_at", "properties"),
        )


@dataclass(frozen=True)
class HiveEntry:
    """A hive: boxes by name."""

    created_at: datetime
    boxes: dict[str, BoxEntry] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "boxes": {name: box.to_json() for name, box in self.boxes.items()},
            "created_at": instant_text(self.created_at),
            "properties": dict(self.properties),
            **self.more,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> HiveEntry:
        return cls(
            instant(text(body, "created_at")),
            {name: BoxEntry.from_json(said) for name, said in record(body, "boxes").items()},
            _properties(body),
            rest(body, "boxes", "created_at", "properties"),
        )


@dataclass(frozen=True)
class RegistryState:
    """The whole namespace at one version."""

    version: int
    hives: dict[str, HiveEntry] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        hives = {name: hive.to_json() for name, hive in self.hives.items()}
        return {"version": self.version, "hives": hives, **self.more}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RegistryState:
        hives = {name: HiveEntry.from_json(said) for name, said in record(body, "hives").items()}
        return cls(whole(body, "version"), hives, rest(body, "version", "hives", "writer_id"))

    def hive(self, name: str) -> HiveEntry:
        if name not in self.hives:
            raise UnknownNameError(f"there is no hive {name!r}; {_there_are('hives', self.hives)}")
        return self.hives[name]

    def box(self, hive: str, name: str) -> BoxEntry:
        boxes = self.hive(hive).boxes
        if name not in boxes:
            raise UnknownNameError(f"there is no box {hive}.{name}; {_there_are(f'boxes in {hive}', boxes)}")
        return boxes[name]

    def frame(self, name: FrameName) -> FrameEntry:
        frames = self.box(name.hive, name.box).frames
        if name.frame not in frames:
            raise UnknownNameError(
                f"there is no frame {name}; {_there_are(f'frames in {name.hive}.{name.box}', frames)}"
            )
        return frames[name.frame]

    def frame_names(self) -> list[FrameName]:
        """Every frame there is, in order."""
        return sorted(
            FrameName(hive, box, frame)
            for hive, boxes in self.hives.items()
            for box, frames in boxes.boxes.items()
            for frame in frames.frames
        )

    def has(self, name: FrameName) -> bool:
        box = self.hives[name.hive].boxes.get(name.box) if name.hive in self.hives else None
        return box is not None and name.frame in box.frames


def _there_are(kind: str, names: Mapping[str, Any]) -> str:
    return f"{kind}: {', '.join(sorted(names))}" if names else f"there are no {kind} yet"


class Registry:
    """The registry of one storage root. Reads never write: only `start` and creates do."""

    def __init__(self, objects: Objects, clock: Clock = SYSTEM_CLOCK, *, read_only: bool = False) -> None:
        self.objects = objects
        self.read_only = read_only
        self.clock = clock
        self._lock = system().rlock()
        self._state: RegistryState | None = None

    def state(self, *, fresh: bool = True) -> RegistryState:
        """The namespace, as it is now or as it was last seen. Version 0 is a root that nobody has written to."""
        with self._lock:
            if fresh or self._state is None:
                self._state = self._load(self._state)
            return self._state

    def frame(self, name: FrameName) -> FrameEntry:
        """What is registered under a name. The store is asked only about names not seen before."""
        state = self.state(fresh=False)
        return state.frame(name) if state.has(name) else self.state().frame(name)

    def start(self) -> None:
        """Write version 1 of a new root."""
        if self.state().version == 0:
            self._commit(lambda state: state if state.version == 0 else None)

    def create_hive(self, name: str) -> None:
        check_name("hive", name)
        self._commit(lambda state: None if name in state.hives else self._with_hive(state, name))

    def create_box(self, hive: str, name: str) -> None:
        check_name("box", name)

        def add(state: RegistryState) -> RegistryState | None:
            found = state.hive(hive)
            if name in found.boxes:
                return None
            return self._with_box(state, hive, name, BoxEntry(self._now()))

        self._commit(add)

    def create_frame(
        self,
        name: FrameName,
        schema: FrameSchema,
        partition_by: tuple[str, ...],
        max_partitions: int,
        properties: Mapping[str, str],
        stored: Callable[[], FrameSchema | None] = lambda: None,
    ) -> FrameEntry:
        """Seed, "DDL Commit Protocol". Returns what is registered: the new frame, or the same one from before. `stored`
        is asked for the schema of the ledger where the registry has lost it."""
        check_name("frame", name.frame)
        if isinstance(max_partitions, bool) or not isinstance(max_partitions, int) or max_partitions < 1:
            raise ValidationError(f"max_partitions is a whole number above 0, not {max_partitions!r}")
        if not isinstance(properties, Mapping) or not all(
            isinstance(part, str) for p in properties.items() for part in p
        ):
            raise ValidationError(f"properties are texts by name, not {properties!r:.100}")

        def add(state: RegistryState) -> RegistryState | None:
            box = state.box(name.hive, name.box)
            if name.frame in box.frames:
                check_same(name, box.frames[name.frame].completed(stored), schema, partition_by)
                return None
            entry = FrameEntry(schema, partition_by, self._now(), max_partitions, properties)
            changed = BoxEntry(box.created_at, {**box.frames, name.frame: entry}, box.properties, box.more)
            return self._with_box(state, name.hive, name.box, changed)

        return self._commit(add).frame(name)

    def _commit(self, change: Callable[[RegistryState], RegistryState | None]) -> RegistryState:
        """Read, change, put the next version if nobody has; on conflict read again and ask again. None changes
        nothing."""
        deadline = self.clock.steady() + COMMIT_BUDGET_S
        waits = pauses(0.005, 0.5)
        with self._lock:
            while True:
                state = self.state()
                changed = change(state)
                if changed is None:
                    return state
                if self.read_only:
                    raise ValidationError("this apiary was opened to read only: open it without read_only to create")
                if state.version == 0:
                    prove_conditions(self.objects)
                wanted = RegistryState(state.version + 1, changed.hives, changed.more)
                key = _key(wanted.version)
                outcome = conditional_put(
                    self.objects, key, wanted.to_json(), etag=None, encode=encode, clock=self.clock
                )
                if isinstance(outcome, Committed):
                    self._state = wanted
                    self._checkpoint_if_due(wanted)
                    return wanted
                if self.clock.steady() > deadline:
                    raise ConcurrentWriteError(
                        f"the registry of {self.objects.uri} kept changing for {COMMIT_BUDGET_S:g} s. Nothing was "
                        "created: try again"
                    )
                self.clock.sleep(next(waits))

    def _load(self, known: RegistryState | None) -> RegistryState:
        """The state with the highest number. The newest checkpoint says where to begin to look."""
        after = known.version if known is not None else next(self._checkpoints(), 0)
        newest = max(numbers_from(self.objects, REGISTRY, after + 1 if after else 0, STATE), default=after)
        if known is not None and newest == known.version:
            return known
        if newest == 0:
            return RegistryState(0)
        return self._read(newest)

    def _read(self, number: int) -> RegistryState:
        key = _key(number)
        waits = pauses(0.02, 0.2)
        for attempt in range(5):  # other writers create a file and then fill it
            try:
                return decode(self.objects.get(key).data, self.objects.url(key), RegistryState.from_json)
            except OntologiaError:
                if attempt == 4:
                    raise
                self.clock.sleep(next(waits))
        raise AssertionError("unreachable")

    def _checkpoints(self) -> Iterator[int]:
        return newest_first(self.objects, f"{REGISTRY}/{CHECKPOINTS}", CHECKPOINT)

    def _checkpoint_if_due(self, state: RegistryState) -> None:
        """A copy of the state every 100 versions: listing from there on is cheap, however many came before."""
        if state.version % CHECKPOINT_EVERY:
            return
        key = f"{REGISTRY}/{CHECKPOINTS}/{CHECKPOINT}{number_text(state.version)}.json"
        try:
            self.objects.put(key, encode(state.to_json()))
        except Exception as problem:  # the state is committed, whatever goes wrong now
            _log.warning("the registry stays without a checkpoint at version %d: %s", state.version, problem)

    def _with_hive(self, state: RegistryState, name: str) -> RegistryState:
        return RegistryState(state.version, {**state.hives, name: HiveEntry(self._now())}, state.more)

    def _with_box(self, state: RegistryState, hive: str, name: str, box: BoxEntry) -> RegistryState:
        found = state.hives[hive]
        changed = HiveEntry(found.created_at, {**found.boxes, name: box}, found.properties, found.more)
        return RegistryState(state.version, {**state.hives, hive: changed}, state.more)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.wall(), UTC)


def _key(version: int) -> str:
    return f"{REGISTRY}/{STATE}{number_text(version)}.json"


def check_same(name: FrameName, there: FrameEntry, schema: FrameSchema, partition_by: tuple[str, ...]) -> None:
    """Refuse to take a frame for another one. A type is the same under any of its names."""
    both = [
        {
            (field.name, type_name(arrow_type(field.data_type)), field.nullable or not there.has_fields)
            for field in fields
        }
        for fields in (there.schema.fields, schema.fields)
    ]
    if both[0] == both[1] and there.partition_by == partition_by:
        return
    raise FrameSchemaError(
        f"{name} exists with other columns or partitions: it has {_describe(there.schema, there.partition_by)}, "
        f"and {_describe(schema, partition_by)} was asked for. Use another name, or ap.frame({str(name)!r})"
    )


def _describe(schema: FrameSchema, partition_by: tuple[str, ...]) -> str:
    columns = ", ".join(
        f"{field.name} {field.data_type}{'' if field.nullable else ' not null'}" for field in schema.fields
    )
    return f"({columns})" + (f" by {', '.join(partition_by)}" if partition_by else "")
