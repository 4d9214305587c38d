"""A small writer that does what the original OmniGraph does at stamp 3, with Lance alone: it lays out a graph, writes,
branches, merges and exports. It shares no code with the product, and looks at the schema files before everything."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.dataset import AutoCleanupConfig

OPTIONS: dict[str, Any] = {
    "enable_stable_row_ids": True,
    "data_storage_version": "2.2",
    "enable_v2_manifest_paths": True,
    "auto_cleanup_options": AutoCleanupConfig(interval=20, older_than_seconds=14 * 86_400),
}
SOURCE = """// people, and where they live
node Person @description("one of us") {
    name: String @key
    age: I64?
    born: Date?
    mood: enum(calm, cross)?
    place: Vector(2)?
    seen: DateTime?
    size: I32?
    tags: [String]?
}

node City {
    code: String @key
    population: U32?
}

edge Knows: Person -> Person {
    since: I64?
}

edge LivesIn: Person -> City {}
"""
SCALARS = {
    "String": pa.string(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.date64(),
}


def fnv1a(text: str, bits: int) -> int:
    value, prime = (0xCBF29CE484222325, 0x100000001B3) if bits == 64 else (0x811C9DC5, 0x01000193)
    for byte in text.encode():
        value = (value ^ byte) * prime % 2**bits
    return value


def ulid() -> str:
    value = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[value >> shift & 31] for shift in range(125, -1, -5))


def prop(owner: str, name: str, scalar: Any, *, nullable: bool = True, **more: Any) -> dict[str, Any]:
    kind = {"scalar": scalar, "nullable": nullable, "list": more.get("list", False), "enum_values": more.get("enum")}
    notes = [{"name": it, "value": None} for it in more.get("notes", ())]
    return {"name": name, "prop_id": fnv1a(f"{owner}:{name}", 32), "prop_type": kind, "annotations": notes}


def node(name: str, properties: list[dict[str, Any]], constraints: list[Any], notes: Any = ()) -> dict[str, Any]:
    head = {"name": name, "type_id": fnv1a(f"node:{name}", 32), "annotations": list(notes), "implements": []}
    return {**head, "properties": properties, "constraints": constraints}


def edge(name: str, left: str, right: str, properties: Any = (), most: int | None = None) -> dict[str, Any]:
    ends = {"from_type": left, "to_type": right, "cardinality": {"min": 0, "max": most}}
    head = {"name": name, "type_id": fnv1a(f"edge:{name}", 32), **ends, "annotations": []}
    return {**head, "properties": list(properties), "constraints": []}


def people_ir() -> dict[str, Any]:
    owner = "node:Person"
    person = [
        prop(owner, "age", "I64"),
        prop(owner, "born", "Date"),
        prop(owner, "mood", "String", enum=["calm", "cross"]),
        prop(owner, "name", "String", nullable=False, notes=["key"]),
        prop(owner, "place", {"Vector": 2}),
        prop(owner, "seen", "DateTime"),
        prop(owner, "size", "I32"),
        prop(owner, "tags", "String", list=True),
    ]
    city = [prop("node:City", "code", "String", nullable=False, notes=["key"]), prop("node:City", "population", "U32")]
    said = [{"name": "description", "value": "one of us"}]
    return {
        "ir_version": 1,
        "interfaces": [],
        "nodes": [node("City", city, [{"Key": ["code"]}]), node("Person", person, [{"Key": ["name"]}], said)],
        "edges": [
            edge("Knows", "Person", "Person", [prop("edge:Knows", "since", "I64")]),
            edge("LivesIn", "Person", "City"),
        ],
    }


def columns_of(kind: str, entry: dict[str, Any]) -> pa.Schema:
    ids = ["id"] if kind == "node" else ["id", "src", "dst"]
    fields = [pa.field(name, pa.string(), nullable=False) for name in ids]
    for item in entry["properties"]:
        said = item["prop_type"]
        scalar = said["scalar"]
        stored = pa.list_(pa.float32(), scalar["Vector"]) if isinstance(scalar, dict) else SCALARS.get(scalar)
        stored = pa.list_(stored) if said["list"] else stored
        if scalar == "Blob":
            fields.append(lance.blob_field(item["name"]))
        else:
            fields.append(pa.field(item["name"], stored, nullable=said["nullable"]))
    return pa.schema(fields)


def manifest_columns() -> pa.Schema:
    text, number = pa.string(), pa.uint64()
    key = {"lance-schema:unenforced-primary-key": "true"}
    return pa.schema(
        [
            pa.field("object_id", text, nullable=False, metadata=key),
            pa.field("object_type", text, nullable=False),
            pa.field("location", text),
            pa.field("metadata", text),
            pa.field("base_objects", pa.list_(text)),
            pa.field("table_key", text, nullable=False),
            pa.field("table_version", number),
            pa.field("table_branch", text),
            pa.field("row_count", number),
        ]
    )


COMMITS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
ACTORS = pa.schema([COMMITS.field(0), pa.field("actor_id", pa.string(), nullable=False), COMMITS.field(5)])


class OriginalWriter:
    """The original at a root: one process, one call at a time."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    @classmethod
    def init(cls, root: Path, ir: dict[str, Any] | None = None, source: str = SOURCE) -> OriginalWriter:
        made, ir = cls(root), ir or people_ir()
        made.root.mkdir(parents=True)
        (made.root / "_schema.pg").write_text(source)
        (made.root / "_schema.ir.json").write_text(json.dumps(ir, indent=2, ensure_ascii=False))
        state = {"format_version": 1, "schema_ir_hash": _hash(ir), "schema_identity_version": 1}
        (made.root / "__schema_state.json").write_text(json.dumps(state, indent=2))
        rows = []
        for kind, entry in made.types():
            key, path = f"{kind}:{entry['name']}", f"{kind}s/{fnv1a(entry['name'], 64):016x}"
            lance.write_dataset(columns_of(kind, entry).empty_table(), str(made.root / path), **OPTIONS)
            rows += [made._row(key, "table", key, location=path), made._version(key, path, None, 1, 0)]
        manifest = lance.write_dataset(
            pa.Table.from_pylist(rows, schema=manifest_columns()), str(made.root / "__manifest"), **OPTIONS
        )
        manifest.update_config({"table_version_management": "true"})
        manifest.update_schema_metadata({"omnigraph:internal_schema_version": "3"})
        genesis = made._commit(None, 3, None, None)
        lance.write_dataset(
            pa.Table.from_pylist([genesis], schema=COMMITS), str(made.root / "_graph_commits.lance"), **OPTIONS
        )
        lance.write_dataset(ACTORS.empty_table(), str(made.root / "_graph_commit_actors.lance"), **OPTIONS)
        return made

    # --- what it reads ---

    def ir(self) -> dict[str, Any]:
        """The types, once source, IR and hash are seen to agree."""
        ir = json.loads((self.root / "_schema.ir.json").read_text())
        state = json.loads((self.root / "__schema_state.json").read_text())
        source = (self.root / "_schema.pg").read_text()
        assert state["schema_ir_hash"] == _hash(ir)
        for kind in ("node", "edge"):
            for entry in ir[f"{kind}s"]:
                assert f"{kind} {entry['name']}" in source
                assert all(f"{item['name']}: " in source for item in entry["properties"])
        return ir

    def types(self) -> list[tuple[str, dict[str, Any]]]:
        ir = self.ir()
        return [("node", entry) for entry in ir["nodes"]] + [("edge", entry) for entry in ir["edges"]]

    def dataset(self, path: str, branch: str | None = None) -> lance.LanceDataset:
        return lance.dataset(str(self.root / path / (f"tree/{branch}" if branch else "")))

    def pins(self, branch: str | None = None) -> dict[str, dict[str, Any]]:
        rows = self.dataset("__manifest", branch).to_table().to_pylist()
        paths = {row["table_key"]: row["location"] for row in rows if row["object_type"] == "table"}
        found: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["object_type"] == "table_version":
                known = found.get(row["table_key"])
                if known is None or known["table_version"] < row["table_version"]:
                    found[row["table_key"]] = row | {"location": paths[row["table_key"]]}
        for row in rows:
            known = found.get(row["table_key"]) if row["object_type"] == "table_tombstone" else None
            if known is not None and row["table_version"] >= known["table_version"]:
                del found[row["table_key"]]
        return found

    def rows(self, key: str, branch: str | None = None) -> dict[str, dict[str, Any]]:
        pin = self.pins(branch)[key]
        assert Path("/" + json.loads(pin["metadata"])["manifest_path"]).exists()
        dataset = self.dataset(pin["location"], pin["table_branch"]).checkout_version(pin["table_version"])
        return {row["id"]: row for row in dataset.to_table().to_pylist()}

    def export(self, branch: str | None = None) -> list[dict[str, Any]]:
        """Lines as the original writes them, with the properties that the schema files name."""
        lines = []
        for kind, entry in self.types():
            names = ["id", *(item["name"] for item in entry["properties"])]
            for _, row in sorted(self.rows(f"{kind}:{entry['name']}", branch).items()):
                data = {name: row[name] for name in names}
                ends = {"from": row["src"], "to": row["dst"]} if kind == "edge" else {}
                lines.append({"type" if kind == "node" else "edge": entry["name"], **ends, "data": data})
        return lines

    def commits(self, branch: str | None = None) -> list[dict[str, Any]]:
        rows = self.dataset("_graph_commits.lance", branch).to_table().to_pylist()
        return sorted(rows, key=lambda row: (row["manifest_version"], row["created_at"], row["graph_commit_id"]))

    # --- what it writes ---

    def write(
        self,
        changes: dict[str, list[dict[str, Any]]],
        branch: str | None = None,
        *,
        deleted: dict[str, list[str]] | None = None,
        actor: str | None = None,
        merged: str | None = None,
        record: bool = True,
    ) -> str:
        """One commit. Each table commits, gets the index that it lacks, and is published; then the commit row."""
        pins, rows = self.pins(branch), []
        for key in sorted(changes.keys() | (deleted or {}).keys()):
            dataset = self._commit_table(pins[key], branch, changes.get(key, []), (deleted or {}).get(key, []))
            path = pins[key]["location"]
            rows.append(self._version(key, path, branch, dataset.version, dataset.count_rows()))
        manifest = self.dataset("__manifest", branch)
        builder = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
        builder.conflict_retries(0).use_index(False).execute(pa.Table.from_pylist(rows, schema=manifest_columns()))
        if not record:
            return ""
        parent = self.commits(branch)[-1]["graph_commit_id"]
        commit = self._commit(branch, self.dataset("__manifest", branch).version, parent, merged)
        log = self.dataset("_graph_commits.lance", branch)
        lance.write_dataset(pa.Table.from_pylist([commit], schema=COMMITS), log, mode="append")
        if actor is not None:
            row = {name: commit[name] for name in ("graph_commit_id", "created_at")} | {"actor_id": actor}
            actors = self.dataset("_graph_commit_actors.lance")
            lance.write_dataset(pa.Table.from_pylist([row], schema=ACTORS), actors, mode="append")
        return str(commit["graph_commit_id"])

    def _commit_table(
        self, pin: dict[str, Any], branch: str | None, rows: list[dict[str, Any]], deleted: list[str]
    ) -> lance.LanceDataset:
        path = pin["location"]
        if pin["table_branch"] != branch:
            self.dataset(path).create_branch(branch, (pin["table_branch"], pin["table_version"]))
        dataset = self.dataset(path, branch)
        if rows:
            given = [dict.fromkeys(dataset.schema.names) | row for row in rows]
            table = pa.Table.from_pylist(given, schema=dataset.schema)
            builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            builder.use_index(False).execute(table)
        if deleted:
            dataset.delete(f"id IN ({', '.join(map(repr, deleted))})")
        if dataset.count_rows() and not dataset.describe_indices():
            dataset.create_scalar_index("id", "BTREE")
        return self.dataset(path, branch)

    def sidecar(self, kind: str, key: str, commits: int, schema_version: int = 1) -> None:
        """What it leaves when it dies after it wrote down what it is about to do to a table."""
        pin, name = self.pins()[key], ulid()
        table = {
            "table_key": key,
            "table_path": str(self.root / pin["location"]),
            "expected_version": pin["table_version"],
            "post_commit_pin": pin["table_version"] + commits,
        }
        head = {"schema_version": schema_version, "operation_id": name, "started_at": str(time.time_ns() // 1000)}
        said = {**head, "branch": None, "actor_id": None, "writer_kind": kind, "tables": [table]}
        (self.root / "__recovery").mkdir(exist_ok=True)
        (self.root / "__recovery" / f"{name}.json").write_text(json.dumps(said, indent=2))

    def create_branch(self, name: str, source: str | None = None) -> None:
        for path in ("__manifest", "_graph_commits.lance"):
            self.dataset(path).create_branch(name, (source, self.dataset(path, source).version))

    def delete_branch(self, name: str) -> None:
        paths = [pin["location"] for pin in self.pins(name).values() if pin["table_branch"] == name]
        for path in ("__manifest", "_graph_commits.lance", *paths):
            self.dataset(path).branches.delete(name)

    def merge(self, source: str, target: str | None = None) -> str:
        """What differs on the source is taken: enough for histories in which one side changed."""
        changes, deleted = {}, {}
        for key in self.pins(source):
            theirs, ours = self.rows(key, source), self.rows(key, target)
            changes[key] = [row for name, row in theirs.items() if ours.get(name) != row]
            deleted[key] = [name for name in ours if name not in theirs]
        changes = {key: rows for key, rows in changes.items() if rows or deleted[key]}
        head = self.commits(source)[-1]["graph_commit_id"]
        return self.write(changes, target, deleted={key: deleted[key] for key in changes}, merged=head)

    def _row(self, object_id: str, kind: str, key: str, **values: Any) -> dict[str, Any]:
        return {"object_id": object_id, "object_type": kind, "table_key": key, **values}

    def _version(self, key: str, path: str, branch: str | None, version: int, rows: int) -> dict[str, Any]:
        lineage = self.root / path / (f"tree/{branch}" if branch else "")
        file = lineage / "_versions" / f"{2**64 - 1 - version:020d}.manifest"
        where = {"manifest_path": str(file).lstrip("/"), "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
        said = {"table_version": version, "table_branch": branch, "row_count": rows}
        name = f"{key}${version:020d}"
        return self._row(name, "table_version", key, metadata=json.dumps(where, separators=(",", ":")), **said)

    def _commit(self, branch: str | None, version: int, parent: str | None, merged: str | None) -> dict[str, Any]:
        values = (ulid(), branch, version, parent, merged, datetime.now(UTC).replace(tzinfo=None))
        return dict(zip(COMMITS.names, values, strict=True))


def _hash(ir: dict[str, Any]) -> str:
    compact = json.dumps(ir, ensure_ascii=False, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}"


def person(name: str, **values: Any) -> dict[str, Any]:
    return {"id": name, "name": name, **values}


def knows(left: str, right: str, since: int | None = None) -> dict[str, Any]:
    return {"id": ulid(), "src": left, "dst": right, "since": since}


ANN = person(
    "ann",
    age=31,
    born=date(1995, 2, 28),
    mood="calm",
    place=[0.5, 2.0],
    seen=1_700_000_000_123,
    size=7,
    tags=["a", "b"],
)


def people_graph(root: Path) -> OriginalWriter:
    """Three people in a city on main; on `review` a fourth one; a branch that was merged, and one that was deleted."""
    graph = OriginalWriter.init(root)
    graph.write(
        {
            "node:Person": [ANN, person("bob", age=42), person("cy")],
            "node:City": [{"id": "OSL", "code": "OSL", "population": 700_000}],
            "edge:Knows": [knows("ann", "bob", 2020)],
            "edge:LivesIn": [{"id": ulid(), "src": "ann", "dst": "OSL"}],
        }
    )
    for name in ("review", "done", "gone"):
        graph.create_branch(name)
    graph.write({"node:Person": [person("dee", age=5)]}, "review")
    graph.write({"node:City": [{"id": "BGO", "code": "BGO", "population": None}]}, "done")
    graph.write({"node:City": [{"id": "TRD", "code": "TRD", "population": None}]}, "gone")
    graph.delete_branch("gone")
    graph.merge("done")
    graph.write({"node:Person": [person("bob", age=43)]}, actor="olga")
    return graph
