"""`__manifest`: the catalog of all tables and their published versions, and how a snapshot is made of its rows (L2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontologia.errors import StorageBackendError
from ontologia.omnigraph.names import MAIN, branch_name

if TYPE_CHECKING:
    from lance import LanceDataset

TABLE = "table"
TABLE_VERSION = "table_version"
TABLE_TOMBSTONE = "table_tombstone"
GRAPH_HEAD = "graph_head"
"""Ours, beside the seed's three kinds: one row that every publish rewrites. Two publishes on one branch therefore
always touch the same key, and the commit it describes is there in the instant the versions are. Readers of the
original skip kinds they do not know."""

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
MANAGED = {"table_version_management": "true"}
ABOUT_THE_FILE = ("manifest_path", "manifest_size", "e_tag", "naming_scheme")
"""What a pin says of the file of its version; the rest are notes."""
UPDATED = "_row_last_updated_at_version"
"""When a row was published. Older releases of Lance give every row that a merge adds the creation version 1."""


def manifest_schema(*, keyed: bool = True) -> pa.Schema:
    text, number = pa.string(), pa.uint64()
    return pa.schema(
        [
            pa.field("object_id", text, nullable=False, metadata={PRIMARY_KEY: "true"} if keyed else None),
            pa.field("object_type", text, nullable=False),
            pa.field("location", text),
            pa.field("metadata", text),
            pa.field("base_objects", pa.list_(pa.field("item", text))),
            pa.field("table_key", text, nullable=False),
            pa.field("table_version", number),
            pa.field("table_branch", text),
            pa.field("row_count", number),
        ]
    )


@dataclass(frozen=True)
class CommitRecord:
    """One graph commit, as the head row carries it until the next one replaces it."""

    graph_commit_id: str
    manifest_branch: str | None
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    created_at_us: int
    actor_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)  #: message, kind of write, metadata of the caller
    manifest_version: int = 0

    @property
    def branch(self) -> str:
        return branch_name(self.manifest_branch)

    @property
    def parents(self) -> tuple[str, ...]:
        """The commit before it on its branch, and for a merge the head of the source."""
        return tuple(it for it in (self.parent_commit_id, self.merged_parent_commit_id) if it is not None)

    @property
    def message(self) -> str | None:
        return self.details.get("message")

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created_at_us / 1_000_000, UTC)

    def to_json(self) -> str:
        content = {name: value for name, value in self.__dict__.items() if name != "manifest_version"}
        return json.dumps({**content, "details": dict(self.details)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, manifest_version: int) -> CommitRecord:
        return cls(**json.loads(text), manifest_version=manifest_version)


@dataclass(frozen=True)
class Pin:
    """The published version of a table: dataset, lineage and number."""

    key: str
    path: str
    version: int
    branch: str | None
    rows: int
    text: str = field(default="{}", compare=False, repr=False)  #: the row's metadata; parsed when asked for
    published_at: int = field(default=0, compare=False)  #: the manifest version that published it

    @property
    def place(self) -> tuple[str, str | None, int]:
        return (self.path, self.branch, self.version)

    @property
    def metadata(self) -> dict[str, Any]:
        return json.loads(self.text)  # type: ignore[no-any-return]

    @property
    def notes(self) -> dict[str, Any]:
        """What is noted with the version besides where its file is; the next one has it too, unless told otherwise."""
        return {name: value for name, value in self.metadata.items() if name not in ABOUT_THE_FILE}

    def row(self) -> dict[str, Any]:
        return row(
            f"{self.key}${self.version:020d}",
            TABLE_VERSION,
            self.key,
            metadata=self.text,
            table_version=self.version,
            table_branch=self.branch,
            row_count=self.rows,
        )


@dataclass(frozen=True)
class Table:
    """A registered table: where its dataset lies, and what the layers above noted about its type."""

    key: str
    path: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] | None = field(default=None, compare=False)
    """What is noted on disk, where the notes follow from what another writer left there."""

    @property
    def derived(self) -> bool:
        return self.stored is not None

    @property
    def kind(self) -> str:
        return self.key.partition(":")[0]

    @property
    def name(self) -> str:
        return self.key.partition(":")[2]

    def row(self) -> dict[str, Any]:
        notes = json.dumps(dict(self.notes), ensure_ascii=False) if self.notes else None
        return row(self.key, TABLE, self.key, location=self.path, metadata=notes)


@dataclass(frozen=True)
class GraphManifest:
    """All of `__manifest` at one version of one branch."""

    branch: str
    version: int
    tables: Mapping[str, Table]
    pins: Mapping[str, Pin]  #: the live version of every table that has one
    history: Mapping[str, tuple[Pin, ...]]  #: every published version, by number
    tombstones: Mapping[str, int]
    head: CommitRecord | None
    touched: int = 0  #: the newest version that published a table; later than the head row where others publish
    identity: bytes = field(default=b"", compare=False, repr=False)  #: of the state it was read from

    def highest(self, key: str) -> int:
        """What an expected version is compared with: the live one, else the tombstone's number, else 0."""
        pin = self.pins.get(key)
        return pin.version if pin is not None else self.tombstones.get(key, 0)

    def table(self, key: str) -> Table:
        if key not in self.pins:
            known = ", ".join(sorted(self.pins)) or "none"
            raise StorageBackendError(f"the graph has no table {key} on branch {self.branch}; it has {known}")
        return self.tables[key]

    def publishing_version(self, key: str, version: int) -> int:
        """The graph version that made a version of a table visible: that of the first pin at or after it."""
        for pin in self.history.get(key, ()):
            if pin.version >= version:
                return pin.published_at
        return self.version


def tombstone_row(key: str, number: int) -> dict[str, Any]:
    return row(f"{key}$tombstone${number:020d}", TABLE_TOMBSTONE, key, table_version=number)


def head_row(record: CommitRecord) -> dict[str, Any]:
    return row(GRAPH_HEAD, GRAPH_HEAD, GRAPH_HEAD, metadata=record.to_json())


def row(object_id: str, object_type: str, key: str, **values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("location", "metadata", "base_objects", "table_version", "table_branch", "row_count"), None)
    return {"object_id": object_id, "object_type": object_type, "table_key": key, **empty, **values}


def rows_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=manifest_schema())


def identity_of(dataset: LanceDataset) -> bytes:
    """What tells one state of `__manifest` from all others, also from one of the same number in a branch, or a whole
    graph, that was deleted and made again: Lance's own manifest of it, which is in memory."""
    found: bytes = dataset._ds.serialized_manifest()
    return found


def read_manifest(dataset: LanceDataset, branch: str = MAIN) -> GraphManifest:
    """Reconstruct: the latest version per (table_key, table_branch) that no tombstone covers; of a table's lineages,
    the newest, since a fork counts on from where it began."""
    return _fold(dataset, branch, _rows_after(dataset, 0), None)


def read_on(dataset: LanceDataset, known: GraphManifest) -> GraphManifest:
    """The same, from an older state and the rows written since. Rows are added and replaced, never removed."""
    found = _rows_after(dataset, known.version)
    head = next((item for item in found if item["object_type"] == GRAPH_HEAD), None)
    record = None if head is None else CommitRecord.from_json(head["metadata"], head[UPDATED])
    if record is None or known.head is None or record.parent_commit_id != known.head.graph_commit_id:
        return read_manifest(dataset, known.branch)  # several commits later, or another branch of the same name
    return _fold(dataset, known.branch, found, known)


def _rows_after(dataset: LanceDataset, version: int) -> list[dict[str, Any]]:
    columns = ["object_type", "location", "metadata", "table_key", "table_version", "table_branch", "row_count"]
    where = f"{UPDATED} > {version}" if version else None
    found: list[dict[str, Any]] = dataset.scanner(columns=[*columns, UPDATED], filter=where).to_table().to_pylist()
    return found


def _fold(
    dataset: LanceDataset, branch: str, rows: Iterable[Mapping[str, Any]], known: GraphManifest | None
) -> GraphManifest:
    tables: dict[str, Table] = {} if known is None else dict(known.tables)
    history: dict[str, tuple[Pin, ...]] = {} if known is None else dict(known.history)
    tombstones: dict[str, int] = {} if known is None else dict(known.tombstones)
    head: CommitRecord | None = None
    touched = 0 if known is None else known.touched
    versions: dict[str, list[Mapping[str, Any]]] = {}
    for item in rows:
        key, kind = item["table_key"], item["object_type"]
        if kind in (TABLE, TABLE_VERSION, TABLE_TOMBSTONE):
            touched = max(touched, item[UPDATED])
        if kind == TABLE:
            tables[key] = Table(key, item["location"], json.loads(item["metadata"] or "{}"))
        elif kind == TABLE_VERSION:
            versions.setdefault(key, []).append(item)
        elif kind == TABLE_TOMBSTONE:
            tombstones[key] = max(tombstones.get(key, 0), item["table_version"])
        elif kind == GRAPH_HEAD:
            head = CommitRecord.from_json(item["metadata"], item[UPDATED])
    for key, items in versions.items():
        replaced = {item["table_version"] for item in items}
        earlier = [pin for pin in history.get(key, ()) if pin.version not in replaced]
        pins = [*earlier, *_pins(key, tables, items)]
        history[key] = tuple(sorted(pins, key=lambda pin: pin.version))
    live = {
        key: pins[-1]
        for key, pins in history.items()
        if pins[-1].version > tombstones.get(key, 0) or key not in tombstones
    }
    identity = identity_of(dataset)
    return GraphManifest(branch, dataset.version, tables, live, history, tombstones, head, touched, identity)


def _pins(key: str, tables: Mapping[str, Table], items: list[Mapping[str, Any]]) -> list[Pin]:
    if key not in tables:
        raise StorageBackendError(f"__manifest has versions of {key} and no row that says where it lies")
    return [
        Pin(
            key,
            tables[key].path,
            item["table_version"],
            item["table_branch"],
            item["row_count"] or 0,
            item["metadata"] or "{}",
            item[UPDATED],
        )
        for item in items
    ]
