"""The classes of the demo, for Python and for the console: `onto verify --models examples/solar_system.py …`."""

from __future__ import annotations

from datetime import date

from ontologia import Entity, Field, Relation


class Body(Entity):
    name: Field[str] = Field(primary_key=True)
    kind: Field[str] = Field(index=True)
    radius_km: Field[float]
    discovered: Field[date | None] = None


class Orbits(Relation[Body, Body]):
    distance_km: Field[float]


class Mission(Entity):
    name: Field[str] = Field(primary_key=True)
    launched: Field[date]
    agencies: Field[list[str]]


class Visited(Relation[Mission, Body]):
    how: Field[str] = Field(instance_key=True)  # as an orbiter and as a lander
    year: Field[int]
