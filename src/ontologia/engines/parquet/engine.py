"""The engine on object storage: what s3/v1 and s3/v2 share. In what they differ is in `versions`."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from ontologia.config import OntologiaConfig
from ontologia.engines.base import PART_ROWS, as_outputs, output_schema
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.care import CompactionReport, IndexReport, RepairReport, VacuumReport, Workers
from ontologia.engines.catalog import Catalog, Commit, SchemaVersion, TypeLayout
from ontologia.engines.duck import DuckEngine
from ontologia.engines.features import Stamp
from ontologia.engines.locks import LeasedLocks
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care import automatic, compaction, indexes, vacuum
from ontologia.engines.parquet.care.erasure import ParquetEraser
from ontologia.engines.parquet.history import ParquetHistory
from ontologia.engines.parquet.log.changes import list_changes
from ontologia.engines.parquet.log.log import Log
from ontologia.engines.parquet.log.records import Head, Manifest
from ontologia.engines.parquet.log.schemas import SchemaCatalog, refs_body
from ontologia.engines.parquet.read import shares
from ontologia.engines.parquet.read.few import FewRows, FewStatement, which_rows
from ontologia.engines.parquet.read.file_rows import CountedRows, FileRows, LayeredRows, can_number
from ontologia.engines.parquet.read.in_order import InOrderStatement, rows_in_order
from ontologia.engines.parquet.read.lookup import Lookup
from ontologia.engines.parquet.read.scan import Scan, rows_in_force
from ontologia.engines.parquet.read.shapes import AnsweredStatement
from ontologia.engines.parquet.read.sought import SoughtRows, SoughtStatement
from ontologia.engines.parquet.read.tails import Tails
from ontologia.engines.parquet.read.type_files import FilesOfTypes, WindowFiles
from ontologia.engines.parquet.setup import stored_version
from ontologia.engines.parquet.write import accelerators
from ontologia.engines.parquet.write.commit import HeadMovedError, ParquetTransaction
from ontologia.engines.parquet.write.holding import hold_lease, write_lease
from ontologia.engines.pinning import Pinned
from ontologia.engines.shares import Share
from ontologia.engines.transaction import Transaction
from ontologia.engines.turns import Turn
from ontologia.errors import HeadMismatchError, StorageBackendError
from ontologia.files.duck import BATCH_ROWS, is_out_of_memory, python_values
from ontologia.files.key_ranges import KeyRange
from ontologia.files.reading import FileReader
from ontologia.files.spools import Spool
from ontologia.model import COMMIT_ID, TypeRef, TypeSchema
from ontologia.objects import Lease, Location, Objects
from ontologia.query.compiler import Statement
from ontologia.query.plan import LATEST, Plan, Window
from ontologia.query.stored_rows import EmptyRows, StoredRows

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.history import Declared

T = TypeVar("T")
_log = logging.getLogger(__name__)
ATTEMPTS = 8


class ParquetEngine(DuckEngine):
    """An ontology under one prefix of an object store: many readers and one writer at a time, on any machines."""

    backend = "s3"
    capabilities = Capabilities(typed_columns=True, object_storage=True, erasure=True)
    has_document: ClassVar[bool]
    """Whether rows carry `fields_json` beside their columns."""

    objects: Objects

    def __init__(self, objects: Objects, config: OntologiaConfig | None = None, *, head_path: str = paths.HEAD) -> None:
        super().__init__(Location(objects.uri, config or OntologiaConfig()))
        self.objects = objects
        self.reader = FileReader(objects, self.duck, self.config)
        self.forget_files()
        self.log = Log(objects, self.reader.cache, self.forget_files, head_path)
        self.files = FilesOfTypes(self.log)
        self.lease = write_lease(objects, self.config, self.runtime_id)
        self.warnings: list[str] = []
        self.turn = Turn()
        self.lease.wanted = self.turn.is_wanted
        self._pinned: Pinned[Head] = Pinned()
        self.mirrored: tuple[str | None] | None = None
        """The catalog whose mirrors were last seen to be right, by its manifest."""
        self._locks = LeasedLocks(objects, paths.lock, self.check_open)
        self.tidying = automatic.Tidying(self)
        self.opened_at = self.log.head().head  # a prefix that is not initialized fails here, before anything else
        self.lease.likely_there = self.opened_at.commit_id > 0

    def forget_files(self) -> None:
        """Begin without what was remembered of files: names of snapshots come again in a store laid out anew."""
        self.tails = Tails(self.duck, self.reader)
        self.lookup = Lookup(self.reader)
        self._migrated: dict[int, Sequence[Mapping[str, Any]]] = {}

    @property
    def is_copy(self) -> bool:
        """Whether this is no store yet: then its indices and registry, which a store around it may use, wait."""
        return self.log.head_path != paths.HEAD

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
        return self.log.catalog(self._pinned.state(lambda: self.log.head().head))

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads of this thread in the block go by the head that the first of them saw. Files never change."""
        return self._pinned.block()

    @contextmanager
    def relations(
        self, plan: Plan, catalog: Catalog, diagnostics: list[dict[str, Any]]
    ) -> Iterator[Mapping[TypeRef, StoredRows]]:
        stored = [ref for ref in plan.schemas if ref in catalog.layouts]
        types = dict(zip(stored, self.objects.map(lambda ref: self.files.at(ref, catalog), stored), strict=True))
        found: dict[TypeRef, StoredRows] = {}
        with ExitStack() as stack:
            for ref in plan.schemas:
                if ref not in types:
                    found[ref] = EmptyRows(ref)
                    continue
                diagnostics += types[ref].diagnostics(self.config)
                files = types[ref].in_window(plan.window)
                if plan.counts_all and files.scan.apart and (rows := files.scan.count) is not None:
                    found[ref] = CountedRows(ref, rows)
                    continue
                if plan.sought_key is not None:
                    found[ref] = SoughtRows(self.lookup, plan.schema, files.scan)
                    continue
                found[ref] = stack.enter_context(self._relation(catalog.layouts[ref], files))
            yield found

    @contextmanager
    def _relation(self, layout: TypeLayout, found: WindowFiles) -> Iterator[StoredRows]:
        """The rows of a type in files. Small commits stay in memory once read."""
        files, split = found.scan, found.layers
        if not files.entries:
            yield EmptyRows(layout.ref)
            return
        if split is None or found.tail is None:
            with self.reader.places(files.files) as places:
                yield FileRows(layout.ref, files, places, numbered=can_number(layout.schema))
            return
        large = [file for entry in split.large for file in entry.files]
        with self.tails.loaded(layout, split, found.tail) as tail, self.reader.places(large) as places:
            yield LayeredRows(layout.ref, files, places, split, tail)

    def scan(self, ref: TypeRef, window: Window, catalog: Catalog) -> Scan:
        """The files of a type in a window; it must be in the catalog, and the window in its history."""
        catalog.check_remembers(window)
        return self.files.at(ref, catalog).in_window(window).scan

    def current(self, schema: TypeSchema, keys: pa.Table, catalog: Catalog) -> pa.Table:
        """The rows in force of these identities at the head of a catalog."""
        catalog.check({schema.ref: schema})
        return self.lookup.rows(schema, self.scan(schema.ref, LATEST, catalog), keys)

    def _statement(self, plan: Plan, relations: Mapping[TypeRef, StoredRows]) -> Statement:
        statement = super()._statement(plan, relations)
        source = relations[plan.source]
        if isinstance(source, SoughtRows) and plan.sought_key is not None:
            return SoughtStatement.of(statement, plan, found=source, key=plan.sought_key)
        if plan.counts_all and isinstance(source, (CountedRows, FileRows)) and source.count is not None:
            return replace(statement, sql=f'SELECT CAST({source.count} AS BIGINT) AS "c0"')
        statement = _filled_in(statement, relations)
        narrow = which_rows(plan, source)
        if narrow is not None and isinstance(source, FileRows):
            which = _filled_in(super()._statement(narrow, relations), relations)
            few = FewRows(self.duck, self.lookup, source.scan, which, which.parameters(narrow))
            return FewStatement.of(statement, plan, rows=few, schema=plan.schema)
        in_order = rows_in_order(self.reader, self.duck, source) if plan.takes_all else None
        return statement if in_order is None else InOrderStatement.of(statement, plan, rows=in_order)

    def run_in_parts(self, statement: Statement, parameters: Mapping[str, Any]) -> Iterator[list[Sequence[Any]]]:
        if not isinstance(statement, AnsweredStatement):
            yield from super().run_in_parts(statement, parameters)
            return
        import pyarrow as pa

        parts = self.run_arrow(statement, parameters, None).to_batches(PART_ROWS)[::-1]
        pa.default_memory_pool().release_unused()  # decoding took more than the rows, and Arrow would keep it
        while parts:  # rows that were given go, while the objects that are made of them come
            yield [python_values(column) for column in parts.pop().columns]

    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        if not isinstance(statement, AnsweredStatement):
            return super().run_arrow(statement, parameters, keys)
        found = statement.table()
        if found is None:
            try:
                return super().run_arrow(statement, parameters, keys)
            except StorageBackendError as problem:
                found = statement.last_resort() if is_out_of_memory(problem) else None
                if found is None:
                    raise
        return as_outputs(found, statement)

    def explain_statement(self, statement: Statement, parameters: Mapping[str, Any]) -> str:
        if isinstance(statement, AnsweredStatement) and (found := statement.explained()) is not None:
            return found
        if isinstance(statement, FewStatement):
            which = super().explain_statement(statement.rows.which, statement.rows.parameters)
            return f"looked up by the identities that this finds: {statement.rows.which.sql}\n{which}"
        return super().explain_statement(statement, parameters)

    # --- reading in bulk ---

    def shares(
        self, schema: TypeSchema, window: Window, *, head: int | None = None, across: bool = False
    ) -> list[Share]:
        found = shares.across_versions if across else shares.by_file_or_key
        catalog = self.catalog()
        return found(self, schema, window, catalog, head) if schema.ref in catalog.layouts else [Share()]

    def read_share(self, plan: Plan, share: Share) -> Iterator[pa.Table]:
        if share.files is None:
            return super().read_share(plan, share)
        if not plan.where and plan.window.deduplicated and plan.only is not None:
            # Nothing is asked of the rows but to be there: they go over as files have them.
            found = rows_in_force(self.reader, share.files, plan.only, share.keys, plan.source.identity[0])
            if found is not None:
                return found
        return self._rows_of_files(plan, share.files)

    def _rows_of_files(self, plan: Plan, files: Scan) -> Iterator[pa.Table]:
        """The answer to a plan from these files alone, a batch at a time."""
        import pyarrow as pa

        with self.reader.places(files.files) as places:
            rows = FileRows(plan.source, files, places, numbered=can_number(plan.schema))
            statement = self._statement(plan, {plan.source: rows})
            schema = output_schema(statement)
            for batch in self.duck.batches(statement.sql, statement.parameters(plan), BATCH_ROWS):
                yield pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)

    def rows_of(
        self, schema: TypeSchema, wanted: pa.Table, window: Window, catalog: Catalog | None = None, *, dense: bool
    ) -> pa.Table:
        import pyarrow as pa

        catalog = catalog or self.catalog()
        if schema.ref not in catalog.layouts:
            return super().rows_of(schema, wanted, window, catalog, dense=dense)
        files = self.files.at(schema.ref, catalog).in_window(window)
        names = [COMMIT_ID, *wanted.column_names]
        if dense:
            keys = wanted.column(schema.ref.identity[0])
            within = KeyRange(keys[0].as_py(), f"{keys[-1].as_py()}\0")
            found = list(rows_in_force(self.reader, files.scan, names, within, schema.ref.identity[0]) or ())
            if found:
                return pa.concat_tables(found)
        if files.compares_large:  # what it holds is what it finds, however many rows supersede each other
            keys = wanted.select(list(schema.ref.identity))
            return Lookup(self.reader).rows(schema, files.scan, keys).select(names)
        return super().rows_of(schema, wanted, window, catalog, dense=dense)

    def count_stored(self, ref: TypeRef, catalog: Catalog) -> int | None:
        if ref not in catalog.layouts:
            return None
        return sum(entry.row_count or 0 for entry in self.scan(ref, LATEST, catalog).entries)

    def files_in_force(self, ref: TypeRef, window: Window, catalog: Catalog) -> Scan | None:
        return self.scan(ref, window, catalog) if ref in catalog.layouts else None

    def sizes_of(self, layout: TypeLayout) -> list[int] | None:
        try:
            entries = self.log.index(layout.ref).index.entries
        except StorageBackendError:  # told by the health of the index
            return []
        return [entry.size or 0 for entry in entries]

    def catalog_at(self, commit_id: int) -> Catalog:
        """With the head set back to a commit, so that the files of later ones are not read."""
        catalog = self.catalog()
        if commit_id >= catalog.head:
            return catalog
        found = self.log.find(catalog.version, commit_id)
        if found is None:
            return catalog
        back = replace(catalog.version, commit_id=commit_id, manifest_path=found[0])
        return replace(catalog, head=commit_id, version=back)

    # --- writing ---

    @property
    def staging_area(self) -> Location:
        return self.location

    def locked(self) -> AbstractContextManager[Lease]:
        """Hold the write lease: one thread of this process, and one process of all."""
        return hold_lease(self)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        with self.locked() as lease:
            transaction = ParquetTransaction(self, lease, self.log.head())
            try:
                yield transaction
            finally:
                transaction.discard_local()

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

    def put_all(self, writes: Mapping[str, bytes | Spool]) -> None:
        """Write several objects side by side."""

        def put(item: tuple[str, bytes | Spool]) -> None:
            key, content = item
            if isinstance(content, Spool):
                content.put(self.objects, key)
            else:
                self.objects.put(key, content)

        self.objects.map(put, writes.items())

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
        if self.is_copy:
            return
        try:
            accelerators.bring_up(self, before, head, manifest, schemas, known)
            self.reader.keep(written)
            self.tidying.look_at(manifest)
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
        return list_changes(self, commit_id)

    def layouts_of(self, ref: TypeRef, catalog: Catalog) -> list[TypeLayout]:
        return [
            TypeLayout(ref, version.schema, version.schema_version_id, version.activation_commit_id)
            for version in self.log.schemas(catalog.version).of(ref)
            if version.activation_commit_id is not None and version.activation_commit_id <= catalog.head
        ]

    def catalog_at_version(self, layout: TypeLayout, until: int | None, catalog: Catalog) -> Catalog:
        """The index of a type that has another name now ends with that name: it is read as of then."""
        if until is not None and layout.ref in catalog.dropped:
            last, index = until - 1, self.log.index(layout.ref).index
            if index.base == catalog.base and index.max_indexed_commit >= last:
                head = replace(catalog.version, commit_id=last, manifest_path=None)
                catalog = replace(catalog, head=last, version=head)
            else:
                catalog = replace(self.catalog_at(last), layouts=catalog.layouts)
        return super().catalog_at_version(layout, until, catalog)

    def migrated_types(self, commit_id: int) -> Sequence[Mapping[str, Any]]:
        """An old commit is looked up by listing, so that it is remembered: commits do not change."""
        found = self._migrated.get(commit_id)
        if found is None:
            found = self._migrated[commit_id] = super().migrated_types(commit_id)
        return found

    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        schemas = self.log.schemas(self.log.head().head)
        return list(schemas.versions) if ref is None else schemas.of(ref)

    def history(self, declared: Declared | None = None) -> ParquetHistory:
        return ParquetHistory(self)

    @property
    def locks(self) -> LeasedLocks:
        return self._locks

    # --- care ---

    def index_verify(self) -> IndexReport:
        """How every index stands against the head (RFC 0004 §3.5)."""
        return indexes.verify(self)

    def index_repair(self, *, apply: bool = False) -> RepairReport:
        """Rebuild indices that lag, miss the head or cannot be read. A preview unless `apply` is set."""
        return indexes.repair(self, apply=apply)

    def compact(
        self, type_name: str | None = None, *, apply: bool = False, workers: Workers | None = None
    ) -> CompactionReport:
        """Merge the files of each type into one snapshot (RFC 0004 §6). A preview unless `apply` is set."""
        return compaction.compact(self, type_name, apply=apply, workers=workers)

    def tidy(self, after: Literal["load", "commit"]) -> None:
        self.tidying.begin(after)

    def close(self) -> None:
        self.tidying.wait()
        self.log.close()
        super().close()

    def vacuum(
        self, older_than_s: float = 7 * 86_400.0, *, apply: bool = False, compacted: bool = False
    ) -> VacuumReport:
        """Delete orphan attempts, replaced snapshots and expired locks. A preview unless `apply` is set.

        With `compacted`, files of commits go as well whose rows a snapshot has.
        """
        return vacuum.vacuum(self, older_than_s, apply=apply, compacted=compacted)

    def eraser(self) -> ParquetEraser:
        return ParquetEraser(self)

    # --- about the store ---

    def features(self) -> frozenset[str]:
        return Stamp.read(stored_version(self.objects)).features

    def event_place(self) -> Objects:
        return self.objects

    def storage_info(self) -> dict[str, Any]:
        head = self.log.head().head
        base = self.log.compacted(head).base
        return {
            "backend": self.backend,
            "engine_version": self.engine_version,
            "storage_uri": self.objects.uri,
            "head_commit_id": head.commit_id,
            **({"history_begins_at": base} if base else {}),
            **({"features": features} if (features := sorted(self.features())) else {}),
        }


def _commit(manifest: Manifest) -> Commit:
    return Commit(manifest.commit_id, manifest.created_at, manifest.runtime_id, manifest.metadata)


def _filled_in(statement: Statement, relations: Mapping[TypeRef, StoredRows]) -> Statement:
    """A statement with the names that tables have now."""
    sql = statement.sql
    for relation in relations.values():
        sql = relation.fill_in(sql)
    return replace(statement, sql=sql)
