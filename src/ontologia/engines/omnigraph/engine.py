"""A graph behind the protocol of engines: commit ids are the manifest's versions on the branch it was opened on,
counted from the empty graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

import pyarrow as pa

from ontologia.config import OntologiaConfig
from ontologia.engines.base import as_outputs, past_versions_refused
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.catalog import Catalog, Commit, SchemaVersion, TypeLayout, summarize_layouts
from ontologia.engines.changes import change_entry, operation_of
from ontologia.engines.duck import DuckEngine
from ontologia.engines.locks import LeasedLocks
from ontologia.engines.omnigraph.edges import has_foreign_ids
from ontologia.engines.omnigraph.reading import (
    FragmentShare,
    GraphRows,
    TypeRows,
    needed_columns,
    pushed_filter,
    row_by_key,
)
from ontologia.engines.omnigraph.search import best_first, order_of, rank_ids
from ontologia.engines.omnigraph.transaction import GraphEngineTransaction
from ontologia.engines.omnigraph.types import GraphType, key_of, pin_version, ref_of, versions_of
from ontologia.engines.pinning import Pinned
from ontologia.engines.shares import ROWS_PER_SHARE, Share
from ontologia.engines.transaction import Transaction
from ontologia.errors import HistoryCutWarning, StorageBackendError, warn
from ontologia.files.duck import python_values
from ontologia.model import Origin, TypeRef, TypeSchema
from ontologia.objects import Location, Objects
from ontologia.omnigraph.comparing import compare
from ontologia.omnigraph.datasets import is_in
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.history import first_parents
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.names import EMPTY, LEASES, MAIN
from ontologia.query.plan import LATEST, Plan, Window
from ontologia.query.query import Fetched, Made, Make, T
from ontologia.query.stored_rows import EmptyRows, StoredRows


class GraphEngine(DuckEngine):
    """The typed ontology on one branch of a graph."""

    backend = "omnigraph"
    engine_version = "v1"
    capabilities = Capabilities(branches=True, removals=True, search=True, unique_fields=True, past_versions=False)

    def __init__(
        self, graph: Graph, config: OntologiaConfig | None = None, *, branch: str = MAIN, commit: int | None = None
    ) -> None:
        super().__init__(Location(graph.objects.address, config or graph.config, branch))
        self.graph = graph
        self.branch = branch
        self.commit = commit
        self._reading = threading.local()
        self._pinned: Pinned[Catalog] = Pinned()
        self._locks = LeasedLocks(graph.objects, lambda name: f"{LEASES}/@lock-{name}.json", self.check_open)
        self._catalogs: tuple[GraphManifest, Catalog] | None = None
        graph.manifest(branch)  # an unknown branch fails here, before anything else

    @property
    def address(self) -> str:
        return f"{self.graph.objects.identity} {self.graph.objects.prefix} {self.branch}"

    def origin(self, window: Window) -> Origin:
        return Origin(self.address, past=self.commit is not None or window != LATEST)

    # --- the catalog ---

    def manifest(self) -> GraphManifest:
        self.check_open()
        version = None if self.commit is None else self.commit + EMPTY
        try:
            return self.graph.publisher.manifest(self.branch, version)
        except StorageBackendError:
            if self.branch != MAIN:
                self.graph.check_branch(self.branch)  # one that is gone since is said to be so
            raise

    def catalog(self) -> Catalog:
        return self._pinned.state(lambda: self.catalog_of(self.manifest()))

    def catalog_of(self, manifest: GraphManifest) -> Catalog:
        known = self._catalogs
        if known is not None and known[0] is manifest:
            return known[1]
        catalog = catalog_of(manifest)
        self._catalogs = (manifest, catalog)
        return catalog

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads of this thread in the block go by the manifest that the first of them saw."""
        return self._pinned.block()

    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        manifest = self.manifest()
        keys = sorted(manifest.tables) if ref is None else [key_of(ref)]
        return [version for key in keys if key in manifest.tables for version in versions_of(manifest, key)]

    # --- questions ---

    def made_of(self, plan: Plan, make: Make[T]) -> Made[T]:
        return self.fetch(plan).made(make)

    def fetch(self, plan: Plan, keys: pa.Table | None = None, catalog: Catalog | None = None) -> Fetched:
        with self._looking_for(keys), self.snapshot():
            if plan.search is not None:
                catalog = catalog or self.catalog()
                found = super().fetch(plan, keys, catalog)
                return Fetched(best_first(plan, self._reading.ranked, found.columns), found.diagnostics)
            if plan.sought_key is None:
                return super().fetch(plan, keys, catalog)
            with self._prepare(plan, catalog) as (statement, diagnostics):
                row = row_by_key(plan, self.tables_in_memory())
                if row is None:
                    return Fetched(self.run(statement, statement.parameters(plan), keys), diagnostics)
                return Fetched([python_values(column) for column in as_outputs(row, statement).columns], diagnostics)

    def table(self, plan: Plan, keys: pa.Table | None = None, catalog: Catalog | None = None) -> pa.Table:
        with self._looking_for(keys), self.snapshot():
            found = super().table(plan, keys, catalog)
            return found if plan.search is None else found.take(order_of(plan, self._reading.ranked, found.columns))

    @contextmanager
    def _looking_for(self, keys: pa.Table | None) -> Iterator[None]:
        self._reading.keys = keys
        try:
            yield
        finally:
            self._reading.keys = None

    @contextmanager
    def stored_rows(
        self, plan: Plan, catalog: Catalog, diagnostics: list[dict[str, Any]]
    ) -> Iterator[Mapping[TypeRef, StoredRows]]:
        found: dict[TypeRef, StoredRows] = {}
        tables: dict[str, pa.Table | None] = {}
        keys = getattr(self._reading, "keys", None)
        for ref in plan.schemas:
            layout = catalog.layouts.get(ref)
            if layout is None:
                pending = self.overlaid(GraphType(plan.schemas[ref]), None)
                stored = GraphRows(ref, versions=False)
                found[ref] = EmptyRows(ref) if pending is None else stored
                tables[stored.name] = pending
                continue
            type = GraphType(layout.schema)
            rows = TypeRows(self.graph, catalog.version, type, layout.activation_commit_id)
            gone: list[int] = []
            where = pushed_filter(plan, type, keys, by_ends=has_foreign_ids(catalog.version, type))
            if plan.search is not None and ref == plan.source:
                where = self._search_filter(plan, type, rows, catalog)
            stored = GraphRows(ref, versions=not plan.window.deduplicated)
            columns = needed_columns(plan, type)
            share = getattr(self._reading, "share", None)
            if share is not None and ref == plan.source:
                parts = list(rows.read_share(share, columns, where))
                read = pa.concat_tables(parts) if parts else rows.read(Window("as_of", 0), columns)
            else:
                read = rows.read(plan.window, columns, where, gone)
            tables[stored.name] = self.overlaid(type, read)
            found[ref] = stored
            if gone:
                diagnostics.append({"reason": "history_cleaned_up", "type": str(ref), "commits": gone})
                warn(
                    HistoryCutWarning(
                        f"{len(gone):,} versions of {ref} were cleaned up and are left out, of commits up to {gone[-1]}"
                    )
                )
        self._reading.tables = tables
        try:
            yield found
        finally:
            self._reading.tables = {}

    def overlaid(self, type: GraphType, rows: pa.Table | None) -> pa.Table | None:
        """Rows as they are read, None for a type that is not stored; a transaction sees its own on top."""
        return rows

    def _search_filter(self, plan: Plan, type: GraphType, rows: TypeRows, catalog: Catalog) -> str:
        """A filter for the rows that a search finds among those that pass the plan's own filters."""
        among = None
        if plan.where:
            passing = self.table(plan.change(search=None, limit=None, offset=None, stored=True), None, catalog)
            among = type.ids_of(passing)
        assert plan.search is not None
        ranked = rank_ids(rows.newest(plan.window), type, plan.search, among)
        self._reading.ranked = {name: place for place, name in enumerate(ranked)}
        return is_in("id", ranked)

    def tables_in_memory(self) -> Mapping[str, pa.Table | None]:
        found: Mapping[str, pa.Table | None] = self._reading.tables
        return found

    # --- rows in bulk ---

    def shares(
        self, schema: TypeSchema, window: Window, *, head: int | None = None, across: bool = False
    ) -> list[Share]:
        """One state is shared out by fragments of the version it pins; changes, by ranges of keys."""
        if across:
            raise past_versions_refused(self.backend)
        catalog = self.catalog()
        layout = catalog.layouts.get(schema.ref)
        if head is None or not window.deduplicated or layout is None:
            return super().shares(schema, window, head=head)
        rows = TypeRows(self.graph, catalog.version, GraphType(layout.schema), layout.activation_commit_id)
        return [Share(files=share) for share in rows.shares(window, head, ROWS_PER_SHARE)]

    def read_share(self, plan: Plan, share: Share) -> Iterator[pa.Table]:
        if not isinstance(share.files, FragmentShare):
            yield from super().read_share(plan, share)
            return
        if not plan.where and plan.only is not None:  # nothing is asked of the rows but to be there
            catalog = self.catalog()
            layout = catalog.layouts[plan.source]
            type = GraphType(layout.schema)
            rows = TypeRows(self.graph, catalog.version, type, layout.activation_commit_id)
            yield from rows.read_share(share.files, needed_columns(plan, type))
            return
        self._reading.share = share.files
        try:
            yield self.table(plan)
        finally:
            self._reading.share = None

    # --- changes ---

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        self.check_open()
        with self.graph.writing(self.branch) as (lease, manifest):
            transaction = GraphEngineTransaction(self, lease, manifest, self.catalog_of(manifest))
            try:
                yield transaction
            finally:
                transaction.clear_staged()

    @property
    def staging_area(self) -> Location:
        return self.location

    def purge(self, ref: TypeRef) -> None:
        """Delete what is stored of a dropped type. Older states of the graph have it no more."""
        path = self.manifest().tables[key_of(ref)].path
        self.graph.objects.delete_many([info.key for info in self.graph.objects.list(f"{path}/")])

    # --- the log ---

    def commits(self, *, limit: int | None = None, since: int | None = None) -> list[Commit]:
        newer = takewhile(lambda commit: commit.id > (since or 0), self.walk())
        return list(islice(newer, limit if limit is None else max(limit, 0)))

    def walk(self) -> Iterator[Commit]:
        for record in first_parents(self.graph, self.manifest()):
            if record.manifest_version > EMPTY:  # not the first, which is the empty graph
                yield _commit(record)

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        found = next((commit for commit in self.walk() if commit.id <= commit_id), None)
        return None if found is None or found.id != commit_id else found.to_dict()

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        manifest = self.manifest()
        changes = []
        for key in sorted(manifest.history, key=ref_of):
            if manifest.tables[key].notes.get("purged"):
                continue
            pins = manifest.history[key]
            for before, pin in zip((None, *pins), pins, strict=False):
                if pin.published_at == commit_id + EMPTY:
                    changes += self._changes(manifest, key, before, pin)
        return changes

    def _changes(self, manifest: GraphManifest, key: str, before: Any, pin: Any) -> list[dict[str, Any]]:
        """What a commit wrote of a type: a new schema version writes every row."""
        ref = ref_of(key)
        versions = versions_of(manifest, key)
        said = [version for version in versions if version.schema_version_id == _version(pin)]
        type = GraphType((said or versions)[-1].schema)
        new = self.graph.datasets.open(pin.path, pin.branch, pin.version)
        old = None if before is None else self.graph.datasets.open(before.path, before.branch, before.version)
        rewritten = (
            old is not None and None not in (_version(before), _version(pin)) and _version(before) != _version(pin)
        )
        found = compare(None if rewritten else old, new)
        known = set() if old is None else set(old.to_table(columns=["id"]).column("id").to_pylist())
        changes = []
        for rows, removed in ((found.written, False), (found.deleted, True)):
            identities = type.from_graph(rows).select(list(ref.identity)).to_pylist()
            for row, name in zip(identities, rows.column("id").to_pylist(), strict=True):
                operation = operation_of(existed=name in known, removed=removed)
                changes.append(change_entry(ref, [row[part] for part in ref.identity], operation))
        return sorted(changes, key=lambda entry: [str(value) for value in entry.values()][2:-1])

    def storage_info(self) -> dict[str, Any]:
        manifest = self.manifest()
        rows = [
            (*v.ref, v.schema_version_id, v.activation_commit_id, v.is_current)
            for key in sorted(manifest.tables)
            for v in versions_of(manifest, key)
        ]
        return {
            "backend": self.backend,
            "engine_version": self.engine_version,
            "storage_uri": self.graph.objects.uri,
            "branch": self.branch,
            "head_commit_id": head_of(manifest),
            "layouts": summarize_layouts(rows),
        }

    @property
    def locks(self) -> LeasedLocks:
        return self._locks

    def event_place(self) -> Objects:
        """Events lie beside the graph; all branches share the queue."""
        return self.graph.objects


def catalog_of(manifest: GraphManifest) -> Catalog:
    """The types of a graph at one of its versions."""
    layouts, dropped = {}, set()
    for key in manifest.tables:
        current = next((version for version in versions_of(manifest, key) if version.is_current), None)
        if current is not None:
            ref, activation = current.ref, current.activation_commit_id or 0
            layouts[ref] = TypeLayout(ref, current.schema, current.schema_version_id, activation, key)
        elif key in manifest.pins:
            raise StorageBackendError(
                f"{manifest.tables[key].path} has rows of {ref_of(key)}, and nothing says what they are: restore the "
                "schema files of the graph from a backup"
            )
        elif key in manifest.tombstones:
            dropped.add(ref_of(key))
    return Catalog(head_of(manifest), layouts, frozenset(dropped), manifest)


def head_of(manifest: GraphManifest) -> int:
    """The newest commit's number; 0 for a graph that nothing was written to."""
    newest = manifest.version if manifest.head is None else manifest.head.manifest_version
    return max(0, newest - EMPTY)


def _commit(record: CommitRecord) -> Commit:
    moment = datetime.fromtimestamp(record.created_at_us / 1_000_000, UTC).isoformat()
    noted = {"graph_commit_id": record.graph_commit_id, "kind": record.details.get("kind")}
    metadata = record.details.get("metadata")
    actor = record.details.get("runtime_id") or record.actor_id or ""
    return Commit(record.manifest_version - EMPTY, moment, actor, metadata if metadata is not None else noted)


def _version(pin: Any) -> int | None:
    return pin_version(pin.text)
