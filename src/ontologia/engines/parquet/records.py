"""What the control plane stores, one class per object: read with checks, written back with unknown keys kept.

RFC 0004 §2.3, §2.4, §5 and "Head object schema"; RFC 0009 §4.1, §4.3, §4.4, §6.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Self, TypeVar

from ontologia.engines.base import SchemaVersion
from ontologia.errors import StorageBackendError
from ontologia.model import Kind, TypeRef, TypeSchema

T = TypeVar("T")


def now() -> str:
    return datetime.now(UTC).isoformat()


def parsed(data: bytes, url: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Read an object, or say which one is malformed and how."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            raise TypeError(f"a JSON object is needed, not {type(body).__name__}")
        return read(body)
    except (ValueError, TypeError, KeyError) as problem:
        reason = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
        raise StorageBackendError(
            f"{url} is malformed: {reason}. Nothing was changed", context={"operation": "read", "url": url}
        ) from problem


def encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _whole(body: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {value!r}")
    return value


def _optional_text(body: Mapping[str, Any], name: str) -> str | None:
    return None if body.get(name) is None else _text(body, name)


def _ref(body: Mapping[str, Any]) -> TypeRef:
    kind = body["kind"]
    if kind not in ("entity", "relation"):
        raise ValueError(f"kind must be entity or relation, not {kind!r}")
    return TypeRef(kind, _text(body, "type_name"))


def _rest(body: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in known}


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
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        names = ("commit_id", "manifest_path", "updated_at", "runtime_id", "schema_manifest_path", "commit_sha256")
        head = cls(
            _whole(body, "commit_id"),
            _optional_text(body, "manifest_path"),
            _text(body, "updated_at"),
            _text(body, "runtime_id"),
            _optional_text(body, "schema_manifest_path"),
            _optional_text(body, "commit_sha256"),
            _rest(body, *names, "writer_id"),
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
        }


@dataclass(frozen=True, slots=True)
class Part:
    """One of several Parquet files that together are a data file: a bulk load writes them side by side."""

    path: str
    size: int
    row_count: int

    @classmethod
    def read_all(cls, body: Mapping[str, Any]) -> tuple[Part, ...]:
        return tuple(
            cls(_text(item, "path"), _whole(item, "size"), _whole(item, "row_count")) for item in body.get("parts", ())
        )

    def body(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size, "row_count": self.row_count}


@dataclass(frozen=True, slots=True)
class CommitFile:
    """One data file of a commit. With `parts`, `path` is the folder they are in."""

    ref: TypeRef
    path: str
    row_count: int
    schema_version_id: int
    content_sha256: str
    size: int | None = None
    parts: tuple[Part, ...] = ()

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            _ref(body),
            _text(body, "path"),
            _whole(body, "row_count"),
            _whole(body, "schema_version_id"),
            _text(body, "content_sha256"),
            body.get("size"),
            Part.read_all(body),
        )

    def body(self) -> dict[str, Any]:
        return {
            "kind": self.ref.kind,
            "type_name": self.ref.name,
            "path": self.path,
            "row_count": self.row_count,
            "schema_version_id": self.schema_version_id,
            "content_sha256": self.content_sha256,
            "size": self.size,
            **_parts_body(self.parts),
        }


def _parts_body(parts: Sequence[Part]) -> dict[str, Any]:
    return {"parts": [part.body() for part in parts]} if parts else {}


@dataclass(frozen=True, slots=True)
class Manifest:
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
        schemas = body.get("schemas")
        return cls(
            _whole(body, "commit_id", least=1),
            body.get("parent_commit_id"),
            _optional_text(body, "parent_manifest_path"),
            _text(body, "created_at"),
            _text(body, "runtime_id"),
            dict(body["metadata"]),
            [CommitFile.read(item) for item in body["files"]],
            None if schemas is None else SchemaCatalog.read(schemas),
            _rest(body, *names, "files", "schemas"),
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
class SchemaCatalog:
    """Every schema version of every type, which is current, and what was dropped, with its history or without."""

    versions: Sequence[SchemaVersion] = ()
    dropped: frozenset[TypeRef] = frozenset()
    purged: frozenset[TypeRef] = frozenset()

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            tuple(version_from(item) for item in body["versions"]),
            frozenset(_ref(item) for item in body.get("dropped", ())),
            frozenset(_ref(item) for item in body.get("purged", ())),
        )

    def body(self) -> dict[str, Any]:
        return {
            "versions": [version_body(version) for version in self.versions],
            "dropped": refs_body(self.dropped),
            "purged": refs_body(self.purged),
        }

    def of(self, ref: TypeRef) -> list[SchemaVersion]:
        return [version for version in self.versions if version.ref == ref]

    @property
    def current(self) -> dict[TypeRef, SchemaVersion]:
        return {version.ref: version for version in self.versions if version.is_current}

    def with_version(self, added: SchemaVersion) -> SchemaCatalog:
        """The catalog with a version added or replaced; a current one takes the place of the one before."""
        kept = []
        for version in self.versions:
            if version.ref != added.ref:
                kept.append(version)
            elif version.schema_version_id != added.schema_version_id:
                kept.append(replace(version, is_current=version.is_current and not added.is_current))
        kept.append(added)
        kept.sort(key=lambda version: (version.ref, version.schema_version_id))
        return replace(self, versions=tuple(kept))

    def without(self, ref: TypeRef, *, purge: bool) -> SchemaCatalog:
        versions = (replace(v, is_current=False) if v.ref == ref else v for v in self.versions)
        purged = self.purged | {ref} if purge else self.purged
        return SchemaCatalog(tuple(versions), self.dropped | {ref}, purged)


def refs_body(refs: Iterable[TypeRef]) -> list[dict[str, Any]]:
    return [{"kind": ref.kind, "type_name": ref.name} for ref in sorted(refs)]


def version_body(version: SchemaVersion) -> dict[str, Any]:
    return {
        "schema_version_id": version.schema_version_id,
        "schema": version.schema.to_json(),
        "fingerprint": version.fingerprint,
        "created_at": version.created_at,
        "activation_commit_id": version.activation_commit_id,
        "is_current": version.is_current,
    }


def version_from(body: Mapping[str, Any]) -> SchemaVersion:
    schema = TypeSchema.from_json(body["schema"])
    return SchemaVersion(
        schema.ref,
        _whole(body, "schema_version_id", least=1),
        schema,
        _text(body, "created_at"),
        body.get("activation_commit_id"),
        bool(body.get("is_current", False)),
    )


@dataclass(frozen=True, slots=True)
class KnownTypes:
    """`meta/schema/types.json`: the types whose indices are kept."""

    entities: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    updated_at: str = ""
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        lists = {}
        for name in ("entities", "relations"):
            if not isinstance(body[name], list) or not all(isinstance(item, str) for item in body[name]):
                raise TypeError(f"{name} must be a list of names")
            lists[name] = tuple(body[name])
        rest = _rest(body, "entities", "relations", "updated_at")
        return cls(lists["entities"], lists["relations"], _text(body, "updated_at"), rest)

    @property
    def refs(self) -> list[TypeRef]:
        return [TypeRef("entity", name) for name in self.entities] + [
            TypeRef("relation", name) for name in self.relations
        ]

    @classmethod
    def of(cls, refs: Iterable[TypeRef], other: Mapping[str, Any] | None = None) -> Self:
        known = list(refs)

        def names(kind: Kind) -> tuple[str, ...]:
            return tuple(sorted({ref.name for ref in known if ref.kind == kind}))

        return cls(names("entity"), names("relation"), now(), other or {})

    def adjusted(self, with_: Iterable[TypeRef], without: Iterable[TypeRef] = ()) -> Self:
        """With these types and without those; itself when that is so already."""
        refs = {*self.refs, *with_} - set(without)
        return self if refs == set(self.refs) else self.of(refs, self.other)

    def body(self) -> dict[str, Any]:
        return {
            **self.other,
            "entities": list(self.entities),
            "relations": list(self.relations),
            "updated_at": self.updated_at,
        }


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A file and the range of commits whose rows of the type it holds. A snapshot's range spans several."""

    min_commit_id: int
    max_commit_id: int
    path: str
    schema_version_id: int | None = None
    size: int | None = None
    row_count: int | None = None
    parts: tuple[Part, ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        names = ("min_commit_id", "max_commit_id", "path", "schema_version_id", "size", "row_count", "parts")
        entry = cls(
            _whole(body, "min_commit_id", least=1),
            _whole(body, "max_commit_id", least=1),
            _text(body, "path"),
            body.get("schema_version_id"),
            body.get("size"),
            body.get("row_count"),
            Part.read_all(body),
            _rest(body, *names),
        )
        if entry.min_commit_id > entry.max_commit_id:
            raise ValueError(f"an entry ends before it begins: {entry.min_commit_id} > {entry.max_commit_id}")
        return entry

    @property
    def files(self) -> Sequence[tuple[str, int | None]]:
        """The Parquet files to read, with their sizes where known."""
        return [(part.path, part.size) for part in self.parts] or [(self.path, self.size)]

    @property
    def is_snapshot(self) -> bool:
        return self.path.startswith("snapshots/")

    def covers(self, commit_id: int) -> bool:
        return self.min_commit_id <= commit_id <= self.max_commit_id

    def body(self) -> dict[str, Any]:
        optional = {"schema_version_id": self.schema_version_id, "size": self.size, "row_count": self.row_count}
        return {
            **self.other,
            "min_commit_id": self.min_commit_id,
            "max_commit_id": self.max_commit_id,
            "path": self.path,
            **{name: value for name, value in optional.items() if value is not None},
            **_parts_body(self.parts),
        }


@dataclass(frozen=True, slots=True)
class TypeIndex:
    """`meta/indices/{kind}/{TypeName}.json`: which files hold a type's rows, up to `max_indexed_commit`.

    The last three are of v2 (RFC 0009 §4.3) and absent in v1.
    """

    type_name: str
    max_indexed_commit: int = 0
    entries: Sequence[IndexEntry] = ()
    current_schema_version_id: int | None = None
    activation_commit_id: int | None = None
    historical_versions: Sequence[Mapping[str, Any]] | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        index = cls(
            _text(body, "type_name"),
            _whole(body, "max_indexed_commit"),
            tuple(IndexEntry.read(item) for item in body["entries"]),
            body.get("current_schema_version_id"),
            body.get("activation_commit_id"),
            body.get("historical_versions"),
            _rest(
                body,
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
        }
        if self.historical_versions is not None:
            found |= {
                "current_schema_version_id": self.current_schema_version_id,
                "activation_commit_id": self.activation_commit_id,
                "historical_versions": [dict(item) for item in self.historical_versions],
            }
        return found
