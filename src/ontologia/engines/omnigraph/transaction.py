"""One commit of the typed ontology on a graph: rows collected per type, then the four phases of a graph write."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from ontologia.engines.catalog import Catalog, SchemaVersion, TypeLayout, version_number
from ontologia.engines.omnigraph.edges import has_foreign_ids, take_over_ids
from ontologia.engines.omnigraph.staging import GraphStaging, fragments_of
from ontologia.engines.omnigraph.types import SCHEMA_VERSION, GraphType, carry_notes, key_of, version_note, versions_of
from ontologia.engines.staging import Staging
from ontologia.engines.transaction import Transaction, dropped_type_error, written_twice
from ontologia.errors import MigrationError, OntologiaError
from ontologia.files.data_files import DataFile
from ontologia.files.identity import find_repeated
from ontologia.files.row_spools import RowSpool
from ontologia.model import TypeRef, TypeSchema
from ontologia.objects import Lease
from ontologia.omnigraph.fragments import StagedFragments, rows_of_files
from ontologia.omnigraph.lookups import rows_with
from ontologia.omnigraph.manifest import GraphManifest, Table
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.names import EMPTY, branch_path, stored_branch, table_path
from ontologia.omnigraph.phases import GraphWrite, run_phases
from ontologia.omnigraph.schema_files import IR, make_entry
from ontologia.omnigraph.snapshots import StoredSnapshot
from ontologia.query.plan import LATEST, Plan

if TYPE_CHECKING:
    from ontologia.engines.omnigraph.engine import GraphEngine


STAGED = "__staging/"


class GraphEngineTransaction(Transaction):
    """Collects appended rows; `publish` writes them under the branch's lease, which the engine holds."""

    unique_fields = True

    def __init__(self, engine: GraphEngine, lease: Lease, manifest: GraphManifest, catalog: Catalog) -> None:
        self._engine = engine
        self._lease = lease
        self._manifest = manifest
        self.catalog = catalog
        self._rows: dict[TypeRef, RowSpool] = {}
        self._layouts: dict[TypeRef, TypeLayout] = {}
        self._versions: dict[TypeRef, list[SchemaVersion]] = {}
        self._activated: set[TypeRef] = set()
        self._dropped: dict[TypeRef, bool] = {}
        self._removed: dict[TypeRef, list[str]] = {}
        self._folder = f"{STAGED}{uuid.uuid4().hex}/"
        self._adopted = False
        self._staged: dict[TypeRef, StagedFragments] = {}
        self._cleared: set[str] = set()
        self._committed: set[TypeRef] = set()  #: types whose staged files are the commit's own now

    @property
    def commit_id(self) -> int:
        """Every publish rewrites the head row, so it lands on the next version, or not at all."""
        return self._manifest.version + 1 - EMPTY

    def current(self, schema: TypeSchema, keys: pa.Table) -> pa.Table:
        self.catalog.check({schema.ref: schema})
        plan = Plan.of(schema, LATEST, keyed=True, stored=True, unordered=True)
        return self._engine.table(plan, keys, self.catalog)

    def scan(self, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        layout = self.catalog.layouts.get(ref)
        if layout is not None:
            plan = Plan.of(layout.schema, stored=True)
            yield layout.schema_version_id, self._engine.table(plan, None, self.catalog)

    # --- schemas ---

    def recorded(self, ref: TypeRef) -> list[SchemaVersion]:
        if ref not in self._versions:
            key = key_of(ref)
            self._versions[ref] = versions_of(self._manifest, key) if key in self._manifest.tables else []
        return self._versions[ref]

    def record(self, schema: TypeSchema, schema_version_id: int | None = None) -> int:
        if schema.ref in self.catalog.dropped:
            raise dropped_type_error(schema.ref)
        known = self.recorded(schema.ref)
        number = version_number(schema, known) if schema_version_id is None else schema_version_id
        if schema_version_id is None and any(v.schema_version_id == number and v.schema == schema for v in known):
            return number
        others = [version for version in known if version.schema_version_id != number]
        version = SchemaVersion(schema.ref, number, schema, datetime.now(UTC).isoformat())
        self._versions[schema.ref] = sorted([*others, version], key=lambda item: item.schema_version_id)
        self._layouts.setdefault(schema.ref, TypeLayout(schema.ref, schema, number, self.commit_id))
        return number

    def activate(self, schema: TypeSchema, schema_version_id: int | None = None) -> TypeLayout:
        self._refuse_richer_type(schema.ref)
        if schema.earlier.type is not None:
            self._refuse_richer_type(TypeRef(schema.ref.kind, schema.earlier.type))
        known = self.recorded(schema.ref)
        if schema_version_id is None and known and key_of(schema.ref) not in self._manifest.pins:
            schema_version_id = known[-1].schema_version_id + 1  # what it was before it was dropped is another life
        version = self.record(schema, schema_version_id)
        self._activated.add(schema.ref)
        layout = self._layouts[schema.ref] = TypeLayout(schema.ref, schema, version, self.commit_id)
        return layout

    def _refuse_richer_type(self, ref: TypeRef) -> None:
        """A type of another writer may say more than a class can, as enums and narrower numbers. Writing it anew would
        lose that, so its changes are left to that writer."""
        key, layout = key_of(ref), self.catalog.layouts.get(ref)
        if layout is None or key not in self._manifest.pins:
            return
        table, type = self._manifest.tables[key], GraphType(layout.schema)
        said = table.notes.get("ir", {})
        if said.get("version") != layout.schema_version_id:
            return
        stored = StoredSnapshot(self._engine.graph, self._manifest).dataset(key).schema
        same = {it.name: it.type for it in stored} == {it.name: it.type for it in type.arrow}
        if not same or make_entry(table, layout.schema.to_json()) != said["entry"]:
            raise MigrationError(
                f"{ref} has more in {IR} than a class can say, and would lose it by this change: change it with the "
                "writer that made it"
            )

    def bring_back(self, refs: Iterable[TypeRef]) -> None:
        """Let dropped types be declared again: a schema change may do that, a commit of rows may not."""
        self.catalog = replace(self.catalog, dropped=self.catalog.dropped - set(refs))

    # --- rows ---

    def append(self, layout: TypeLayout, rows: pa.Table) -> None:
        self._layouts.setdefault(layout.ref, layout)
        if rows.num_rows:
            type = GraphType(layout.schema)
            self._rows.setdefault(layout.ref, RowSpool(type.arrow)).add(type.to_graph(rows))

    def staging(self, layout: TypeLayout) -> Staging:
        """Others write fragments where this commit will have them; `adopt` makes one mutation of them."""
        folder = f"{self._folder}{layout.ref.kind}-{quote(layout.ref.name, safe='')}/"
        key = key_of(layout.ref)
        path, branch = table_path(key), self._lineage(key)
        pin = self._manifest.pins.get(key)
        if branch is not None and (pin is None or pin.branch != branch) and path not in self._cleared:
            self._engine.graph.datasets.clear_branch(path, branch)  # now: the fork would take staged files along
            self._cleared.add(path)
        return GraphStaging(self._engine.staging_area, folder, layout, self.commit_id, path=path, branch=branch)

    def _lineage(self, key: str) -> str | None:
        """The lineage that this commit will write a table to: a dataset that is not there begins with the main one."""
        exists = self._engine.graph.datasets.find(table_path(key)) is not None
        return stored_branch(self._manifest.branch) if exists else None

    def adopt(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None:
        self._adopted = True
        self._layouts.setdefault(layout.ref, layout)
        found = fragments_of(self._engine.graph.objects, parts)
        if found:
            key = key_of(layout.ref)
            place = branch_path(table_path(key), self._lineage(key))
            known = self._staged.get(layout.ref)
            fragments = [*(known.fragments if known is not None else ()), *found]
            self._staged[layout.ref] = StagedFragments(place, GraphType(layout.schema).arrow, fragments)

    def clear_staged(self) -> None:
        """Remove what others staged for this commit, best effort: nothing names it afterwards."""
        if self._adopted:
            objects = self._engine.graph.objects
            unused = [key for ref, files in self._staged.items() if ref not in self._committed for key in files.keys]
            with suppress(OntologiaError):
                objects.delete_many([*unused, *(info.key for info in objects.list(self._folder))])

    def remove(self, layout: TypeLayout, rows: pa.Table) -> None:
        """Delete rows by identity."""
        self._layouts.setdefault(layout.ref, layout)
        self._removed.setdefault(layout.ref, []).extend(GraphType(layout.schema).ids_of(rows))

    def drop(self, ref: TypeRef, *, purge: bool) -> None:
        self._dropped[ref] = purge

    # --- the commit itself ---

    def publish(self, metadata: Mapping[str, Any]) -> int:
        changes = [self._change(ref) for ref in sorted(self._layouts) if ref not in self._dropped]
        details = {"metadata": dict(metadata), "runtime_id": self._engine.runtime_id}
        graph = self._engine.graph
        plan = plan_mutation(graph, self._manifest, changes, Checks(endpoints=False), details)
        plan = plan or GraphWrite(details=details)
        tables, tombstones = list(plan.tables), {}
        for ref, purge in self._dropped.items():
            key = key_of(ref)
            tombstones[key] = self._manifest.highest(key) + 1
            if purge:
                tables.append(Table(key, self._manifest.tables[key].path, {"purged": True}))
        plan = GraphWrite(plan.works, tables, tombstones, details=details, pin_notes=plan.pin_notes)
        kind: Any = "SchemaApply" if self._activated or self._dropped else "Mutation"
        self._committed = {ref for ref, files in self._staged.items() if any(it.files is files for it in changes)}
        record = run_phases(graph, self._lease, self._manifest, kind, plan)
        for ref, purge in self._dropped.items():
            if purge:
                self._engine.purge(ref)
        return record.manifest_version - EMPTY

    def _change(self, ref: TypeRef) -> TableChange:
        layout = self._layouts[ref]
        type = GraphType(layout.schema)
        change = TableChange(type.key, None, self._removed.get(ref, ()))
        self._fill(change, ref, type)
        if change.rows is not None:
            removed = pa.table({"id": pa.array(change.deleted, pa.string())})
            repeated = find_repeated(
                pa.concat_tables([removed, change.rows.select(["id"]).cast(removed.schema)]), ["id"]
            )
            if repeated is not None:
                raise written_twice(ref, repeated)
        change.notes = {SCHEMA_VERSION: layout.schema_version_id}
        known = self._manifest.tables.get(type.key)
        if self._versions.get(ref):
            change.table = carry_notes(type.table([version_note(version) for version in self._versions[ref]]), known)
        elif known is not None and known.derived:
            change.table = Table(known.key, known.path, known.notes)
        if type.key not in self._manifest.pins:
            change.schema = type.arrow
        elif ref in self._activated:  # a new version holds every row anew, in its own columns
            change.replace_all = change.reshaped = True
            change.rows = change.rows if change.rows is not None else type.arrow.empty_table()
        take_over_ids(self._engine.graph, self._manifest, type, change)
        return change

    def _fill(self, change: TableChange, ref: TypeRef, type: GraphType) -> None:
        """The rows of a change. Staged fragments are committed as they are where all of their rows are new."""
        spool, files = self._rows.get(ref), self._staged.get(ref)
        if files is None:
            change.rows = None if spool is None else spool.table()
            return
        datasets = self._engine.graph.datasets
        checked = ["id", *(type.columns[name] for name in type.schema.unique)]
        kept = _narrow(type.arrow, checked)
        keys = RowSpool(kept).extend(rows_of_files(datasets, files, checked)).table()
        stored = StoredSnapshot(self._engine.graph, self._manifest).find(change.key)
        replaced = stored is None or ref in self._activated
        # Another writer may have narrower columns.
        fits = stored is None or replaced or stored.schema.equals(type.arrow)
        fits = fits and not has_foreign_ids(self._manifest, type)
        if spool is None and fits and (replaced or not rows_with(stored, "id", keys.column("id"), ["id"]).num_rows):
            change.rows, change.files = keys, files
            return
        change.rows = (spool or RowSpool(type.arrow)).extend(rows_of_files(datasets, files)).table()


def _narrow(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
