"""Time as leases and retries see it: the wall, the steady clock and sleep, in one object a test can
replace."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

from ontologia.objects.system import system


class Clock(Protocol):
    """Wall time is compared with other machines; steady time measures how long something took on this one."""

    def wall(self) -> float: ...

    def steady(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> float:
        return system().wall()

    def steady(self) -> float:
        return system().steady()

    def sleep(self, seconds: float) -> None:
        system().sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def utc_now() -> datetime:
    """The time on the wall, in UTC."""
    return datetime.fromtimestamp(system().wall(), UTC)


def pauses(first_s: float = 0.02, longest_s: float = 1.0) -> Iterator[float]:
    """Pauses that double, each with full jitter, so that writers who met once do not meet again."""
    ceiling = first_s
    while True:
        yield system().random.uniform(ceiling / 4, ceiling)
        ceiling = min(ceiling * 2, longest_s)
