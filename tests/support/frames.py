"""Frames for tests: a small apiary, and rows to put into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ontologia.apiary import Apiary, Frame
from ontologia.apiary.colony.capacity import Capacity
from ontologia.config import OntologiaConfig
from ontologia.objects import Location, Objects, open_objects

SCHEMA = {"region": "string", "temp": "float64", "id": {"type": "int64", "nullable": False}}
NAME = "analytics.sensors.temperature"
CAPACITY = Capacity(cores=2, memory_bytes=2 << 30)


@contextmanager
def apiary(
    where: str | Path | Location, cache: Path, objects: Objects | None = None, **options: Any
) -> Iterator[Apiary]:
    """A started apiary. Its cells are cached in a directory of the test."""
    config = OntologiaConfig(cache_directory=str(cache))
    storage = where if isinstance(where, Location) else Location(str(where), config)
    with Apiary("test", storage, capacity=CAPACITY, objects=objects, **options) as found:
        yield found


def sensors(ap: Apiary, *, partition_by: list[str] | None = None, **options: Any) -> Frame:
    """The frame most tests use, partitioned by region unless they say otherwise."""
    ap.create_hive("analytics")
    ap.create_box("analytics", "sensors")
    columns = ["region"] if partition_by is None else partition_by
    return ap.create_frame("analytics", "sensors", "temperature", SCHEMA, columns, **options)


def readings(*rows: tuple[str, float | None, int]) -> pa.Table:
    regions, temps, ids = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "region": pa.array(regions, pa.string()),
            "temp": pa.array(temps, pa.float64()),
            "id": pa.array(ids, pa.int64()),
        }
    )


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def cells_at(uri: str) -> list[str]:
    """The keys of all cells in a store, whether an entry names them or not."""
    return sorted(info.key for info in open_objects(uri).list() if "/cell_" in info.key)


def append_some(uri: str, cache: str, first: int, count: int) -> list[int]:
    """What a writer process does: append rows one by one. Returns the versions it got."""
    with apiary(uri, Path(cache)) as ap:
        frame = ap.frame(NAME)
        return [frame.write(readings(("north", 1.0, first + number))).version for number in range(count)]
