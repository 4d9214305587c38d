"""The commit log as readers see it: the head, the chain of manifests behind it, indices, and the catalog in force.

The head is read anew for every question. Manifests never change, so each is read once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ontologia.engines.catalog import Catalog, SchemaVersion, TypeLayout
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.records import CommitManifest, Compacted, Head, TypeIndex
from ontologia.engines.parquet.log.schemas import KnownTypes, SchemaCatalog, versions_from
from ontologia.errors import StorageBackendError, UnfinishedCopyError, UninitializedStorageError
from ontologia.files.json_objects import parse
from ontologia.model import TypeRef
from ontologia.objects import Blob, FileCache, ObjectNotFound, Objects

MANIFESTS_KEPT = 4096
NOTHING_COMPACTED = Compacted()


@dataclass(frozen=True, slots=True)
class HeadVersion:
    """A head and the version of the object it was read from, to swap against."""

    head: Head
    etag: str


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """An index and the version of the object it was read from; None where there is no object yet."""

    index: TypeIndex
    etag: str | None


class Log:
    """Reads the control plane of one store."""

    def __init__(
        self,
        objects: Objects,
        cache: FileCache | None = None,
        on_new_store: Callable[[], None] = lambda: None,
        head_path: str = paths.HEAD,
    ) -> None:
        self.objects = objects
        self.head_path = head_path
        self.cache = cache
        self._on_new_store = on_new_store
        self._store_id: str | None = None
        self._manifests: OrderedDict[str, CommitManifest] = OrderedDict()
        self._catalogs: dict[str | None, SchemaCatalog] = {}
        self._remembered: tuple[tuple[str | None, int], dict[Any, Any]] = ((None, 0), {})
        self._compacted: dict[str, Compacted] = {}
        self.indices: dict[TypeRef, IndexVersion] = {}
        """Indices as they were last read or written."""
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Let every later call fail: all of them begin at the head."""
        self._is_closed = True

    def head(self) -> HeadVersion:
        """Who is in force now. A prefix without a head is not initialized."""
        if self._is_closed:
            raise StorageBackendError.closed(self.objects.uri)
        try:
            blob = self.objects.get(self.head_path)
        except ObjectNotFound:
            if self.objects.exists(paths.COPY):
                raise UnfinishedCopyError.at(self.objects.uri) from None
            if self.objects.exists(paths.ENGINE):
                raise StorageBackendError(
                    f"{self.objects.url(paths.HEAD)} is missing, though there is a store around it: it was never "
                    "finished, or it is damaged. Its commits are still there: `onto recover --storage-uri "
                    f"{self.objects.address}` shows the head it would make from them",
                    context={"url": self.objects.url(paths.HEAD), "operation": "open"},
                ) from None
            raise UninitializedStorageError(
                f"there is no ontology at {self.objects.uri}: create one with `onto init --storage-uri "
                f"{self.objects.address}`, or correct the URI",
                context={"url": self.objects.url(paths.HEAD), "operation": "open"},
            ) from None
        recover = f"`onto recover --storage-uri {self.objects.address}` shows the head it would make from the commits"
        head = parse(blob.data, self.objects.url(self.head_path), Head.read, recover)
        if head.store_id != self._store_id:
            self._forget(head.store_id)
        return HeadVersion(head, blob.etag)

    def _forget(self, store_id: str | None) -> None:
        """Somebody laid this prefix out anew: what was remembered is of a store that is gone."""
        self.forget()
        self._store_id = self.objects.store_id = store_id
        self._on_new_store()

    def forget(self) -> None:
        """Read everything anew."""
        with self._lock:
            self._manifests.clear()
            self._catalogs = {}
            self._remembered = ((None, 0), {})
            self.indices = {}

    def manifest(self, path: str) -> CommitManifest:
        with self._lock:
            known = self._manifests.get(path)
            if known is not None:
                self._manifests.move_to_end(path)
                return known
        try:
            return self.remember(path, self._read(path))
        except ObjectNotFound:
            raise StorageBackendError(
                f"the manifest {self.objects.url(path)} is part of the history, and it is gone",
                context={"operation": "read", "url": self.objects.url(path)},
            ) from None

    def _read(self, path: str) -> CommitManifest:
        """From the cache of immutable files, or from the store and into the cache."""
        url = self.objects.url(path)
        data = None if self.cache is None else self.cache.kept(self.objects, path)
        if data is not None:
            return parse(data, url, CommitManifest.read)
        data = self.objects.get(path).data
        manifest = parse(data, url, CommitManifest.read)
        if self.cache is not None:
            self.cache.keep(self.objects, path, data)
        return manifest

    def remember(self, path: str, manifest: CommitManifest) -> CommitManifest:
        """Keep a manifest that was read or written: it never changes."""
        with self._lock:
            self._manifests[path] = manifest
            while len(self._manifests) > MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
        return manifest

    def chain(self, head: Head, down_to: int = 0) -> Iterator[tuple[str, CommitManifest]]:
        """The committed manifests from the head back to the one after `down_to` (RFC 0004 §3.5)."""
        path, expected = head.manifest_path, head.commit_id
        while path is not None and expected > down_to:
            manifest = self.manifest(path)
            if manifest.commit_id != expected:
                raise StorageBackendError(
                    f"{self.objects.url(path)} should be commit {expected}, and says {manifest.commit_id}",
                    context={"operation": "read", "url": self.objects.url(path)},
                )
            yield path, manifest
            path, expected = manifest.parent_manifest_path, expected - 1

    def find(self, head: Head, commit_id: int) -> tuple[str, CommitManifest] | None:
        """The committed manifest of a commit.

        Old ones are found by listing: where a commit has one attempt with a manifest, that is it. Only among several
        does the chain tell which one won.
        """
        if not 1 <= commit_id <= head.commit_id:
            return None
        if head.commit_id - commit_id > 8:
            listed = (info.key for info in self.objects.list(f"{paths.COMMITS}{commit_id}-"))
            attempts = [key for key in listed if key.endswith("/manifest.json")]
            if len(attempts) == 1:
                return attempts[0], self.manifest(attempts[0])
        return next(((path, found) for path, found in self.chain(head, commit_id - 1) if found.commit_id == commit_id))

    def schemas(self, head: Head) -> SchemaCatalog:
        """The schema catalog in force at a head."""
        path = head.schema_manifest_path
        known = self._catalogs.get(path)
        if known is not None:
            return known
        if path is not None:
            found = self.manifest(path).schemas
            if found is None:
                raise StorageBackendError(f"{self.objects.url(path)} should hold the schema catalog, and does not")
        else:
            found = SchemaCatalog() if head.commit_id == 0 else self._read_registry(head)
        if path is not None:  # a registry that no head names may change unseen
            self._catalogs = {path: found}
        return found

    def _read_registry(self, head: Head) -> SchemaCatalog:
        """The catalog from the schema registry, for stores whose head does not name one (RFC 0009 §6.5).

        The registry is written before the swap. After a crash its latest version is one that never came into force,
        and the one before it still is.
        """
        versions: list[SchemaVersion] = []
        for ref in self.known_types().refs:
            key = paths.versions(ref)
            blob = self.objects.get(key)
            found = parse(blob.data, self.objects.url(key), versions_from)
            kept = [version for version in found if self._came_into_force(head, version)]
            ran_ahead = any(version.is_current for version in found if version not in kept)
            if kept and ran_ahead:
                kept[-1] = replace(kept[-1], is_current=True)
            versions += kept
        return SchemaCatalog(tuple(versions))

    def _came_into_force(self, head: Head, version: SchemaVersion) -> bool:
        """Whether the commit that was to bring a version is its own: another may have taken that number."""
        commit_id = version.activation_commit_id
        if commit_id is None:
            return True  # registered, and not said to be in force
        found = self.find(head, commit_id)
        if found is None:
            return False
        file = found[1].file_of(version.ref)
        if file is not None:
            return file.schema_version_id == version.schema_version_id
        index = self.index(version.ref).index  # a type without rows leaves its trace only there
        earlier = [item.get("schema_version_id") for item in index.historical_versions or ()]
        return version.schema_version_id in (1, index.current_schema_version_id, *earlier)

    def compacted(self, head: Head) -> Compacted:
        """Which snapshots stand for files that are gone."""
        path = head.compacted_path
        if path is None:
            return NOTHING_COMPACTED
        known = self._compacted.get(path)
        if known is None:
            try:
                blob = self.objects.get(path)
            except ObjectNotFound:
                raise StorageBackendError(
                    f"{self.objects.url(path)}, which says where the rows of old commits are, is gone",
                    context={"operation": "read", "url": self.objects.url(path)},
                ) from None
            known = self.remember_compacted(path, parse(blob.data, self.objects.url(path), Compacted.read))
        return known

    def remember_compacted(self, path: str, record: Compacted) -> Compacted:
        """Keep a record that was read or written, and the one before it, at which readers may still be."""
        self._compacted = dict([*self._compacted.items()][-1:]) | {path: record}
        return record

    def catalog(self, head: Head) -> Catalog:
        schemas = self.schemas(head)
        layouts = {
            ref: TypeLayout(ref, version.schema, version.schema_version_id, version.activation_commit_id or 0)
            for ref, version in schemas.current.items()
        }
        base = self.compacted(head).base
        of, remembered = self._remembered
        if of[0] is None or of != (head.schema_manifest_path, base):
            remembered = {}
            self._remembered = ((head.schema_manifest_path, base), remembered)
        return Catalog(head.commit_id, layouts, schemas.dropped, head, remembered, base)

    def known_types(self, missing: KnownTypes | None = None) -> KnownTypes:
        """The types whose indices are kept. Raises when the object is malformed, or missing without a stand-in (§5)."""
        try:
            blob = self.objects.get(paths.TYPES)
        except ObjectNotFound:
            if missing is not None:
                return missing
            url = self.objects.url(paths.TYPES)
            context = {"operation": "read", "url": url, "kind": "missing"}
            raise StorageBackendError(f"{url} is missing", context=context) from None
        return parse(blob.data, self.objects.url(paths.TYPES), KnownTypes.read)

    def _repair(self) -> str:
        return f"`onto index repair --apply --storage-uri {self.objects.address}` makes it anew from the commits"

    def index(self, ref: TypeRef) -> IndexVersion:
        """A type's index; a missing one covers nothing. One that is known is sent again only if it changed."""
        key = paths.index(ref)
        known = self.indices.get(ref)
        try:
            if known is None or known.etag is None:
                blob: Blob | None = self.objects.get(key)
            else:
                blob = self.objects.get_if_changed(key, known.etag)
        except ObjectNotFound:
            return IndexVersion(TypeIndex(ref.name), None)
        if blob is None:
            assert known is not None
            return known
        found = IndexVersion(parse(blob.data, self.objects.url(key), TypeIndex.read, self._repair()), blob.etag)
        self.indices[ref] = found
        return found
