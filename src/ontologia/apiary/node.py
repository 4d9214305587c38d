"""A node: one process at work on one storage root. What frames, SQL and the colony share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ontologia.apiary.colony.bees import TASK_TIMEOUT_S, Bees
from ontologia.apiary.colony.capacity import Capacity, Gauge
from ontologia.apiary.colony.temperature import HOT, WARM, Load
from ontologia.apiary.ledger import Ledger
from ontologia.apiary.names import FrameName
from ontologia.apiary.registry import Registry
from ontologia.apiary.state import FrameSnapshot
from ontologia.errors import BackpressureError, ValidationError
from ontologia.objects import SYSTEM_CLOCK, Clock, Location, Objects, new_uuid, pauses

if TYPE_CHECKING:
    from ontologia.files.duck import Duck
    from ontologia.files.reading import FileReader

BACKPRESSURE = ("block", "error", "ignore")


class Node:
    """Everything a frame needs from its surroundings."""

    def __init__(
        self,
        location: Location,
        *,
        objects: Objects | None = None,
        capacity: Capacity | None = None,
        task_timeout_s: float = TASK_TIMEOUT_S,
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.location = location
        self.objects = objects or location.open_objects()
        self.node_id = str(new_uuid())
        self.clock = clock
        self.capacity = capacity or Capacity.measure()
        self.gauge = Gauge(self.capacity)
        self.bees = Bees(
            self.capacity.cores, self.capacity.memory_per_bee, self.node_id, timeout_s=task_timeout_s, clock=clock
        )
        self.read_only = read_only
        self.registry = Registry(self.objects, clock, read_only=read_only)
        self.readers: Counter[tuple[FrameName, int]] = Counter()
        self.cells_read: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ledgers: dict[FrameName, Ledger] = {}
        self._reader: FileReader | None = None

    # --- parts that are made when they are needed ----------------------------------------------------------------

    @property
    def reader(self) -> FileReader:
        """How cells are read: in place, from the cell cache, or by range."""
        with self._lock:
            if self._reader is None:
                from ontologia.files.duck import Duck
                from ontologia.files.reading import FileReader

                duck = Duck(self.memory_limit, in_order=True)
                self._reader = FileReader(self.objects, duck, self.location.settings, background_eviction=True)
                duck.confine(self._reader.directories())
            return self._reader

    @property
    def duck(self) -> Duck:
        return self.reader.duck

    @property
    def memory_limit(self) -> str:
        """What DuckDB may use: the memory of one bee."""
        return f"{max(self.capacity.memory_per_bee, 64 << 20) >> 10}KiB"

    def ledger(self, name: FrameName) -> Ledger:
        with self._lock:
            if name not in self._ledgers:
                self._ledgers[name] = Ledger(self.objects.under(name.folder), name, self.node_id, self.clock)
            return self._ledgers[name]

    @contextmanager
    def reading(self, name: FrameName, version: int | None = None) -> Iterator[FrameSnapshot]:
        """A version of a frame, by default the newest, whose cells no vacuum of this process deletes while in the
        block. The pin comes before the look: a vacuum that does not see it has seen no version newer than this one."""
        ledger = self.ledger(name)
        pinned = ledger.known().version if version is None else version
        with self._lock:
            self.readers[name, pinned] += 1
        try:
            yield ledger.snapshot(version)
        finally:
            with self._lock:
                self.readers[name, pinned] -= 1
                if not self.readers[name, pinned]:
                    del self.readers[name, pinned]

    def versions_read(self, name: FrameName) -> set[int]:
        with self._lock:
            return {version for frame, version in self.readers if frame == name}

    def cached_cells(self) -> dict[str, int]:
        """The cells that have a copy in the cache of this machine, by storage key, whoever here read them."""
        with self._lock:
            read = dict(self.cells_read)
        if not read or self.objects.local_path("any") is not None:
            return {}
        cache = self.reader.cache
        return {key: size for key, size in read.items() if cache.contains(self.objects, key)}

    # --- temperature ---------------------------------------------------------------------------------------------

    def load(self) -> Load:
        """How busy this node is now."""
        return self.bees.load(self.gauge.memory_pressure())

    def admit_write(self, backpressure: str, timeout_s: float) -> float:
        """Seed, "Write Backpressure": wait while the colony is hot, or refuse, or go on. Returns the temperature."""
        if backpressure not in BACKPRESSURE:
            raise ValidationError(f"backpressure is one of {', '.join(BACKPRESSURE)}, not {backpressure!r}")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
            raise ValidationError(f"timeout is a number of seconds, not {timeout_s!r}")
        if self.read_only:
            raise ValidationError("this apiary was opened to read only: open it without read_only to write")
        deadline = self.clock.steady() + timeout_s
        waits = pauses(0.05, 1.0)
        while True:
            temperature = self.load().temperature
            if temperature <= WARM or backpressure == "ignore":
                return temperature
            if backpressure == "error" or self.clock.steady() >= deadline:
                waited = "" if backpressure == "error" else f" and stayed so for {timeout_s:g} s"
                raise BackpressureError(
                    f"the colony is hot ({temperature:.2f}, above {WARM}){waited}. Nothing was written: try again "
                    "later, raise timeout, or write regardless with backpressure='ignore'"
                )
            self.clock.sleep(min(next(waits), max(0.0, deadline - self.clock.steady())))

    def admit_query(self) -> None:
        """A critical colony takes no new work."""
        temperature = self.load().temperature
        if temperature > HOT:
            raise BackpressureError(
                f"the colony is critical ({temperature:.2f}, above {HOT}) and takes no new work: try again later"
            )

    def close(self) -> None:
        with self._lock:
            if self._reader is not None:
                self._reader.duck.close()
                self._reader = None
        self.bees.close()
