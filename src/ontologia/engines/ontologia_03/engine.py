"""A store of 0.3 behind the protocol of all engines: it answers every question, and refuses every write.

The rows of a type are translated when they are first asked for, into a table of an in-process DuckDB, and what commits
add later is added there. How history becomes one row per identity is the business of the query.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, NoReturn

from sqlglot import exp

from ontologia.config import OntologiaConfig
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.catalog import Catalog, Commit, SchemaVersion, TypeLayout, summarize_layouts
from ontologia.engines.changes import change_entry
from ontologia.engines.duck import DuckEngine
from ontologia.engines.history import Declared
from ontologia.engines.locks import Locks
from ontologia.engines.ontologia_03.history import History03
from ontologia.engines.ontologia_03.rows import arrow_schema, tables
from ontologia.engines.ontologia_03.source import Contents, Source
from ontologia.engines.transaction import Transaction
from ontologia.errors import ReadOnlyStoreError
from ontologia.model import COMMIT_ID, Column, TypeRef
from ontologia.objects import Location
from ontologia.query.in_force import keep_newest
from ontologia.query.plan import Plan, Window
from ontologia.query.stored_rows import EmptyRows, StoredRows

RELEASE = "Ontologia 0.3"


class Engine03(DuckEngine):
    """Reads a store of 0.3 as that release did: rows of the current schema version, in every window of time."""

    capabilities = Capabilities(read_only=True, staging=False, past_versions=False)

    def __init__(self, source: Source, config: OntologiaConfig | None = None) -> None:
        super().__init__(Location(source.where, config or OntologiaConfig()))
        self.source = source
        self.backend, self.engine_version = source.backend, source.engine_version  # type: ignore[misc]
        self._lock = threading.Lock()
        self._seen: tuple[Any, Contents] | None = None
        self._activations: dict[tuple[TypeRef, int], int] = {}
        self._loaded: dict[tuple[TypeRef, int], tuple[str, int]] = {}
        """For each type and schema version: the table with its rows, and up to which commit."""

    # --- reading ---

    def catalog(self) -> Catalog:
        return self._contents().catalog

    def _contents(self) -> Contents:
        with self._lock:
            state = self.source.state()
            if self._seen is None or self._seen[0] != state:
                contents = self.source.contents(self._activations)
                self._activations |= {
                    (ref, layout.schema_version_id): layout.activation_commit_id
                    for ref, layout in contents.catalog.layouts.items()
                }
                self._seen = state, contents
            return self._seen[1]

    @contextmanager
    def stored_rows(
        self, plan: Plan, catalog: Catalog, diagnostics: list[dict[str, Any]]
    ) -> Iterator[Mapping[TypeRef, StoredRows]]:
        yield {ref: self._rows_of_type(ref, catalog) for ref in plan.schemas}

    def _rows_of_type(self, ref: TypeRef, catalog: Catalog) -> StoredRows:
        layout = catalog.layouts.get(ref)
        if layout is None:
            return EmptyRows(ref)
        with self._lock:
            return TranslatedRows(ref, self._table(layout, catalog.head), catalog.head)

    def _table(self, layout: TypeLayout, head: int) -> str:
        """The table with the rows of a type, complete up to a head."""
        key = layout.ref, layout.schema_version_id
        name, loaded = self._loaded.get(key, (f"rows_{len(self._loaded)}", -1))
        if loaded >= head:
            return name
        versions = self._seen[1].readable[layout.ref] if self._seen else [layout.schema_version_id]
        columns = arrow_schema(layout.schema)
        with self.duck.cursor() as cursor:
            cursor.execute("BEGIN")  # all of it, or none: a row that cannot be read must not leave half a type
            cursor.register("incoming", columns.empty_table())
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {name} AS FROM incoming")
            for table in tables(self.source.where, layout.schema, self.source.rows(layout.ref, versions, loaded, head)):
                cursor.register("incoming", table)
                cursor.execute(f"INSERT INTO {name} FROM incoming")
            cursor.execute("COMMIT")
        self._loaded[key] = name, head
        return name

    # --- the log and the schemas ---

    def commits(self, *, limit: int | None = None, since: int | None = None) -> list[Commit]:
        later = (commit for commit in self.source.commits() if commit.id > (since or 0))
        return list(islice(later, limit if limit is None else max(limit, 0)))

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        found = self.source.commit(commit_id)
        return None if found is None else found.to_dict()

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        return [change_entry(*change) for change in self.source.changes(commit_id)]

    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        versions = self._contents().versions
        return [version for version in versions if ref in (None, version.ref)]

    def history(self, declared: Declared | None = None) -> History03:
        return History03(self.source, self.duck, declared or {})

    def event_place(self) -> Any:
        """The queue of 0.3, which is read on. Of all there is in the store, it alone is written to."""
        return self.source.event_place()

    def storage_info(self) -> dict[str, Any]:
        rows = [
            (*version.ref, version.schema_version_id, version.activation_commit_id, version.is_current)
            for version in self.schema_versions()
        ]
        return {
            "backend": self.backend,
            "engine_version": self.engine_version,
            "written_by": RELEASE,
            "read_only": True,
            **self.source.facts(),
            "type_layouts": summarize_layouts(rows),
        }

    # --- writing, which it does not ---

    def write(self) -> AbstractContextManager[Transaction]:
        self._refuse()

    @property
    def staging_area(self) -> Location:
        self._refuse()

    @property
    def locks(self) -> Locks:
        self._refuse()

    def index_verify(self) -> Any:
        self._refuse()

    def index_repair(self, *, apply: bool = False) -> Any:
        self._refuse()

    def compact(self, type_name: str | None = None, *, apply: bool = False, workers: Any = None) -> Any:
        self._refuse()

    def vacuum(self, older_than_s: float = 7 * 86_400.0, *, apply: bool = False, compacted: bool = False) -> Any:
        self._refuse()

    def _refuse(self) -> NoReturn:
        option = "--db" if self.backend == "sqlite" else "--storage-uri"
        raise ReadOnlyStoreError(
            f"{self.source.where} was written by {RELEASE} and is read-only here: move it into a new store with "
            f"onto copy {self.source.where} NEW.db --with-history, or its state alone with "
            f"onto export {option} {self.source.where} --output DIR, "
            "then onto import --db NEW.db --input DIR --models MODELS --apply"
        )

    def close(self) -> None:
        super().close()
        self.source.close()
        self._loaded = {}


class TranslatedRows(StoredRows):
    """The translated rows of a type, up to a head."""

    def __init__(self, ref: TypeRef, table: str, head: int) -> None:
        self.ref = ref
        self.table = table
        self.head = head
        self.key = (table, head)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        commit = _column(COMMIT_ID)
        bound = exp.Placeholder(this="window")
        conditions: list[exp.Expression] = [exp.LTE(this=commit.copy(), expression=exp.Literal.number(self.head))]
        if window.mode == "as_of":
            conditions.append(exp.LTE(this=commit.copy(), expression=bound))
        if window.mode == "since":
            conditions.append(exp.GT(this=commit.copy(), expression=bound))
        select = exp.select(*map(_column, names)).from_(exp.to_identifier(self.table)).where(*conditions)
        return keep_newest(select, self.ref.identity) if window.deduplicated else select


def _column(name: str) -> exp.Column:
    return exp.column(name, quoted=True)
