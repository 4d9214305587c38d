"""Edges that another writer made: their ids say nothing of their ends, so they are found by these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from ontologia.engines.omnigraph.types import GraphType
from ontologia.errors import GraphValidationError
from ontologia.omnigraph.adoption import NOTED
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.manifest import GraphManifest
from ontologia.omnigraph.mutation import TableChange
from ontologia.omnigraph.snapshots import StoredSnapshot

Identity = tuple[str, ...]


def has_foreign_ids(manifest: GraphManifest, type: GraphType) -> bool:
    """Whether another writer published versions of an edge table, which may hold ids of its own."""
    pins = manifest.history.get(type.key, ())
    return type.ref.kind == "relation" and any(NOTED not in pin.text for pin in pins)


def find_edges(
    graph: Graph, manifest: GraphManifest, type: GraphType, identities: Iterable[Identity]
) -> dict[Identity, list[str]]:
    """The ids of stored edges by their ends, and the instance key where there is one."""
    wanted = set(identities)
    columns = ["src", "dst"] + ([type.columns[type.schema.instance_key]] if type.schema.instance_key else [])
    snapshot = StoredSnapshot(graph, manifest)
    found: dict[Identity, list[str]] = {}
    if type.key in snapshot and wanted:
        rows = snapshot.rows_of(type.key, sorted({identity[0] for identity in wanted}), ["id", *columns], by="src")
        for row in rows.to_pylist():
            identity = tuple(str(row[column]) for column in columns)
            if identity in wanted:
                found.setdefault(identity, []).append(row["id"])
    return found


def take_over_ids(graph: Graph, manifest: GraphManifest, type: GraphType, change: TableChange) -> None:
    """Let a change of edges go by the ids that these have in the table. Our own spell the identity out."""
    if not has_foreign_ids(manifest, type) or change.reshaped:
        return
    written: Sequence[str] = [] if change.rows is None else change.rows.column("id").to_pylist()
    names = {*written, *change.deleted, *change.new}
    stored = find_edges(graph, manifest, type, (tuple(json.loads(name)) for name in names))
    ids = {name: stored[identity] for name in names if (identity := tuple(json.loads(name))) in stored}
    several = sorted(name for name in {*written, *change.new} if len(ids.get(name, ())) > 1)
    if several and not change.replace_all:
        raise GraphValidationError(
            f"{type.key} has several edges with the same ends, and nothing says which of them is meant",
            [f"{name} is {', '.join(ids[name])}" for name in several],
        )
    if change.rows is not None and ids:
        column = pa.array([ids[name][0] if name in ids else name for name in written], pa.string())
        change.rows = change.rows.set_column(0, change.rows.schema.field("id"), column)
    change.deleted = [id for name in change.deleted for id in ids.get(name, [name])]
    change.new = frozenset(id for name in change.new for id in ids.get(name, [name]))
