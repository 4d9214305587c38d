"""Time as leases and retries see it: the wall, the steady clock and sleep, in one object a test can
replace."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Protocol


class Clock(Protocol):
    """Wall time is compared with other machines; steady time measures how long something took on this one."""

    def wall(self) -> float: ...

    def steady(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def pauses(first_s: float = 0.02, longest_s: float = 1.0) -> Iterator[float]:
    """Pauses that double, each with full jitter, so that writers who met once do not meet again."""
    ceiling = first_s
    while True:
        yield random.uniform(ceiling / 4, ceiling)
        ceiling = min(ceiling * 2, longest_s)
