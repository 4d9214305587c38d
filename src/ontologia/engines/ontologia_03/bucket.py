"""A bucket of 0.3: a chain of manifests from the head back, each with the Parquet files of its commit.

Only the chain and the files of commits are read. Indices, and the snapshots that compaction made, repeat what is there;
of a file's columns only `fields_json` is reliable, because 0.3 typed the others by what happened to lie in the file.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.catalog import Commit
from ontologia.engines.changes import operation_of
from ontologia.engines.ontologia_03.detection import REGISTRY
from ontologia.engines.ontologia_03.rows import StoredRow
from ontologia.engines.ontologia_03.source import Change, Source, StoredVersion, drops_of, read_schema
from ontologia.errors import StorageBackendError
from ontologia.model import TypeRef
from ontologia.objects import ObjectNotFound, Objects

HEAD = "meta/head.json"
FILES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class DataFile03:
    """A file of a commit."""

    ref: TypeRef
    path: str
    version: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Manifest03:
    """A commit and its files."""

    commit: Commit
    parent: str | None
    files: tuple[DataFile03, ...]


class Bucket(Source):
    """A bucket, read without a lock. Manifests and files never change, so that each manifest is read once."""

    backend = "s3"

    def __init__(self, objects: Objects, engine_version: str) -> None:
        self.objects = objects
        self.where = objects.uri
        self.engine_version = engine_version
        self._manifests: dict[str, Manifest03] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def event_place(self) -> Objects:
        return self.objects

    def state(self) -> Any:
        return [self._get(key) for key in (HEAD, REGISTRY)]

    def head(self) -> int:
        return int(self._read(HEAD)["commit_id"])

    def versions(self) -> list[StoredVersion]:
        declared = [
            TypeRef(kind, name)
            for kind in ("entity", "relation")
            for name in sorted(self._read(REGISTRY).get(kind, {}))
        ]
        bodies = self.objects.map(lambda ref: self._read(f"meta/schema/versions/{ref.kind}/{ref.name}.json"), declared)
        return [
            StoredVersion(
                ref,
                item["schema_version_id"],
                read_schema(self.where, item["schema_json"]),
                item["created_at"],
                item.get("reason") or "",
            )
            for ref, body in zip(declared, bodies, strict=True)
            for item in body["versions"]
        ]

    def first_commit(self, ref: TypeRef, versions: Sequence[int]) -> int:
        return min((commit for commit, _ in self._files(ref, versions)), default=0)

    def dropped(self) -> frozenset[TypeRef]:
        registry = self._read(REGISTRY)
        gone = {ref for manifest in self._chain() for ref in drops_of(manifest.commit)}
        return frozenset(ref for ref in gone if ref.name not in registry.get(ref.kind, {}))

    def rows(self, ref: TypeRef, versions: Sequence[int], after: int, head: int) -> Iterator[StoredRow]:
        chosen = [file for commit, file in self._files(ref, versions) if after < commit <= head]
        for start in range(0, len(chosen), FILES_AT_ONCE):
            some = chosen[start : start + FILES_AT_ONCE]
            for table in self.objects.map(lambda file: self._table(file, fields=True), some):
                *keys, commits, documents = (column.to_pylist() for column in table.columns)
                rows = zip(zip(*keys, strict=True), commits, documents, strict=True)
                yield from {identity: StoredRow(identity, *rest) for identity, *rest in rows}.values()

    def commits(self) -> Iterator[Commit]:
        return (manifest.commit for manifest in self._chain())

    def commit(self, commit_id: int) -> Commit | None:
        return next((commit for commit in self.commits() if commit.id == commit_id), None)

    def changes(self, commit_id: int) -> Iterable[Change]:
        own = next((manifest for manifest in self._chain() if manifest.commit.id == commit_id), None)
        for file in sorted(own.files, key=lambda file: file.ref) if own is not None else ():
            earlier = [before for commit, before in self._files(file.ref) if commit < commit_id]
            known = {identity for table in self.objects.map(self._table, earlier) for identity in _identities(table)}
            for identity in sorted(set(_identities(self._table(file)))):
                yield file.ref, identity, operation_of(existed=identity in known)

    def facts(self) -> dict[str, Any]:
        return {"storage_uri": self.where}

    def close(self) -> None:
        self._is_closed = True
        self._manifests = {}

    # --- objects ---

    def _get(self, key: str) -> bytes:
        if self._is_closed:
            raise StorageBackendError.closed(self.where)
        return self.objects.get(key).data

    def _read(self, key: str) -> dict[str, Any]:
        try:
            body = json.loads(self._get(key))
            if isinstance(body, dict):
                return body
        except (ValueError, RecursionError):
            pass
        raise StorageBackendError(f"{self.objects.url(key)} is malformed: it is not a JSON object")

    def _chain(self) -> list[Manifest03]:
        """The manifests from the head back. Those not seen before are fetched side by side, not one after another."""
        path: str | None = self._read(HEAD)["manifest_path"]
        with self._lock:
            if path is not None and path not in self._manifests:
                self._fetch()
            found: list[Manifest03] = []
            while path is not None:
                if path not in self._manifests:  # a commit made since the listing
                    self._manifests[path] = self._manifest(path)
                found.append(self._manifests[path])
                path = found[-1].parent
            return found

    def _fetch(self) -> None:
        keys = [info.key for info in self.objects.list("commits/") if info.key.endswith("/manifest.json")]
        new = [key for key in keys if key not in self._manifests]
        self._manifests |= dict(zip(new, self.objects.map(self._manifest, new), strict=True))

    def _manifest(self, key: str) -> Manifest03:
        body = self._read(key)
        try:
            files = tuple(
                DataFile03(
                    TypeRef(item["kind"], item["type_name"]),
                    item["path"],
                    item["schema_version_id"] or 1,
                    item.get("content_sha256"),
                )
                for item in body["files"]
            )
            commit = Commit(body["commit_id"], body["created_at"], body["runtime_id"], body.get("metadata") or {})
            return Manifest03(commit, body["parent_manifest_path"], files)
        except (KeyError, TypeError) as problem:
            raise StorageBackendError(f"{self.objects.url(key)} is malformed: {problem!r}") from problem

    def _files(self, ref: TypeRef, versions: Sequence[int] | None = None) -> list[tuple[int, DataFile03]]:
        """The files of a type with their commits, oldest first. What lies before a drop of the type is gone."""
        found: list[tuple[int, DataFile03]] = []
        for manifest in self._chain():
            if versions is not None and ref in drops_of(manifest.commit):
                break
            found += [
                (manifest.commit.id, file)
                for file in manifest.files
                if file.ref == ref and (versions is None or file.version in versions)
            ]
        return found[::-1]

    def _table(self, file: DataFile03, *, fields: bool = False) -> pa.Table:
        """The reliable columns of a file."""
        url = self.objects.url(file.path)
        try:
            data = self.objects.get(file.path).data
        except ObjectNotFound:
            raise StorageBackendError(f"{url} is missing, and a commit names it") from None
        if file.sha256 is not None and hashlib.sha256(data).hexdigest() != file.sha256:
            raise StorageBackendError(f"{url} is damaged: it is not what its commit wrote")
        names = [*file.ref.identity, *(("commit_id", "fields_json") if fields else ())]
        try:
            return pq.ParquetFile(pa.BufferReader(data)).read(names).select(names)
        except (pa.ArrowException, KeyError) as problem:
            raise StorageBackendError(f"{url} is damaged: {problem}") from problem


def _identities(table: pa.Table) -> Iterable[tuple[str, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
