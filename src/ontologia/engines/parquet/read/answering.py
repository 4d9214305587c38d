"""How a store on object storage answers: the reading half of the engine.

A question is answered by rows of files through DuckDB, unless something quicker knows the rows: a count that entries
tell, one row by its key, the few rows of a page, or all of them in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ontologia.config import OntologiaConfig
from ontologia.engines.base import PART_ROWS, as_outputs, output_schema
from ontologia.engines.catalog import Catalog, TypeLayout
from ontologia.engines.duck import DuckEngine
from ontologia.engines.parquet.log.log import Log
from ontologia.engines.parquet.log.records import Head
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
from ontologia.engines.pinning import Pinned
from ontologia.engines.shares import Share
from ontologia.errors import StorageBackendError
from ontologia.files.duck import BATCH_ROWS, is_out_of_memory, python_values
from ontologia.files.key_ranges import KeyRange
from ontologia.files.reading import FileReader
from ontologia.model import COMMIT_ID, TypeRef, TypeSchema
from ontologia.objects import Location, Objects
from ontologia.query.compiler import Statement
from ontologia.query.plan import LATEST, Plan, Window
from ontologia.query.stored_rows import EmptyRows, StoredRows


class ParquetReads(DuckEngine):
    """What an ontology under one prefix of an object store is asked. Files never change, so readers wait for nobody."""

    objects: Objects

    def __init__(self, objects: Objects, config: OntologiaConfig | None, head_path: str) -> None:
        super().__init__(Location(objects.address, config or OntologiaConfig()))
        self.objects = objects
        self.reader = FileReader(objects, self.duck, self.config)
        self.forget_files()
        self.log = Log(objects, self.reader.cache, self.forget_files, head_path)
        self.files = FilesOfTypes(self.log)
        self._pinned: Pinned[Head] = Pinned()

    def forget_files(self) -> None:
        """Begin without what was remembered of files: names of snapshots come again in a store laid out anew."""
        self.tails = Tails(self.duck, self.reader)
        self.lookup = Lookup(self.reader)
        self._migrated: dict[int, Sequence[Mapping[str, Any]]] = {}

    # --- a question ---

    def catalog(self) -> Catalog:
        return self.log.catalog(self._pinned.state(lambda: self.log.head().head))

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads of this thread in the block go by the head that the first of them saw. Files never change."""
        return self._pinned.block()

    @contextmanager
    def stored_rows(
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
                found[ref] = stack.enter_context(self._rows_of_type(catalog.layouts[ref], files))
            yield found

    @contextmanager
    def _rows_of_type(self, layout: TypeLayout, found: WindowFiles) -> Iterator[StoredRows]:
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
        with self.tails.load(layout, split, found.tail) as tail, self.reader.places(large) as places:
            yield LayeredRows(layout.ref, files, places, split, tail)

    def scan(self, ref: TypeRef, window: Window, catalog: Catalog) -> Scan:
        """The files of a type in a window; it must be in the catalog, and the window in its history."""
        catalog.check_remembers(window)
        return self.files.at(ref, catalog).in_window(window).scan

    def current(self, schema: TypeSchema, keys: pa.Table, catalog: Catalog) -> pa.Table:
        """The rows in force of these identities at the head of a catalog."""
        catalog.check({schema.ref: schema})
        return self.lookup.rows(schema, self.scan(schema.ref, LATEST, catalog), keys)

    def _statement(self, plan: Plan, stored_rows: Mapping[TypeRef, StoredRows]) -> Statement:
        statement = super()._statement(plan, stored_rows)
        source = stored_rows[plan.source]
        if isinstance(source, SoughtRows) and plan.sought_key is not None:
            return SoughtStatement.of(statement, plan, found=source, key=plan.sought_key)
        if plan.counts_all and isinstance(source, (CountedRows, FileRows)) and source.count is not None:
            return replace(statement, sql=f'SELECT CAST({source.count} AS BIGINT) AS "c0"')
        statement = _fill_in(statement, stored_rows)
        narrow = which_rows(plan, source)
        if narrow is not None and isinstance(source, FileRows):
            which = _fill_in(super()._statement(narrow, stored_rows), stored_rows)
            few = FewRows(self.duck, self.lookup, source.scan, which, which.parameters(narrow))
            return FewStatement.of(statement, plan, rows=few, schema=plan.schema)
        in_order = rows_in_order(self.reader, self.duck, source) if plan.takes_all else None
        return statement if in_order is None else InOrderStatement.of(statement, plan, rows=in_order)

    def run_in_parts(self, statement: Statement, parameters: Mapping[str, Any]) -> Iterator[list[Sequence[Any]]]:
        if not isinstance(statement, AnsweredStatement):
            yield from super().run_in_parts(statement, parameters)
            return

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

    # --- in bulk ---

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
        with self.reader.places(files.files) as places:
            rows = FileRows(plan.source, files, places, numbered=can_number(plan.schema))
            statement = self._statement(plan, {plan.source: rows})
            schema = output_schema(statement)
            for batch in self.duck.batches(statement.sql, statement.parameters(plan), BATCH_ROWS):
                yield pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)

    def rows_of(
        self, schema: TypeSchema, wanted: pa.Table, window: Window, catalog: Catalog | None = None, *, dense: bool
    ) -> pa.Table:
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

    # --- earlier versions of a type ---

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


def _fill_in(statement: Statement, stored_rows: Mapping[TypeRef, StoredRows]) -> Statement:
    """A statement with the names that tables have now."""
    sql = statement.sql
    for rows in stored_rows.values():
        sql = rows.fill_in(sql)
    return replace(statement, sql=sql)
