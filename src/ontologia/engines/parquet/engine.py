"""The repository on object storage: what s3/v1 and s3/v2 share. In what they differ is in `versions`."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ontologia.config import OntologiaConfig
from ontologia.engines.base import (
    WRITE_LOCK,
    Capabilities,
    Catalog,
    Commit,
    SchemaVersion,
    Transaction,
    TypeLayout,
    change_entry,
    output_schema,
)
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care import compaction, indexes, vacuum
from ontologia.engines.parquet.care.compaction import CompactionReport
from ontologia.engines.parquet.care.indexes import IndexReport, RepairReport
from ontologia.engines.parquet.care.vacuum import VacuumReport
from ontologia.engines.parquet.log.coverage import cover, current_entries, entry_of
from ontologia.engines.parquet.log.log import IndexVersion, Log
from ontologia.engines.parquet.log.records import Head, IndexEntry, Manifest
from ontologia.engines.parquet.log.schemas import SchemaCatalog, refs_body
from ontologia.engines.parquet.read.lookup import Lookup
from ontologia.engines.parquet.read.relation import FilesRelation
from ontologia.engines.parquet.read.scan import scan
from ontologia.engines.parquet.read.tails import Tails
from ontologia.engines.parquet.write import accelerators
from ontologia.engines.parquet.write.commit import HeadMovedError, ParquetTransaction
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import HeadMismatchError, LockContentionError, OntologiaError
from ontologia.files.duck import AS_STORED, Duck, python_values
from ontologia.files.quoting import quote_names
from ontologia.files.reading import FileReader
from ontologia.model import TypeRef, TypeSchema
from ontologia.objects import Lease, Objects, prove_conditions
from ontologia.query.compiler import KEYS, Statement
from ontologia.query.dialects import DIALECTS
from ontologia.query.plan import LATEST, Plan
from ontologia.query.relation import EmptyRelation, Relation

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_log = logging.getLogger(__name__)
ATTEMPTS = 8


class S3Repository(RowwiseRepository):
    """An ontology under one prefix of an object store: many readers and one writer at a time, on any machines."""

    backend = "s3"
    dialect = DIALECTS["duckdb"]
    capabilities = Capabilities(typed_columns=True, object_storage=True)
    has_document: ClassVar[bool]
    """Whether rows carry `fields_json` beside their columns."""

    def __init__(self, objects: Objects, config: OntologiaConfig | None = None) -> None:
        super().__init__(config)
        self.objects = objects
        self.duck = Duck(self.config.s3_duckdb_memory_limit)
        self.reader = FileReader(objects, self.duck, self.config)
        self.tails = Tails(self.duck, self.reader)
        self.lookup = Lookup(self.reader)
        self.log = Log(objects, self.reader.cache)
        self.lease = self._lease(WRITE_LOCK, self.runtime_id, self.config.s3_lease_ttl_ms)
        self.warnings: list[str] = []
        self._one_thread = threading.Lock()
        self._pinned = threading.local()
        self.mirrored: tuple[str | None] | None = None
        """The catalog whose mirrors were last seen to be right, by its manifest."""
        self._indices: dict[TypeRef, IndexVersion] = {}
        self._locks: dict[tuple[str, str], Lease] = {}
        self.opened_at = self.log.head().head  # a prefix that is not initialized fails here, before anything else

    # --- what v1 and v2 say differently ---

    @staticmethod
    def data_path(folder: str, ref: TypeRef, version: int) -> str:
        raise TypeError("only s3/v1 and s3/v2 have paths")

    @staticmethod
    def snapshot_path(ref: TypeRef, version: int, first: int, last: int) -> str:
        raise TypeError("only s3/v1 and s3/v2 have paths")

    def index_extras(self, schemas: SchemaCatalog, ref: TypeRef) -> dict[str, Any]:
        """What an index says of schema versions: nothing, in v1."""
        return {}

    def mirrors(self, schemas: SchemaCatalog) -> dict[str, dict[str, Any]]:
        """The objects that repeat parts of the catalog for others to read: what was dropped, once anything was."""
        return {paths.DROPPED: {"dropped": refs_body(schemas.dropped)}} if schemas.dropped else {}

    # --- reading ---

    def catalog(self) -> Catalog:
        pinned = self._pinned
        head = getattr(pinned, "head", None) or self.log.head().head
        if getattr(pinned, "depth", 0):
            pinned.head = head
        return self.log.catalog(head)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads of this thread in the block go by the head that the first of them saw. Files never change."""
        pinned = self._pinned
        pinned.depth = getattr(pinned, "depth", 0) + 1
        try:
            yield
        finally:
            pinned.depth -= 1
            if not pinned.depth:
                pinned.head = None

    @contextmanager
    def relations(self, plan: Plan, catalog: Catalog) -> Iterator[Mapping[TypeRef, Relation]]:
        head: Head = catalog.version
        layouts = {ref: catalog.layouts.get(ref) for ref in plan.schemas}
        stored = {ref: layout for ref, layout in layouts.items() if layout is not None}
        entries = dict(
            zip(stored, self.objects.map(lambda item: self._entries(head, *item), stored.items()), strict=True)
        )
        found: dict[TypeRef, Relation] = {}
        with ExitStack() as stack:
            for ref in layouts:
                files = scan(entries.get(ref, ()), plan.window, head)
                if not files.entries:
                    found[ref] = EmptyRelation(ref)
                    continue
                loaded = None
                if plan.window.deduplicated and files.upper is None:
                    loaded = self.tails.table(stored[ref], files.tail)
                places = stack.enter_context(self.reader.places(files.files if loaded is None else files.base))
                found[ref] = FilesRelation(ref, files, places, loaded)
            yield found

    def _entries(self, head: Head, ref: TypeRef, layout: TypeLayout) -> list[IndexEntry]:
        found = self.log.index(ref)
        self._indices[ref] = found
        covered = cover(self.log, head, ref, found.index)
        self._diagnostics += covered.diagnostics(ref, head)
        return current_entries(covered, layout)

    def current(self, schema: TypeSchema, keys: pa.Table, catalog: Catalog) -> pa.Table:
        """The rows in force of these identities at the head of a catalog."""
        catalog.check({schema.ref: schema})
        self._diagnostics = []
        entries = self._entries(catalog.version, schema.ref, catalog.layouts[schema.ref])
        return self.lookup.rows(schema, scan(entries, LATEST, catalog.version), keys)

    def _statement(self, plan: Plan, relations: Mapping[TypeRef, Relation]) -> Statement:
        statement = super()._statement(plan, relations)
        sql = statement.sql
        for relation in relations.values():
            if isinstance(relation, FilesRelation):
                sql = relation.fill_in(sql)
        return replace(statement, sql=sql)

    def run(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> list[Sequence[Any]]:
        return [python_values(column) for column in self.run_arrow(statement, parameters, keys).columns]

    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        found = self.duck.table(statement.sql, parameters, **{KEYS: keys})
        return found.rename_columns([output.name for output in statement.outputs]).cast(output_schema(statement))

    def explain_statement(self, statement: Statement, parameters: Mapping[str, Any]) -> str:
        with self.duck.cursor() as cursor:
            rows = cursor.execute(f"EXPLAIN {statement.sql}", dict(parameters)).fetchall()
        return "\n".join(str(row[-1]) for row in rows)

    # --- writing ---

    @contextmanager
    def locked(self) -> Iterator[Lease]:
        """Hold the write lease: one thread of this process, and one process of all."""
        prove_conditions(self.objects)
        timeout_s = self.config.s3_lock_timeout_ms / 1000
        if not self._one_thread.acquire(timeout=timeout_s):
            raise LockContentionError(
                f"another thread of {self.runtime_id} has been writing for more than {timeout_s:g} s: try again, or "
                "raise OntologiaConfig.s3_lock_timeout_ms"
            )
        try:
            with self.lease:
                yield self.lease
        finally:
            self._one_thread.release()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        with self.locked() as lease:
            yield ParquetTransaction(self, lease, self.log.head())

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """RFC 0004 §3.4: after a lost swap, release, start again from the new head, with jittered backoff."""
        for attempt in range(ATTEMPTS):
            try:
                with self.write() as transaction:
                    return work(transaction)
            except HeadMovedError as moved:
                reason = moved
                time.sleep(random.uniform(0.5, 1.0) * min(0.05 * 2**attempt, 1.0))
        raise HeadMismatchError(f"gave up after {ATTEMPTS} lost races: {reason}")

    def put_all(self, writes: Mapping[str, bytes]) -> None:
        """Write several objects side by side."""
        self.objects.map(lambda item: self.objects.put(*item), writes.items())

    def after_swap(
        self,
        before: Head,
        head: Head,
        manifest: Manifest,
        schemas: SchemaCatalog,
        known: SchemaCatalog,
        written: Mapping[str, bytes],
    ) -> None:
        """RFC 0004 §3.3 step 8: the accelerators, best effort. The commit stands whatever happens here."""
        self.warnings = []
        assert head.manifest_path is not None
        self.log.remember(head.manifest_path, manifest)
        try:
            accelerators.advance(self, before, head, manifest, schemas)
            accelerators.mirror(self, head, schemas)
            if schemas.purged != known.purged:
                accelerators.purge(self, sorted(schemas.purged - known.purged))
            self.reader.keep(written)
        except Exception as problem:
            self.warn(f"commit {head.commit_id} is done, but its indices are not up to date: {problem}")

    def warn(self, message: str) -> None:
        """Tell the operator, in the log and on the repository."""
        self.warnings.append(message)
        _log.warning(message)

    # --- the log ---

    def commits(self, *, limit: int | None = None, since: int | None = None) -> list[Commit]:
        return list(islice(self.walk(since or 0), limit if limit is None else max(limit, 0)))

    def walk(self, since: int = 0) -> Iterator[Commit]:
        return (_commit(manifest) for _, manifest in self.log.chain(self.log.head().head, since))

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        found = self.log.find(self.log.head().head, commit_id)
        return None if found is None else _commit(found[1]).to_dict()

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        head = self.log.head().head
        found = self.log.find(head, commit_id)
        if found is None:
            return []
        purged = self.log.schemas(head).purged
        changes = []
        for file in sorted((item for item in found[1].files if item.ref not in purged), key=lambda item: item.ref):
            covered = cover(self.log, head, file.ref, self.log.index(file.ref).index)
            earlier = [entry for entry in covered.entries if entry.min_commit_id < commit_id]
            own = entry_of(commit_id, file)
            for identity, existed in self._changed(file.ref, own, earlier):
                changes.append(change_entry(file.ref, identity, existed))
        return changes

    def _changed(
        self, ref: TypeRef, own: IndexEntry, earlier: Sequence[IndexEntry]
    ) -> list[tuple[tuple[str, ...], bool]]:
        names = quote_names(ref.identity)
        # The commit's own file stands in where nothing is earlier: none of its rows are.
        before = [file for entry in earlier or [own] for file in entry.files]
        with self.reader.places([*own.files, *before]) as places, self.duck.cursor() as cursor:
            values = {
                "own": [places[file.path] for file in own.files],
                "earlier": [places[file.path] for file in before],
                "commit": own.min_commit_id,
            }
            rows = cursor.execute(
                f"""SELECT {names}, coalesce(known, false) FROM read_parquet($own, {AS_STORED})
                    LEFT JOIN (SELECT DISTINCT {names}, true AS known
                               FROM read_parquet($earlier, {AS_STORED}) WHERE commit_id < $commit)
                    USING ({names}) ORDER BY {names}""",
                values,
            ).fetchall()
        return [(tuple(row[:-1]), row[-1]) for row in rows]

    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        schemas = self.log.schemas(self.log.head().head)
        return list(schemas.versions) if ref is None else schemas.of(ref)

    # --- locks ---

    def _lease(self, name: str, owner_id: str, ttl_ms: int) -> Lease:
        return Lease(
            self.objects,
            paths.lock(name),
            ttl_ms / 1000,
            owner_id=owner_id,
            timeout_s=self.config.s3_lock_timeout_ms / 1000,
            timeout_setting="OntologiaConfig.s3_lock_timeout_ms",
        )

    def try_lock(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        held = self._locks.get((name, owner_id))
        if held is not None and held.held:
            return self.renew_lock(owner_id, ttl_ms, name)
        lease = Lease(self.objects, paths.lock(name), ttl_ms / 1000, owner_id=owner_id, timeout_s=0, keep_alive=False)
        try:
            lease.acquire()
        except LockContentionError:
            return False
        self._locks[name, owner_id] = lease
        return True

    def renew_lock(self, owner_id: str, ttl_ms: int, name: str = WRITE_LOCK) -> bool:
        lease = self._locks.get((name, owner_id))
        if lease is None:
            return False
        lease.ttl_s = ttl_ms / 1000
        try:
            lease.renew()
        except OntologiaError:
            return False
        return True

    def release_lock(self, owner_id: str, name: str = WRITE_LOCK) -> bool:
        lease = self._locks.pop((name, owner_id), None)
        return lease is not None and lease.release()

    # --- care ---

    def index_verify(self) -> IndexReport:
        """How every index stands against the head (RFC 0004 §3.5)."""
        return indexes.verify(self)

    def index_repair(self, *, apply: bool = False) -> RepairReport:
        """Rebuild indices that lag, miss the head or cannot be read. A preview unless `apply` is set."""
        return indexes.repair(self, apply=apply)

    def compact(self, type_name: str | None = None, *, apply: bool = False) -> CompactionReport:
        """Merge a type's files into one snapshot, or all types'. A preview unless `apply` is set (RFC 0004 §6)."""
        return compaction.compact(self, type_name, apply=apply)

    def vacuum(self, older_than_s: float = 7 * 86_400.0, *, apply: bool = False) -> VacuumReport:
        """Delete orphan attempts, replaced snapshots and expired locks. A preview unless `apply` is set."""
        return vacuum.vacuum(self, older_than_s, apply=apply)

    # --- about the store ---

    def event_place(self) -> Objects:
        return self.objects

    def storage_info(self) -> dict[str, Any]:
        head = self.log.head().head
        return {
            "backend": self.backend,
            "engine_version": self.engine_version,
            "storage_uri": self.objects.uri,
            "head_commit_id": head.commit_id,
        }

    def close(self) -> None:
        self.duck.close()


def _commit(manifest: Manifest) -> Commit:
    return Commit(manifest.commit_id, manifest.created_at, manifest.runtime_id, manifest.metadata)
