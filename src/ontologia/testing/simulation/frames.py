"""Frames under simulation: appends, overwrites, merges, deletes, updates, reads, compactions, vacuums, checkpoints.

The model replays the operations in the order of their versions. At every commit, the rows in the cells that the ledger
names are compared with it, byte for byte from the store; at every deletion, what goes is compared with what must stay.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.apiary import Apiary, ledger
from ontologia.apiary.colony import heartbeats
from ontologia.apiary.colony.capacity import Capacity
from ontologia.apiary.names import FrameName
from ontologia.config import OntologiaConfig
from ontologia.errors import (
    BackpressureError,
    ConcurrentWriteError,
    OntologiaError,
    ValidationError,
)
from ontologia.objects import Location, Rejected, Request, conditional_put, new_uuid, utc_now
from ontologia.testing.simulation.runs import (
    Operation,
    World,
    check_acknowledged,
    check_told,
    note_refusal,
)
from ontologia.testing.simulation.scheduler import Machine, Simulation, Ticket, Violation

HIVE, BOX, FRAME = "h", "b", "f"
FOLDER = f"{HIVE}/{BOX}/{FRAME}"
SCHEMA = {"k": "int64", "v": "float64", "p": "string"}
Row = tuple[int, float, str]
Rows = Counter[Row]
CLOCKS_DIFFER_S = 10.0
"""How far apart times of different machines can be here; what lies that close to a limit is not judged."""
WRITERS = ("write", "overwrite", "merge", "delete", "update", "compact", "foreign")


@dataclass
class Version:
    """A version as it was committed."""

    number: int
    time: float
    rows: Rows
    cells: dict[str, str]  # paths by id
    operation: Operation
    replaced_at: float = float("inf")


class FramesWorld(World):
    """One frame, and everything that can be done to it."""

    name = "frames"

    def __init__(self, simulation: Simulation, options: dict[str, Any], folder: Path) -> None:
        super().__init__(simulation, options, folder)
        self.versions: list[Version] = []
        self.bodies: dict[int, bytes] = {}
        self.named: set[str] = set()  # by any entry, ever
        self.gone: set[int] = set()  # versions a vacuum was allowed to take
        self._rows_of_cell: dict[str, Rows] = {}

    @classmethod
    def draw_options(cls, drawn: random.Random) -> dict[str, Any]:
        return {"partitioned": drawn.random() < 0.3, "checkpoint_every": drawn.choice((2, 3, 100))}

    @contextmanager
    def knobs(self) -> Iterator[None]:
        """Checkpoints come early, and heartbeats seldom: hours pass here."""
        with (
            patch.object(ledger, "CHECKPOINT_EVERY", self.options["checkpoint_every"]),
            patch.multiple(heartbeats, INTERVAL_S=300.0, SUSPECT_AFTER_S=900.0, DEAD_AFTER_S=1800.0),
        ):
            yield

    @classmethod
    def draw_operation(cls, drawn: random.Random, options: dict[str, Any]) -> Operation:
        kind = drawn.choices(
            ("write", "overwrite", "merge", "delete", "update", "compact", "foreign", "vacuum", "read", "read_at"),
            (8, 1, 2, 2, 1, 3, 1, 4, 3, 2),
        )[0]
        rows = tuple((key, float(drawn.randrange(100)), drawn.choice("xy")) for key in drawn.sample(range(12), 2))
        match kind:
            case "write" | "overwrite" | "merge" | "foreign":
                return kind, rows
            case "delete" | "update":
                return kind, drawn.randrange(2, 4), drawn.randrange(2), float(drawn.randrange(100, 200))
            case "vacuum":
                return kind, drawn.choice((0, 0, 60, 1800, 3600, 7200, 86_400)), drawn.choice((1, 1, 2, 4))
            case "read_at":
                return kind, drawn.randrange(8)
        return (kind,)

    # --- what actors do ------------------------------------------------------------------------------------------

    def lay_out(self, machine: Machine) -> None:
        with self._apiary(machine) as apiary:
            apiary.create_hive(HIVE)
            apiary.create_box(HIVE, BOX)
            apiary.create_frame(HIVE, BOX, FRAME, SCHEMA, ["p"] if self.options["partitioned"] else None)
        self._take_in(0, ("create",))

    def open(self, machine: Machine) -> Any:
        return self._apiary(machine).start()

    def _apiary(self, machine: Machine) -> Apiary:
        cache = self.folder / f"{machine.name}-{machine.incarnation}"
        config = OntologiaConfig(cache_directory=str(cache))
        location = Location(self.backend.root, config)
        return Apiary(machine.name, location, objects=self.objects, capacity=_CAPACITY)

    def perform(self, handle: Apiary, operation: Operation) -> Any:
        frame = handle.frame(f"{HIVE}.{BOX}.{FRAME}")
        match operation:
            case ("write", rows):
                return frame.write(_table(rows), backpressure="ignore").version
            case ("overwrite", rows):
                return frame.overwrite(_table(rows), backpressure="ignore").version
            case ("merge", rows):
                return frame.merge(_table(rows), on=["k"]).version
            case ("delete", modulus, rest, _):
                return frame.delete(f"k % {modulus} = {rest}").version
            case ("update", modulus, rest, value):
                return frame.update(f"k % {modulus} = {rest}", {"v": value}).version
            case ("compact",):
                return frame.compact(force=True).version
            case ("foreign", rows):
                return self._write_as_another_program(handle, rows)
            case ("vacuum", age, versions):
                return frame.vacuum(age, keep_versions=versions).keys
            case ("read",):
                return _rows(frame.read())
            case ("read_at", version):
                newest = frame.version
                return min(version, newest), _rows(frame.read(version=min(version, newest)))
        raise AssertionError(operation)

    def _write_as_another_program(self, handle: Apiary, rows: list[Row]) -> int:
        """Append as a program does that is not ours: one cell, and statistics in which it left a NaN."""
        values = {"p": rows[0][2]} if self.options["partitioned"] else {}
        sink = pa.BufferOutputStream()
        pq.write_table(_table(_in_one_partition(rows) if values else rows), sink)
        data = sink.getvalue().to_pybytes()
        identity = f"cell_{new_uuid()}"
        path = "/".join([*(f"{name}={value}" for name, value in values.items()), f"{identity}.parquet"])
        objects = self.objects.under(FOLDER)
        objects.put(path, data)
        version = handle.node.ledger(FrameName(HIVE, BOX, FRAME)).snapshot().version + 1
        cell = {
            "id": identity,
            "path": path,
            "format": "parquet",
            "partition_values": values,
            "rows": len(rows),
            "bytes": len(data),
            "stats": {"v": {"min": 0.0, "max": float("nan"), "null_count": 0, "distinct_count": None}},
        }
        body = {
            "version": version,
            "timestamp": utc_now().isoformat(),
            "node_id": "another",
            "action": {"AddCells": {"cells": [cell]}},
        }
        if isinstance(conditional_put(objects, f"_ledger/{version:06}.json", body, etag=None), Rejected):
            raise ConcurrentWriteError(f"version {version} is another's")
        return version

    # --- the model -----------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        return len(self.versions) - 1

    def _expected(self, operation: Operation, before: Rows) -> Rows:
        match operation:
            case ("write", rows):
                return before + Counter(_normal(rows))
            case ("foreign", rows):
                return before + Counter(_normal(_in_one_partition(rows) if self.options["partitioned"] else rows))
            case ("overwrite", rows):
                return Counter(_normal(rows))
            case ("merge", rows):
                given = {row[0]: row for row in _normal(rows)}
                merged: Rows = Counter()
                for row, count in before.items():
                    merged[given.get(row[0], row)] += count
                present = {row[0] for row in before}
                return merged + Counter([row for key, row in given.items() if key not in present])
            case ("delete", modulus, rest, _):
                return Counter({row: count for row, count in before.items() if row[0] % modulus != rest})
            case ("update", modulus, rest, value):
                updated: Rows = Counter()
                for (k, v, p), count in before.items():
                    updated[k, value if k % modulus == rest else v, p] += count
                return updated
        return before

    # --- invariants ----------------------------------------------------------------------------------------------

    def applied(self, ticket: Ticket, request: Request) -> None:
        if request.operation.startswith("delete"):
            self._check_deletion(ticket)
        elif request.key.startswith(f"{FOLDER}/_ledger/0"):
            number = int(request.key.rpartition("/")[2].removesuffix(".json"))
            if number not in self.bodies:
                ticket.commits.append(number)
                self._take_in(number, ticket.operation)
                check_told(ticket)
            elif self.bodies[number] != self.backend.get(request.key).data:
                raise Violation(f"version {number} was committed, and is now another")

    def _take_in(self, number: int, operation: Operation) -> None:
        """A version has come: it follows the last one, its cells are there, and have the rows they should have."""
        if number != len(self.versions):
            raise Violation(f"version {number} was committed after version {self.head}")
        body = self.bodies[number] = self.backend.get(f"{FOLDER}/_ledger/{number:06}.json").data
        before = self.versions[-1] if self.versions else Version(-1, 0, Counter(), {}, ("none",))
        action = json.loads(body)["action"]
        cells = dict(before.cells)
        for identity in action.get("RewriteCells", {}).get("removed", ()):
            if cells.pop(identity, None) is None:
                raise Violation(f"version {number} ({operation[0]}) removes cell {identity}, which was not there")
        for kind, name in (("AddCells", "cells"), ("RewriteCells", "added")):
            for cell in action.get(kind, {}).get(name, ()):
                cells[cell["id"]] = cell["path"]
        # A vacuum goes by what entries say, which is when their writers began to put them.
        before.replaced_at = datetime.fromisoformat(json.loads(body)["timestamp"]).timestamp()
        rows = self._expected(operation, before.rows)
        self.versions.append(Version(number, self.simulation.now, rows, cells, operation))
        self.named.update(cells.values())
        self._check_version(self.versions[-1])

    def _check_version(self, version: Version) -> None:
        found: Rows = Counter()
        for path in version.cells.values():
            found += self._read_cell(path, version)
        if found != version.rows:
            raise Violation(
                f"version {version.number} ({' '.join(map(str, version.operation))}) has rows {_say(found)} and should "
                f"have {_say(version.rows)}"
            )

    def _read_cell(self, path: str, version: Version) -> Rows:
        if self.backend.head(f"{FOLDER}/{path}") is None:
            raise Violation(f"version {version.number} names {path}, which is not there")
        if path not in self._rows_of_cell:
            table = pq.read_table(pa.BufferReader(self.backend.get(f"{FOLDER}/{path}").data), partitioning=None)
            self._rows_of_cell[path] = _rows(table)
        return self._rows_of_cell[path]

    def _check_deletion(self, ticket: Ticket) -> None:
        """Whoever deletes: nothing that a version names which somebody may still read."""
        for version in self.versions:
            if version.number in self.gone or self._is_there(version):
                continue
            reason = self._reason_to_keep(ticket, version)
            if reason is not None:
                raise Violation(f"cells of version {version.number} were deleted, and {reason}")
            self.gone.add(version.number)

    def _is_there(self, version: Version) -> bool:
        return all(self.backend.head(f"{FOLDER}/{path}") is not None for path in version.cells.values())

    def _reason_to_keep(self, ticket: Ticket, version: Version) -> str | None:
        if version.number == self.head:
            return "it is the newest"
        if ticket.operation[0] != "vacuum":
            return f"{ticket.operation[0]} is no vacuum"
        _, age, keep = ticket.operation
        if version.number > self.head - keep:
            return f"it is one of the newest {keep}"
        idle = self.simulation.now - version.replaced_at
        if idle < age - CLOCKS_DIFFER_S:
            return f"it was the newest {idle:.0f} s ago, and the vacuum is one of {age} s"
        return None

    def settle(self, ticket: Ticket, answer: Any, problem: OntologiaError | None) -> None:
        kind = ticket.operation[0]
        if problem is not None:
            note_refusal(ticket, problem, self._is_expected(ticket, problem))
        elif kind in WRITERS:
            check_acknowledged(ticket, answer, needs_commit=kind in ("write", "overwrite", "merge", "foreign"))
        elif kind == "read":
            if not any(answer == version.rows for version in self.versions[ticket.head :]):
                expected = [_say(version.rows) for version in self.versions[ticket.head :]]
                raise Violation(f"read {_say(answer)}, and versions from {ticket.head} on have {expected}")
        elif kind == "read_at" and answer[1] != self.versions[answer[0]].rows:
            raise Violation(f"read {answer}, and that version has {_say(self.versions[answer[0]].rows)}")

    def _is_expected(self, ticket: Ticket, problem: OntologiaError) -> bool:
        """Whether a failure is part of the bargain where no fault was injected."""
        return (
            isinstance(problem, (ConcurrentWriteError, BackpressureError))
            or (ticket.operation[0] == "vacuum" and isinstance(problem, ValidationError) and "is alive" in str(problem))
            or (ticket.operation[0] == "read_at" and bool(self.gone))
        )

    def finish(self, machine: Machine) -> None:
        for version in self.versions:
            if version.number not in self.gone:
                self._check_version(version)
        with self._apiary(machine) as apiary:
            frame = apiary.frame(f"{HIVE}.{BOX}.{FRAME}")
            if frame.version != self.head:
                raise Violation(f"the newest version is {frame.version} and should be {self.head}")
            for version in self.versions:
                if (
                    version.number not in self.gone
                    and (found := _rows(frame.read(version=version.number))) != version.rows
                ):
                    raise Violation(f"version {version.number} reads {_say(found)}, not {_say(version.rows)}")


_CAPACITY = Capacity(cores=4, memory_bytes=4 << 30)


def _normal(rows: Any) -> list[Row]:
    return [(int(k), float(v), str(p)) for k, v, p in rows]


def _table(rows: Any) -> pa.Table:
    keys, values, partitions = zip(*_normal(rows), strict=True)
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("p", pa.string())])
    return pa.table({"k": keys, "v": values, "p": partitions}, schema=schema)


def _in_one_partition(rows: Any) -> list[Row]:
    return [(k, v, rows[0][2]) for k, v, _ in rows]


def _rows(table: pa.Table) -> Rows:
    return Counter(zip(*(table.column(name).to_pylist() for name in SCHEMA), strict=True))


def _say(rows: Rows) -> str:
    return str(sorted(rows.elements()))
