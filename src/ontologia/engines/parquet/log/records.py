"""The log as the control plane stores it, one class per object: read with checks, unknown keys kept when written back.

RFC 0004 §2.3, §2.4 and "Head object schema"; RFC 0009 §4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

from ontologia.engines.parquet.log.schemas import SchemaCatalog, ref_from
from ontologia.files.data_files import DataFile, KeySpan
from ontologia.files.json_objects import optional_text, optional_whole, record, records, rest, text, whole
from ontologia.model import TypeRef

CONTENT_SHA256 = "content_sha256"
ROWS_IN_FORCE = "rows_in_force"
REMOVALS = "removals"
BASE, FORGOTTEN_AT = "history_begins_at", "forgotten_at"


@dataclass(frozen=True, slots=True)
class Head:
    """`meta/head.json`: the sole authority on what is committed.

    `schema_manifest_path` is ours: the manifest that holds the catalog in force. With it in the head, a change of
    schema becomes visible in the very swap that commits its rows.
    """

    commit_id: int
    manifest_path: str | None
    updated_at: str
    runtime_id: str
    schema_manifest_path: str | None = None
    commit_sha256: str | None = None
    store_id: str | None = None
    """Ours too: made with the store, so that what is remembered of it is not taken for another one's."""
    compacted_path: str | None = None
    """Ours as well: the record of commits whose files are gone, because snapshots have their rows."""
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        names = ("commit_id", "manifest_path", "updated_at", "runtime_id", "schema_manifest_path", "commit_sha256")
        head = cls(
            whole(body, "commit_id"),
            optional_text(body, "manifest_path"),
            text(body, "updated_at"),
            text(body, "runtime_id"),
            optional_text(body, "schema_manifest_path"),
            optional_text(body, "commit_sha256"),
            optional_text(body, "store_id"),
            optional_text(body, "compacted_path"),
            rest(body, *names, "store_id", "compacted_path", "writer_id"),
        )
        if (head.manifest_path is None) != (head.commit_id == 0):
            raise ValueError("manifest_path must be null for commit 0, and only for that")
        return head

    def body(self) -> dict[str, Any]:
        return {
            **self.other,
            "commit_id": self.commit_id,
            "manifest_path": self.manifest_path,
            "updated_at": self.updated_at,
            "runtime_id": self.runtime_id,
            "schema_manifest_path": self.schema_manifest_path,
            **({} if self.commit_sha256 is None else {"commit_sha256": self.commit_sha256}),
            **({} if self.store_id is None else {"store_id": self.store_id}),
            **({} if self.compacted_path is None else {"compacted_path": self.compacted_path}),
        }


def _read_keys(body: Mapping[str, Any]) -> KeySpan | None:
    """Between which keys the rows of a file lie, where it was written down."""
    low, high = optional_text(body, "min_key"), optional_text(body, "max_key")
    return None if low is None or high is None else KeySpan(low, high)


def _keys_body(keys: KeySpan | None) -> dict[str, Any]:
    return {} if keys is None or not keys.is_short else {"min_key": keys.low, "max_key": keys.high}


def _read_removals(body: Mapping[str, Any]) -> int:
    """How many rows say that something was removed; it stands where there are any."""
    return whole(body, REMOVALS) if REMOVALS in body else 0


def _removals_body(removals: int) -> dict[str, Any]:
    return {REMOVALS: removals} if removals else {}


def _read_base(body: Mapping[str, Any]) -> int:
    """The commit at which history begins; it stands where what was before it was given up."""
    return whole(body, BASE, least=1) if BASE in body else 0


def _base_body(base: int) -> dict[str, Any]:
    return {BASE: base} if base else {}


def _read_parts(body: Mapping[str, Any]) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(
            text(item, "path"),
            whole(item, "size"),
            whole(item, "row_count"),
            optional_text(item, CONTENT_SHA256),
            _read_keys(item),
            optional_whole(item, ROWS_IN_FORCE),
            _read_removals(item),
        )
        for item in (records(body, "parts") if "parts" in body else ())
    )


def _parts_body(parts: Sequence[DataFile]) -> dict[str, Any]:
    """Several Parquet files that together are a data file: a bulk load writes them side by side."""
    if not parts:
        return {}
    return {"parts": [_part_body(part) for part in parts]}


def _part_body(part: DataFile) -> dict[str, Any]:
    optional = {CONTENT_SHA256: part.content_sha256, ROWS_IN_FORCE: part.rows_in_force}
    return {
        "path": part.path,
        "size": part.size,
        "row_count": part.row_count,
        **_keys_body(part.keys),
        **{name: value for name, value in optional.items() if value is not None},
        **_removals_body(part.removals),
    }


@dataclass(frozen=True, slots=True)
class CommitFile:
    """One data file of a commit. With `parts`, `path` is the folder they are in."""

    ref: TypeRef
    path: str
    row_count: int
    schema_version_id: int
    content_sha256: str
    size: int | None = None
    parts: tuple[DataFile, ...] = ()
    keys: KeySpan | None = None
    own_removals: int = 0
    """How many rows of one file say that something was removed; parts have theirs."""

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            ref_from(body),
            text(body, "path"),
            whole(body, "row_count"),
            whole(body, "schema_version_id"),
            text(body, "content_sha256"),
            optional_whole(body, "size"),
            _read_parts(body),
            _read_keys(body),
            _read_removals(body),
        )

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The Parquet files to read."""
        told = (self.content_sha256, self.keys, None, self.own_removals)
        return self.parts or (DataFile(self.path, self.size, self.row_count, *told),)

    def body(self) -> dict[str, Any]:
        return {
            "kind": self.ref.kind,
            "type_name": self.ref.name,
            "path": self.path,
            "row_count": self.row_count,
            "schema_version_id": self.schema_version_id,
            "content_sha256": self.content_sha256,
            "size": self.size,
            **_keys_body(self.keys),
            **_removals_body(self.own_removals),
            **_parts_body(self.parts),
        }


@dataclass(frozen=True, slots=True)
class CommitManifest:
    """`commits/{commit_id}-{attempt}/manifest.json`: what a commit holds, and its parent. Never modified.

    `schemas` is ours: the whole catalog from this commit on, present where the commit changed it.
    """

    commit_id: int
    parent_commit_id: int | None
    parent_manifest_path: str | None
    created_at: str
    runtime_id: str
    metadata: Mapping[str, Any]
    files: Sequence[CommitFile]
    schemas: SchemaCatalog | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        names = ("commit_id", "parent_commit_id", "parent_manifest_path", "created_at", "runtime_id", "metadata")
        schemas = None if body.get("schemas") is None else record(body, "schemas")
        return cls(
            whole(body, "commit_id", least=1),
            optional_whole(body, "parent_commit_id"),
            optional_text(body, "parent_manifest_path"),
            text(body, "created_at"),
            text(body, "runtime_id"),
            record(body, "metadata"),
            [CommitFile.read(item) for item in records(body, "files")],
            None if schemas is None else SchemaCatalog.read(schemas),
            rest(body, *names, "files", "schemas"),
        )

    def body(self) -> dict[str, Any]:
        found = {
            **self.other,
            "commit_id": self.commit_id,
            "parent_commit_id": self.parent_commit_id,
            "parent_manifest_path": self.parent_manifest_path,
            "created_at": self.created_at,
            "runtime_id": self.runtime_id,
            "metadata": dict(self.metadata),
            "files": [item.body() for item in self.files],
        }
        return found if self.schemas is None else found | {"schemas": self.schemas.body()}

    def file_of(self, ref: TypeRef) -> CommitFile | None:
        return next((item for item in self.files if item.ref == ref), None)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A file and the range of commits whose rows of the type it holds. A snapshot's range spans several."""

    min_commit_id: int
    max_commit_id: int
    path: str
    schema_version_id: int | None = None
    size: int | None = None
    row_count: int | None = None
    parts: tuple[DataFile, ...] = ()
    content_sha256: str | None = field(default=None, compare=False)
    """The hash of one file; parts have theirs."""
    own_keys: KeySpan | None = field(default=None, compare=False)
    """Between which keys the rows of one file lie; parts have theirs."""
    rows_in_force: int | None = field(default=None, compare=False)
    """How many rows of a snapshot were not superseded when it was made."""
    own_removals: int = field(default=0, compare=False)
    """How many rows of one file say that something was removed; parts have theirs."""
    other: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        names = ("min_commit_id", "max_commit_id", "path", "schema_version_id", "size", "row_count", "parts")
        digest = optional_text(body, CONTENT_SHA256)
        entry = cls(
            whole(body, "min_commit_id", least=1),
            whole(body, "max_commit_id", least=1),
            text(body, "path"),
            optional_whole(body, "schema_version_id"),
            optional_whole(body, "size"),
            optional_whole(body, "row_count"),
            _read_parts(body),
            digest,
            _read_keys(body),
            optional_whole(body, ROWS_IN_FORCE),
            _read_removals(body),
            rest(body, *names, CONTENT_SHA256, "min_key", "max_key", ROWS_IN_FORCE, REMOVALS),
        )
        if entry.min_commit_id > entry.max_commit_id:
            raise ValueError(f"an entry ends before it begins: {entry.min_commit_id} > {entry.max_commit_id}")
        return entry

    @classmethod
    def of_file(cls, first: int, last: int, version: int, file: DataFile) -> Self:
        """A file that has the rows of some commits."""
        told = (file.content_sha256, file.keys, file.rows_in_force, file.removals)
        return cls(first, last, file.path, version, file.size, file.row_count, (), *told)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The Parquet files to read."""
        return self.parts or (
            DataFile(
                self.path,
                self.size,
                self.row_count,
                self.content_sha256,
                self.own_keys,
                self.rows_in_force,
                self.own_removals,
            ),
        )

    @property
    def keys(self) -> KeySpan | None:
        """Between which keys the rows lie."""
        return KeySpan.of(part.keys for part in self.parts) if self.parts else self.own_keys

    @property
    def current_row_count(self) -> int | None:
        """How many identities have a row in force here, where it was written down."""
        if not self.is_snapshot:
            return None if self.row_count is None else self.row_count - self.removals
        counts = [file.rows_in_force for file in self.files]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def removals(self) -> int:
        """How many rows say that something was removed."""
        return sum(part.removals for part in self.parts) if self.parts else self.own_removals

    @property
    def is_snapshot(self) -> bool:
        return self.path.startswith("snapshots/")

    @property
    def is_settled(self) -> bool:
        """Whether its rows know the commit that superseded them: those of a snapshot, and those of a commit that
        removes some, which are superseded by itself."""
        return self.is_snapshot or self.removals > 0

    def covers(self, commit_id: int) -> bool:
        return self.min_commit_id <= commit_id <= self.max_commit_id

    def body(self) -> dict[str, Any]:
        optional = {
            "schema_version_id": self.schema_version_id,
            "size": self.size,
            "row_count": self.row_count,
            CONTENT_SHA256: self.content_sha256,
            ROWS_IN_FORCE: self.rows_in_force,
        }
        return {
            **self.other,
            "min_commit_id": self.min_commit_id,
            "max_commit_id": self.max_commit_id,
            "path": self.path,
            **{name: value for name, value in optional.items() if value is not None},
            **_keys_body(self.own_keys),
            **_removals_body(self.own_removals),
            **_parts_body(self.parts),
        }


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """`meta/indices/{kind}/{TypeName}.json`: which files hold a type's rows, up to `max_indexed_commit`.

    Versions of the schema are of v2 (RFC 0009 §4.3) and absent in v1. `base` is ours: it stands where history was given
    up, and an index counts only beside a head whose record says the same.
    """

    type_name: str
    max_indexed_commit: int = 0
    entries: Sequence[IndexEntry] = ()
    current_schema_version_id: int | None = None
    activation_commit_id: int | None = None
    historical_versions: Sequence[Mapping[str, Any]] | None = None
    base: int = 0
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        index = cls(
            text(body, "type_name"),
            whole(body, "max_indexed_commit"),
            tuple(IndexEntry.read(item) for item in records(body, "entries")),
            optional_whole(body, "current_schema_version_id"),
            optional_whole(body, "activation_commit_id"),
            None if body.get("historical_versions") is None else records(body, "historical_versions"),
            _read_base(body),
            rest(
                body,
                BASE,
                "type_name",
                "max_indexed_commit",
                "entries",
                "current_schema_version_id",
                "activation_commit_id",
                "historical_versions",
            ),
        )
        ordered = sorted(index.entries, key=lambda entry: entry.min_commit_id)
        for before, after in pairwise(ordered):
            if after.min_commit_id <= before.max_commit_id:
                raise ValueError(f"entries overlap at commit {after.min_commit_id}")
        return index

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            **self.other,
            "type_name": self.type_name,
            "max_indexed_commit": self.max_indexed_commit,
            "entries": [entry.body() for entry in self.entries],
            **_base_body(self.base),
        }
        if self.historical_versions is not None:
            found |= {
                "current_schema_version_id": self.current_schema_version_id,
                "activation_commit_id": self.activation_commit_id,
                "historical_versions": [dict(item) for item in self.historical_versions],
            }
        return found


@dataclass(frozen=True, slots=True)
class Compacted:
    """`meta/compacted/{random}.json`: snapshots that stand for files of commits which are gone. Never modified.

    Where history was given up, `base` is the commit at which it begins, and the entries have all that is left of the
    commits up to it: nobody takes rows of these from anywhere else. `forgotten_at` is when that was said.

    Keys are left out of it: who a row is about stands in files and indices, and nowhere else.
    """

    entries: Mapping[TypeRef, tuple[IndexEntry, ...]] = field(default_factory=dict)
    base: int = 0
    forgotten_at: str | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        types = records(body, "types")
        entries = {ref_from(item): tuple(map(IndexEntry.read, records(item, "entries"))) for item in types}
        return cls(entries, _read_base(body), optional_text(body, FORGOTTEN_AT))

    def body(self) -> dict[str, Any]:
        return {
            "types": [
                {"kind": ref.kind, "type_name": ref.name, "entries": [_without_keys(entry).body() for entry in entries]}
                for ref, entries in sorted(self.entries.items())
            ],
            **_base_body(self.base),
            **({} if self.forgotten_at is None else {FORGOTTEN_AT: self.forgotten_at}),
        }

    def of(self, ref: TypeRef) -> tuple[IndexEntry, ...]:
        return self.entries.get(ref, ())

    def has(self, commit_id: int, file: CommitFile) -> bool:
        """Whether something stands for a file of a commit, which may be gone."""
        entries = self.of(file.ref)
        is_given_up = commit_id <= self.base and all(entry.path != file.path for entry in entries)
        return is_given_up or any(stands_for(entry, commit_id, file) for entry in entries)

    @property
    def files(self) -> set[str]:
        return {file.path for entries in self.entries.values() for entry in entries for file in entry.files}


def stands_for(entry: IndexEntry, commit_id: int, file: CommitFile) -> bool:
    """Whether a snapshot has the rows of a commit's file."""
    same = entry.schema_version_id in (None, file.schema_version_id)
    return entry.is_snapshot and entry.covers(commit_id) and same


def _without_keys(entry: IndexEntry) -> IndexEntry:
    return replace(entry, own_keys=None, parts=tuple(replace(part, keys=None) for part in entry.parts))
