"""What a node has, and how much of it is in use. Measured with psutil, within the limits of the container."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from ontologia.apiary.cells import CellSizing

MEASURED_EVERY_S = 0.1
_UNLIMITED = 1 << 62
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Capacity:
    """Cores and memory of this node. One bee per core; memory is shared evenly among them."""

    cores: int
    memory_bytes: int

    @classmethod
    def measure(cls) -> Capacity:
        import psutil

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        total = int(psutil.virtual_memory().total)
        return cls(cores, min(total, _cgroup_limit() or total))

    @property
    def memory_per_bee(self) -> int:
        return self.memory_bytes // self.cores

    @property
    def sizing(self) -> CellSizing:
        return CellSizing.for_bee(self.memory_per_bee)


@dataclass(frozen=True)
class Usage:
    """What this process and its machine use now."""

    memory_pressure: float
    process_bytes: int
    machine_cpu: float
    load_average: float


class Gauge:
    """Measures usage. The processor is measured since the last reading, and for a moment if that was just now."""

    def __init__(self, capacity: Capacity) -> None:
        import psutil

        self.capacity = capacity
        self._process = psutil.Process()
        self._measured: tuple[float, float] | None = None
        self._cpu_read_at = time.monotonic()
        psutil.cpu_percent(None)

    def read(self) -> Usage:
        import psutil

        recent = time.monotonic() - self._cpu_read_at < MEASURED_EVERY_S
        busy = psutil.cpu_percent(MEASURED_EVERY_S if recent else None)
        self._cpu_read_at = time.monotonic()
        return Usage(
            memory_pressure=self.memory_pressure(),
            process_bytes=int(self._process.memory_info().rss),
            machine_cpu=busy / 100,
            load_average=os.getloadavg()[0],
        )

    def memory_pressure(self) -> float:
        """The share of this node's memory that cannot be had any more, by whomever it is used. Measured ten times a
        second at most: small writes come more often, and a look costs as much as they do."""
        now = time.monotonic()
        if self._measured is None or now - self._measured[0] > MEASURED_EVERY_S:
            self._measured = (now, self._memory_pressure())
        return self._measured[1]

    def _memory_pressure(self) -> float:
        import psutil

        machine = psutil.virtual_memory()
        used = int(machine.total - machine.available)
        if self.capacity.memory_bytes < machine.total:
            of_container = _cgroup_used() if self.capacity.memory_bytes == _cgroup_limit() else None
            used = of_container or int(self._process.memory_info().rss)
        return min(1.0, max(0.0, used / self.capacity.memory_bytes))


def _cgroup_limit() -> int | None:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = _number(_CGROUP / name)
        if limit is not None and limit < _UNLIMITED:
            return limit
    return None


def _cgroup_used() -> int | None:
    """What the container uses, without pages of files that the kernel can drop."""
    used = _number(_CGROUP / "memory.current")
    if used is None:
        return _number(_CGROUP / "memory/memory.usage_in_bytes")
    try:
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return used
    cached = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
    return max(0, used - cached)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
