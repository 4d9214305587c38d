"""Graphs in plain data for tests of the storage layer: people who know each other, and ways to stop a writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ontologia import OntologiaConfig
from ontologia.objects import open_objects
from ontologia.omnigraph.graph import Graph, OpenMode
from ontologia.omnigraph.manifest import GraphManifest, Table
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.names import table_path
from ontologia.omnigraph.phases import GraphWrite
from ontologia.omnigraph.snapshots import StoredSnapshot, resolve

PERSON, KNOWS, FIRM = "node:Person", "edge:Knows", "node:Firm"
NODE = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int64()), pa.field("name", pa.string())]
)
EDGE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("src", pa.string(), nullable=False),
        pa.field("dst", pa.string(), nullable=False),
        pa.field("since", pa.int64()),
    ]
)
TABLES = {
    PERSON: (NODE, {"indexes": {"name": "fts"}}),
    FIRM: (NODE, {}),
    KNOWS: (EDGE, {"endpoints": [PERSON, PERSON]}),
}
QUICK = OntologiaConfig(s3_lock_timeout_ms=20_000)


class Killed(BaseException):
    """A writer's death: nothing catches it, nothing is tidied up."""


def new_graph(uri: str, config: OntologiaConfig | None = None) -> Graph:
    return Graph.init(open_objects(uri), config or QUICK)


def reopened(graph: Graph, mode: OpenMode = OpenMode.READ_WRITE) -> Graph:
    return Graph.open(open_objects(graph.objects.uri), graph.config, mode=mode)


def people(**ages: int) -> dict[str, Any]:
    return {name: {"id": name, "age": age, "name": f"{name} {age}"} for name, age in ages.items()}


def knows(*pairs: str, since: int = 2020) -> dict[str, Any]:
    """`knows("ab", "bc")`: edges between people with names of one letter."""
    return {pair: {"id": pair, "src": pair[0], "dst": pair[1], "since": since} for pair in pairs}


def planned(
    graph: Graph,
    manifest: GraphManifest,
    rows: Mapping[str, Mapping[str, Any]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    checks: Checks | None = None,
) -> GraphWrite | None:
    changes = []
    for key in sorted(rows.keys() | (deleted or {}).keys()):
        schema, notes = TABLES[key]
        found = list(rows.get(key, {}).values())
        table = pa.Table.from_pylist(found, schema=schema) if found else None
        change = TableChange(key, table, (deleted or {}).get(key, ()))
        if key not in manifest.pins:
            change.table, change.schema = Table(key, table_path(key), notes), schema
        changes.append(change)
    return plan_mutation(graph, manifest, changes, checks or Checks(), {})


def put(
    graph: Graph,
    rows: Mapping[str, Mapping[str, Any]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    *,
    branch: str = "main",
    checks: Checks | None = None,
    actor: str | None = None,
) -> Any:
    return graph.write(branch, "Mutation", lambda m: planned(graph, m, rows, deleted, checks), actor=actor)


def contents(graph: Graph, reference: Any = "main") -> dict[str, dict[str, Any]]:
    """All rows of all tables, by table and id, without tables that are empty."""
    snapshot = StoredSnapshot(graph, resolve(graph, reference))
    found = {key: {row["id"]: row for row in snapshot.read(key).to_pylist()} for key in snapshot.manifest.pins}
    return {key: rows for key, rows in found.items() if rows}


def stop_at(graph: Graph, name: str, about: str | None = None) -> None:
    """Let the writer die just before a step of the protocol."""

    def step(at: str, what: str) -> None:
        if at == name and about in (None, what):
            raise Killed(f"{at} {what}")

    graph.step = step


def killed(graph: Graph, name: str, about: str | None, write: Callable[[], Any]) -> bool:
    """Run a write that dies at a step; whether it got there. The lease of the dead goes to the next at once."""
    stop_at(graph, name, about)
    try:
        write()
    except Killed:
        return True
    finally:
        graph.step = lambda at, what: None
    return False


def drift(graph: Graph, branch: str = "main") -> dict[str, tuple[int, int]]:
    """Tables whose published version is not the newest of the lineage that the branch owns."""
    found = {}
    for key, pin in graph.manifest(branch).pins.items():
        newest = graph.datasets.open(pin.path, pin.branch).version
        if newest != pin.version:
            found[key] = (pin.version, newest)
    return found
