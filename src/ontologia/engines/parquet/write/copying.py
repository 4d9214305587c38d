"""A prefix that becomes the copy of another store: an empty one, or the store's own, on the way from v1 to v2.

The copy has a head of its own, `meta/copy.json`, that moves by the same protocol as that of a store. Nobody else reads
it, so that a prefix without `meta/head.json` stays no store; in place, the old head stays in force. What others see
(indices, registry, stamp, head) is written at the end, the head last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ontologia.engines.catalog import SchemaVersion, TypeLayout
from ontologia.engines.features import FORGOTTEN, REMOVALS, Stamp
from ontologia.engines.history import COPYING, CopyNote, CopyTarget, PastCommit
from ontologia.engines.parquet import paths, setup
from ontologia.engines.parquet.care.retention import put_record
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.engines.parquet.history import ParquetHistory
from ontologia.engines.parquet.log.coverage import cover, entry_of, renew
from ontologia.engines.parquet.log.log import IndexVersion
from ontologia.engines.parquet.log.records import Compacted, Head, IndexEntry, TypeIndex
from ontologia.engines.parquet.log.schemas import KnownTypes, SchemaCatalog, registry_body
from ontologia.engines.parquet.log.swapping import names_manifest_of, swap_head, written_meanwhile_error
from ontologia.engines.parquet.write.accelerators import write_index
from ontologia.engines.parquet.write.commit import ParquetTransaction
from ontologia.errors import ConcurrentWriteError
from ontologia.files.json_objects import encode, now, parse
from ontologia.model import TypeRef
from ontologia.objects import Lease, ObjectNotFound, Objects, new_uuid, prove_conditions

NOTE = "copy"
"""Under which key the head of a copy says what it is."""


def unfinished_copy(objects: Objects) -> CopyNote | None:
    """The copy that a prefix is in the middle of becoming."""
    try:
        blob = objects.get(paths.COPY)
    except ObjectNotFound:
        return None
    return parse(blob.data, objects.url(paths.COPY), lambda body: CopyNote.read(body[NOTE]))


def begin_copy(objects: Objects, note: CopyNote) -> None:
    """Make the head of a copy that has nothing yet."""
    prove_conditions(objects)
    store_id: str | None = new_uuid().hex
    if note.in_place:
        store_id = parse(objects.get(paths.HEAD).data, objects.url(paths.HEAD), Head.read).store_id
    else:
        setup.check_free(objects)
    first = Head(0, None, now(), "onto-copy", store_id=store_id, other={NOTE: note.body()})
    swap_head(
        objects,
        paths.COPY,
        first,
        etag=None,
        lost=lambda _: ConcurrentWriteError(f"{objects.uri}: somebody else began a copy here just now"),
    )


def _layout(version: SchemaVersion) -> TypeLayout:
    return TypeLayout(version.ref, version.schema, version.schema_version_id, version.activation_commit_id or 0)


class ParquetCopy(CopyTarget):
    """Takes commits under a prefix, one after the other, holding the write lease."""

    takes_parts = True

    def __init__(self, engine: ParquetEngine, note: CopyNote, lease: Lease) -> None:
        self.engine = engine
        self.note = note
        self._lease = lease

    @property
    def done(self) -> int:
        return self.engine.log.head().head.commit_id

    def write(self, commits: Iterable[PastCommit]) -> None:
        for past in commits:
            transaction = ParquetTransaction(self.engine, self._lease, self.engine.log.head())
            try:
                self._write(transaction, past)
            finally:
                transaction.discard_local()

    def _write(self, transaction: ParquetTransaction, past: PastCommit) -> None:
        for version in past.recorded:
            transaction.restore(version)
        for version, rows in past.rows:
            transaction.append_versions(_layout(version), rows)
        for version, write_parts in past.parts:
            transaction.adopt(_layout(version), write_parts(transaction.staging(_layout(version))))
        for ref, purge in past.dropped.items():
            transaction.drop(ref, purge=purge)
        transaction.publish_as(past.commit)

    def history(self) -> ParquetHistory:
        return ParquetHistory(self.engine)

    def begin_history_at(self, base: int) -> None:
        """What was copied of the commits up to there is all that is left: the record names their files as they are."""
        objects, found = self.engine.objects, self.engine.log.head()
        entries: dict[TypeRef, list[IndexEntry]] = {}
        for _, manifest in self.engine.log.chain(found.head):
            for file in manifest.files if manifest.commit_id <= base else ():
                entries.setdefault(file.ref, []).insert(0, entry_of(manifest.commit_id, file))
        record = Compacted({ref: tuple(some) for ref, some in entries.items()}, base, now())
        head = replace(found.head, compacted_path=put_record(self.engine, record))
        swap_head(
            objects,
            paths.COPY,
            head,
            etag=found.etag,
            lost=lambda _: ConcurrentWriteError(f"{objects.uri}: somebody else goes on with this copy: look again"),
            buried=lambda winner: Head.read(winner).compacted_path == head.compacted_path,
        )

    def finish(self) -> None:
        """Every step says the same when it is done again; after the head, the store is there."""
        objects, found = self.engine.objects, self.engine.log.head()
        head = replace(found.head, other={name: value for name, value in found.head.other.items() if name != NOTE})
        schemas = self.engine.log.schemas(head)
        stamp = str(Stamp(self.engine.engine_version, self._features(head)))
        if self.note.in_place:
            self._stamp(f"{COPYING}{stamp}")
        self._write_registry(schemas)
        for ref in sorted({version.ref for version in schemas.versions} - schemas.purged):
            self._write_index(ref, head, schemas)
        self._lease.guard()
        if not self.note.in_place:
            self._stamp(stamp)
        self._put_head(head)
        if self.note.in_place:
            self._stamp(stamp)
        objects.delete(paths.COPY)

    def _features(self, head: Head) -> frozenset[str]:
        """What the store uses beyond its engine version."""
        files = (file for _, manifest in self.engine.log.chain(head) for file in manifest.files)
        removes = any(file.own_removals or any(part.removals for part in file.parts) for file in files)
        used = {REMOVALS: removes, FORGOTTEN: self.engine.log.compacted(head).base > 0}
        return frozenset(feature for feature, is_used in used.items() if is_used)

    def _stamp(self, version: str) -> None:
        objects = self.engine.objects
        body = {"backend": "s3", "created_at": self.note.started_at}
        if objects.exists(paths.ENGINE):
            body = parse(objects.get(paths.ENGINE).data, objects.url(paths.ENGINE), dict)
        objects.put(paths.ENGINE, encode({**body, "engine_version": version}))

    def _write_registry(self, schemas: SchemaCatalog) -> None:
        """The objects that repeat the catalog for others."""
        writes = {paths.TYPES: encode(KnownTypes.of(schemas.current).body())}
        for ref in {version.ref for version in schemas.versions}:
            writes[paths.versions(ref)] = encode(registry_body(schemas.of(ref)))
        for key, body in self.engine.mirrors(schemas).items():
            writes[key] = encode({**body, "updated_at": now()})
        self.engine.put_all(writes)

    def _write_index(self, ref: TypeRef, head: Head, schemas: SchemaCatalog) -> None:
        entries = cover(self.engine.log, head, ref, TypeIndex(ref.name)).entries
        etag = self.engine.log.index(ref).etag
        base = self.engine.log.compacted(head).base
        index = renew(TypeIndex(ref.name), ref, head.commit_id, entries, base)
        write_index(self.engine, ref, IndexVersion(index, etag), index, schemas)

    def _put_head(self, head: Head) -> None:
        objects = self.engine.objects
        before = objects.get(paths.HEAD) if objects.exists(paths.HEAD) else None
        if before is not None:
            old = parse(before.data, objects.url(paths.HEAD), Head.read)
            if old.manifest_path == head.manifest_path:
                return  # done before this was cut off
            if old.commit_id != head.commit_id:
                raise ConcurrentWriteError(
                    f"{objects.uri} moved on to commit {old.commit_id} meanwhile: do it again, it goes on from there"
                )
        swap_head(
            objects,
            paths.HEAD,
            replace(head, updated_at=now()),
            etag=None if before is None else before.etag,
            lost=lambda _: written_meanwhile_error(objects),
            buried=names_manifest_of(head),
        )
