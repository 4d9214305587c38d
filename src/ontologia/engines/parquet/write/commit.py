"""The commit on object storage: files, manifest, lease guard, head swap, indices (RFC 0004 §3.3, RFC 0009 §6.5)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Catalog, Commit, SchemaVersion, TypeLayout, version_number
from ontologia.engines.features import REMOVALS
from ontologia.engines.history import without_removals
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.log import HeadVersion
from ontologia.engines.parquet.log.records import CommitFile, CommitManifest, Head
from ontologia.engines.parquet.log.schemas import KnownTypes, registry_body
from ontologia.engines.parquet.log.swapping import swap_head
from ontologia.engines.parquet.setup import use_feature
from ontologia.engines.parquet.write.identities import check_each_once
from ontologia.engines.row_files import RowFile
from ontologia.engines.staging import Staging
from ontologia.engines.transaction import Transaction, dropped_type_error, removals_refused
from ontologia.errors import (
    CommitOutcomeUnknownError,
    HeadMismatchError,
    LeaseExpiredError,
    OntologiaError,
    StorageBackendError,
)
from ontologia.files.data_files import DataFile
from ontologia.files.json_objects import encode, now
from ontologia.files.spools import Spool
from ontologia.model import SUPERSEDED_BY, TypeRef, TypeSchema
from ontologia.objects import Lease, new_token, new_uuid
from ontologia.query.plan import Plan

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.parquet.engine import ParquetEngine

_log = logging.getLogger(__name__)


class HeadMovedError(HeadMismatchError):
    """Somebody else committed first. The work is done again from the new head."""


class ParquetTransaction(Transaction):
    """One attempt at a commit, under the write lease.

    It begins where RFC 0004 §3.3 has read the head (step 1); `publish` is steps 2 to 8; the lease is released by
    whoever took it (step 9).
    """

    def __init__(self, engine: ParquetEngine, lease: Lease, found: HeadVersion) -> None:
        self._engine = engine
        self._lease = lease
        self._head = found
        self._known = engine.log.schemas(found.head)
        self._schemas = self._known
        self._rows: dict[TypeRef, tuple[RowFile, Spool]] = {}
        self._staged: dict[TypeRef, CommitFile] = {}
        self.compacted_path = found.head.compacted_path
        """The record that the new head names."""
        self.folder = paths.attempt(found.head.commit_id + 1, new_token(4))
        """Where this attempt's files go (§3.3 step 3); a bulk load writes there before `publish`."""
        self.catalog: Catalog = engine.log.catalog(found.head)

    @property
    def commit_id(self) -> int:
        return self._head.head.commit_id + 1

    def keep(self) -> None:
        self._engine.turn.keep()

    # --- what the commit holds ---

    def current(self, schema: TypeSchema, keys: pa.Table) -> pa.Table:
        return self._engine.current(schema, keys, self.catalog)

    def scan(self, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        layout = self.catalog.layouts.get(ref)
        if layout is not None:
            plan = Plan.of(layout.schema, stored=True)
            yield layout.schema_version_id, self._engine.table(plan, None, self.catalog)

    def recorded(self, ref: TypeRef) -> list[SchemaVersion]:
        return self._schemas.of(ref)

    def record(self, schema: TypeSchema, schema_version_id: int | None = None) -> int:
        if schema.ref in self._schemas.dropped:
            raise dropped_type_error(schema.ref)
        paths.check_name(schema.ref)
        known = self.recorded(schema.ref)
        number = version_number(schema, known) if schema_version_id is None else schema_version_id
        if (number, schema.fingerprint) not in ((version.schema_version_id, version.fingerprint) for version in known):
            self._schemas = self._schemas.with_version(SchemaVersion(schema.ref, number, schema, now()))
        return number

    def activate(self, schema: TypeSchema, schema_version_id: int | None = None) -> TypeLayout:
        version = self.record(schema, schema_version_id)
        active = SchemaVersion(schema.ref, version, schema, now(), self.commit_id, is_current=True)
        self._schemas = self._schemas.with_version(active)
        return TypeLayout(schema.ref, schema, version, self.commit_id)

    def restore(self, version: SchemaVersion) -> None:
        """Take over a schema version as another store has it."""
        paths.check_name(version.ref)
        current = version.activation_commit_id is not None
        self._schemas = self._schemas.with_version(replace(version, is_current=current))

    def append(self, layout: TypeLayout, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._file(layout, removals=False).add(rows)

    def remove(self, layout: TypeLayout, rows: pa.Table) -> None:
        if not self._engine.capabilities.removals:
            raise removals_refused(str(layout.ref))
        if rows.num_rows:
            names = [*layout.ref.identity, *(column.physical for column in layout.schema.columns)]
            self._file(layout, removals=True).add(rows.select(names), removed=True)

    def append_versions(self, layout: TypeLayout, rows: pa.Table) -> None:
        """Add rows of a copy. Where removals may be among them, the file takes those from the beginning."""
        kept, removed = without_removals(rows)
        file = self._file(layout, removals=SUPERSEDED_BY in rows.column_names)
        for part, is_removal in ((removed, True), (kept, False)):
            if part.num_rows:
                file.add(part, removed=is_removal)

    def _file(self, layout: TypeLayout, *, removals: bool) -> RowFile:
        """Where rows of a type go; whether it takes removals is decided by what comes first."""
        if layout.ref not in self._rows:
            spool = Spool()
            document = self._engine.has_document
            file = RowFile(layout, self.commit_id, document=document, sink=spool, removals=removals)
            self._rows[layout.ref] = file, spool
        return self._rows[layout.ref][0]

    def staging(self, layout: TypeLayout) -> Staging:
        """Parts are written where they will stay."""
        engine = self._engine
        folder = f"{engine.data_path(self.folder, layout.ref, layout.schema_version_id)}/"
        return Staging(engine.location, folder, layout, self.commit_id, document=engine.has_document)

    def adopt(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None:
        if not parts:
            return
        version = layout.schema_version_id
        path = self._engine.data_path(self.folder, layout.ref, version)
        rows, size = sum(part.row_count or 0 for part in parts), sum(part.size or 0 for part in parts)
        digest = hashlib.sha256("".join(sorted(part.path for part in parts)).encode()).hexdigest()
        self._staged[layout.ref] = CommitFile(layout.ref, path, rows, version, digest, size, tuple(parts))

    def drop(self, ref: TypeRef, *, purge: bool) -> None:
        self._schemas = self._schemas.without(ref, purge=purge)

    # --- the commit itself ---

    def publish(self, metadata: Mapping[str, Any]) -> int:
        """RFC 0004 §3.3 from step 2 on. After step 7 nothing makes it fail."""
        return self.publish_as(Commit(self.commit_id, now(), self._engine.runtime_id, metadata))

    def publish_as(self, made: Commit) -> int:
        """Publish a commit as it was made, here or where it is copied from."""
        commit_id = self.commit_id  # step 2
        folder = self.folder  # step 3
        staged = {ref: file.parts for ref, file in self._staged.items()}
        spools = self._data_files(folder)
        for ref in {*self._rows, *staged}:
            check_each_once(ref, self._engine.reader, staged.get(ref, ()), self._rows.get(ref))
        files = [*(file for file, _ in spools.values() if file is not None), *self._staged.values()]
        manifest = self._manifest(made, files)
        body = encode(manifest.body())
        head = self._next_head(commit_id, paths.manifest(folder), body)
        writes: dict[str, bytes | Spool] = {
            **{key: spool for key, (_, spool) in spools.items()},
            paths.manifest(folder): body,
            **self._schema_objects(),
        }
        removes = any(file.own_removals or any(part.removals for part in file.parts) for file in files)
        if removes and not self._engine.is_copy:  # which is stamped when it is finished
            use_feature(self._engine.objects, REMOVALS)  # a reader that does not know them stays out from here on
        self._unmark_registry(writes)
        self._engine.put_all(writes)  # steps 4 and 5: none of it is visible before the swap
        self._guard(folder, writes)  # step 6
        self._swap(head, folder, writes)  # step 7
        kept = {key: data for key, (_, spool) in spools.items() if (data := spool.in_memory) is not None}
        kept[paths.manifest(folder)] = body
        self._engine.after_swap(self._head.head, head, manifest, self._schemas, self._known, kept)  # step 8
        return commit_id

    def discard_local(self) -> None:
        """Remove what of this commit lies on local disk."""
        for _, spool in self._rows.values():
            spool.discard()

    def _data_files(self, folder: str) -> dict[str, tuple[CommitFile | None, Spool]]:
        """The files that were written here. Where others wrote parts of a type, this one is a part of it, too."""
        found: dict[str, tuple[CommitFile | None, Spool]] = {}
        for ref, (rows, spool) in self._rows.items():
            version = rows.layout.schema_version_id
            path = self._engine.data_path(folder, ref, version)
            rows.close()
            if ref in self._staged:
                own, digest = f"{path}/part-{new_uuid().hex}.parquet", spool.complete()
                part = DataFile(own, spool.size, rows.count, digest, rows.keys, removals=rows.removals)
                self.adopt(rows.layout, [*self._staged[ref].parts, part])
                found[own] = (None, spool)
                continue
            found[path] = (
                CommitFile(
                    ref,
                    path,
                    rows.count,
                    version,
                    spool.complete(),
                    spool.size,
                    keys=rows.keys,
                    own_removals=rows.removals,
                ),
                spool,
            )
        return found

    def _manifest(self, made: Commit, files: list[CommitFile]) -> CommitManifest:
        parent = self._head.head
        return CommitManifest(
            commit_id=self.commit_id,
            parent_commit_id=parent.commit_id or None,
            parent_manifest_path=parent.manifest_path,
            created_at=made.created_at,
            runtime_id=made.runtime_id,
            metadata=made.metadata,
            files=files,
            schemas=self._schemas if self._schemas is not self._known else None,
        )

    def _next_head(self, commit_id: int, manifest_path: str, manifest: bytes) -> Head:
        changed = self._schemas is not self._known
        return replace(
            self._head.head,
            commit_id=commit_id,
            manifest_path=manifest_path,
            updated_at=now(),
            runtime_id=self._engine.runtime_id,
            schema_manifest_path=manifest_path if changed else self._head.head.schema_manifest_path,
            commit_sha256=hashlib.sha256(manifest).hexdigest(),
            compacted_path=self.compacted_path,
        )

    def _schema_objects(self) -> dict[str, bytes]:
        """The schema registry and the known types, written in the locked section before the swap (RFC 0004 §5).

        They may run ahead of a swap that fails. Readers take the catalog from the manifest that the head names, and
        the next commit puts the registry right.
        """
        if self._schemas is self._known or self._engine.is_copy:
            return {}
        changed = {version.ref for version in self._schemas.versions if version not in self._known.versions}
        found = {paths.versions(ref): encode(registry_body(self._schemas.of(ref))) for ref in changed}
        if not set(self._schemas.current) <= set(self._known.current):
            known = self._engine.log.known_types(missing=KnownTypes())
            found[paths.TYPES] = encode(known.adjust(self._schemas.current).body())
        return found

    def _unmark_registry(self, writes: Mapping[str, object]) -> None:
        """Where the registry is about to run ahead, take away first what says that it is right: should the swap not
        follow, the next commit looks."""
        if not any(key.startswith(paths.VERSIONS) for key in writes):
            return
        try:
            known = self._engine.log.known_types()
        except StorageBackendError:  # a list that is missing or cannot be read says nothing
            return
        if known.mirrored is not None:
            self._engine.objects.put(paths.TYPES, encode(replace(known, mirrored=None).body()))

    def _guard(self, folder: str, writes: Iterable[str]) -> None:
        try:
            self._lease.guard()
        except LeaseExpiredError:
            self._discard(folder, writes)
            raise

    def _swap(self, head: Head, folder: str, writes: Iterable[str]) -> None:
        objects, key = self._engine.objects, self._engine.log.head_path
        try:
            swap_head(
                objects,
                key,
                head,
                etag=self._head.etag,
                lost=lambda winner: HeadMovedError(
                    f"{objects.url(key)} moved to commit {winner.get('commit_id')} by {winner.get('runtime_id')!r} "
                    f"before commit {head.commit_id} could be made"
                ),
                buried=lambda winner: self._is_ancestor(winner, head),
                budget_s=self._engine.config.s3_request_timeout_s * 2,
            )
        except HeadMovedError:
            self._discard(folder, writes)
            raise

    def _is_ancestor(self, winner: Mapping[str, Any], ours: Head) -> bool:
        """Whether the head that was found was built on the one we tried to write."""
        try:
            found = Head.read(winner)
            if found.commit_id < ours.commit_id:
                return False
            chain = self._engine.log.chain(found, ours.commit_id - 1)
            return any(path == ours.manifest_path for path, _ in chain)
        except (OntologiaError, ValueError, TypeError, KeyError) as problem:
            raise CommitOutcomeUnknownError(
                f"commit {ours.commit_id} was sent to {self._engine.objects.url(paths.HEAD)}, and whether what is "
                f"there now was built on it could not be read ({problem}). Delete nothing. It was committed if "
                f"{ours.manifest_path} is in the chain of manifests behind the head"
            ) from problem

    def _discard(self, folder: str, writes: Iterable[str]) -> None:
        """Remove the files of an attempt that is settled to have failed. What stays is vacuumed later."""
        self._engine.mirrored = None  # the registry may have run ahead
        try:
            self._engine.objects.delete_many([key for key in writes if key.startswith(folder)])
        except StorageBackendError as problem:
            _log.warning("orphan files stay in %s: %s", folder, problem)
