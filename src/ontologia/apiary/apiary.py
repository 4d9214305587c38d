"""`Apiary`: the way in. Hives, boxes and frames; SQL; what this node and the swarm are doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from ontologia.apiary.colony.capacity import Capacity
from ontologia.apiary.colony.caretaker import Caretaker
from ontologia.apiary.colony.heartbeats import Heartbeat, Pulse, all_heartbeats, forget_dead, load_json
from ontologia.apiary.colony.temperature import COLD, SETPOINT, regulation
from ontologia.apiary.compaction import compact
from ontologia.apiary.entries import instant_text
from ontologia.apiary.frame import Frame
from ontologia.apiary.incoming import from_ipc, to_ipc
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.registry import MAX_PARTITIONS
from ontologia.apiary.types import check_partitioning, declare_schema
from ontologia.config import OntologiaConfig
from ontologia.errors import ValidationError
from ontologia.objects import Location, Objects

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.apiary.queries.worker import Worker
    from ontologia.apiary.sql.session import SqlSession

DEFAULT_STORAGE = "~/.apiary/data/"


class Apiary:
    """Frames in one storage root, and this process as a node of it.

    >>> with Apiary("production", storage="s3://my-bucket/apiary?region=eu-west-1") as ap:
    ...     ap.create_hive("analytics")
    ...     ap.create_box("analytics", "sensors")
    ...     frame = ap.create_frame("analytics", "sensors", "temperature", {"region": "string", "temp": "float64"})

    `storage` is a directory, `file://…`, `local://…`, `s3://bucket/prefix?region=…`, `s3://bucket@host:port` or
    `gs://…`; without it, `~/.apiary/data/`. With `maintenance`, this node compacts frames while it is cold. With
    `worker`, it takes tasks of statements that other nodes run with `engine="colony"`. With `read_only` it writes
    nothing at all, not even heartbeats.
    """

    def __init__(
        self,
        name: str,
        storage: str | Location | None = None,
        *,
        config: OntologiaConfig | None = None,
        capacity: Capacity | None = None,
        maintenance: bool = False,
        worker: bool = False,
        read_only: bool = False,
        objects: Objects | None = None,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ValidationError(f"an apiary needs a name, as in Apiary('production'): not {name!r}")
        if worker and read_only:
            raise ValidationError("a worker leaves its part of an answer in the store, so it cannot be read_only")
        self.name = name
        self.location = Location.of(DEFAULT_STORAGE if storage is None else storage, config)
        self._capacity = capacity
        self._maintenance = maintenance
        self._takes_tasks = worker
        self._read_only = read_only
        self._objects = objects
        self._node: Node | None = None
        self._pulse: Pulse | None = None
        self._care: Caretaker[FrameName] | None = None
        self._worker: Worker | None = None
        self._session: SqlSession | None = None

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the storage, write the first registry version if there is none, and begin to send heartbeats."""
        if self._node is not None:
            return self
        node = Node(self.location, objects=self._objects, capacity=self._capacity, read_only=self._read_only)
        self._node = node
        if self._read_only:
            return self
        node.registry.start()
        forget_dead(node.objects, node.clock.wall())
        self._pulse = Pulse(node.objects, node.node_id, self._heartbeat)
        self._pulse.start()
        if self._maintenance:
            self._care = self._caretaker(node)
            self._care.start()
        if self._takes_tasks:
            from ontologia.apiary.queries.worker import Worker

            self._worker = Worker(node)
            self._worker.start()
        return self

    def shutdown(self) -> None:
        """Stop, and take this node's heartbeat away. Can be called again."""
        node, pulse = self._node, self._pulse
        for helper in (self._care, self._worker):
            if helper is not None:
                helper.stop()
        self._node = self._pulse = self._care = self._worker = self._session = None
        if pulse is not None:
            pulse.stop()
        if node is not None:
            node.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *problem: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        if self._node is None:
            return f"Apiary({self.name!r}, {self.location.uri!r}), not started"
        temperature = self._node.load().temperature
        bees = self._node.capacity.cores
        return (
            f"Apiary({self.name!r}, {self._node.objects.uri!r}), a node with {bees} bees, "
            f"{regulation(temperature)} at {temperature:.2f}"
        )

    @property
    def node(self) -> Node:
        """This process as a node. Only while started."""
        if self._node is None:
            raise ValidationError(f"Apiary({self.name!r}) is not started: call start(), or use it in a with block")
        return self._node

    # --- names ---------------------------------------------------------------------------------------------------

    def create_hive(self, name: str) -> None:
        """Make a hive, unless it is there."""
        self.node.registry.create_hive(name)

    def create_box(self, hive: str, name: str) -> None:
        """Make a box in a hive, unless it is there."""
        self.node.registry.create_box(hive, name)

    def create_frame(
        self,
        hive: str,
        box: str,
        name: str,
        schema: Any,
        partition_by: Sequence[str] | None = None,
        max_partitions: int = MAX_PARTITIONS,
        properties: Mapping[str, str] | None = None,
    ) -> Frame:
        """Make a frame, unless there is the same one. `schema` is a `pyarrow.Schema`, `{column: type}`, or
        `{"fields": [{"name": …, "data_type": …}, …]}` as the ledger has it."""
        found = declare_schema(schema)
        columns = check_partitioning(found, partition_by or ())
        frame = FrameName(hive, box, name)
        entry = self.node.registry.create_frame(
            frame,
            found,
            columns,
            max_partitions,
            properties or {},
            lambda: self.node.ledger(frame).declared_schema(),
        )
        self.node.ledger(frame).create(entry.schema if entry.has_fields else found, entry.partition_by)
        return self.frame(str(frame))

    def list_hives(self) -> list[str]:
        return sorted(self.node.registry.state().hives)

    def list_boxes(self, hive: str) -> list[str]:
        return sorted(self.node.registry.state().hive(hive).boxes)

    def list_frames(self, hive: str, box: str) -> list[str]:
        return sorted(self.node.registry.state().box(hive, box).frames)

    def get_frame(self, hive: str, box: str, name: str) -> dict[str, Any]:
        """What the registry says of a frame."""
        entry = self.node.registry.frame(FrameName(hive, box, name))
        return {
            "schema": entry.schema.flat,
            "partition_by": list(entry.partition_by),
            "max_partitions": entry.max_partitions,
            "properties": dict(entry.properties),
            "created_at": instant_text(entry.created_at).replace("Z", "+00:00"),
        }

    create_database = create_hive
    create_schema = create_box
    create_table = create_frame
    list_databases = list_hives
    list_schemas = list_boxes
    list_tables = list_frames
    get_table = get_frame

    # --- data ----------------------------------------------------------------------------------------------------

    def frame(self, name: str) -> Frame:
        """A frame by its three-part name, as in `ap.frame("analytics.sensors.temperature")`."""
        found = FrameName.parse(name)
        entry = self.node.registry.frame(found)
        if not self.node.read_only:
            self.node.ledger(found).create_if_missing(entry.schema, entry.partition_by)
        return Frame(found, lambda: self.node)

    def write_to_frame(self, hive: str, box: str, frame: str, ipc: bytes) -> dict[str, Any]:
        """Append the rows of an Arrow IPC stream."""
        return self.frame(f"{hive}.{box}.{frame}").write(from_ipc(ipc)).to_dict()

    def overwrite_frame(self, hive: str, box: str, frame: str, ipc: bytes) -> dict[str, Any]:
        """Replace all rows by those of an Arrow IPC stream."""
        result = self.frame(f"{hive}.{box}.{frame}").overwrite(from_ipc(ipc)).to_dict()
        return {
            name: result[name]
            for name in ("version", "cells_written", "rows_written", "bytes_written", "duration_ms", "temperature")
        }

    def read_from_frame(
        self, hive: str, box: str, frame: str, partition_filter: Mapping[str, str] | None = None
    ) -> bytes | None:
        """The rows as an Arrow IPC stream, or None if there is no cell for them."""
        found = self.frame(f"{hive}.{box}.{frame}").read(filter=dict(partition_filter) if partition_filter else None)
        return to_ipc(found) if found.num_rows else None

    def query(self, query: str, *, engine: str = "duckdb", timeout: float = 60.0) -> pa.Table:
        """The result of a statement: SELECT over three-part names, USE, SHOW, DESCRIBE, EXPLAIN [ANALYZE].

        `engine` is "duckdb" for this process, "colony" for all nodes that are workers, or "spark". This node does what
        other nodes have not delivered after `timeout` seconds.
        """
        if self._session is None:
            from ontologia.apiary.sql.session import SqlSession

            self._session = SqlSession(self.node)
        return self._session.run(query, engine, timeout)

    def sql(self, query: str, *, engine: str = "duckdb", timeout: float = 60.0) -> bytes:
        """The result of a statement as an Arrow IPC stream."""
        return to_ipc(self.query(query, engine=engine, timeout=timeout))

    # --- the colony ----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What this node has and uses, measured now."""
        node, usage = self.node, self.node.gauge.read()
        capacity, load = node.capacity, node.load()
        return {
            "name": self.name,
            "node_id": node.node_id,
            "state": "running",
            "storage": node.objects.uri.partition("://")[0].replace("file", "local"),
            "storage_uri": node.objects.uri,
            "cores": capacity.cores,
            "bees": capacity.cores,
            "memory_gb": capacity.memory_bytes / (1 << 30),
            "memory_per_bee": capacity.memory_per_bee,
            "memory_per_bee_mb": capacity.memory_per_bee >> 20,
            "target_cell_size": capacity.sizing.target,
            "target_cell_size_mb": capacity.sizing.target >> 20,
            "temperature": load.temperature,
            "regulation": regulation(load.temperature),
            **asdict(usage),
        }

    def bee_status(self) -> list[dict[str, Any]]:
        """One entry per bee: what it does, its memory budget and how much of it is used."""
        return [dict(bee) for bee in self.node.bees.status()]

    def swarm_status(self) -> dict[str, Any]:
        """All nodes that work on this storage, from their heartbeats."""
        now = self.node.clock.wall()
        nodes: list[dict[str, Any]] = [
            {
                "node_id": beat.node_id,
                "state": beat.state(now),
                "bees": beat.load.get("bees_total", 0),
                "idle_bees": beat.load.get("bees_idle", 0),
                "memory_pressure": beat.load.get("memory_pressure", 0.0),
                "colony_temperature": beat.load.get("colony_temperature", 0.0),
                "cached_cells": len(beat.cached_cells),
                "worker": beat.takes_tasks,
            }
            for beat in all_heartbeats(self.node.objects)
        ]
        alive = [node for node in nodes if node["state"] == "alive"]
        return {
            "nodes": nodes,
            "alive": len(alive),
            "total_bees": sum(int(node["bees"]) for node in nodes if node["state"] != "dead"),
            "total_idle_bees": sum(int(node["idle_bees"]) for node in nodes if node["state"] != "dead"),
        }

    def colony_status(self) -> dict[str, Any]:
        """The temperature, what it is called, and how many tasks were given up."""
        temperature = self.node.load().temperature
        return {
            "temperature": temperature,
            "regulation": regulation(temperature),
            "setpoint": SETPOINT,
            "abandoned_tasks": self.node.bees.abandoned,
        }

    def _heartbeat(self, version: int, now: datetime) -> Heartbeat:
        node = self.node
        cached = node.cached_cells()
        return Heartbeat(
            node.node_id,
            now,
            version,
            {
                "cores": node.capacity.cores,
                "memory_total_bytes": node.capacity.memory_bytes,
                "memory_per_bee": node.capacity.memory_per_bee,
                "target_cell_size": node.capacity.sizing.target,
            },
            load_json(node.load()),
            {"size_bytes": sum(cached.values()), "cached_cells": cached},
            {"worker": True} if self._takes_tasks else {},
        )

    def _caretaker(self, node: Node) -> Caretaker[FrameName]:
        def frames() -> list[FrameName]:
            return node.registry.state().frame_names()

        return Caretaker(
            frames,
            lambda name: node.ledger(name).snapshot().version,
            lambda name: compact(node, name),
            lambda: node.load().temperature < COLD,
            node.clock,
        )
