"""Colony temperature: one number for how busy the node is, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

SETPOINT = 0.5
COLD, IDEAL, WARM, HOT = 0.3, 0.7, 0.85, 0.95


@dataclass(frozen=True)
class Load:
    """How busy a node is."""

    bees_total: int
    bees_busy: int
    queue_depth: int
    memory_pressure: float

    @property
    def bees_idle(self) -> int:
        return self.bees_total - self.bees_busy

    @property
    def temperature(self) -> float:
        """0.4 × busy bees + 0.4 × memory pressure + 0.2 × queue pressure, in 0…1."""
        busy = self.bees_busy / self.bees_total
        queue = min(1.0, self.queue_depth / (2 * self.bees_total))
        return min(1.0, 0.4 * busy + 0.4 * self.memory_pressure + 0.2 * queue)


def regulation(temperature: float) -> str:
    """The word for a temperature. Upper ends belong to the cooler word."""
    if temperature < COLD:
        return "cold"
    for limit, word in ((IDEAL, "ideal"), (WARM, "warm"), (HOT, "hot")):
        if temperature <= limit:
            return word
    return "critical"
