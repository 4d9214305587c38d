"""The one protocol behind every storage: what an engine must do, in columns.

An engine supplies a catalog, the rows of a type as a `StoredRows`, a way to run a compiled statement, and write
transactions. Planning, schema checks and diagnostics are here, the same for all; so is what tasks that work side by
side need: shares of a type's rows, and places where they stage rows for a commit. `capabilities` says what an engine
can do, and nobody above asks for its class. What only some can do is an object that the engine hands out, such as
`locks` and `eraser`. The row-wise calls that callers of a repository know are in `repository`.

The class reads in the order of `docs/design/0007`: what an engine must supply, what it may, what it gets for nothing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from ontologia.config import new_runtime_id
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.catalog import Catalog, Commit, SchemaVersion, TypeLayout
from ontologia.engines.diagnostics import plan_diagnostics, report_dropped_types
from ontologia.engines.transaction import Transaction
from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, Origin, TypeRef, TypeSchema, to_utc
from ontologia.model.columns import SCALARS, arrow_type
from ontologia.query.compiler import Statement, compile
from ontologia.query.dialects import Dialect
from ontologia.query.plan import LATEST, Plan, Window
from ontologia.query.query import Fetched, Made, Make
from ontologia.query.results import StoredTable
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.care import Workers
    from ontologia.engines.erasure import Eraser
    from ontologia.engines.forgetting import Forgotten, Superseded
    from ontologia.engines.history import Declared, History
    from ontologia.engines.locks import Locks
    from ontologia.engines.shares import FilesInForce, Share
    from ontologia.objects import Location, Objects

T = TypeVar("T")
PART_ROWS = 2_000
"""Of so many rows at a time objects are made."""

MAX_CACHED_STATEMENTS = 512


class Engine(ABC):
    """A storage engine, seen from above."""

    backend: ClassVar[str]
    engine_version: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    dialect: Dialect
    page_rows: ClassVar[int] = 50_000
    """How many rows in order of identity are worth asking for at once."""
    objects: Objects | None = None
    """The object store that rows lie in, where they do."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.config = location.settings
        self.runtime_id = self.config.runtime_id or new_runtime_id()
        self._statements: dict[Any, Statement] = {}
        self._local = threading.local()

    @property
    def address(self) -> str:
        """The store and its branch, spelled the same by everyone who opens it."""
        return self.location.uri if self.objects is None else f"{self.objects.identity} {self.objects.prefix}"

    def origin(self, window: Window) -> Origin:
        """What objects remember that are read in a window."""
        return Origin(self.address, past=window != LATEST)

    # --- what each engine supplies ---

    @abstractmethod
    def catalog(self) -> Catalog:
        """The catalog at the head. Cheap when nothing changed."""

    @abstractmethod
    def stored_rows(
        self, plan: Plan, catalog: Catalog, diagnostics: list[dict[str, Any]]
    ) -> AbstractContextManager[Mapping[TypeRef, StoredRows]]:
        """The rows of every type a plan names, for the compiler; good while in the block.

        What a caller should know of them besides is added to `diagnostics`.
        """

    @abstractmethod
    def run(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> list[Sequence[Any]]:
        """Run a statement; the result as columns of Python values, JSON as text."""

    @abstractmethod
    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        """Run a statement; the result as an Arrow table with the names and types of its outputs."""

    @abstractmethod
    def explain_statement(self, statement: Statement, parameters: Mapping[str, Any]) -> str:
        """The engine's own plan for a statement."""

    @abstractmethod
    def write(self) -> AbstractContextManager[Transaction]:
        """Take the write lock and start a commit; leaving without `publish` leaves no trace."""

    @abstractmethod
    def commits(self, *, limit: int | None = None, since: int | None = None) -> list[Commit]:
        """The log, newest first."""

    @abstractmethod
    def get_commit(self, commit_id: int) -> dict[str, Any] | None: ...

    @abstractmethod
    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]: ...

    @abstractmethod
    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        """Every stored schema version, oldest first."""

    @property
    @abstractmethod
    def locks(self) -> Locks:
        """The locks by name that callers take here."""

    @abstractmethod
    def storage_info(self) -> dict[str, Any]: ...

    @property
    @abstractmethod
    def staging_area(self) -> Location:
        """Where rows for a commit wait, and where rows that do not fit are set aside."""

    @abstractmethod
    def close(self) -> None: ...

    # --- what it may supply, where it can do better: reads ---

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads in the block see one state, in engines where a read could otherwise straddle two."""
        return nullcontext()

    def run_in_parts(self, statement: Statement, parameters: Mapping[str, Any]) -> Iterator[list[Sequence[Any]]]:
        """What `run` gives, some rows at a time; all at once in engines that have no better way."""
        yield self.run(statement, parameters, None)

    def walk(self) -> Iterator[Commit]:
        """The log, newest first, read as far back as it is asked for."""
        return iter(self.commits())

    def shares(
        self, schema: TypeSchema, window: Window, *, head: int | None = None, across: bool = False
    ) -> list[Share]:
        """The rows of a window, up to a head if it is given, in shares that tasks read side by side; `across` all
        schema versions, if that is how they will be read."""
        from ontologia.engines.shares import shares_by_key

        return shares_by_key(self, schema, LATEST if across else window)

    def read_share(self, plan: Plan, share: Share) -> Iterator[pa.Table]:
        """The answer to a plan from the rows of one share."""
        from ontologia.engines.shares import range_predicates

        yield self.table(replace(plan, where=(*plan.where, *range_predicates(plan.schema, share.keys))))

    def rows_of(
        self, schema: TypeSchema, wanted: pa.Table, window: Window, catalog: Catalog | None = None, *, dense: bool
    ) -> pa.Table:
        """The rows of these identities, which come sorted, with the columns of `wanted`.

        One look between the first and the last. Where the rows are `dense`, all in between are read and some are not
        asked for: whoever compares matches them anyway.
        """
        from ontologia.engines.shares import between

        keys = wanted.select(list(schema.ref.identity))
        only = (COMMIT_ID, *wanted.column_names)
        plan = Plan.of(
            schema,
            window,
            between(schema, keys.column(0)[0].as_py(), keys.column(0)[-1].as_py()),
            keyed=not dense,
            stored=True,
            only=only,
            unordered=True,
        )
        return self.table(plan, None if dense else keys, catalog)

    def files_in_force(self, ref: TypeRef, window: Window, catalog: Catalog) -> FilesInForce | None:
        """A type's files in a window, for readers that take files as they are; None where there are none to take."""
        return None

    def count_stored(self, ref: TypeRef, catalog: Catalog) -> int | None:
        """How many rows, of all versions, a type has in files; None where the store finds rows by an index."""
        return None

    def sizes_of(self, layout: TypeLayout) -> list[int] | None:
        """The bytes of each file, or of the table, that holds a type; None where that cannot be told."""
        return None

    def catalog_at(self, commit_id: int) -> Catalog:
        """The catalog, for reads that go no further than a commit."""
        return self.catalog()

    # --- earlier versions of schemas ---

    def layouts_of(self, ref: TypeRef, catalog: Catalog) -> list[TypeLayout]:
        """Where the rows of every version of a type lie that was ever in force, oldest first; of a dropped one, too."""
        return [
            TypeLayout(ref, version.schema, version.schema_version_id, version.activation_commit_id)
            for version in self.schema_versions(ref)
            if version.activation_commit_id is not None and version.activation_commit_id <= catalog.head
        ]

    def catalog_at_version(self, layout: TypeLayout, until: int | None, catalog: Catalog) -> Catalog:
        """A catalog in which a version that was in force until a commit is the current one of its type: what reads by
        it, reads the rows of that version."""
        return replace(catalog, layouts={**catalog.layouts, layout.ref: layout})

    def migrated_types(self, commit_id: int) -> Sequence[Mapping[str, Any]]:
        """What a migration wrote down about each type (RFC 0009 §6.1); nothing for any other commit."""
        commit = self.get_commit(commit_id)
        found = {} if commit is None else commit["metadata"]
        notes = found.get("migrated_types") if found.get("kind") == "migration" else None
        return notes if isinstance(notes, list) else ()

    def held(self, name: str, schema: TypeSchema, rows: pa.Table) -> AbstractContextManager[StoredRows]:
        """Rows in memory as rows of a type, for statements of this thread in the block. They come with their commits,
        and are all of the window."""
        raise ValidationError(f"{self.backend} reads no earlier versions of a schema")

    # --- writes ---

    @property
    def exists(self) -> bool:
        """Whether there is a store; an engine may wait with it for the first write."""
        return True

    def ensure_exists(self) -> None:  # noqa: B027
        """Make the store where an engine waits with that for the first write."""

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a write transaction; an engine that can lose a race runs it again from the new head."""
        with self.write() as transaction:
            return work(transaction)

    def history(self, declared: Declared | None = None) -> History:
        """The whole past, for a copy of it. Stores of old releases may have to be told what types are like."""
        raise ValidationError(
            f"{self.location.uri}: a graph numbers its commits by itself, so that they cannot be copied as they are; "
            "onto export and onto import move its state"
        )

    def features(self) -> frozenset[str]:
        """What the store uses beyond its engine version, as its stamp says."""
        return frozenset()

    def event_place(self) -> Any:
        """Where the events beside the rows lie: the `Connections` of a SQLite file, or an `Objects`."""
        raise ValidationError(f"{self.backend} keeps no events")

    # --- taking rows out for good, where an engine can ---

    def eraser(self) -> Eraser:
        """Who takes identities out of this store, with every version of them."""
        raise ValidationError(
            f"{self.location.uri}: only SQLite files and buckets of this release can erase; a graph keeps old versions "
            "until onto cleanup, and a store of 0.3 is read-only"
        )

    def find_superseded(self, base: int) -> list[Superseded]:
        """How many versions of each type were superseded at a commit or before it, and still are there."""
        raise self._cannot_forget()

    def forget(self, base: int, head: int, metadata: Mapping[str, Any]) -> Forgotten:
        """Give these up, so that history begins at that commit, and note it in a commit.

        Refused when the head is no longer the one that the caller saw.
        """
        raise self._cannot_forget()

    def _cannot_forget(self) -> ValidationError:
        return ValidationError(
            f"{self.location.uri}: only SQLite files and buckets of engine v2 can forget their early history. A store "
            "of v1 becomes one with onto copy --in-place; a graph forgets with onto cleanup"
        )

    # --- care, which only object storage needs ---

    def index_verify(self) -> Any:
        raise self._not_for_files("index verify")

    def index_repair(self, *, apply: bool = False) -> Any:
        raise self._not_for_files("index repair")

    def compact(self, type_name: str | None = None, *, apply: bool = False, workers: Workers | None = None) -> Any:
        raise self._not_for_files("compact")

    def tidy(self, after: Literal["load", "commit"]) -> None:  # noqa: B027
        """Merge what has become many small files, where there are any and the settings ask for it. Never raises."""

    def vacuum(self, older_than_s: float = 7 * 86_400.0, *, apply: bool = False, compacted: bool = False) -> Any:
        raise self._not_for_files("vacuum")

    def _not_for_files(self, operation: str) -> ValidationError:
        return ValidationError(f"{operation} is for object storage; {self.backend} needs no such care")

    # --- questions, the same for every engine ---

    def commit_at(self, moment: datetime) -> int:
        """The last commit made at or before a time, by the clocks of its writers; 0 when there is none."""
        if not isinstance(moment, datetime):
            raise TypeError(f"commit_at() takes a datetime, not {moment!r}")
        try:
            limit = to_utc(moment)
        except OverflowError:
            raise ValidationError(f"{moment.isoformat()} is outside the years 1 to 9999 in UTC") from None
        return next((commit.id for commit in self.walk() if datetime.fromisoformat(commit.created_at) <= limit), 0)

    def fetch(self, plan: Plan, keys: pa.Table | None = None, catalog: Catalog | None = None) -> Fetched:
        with self._prepare(plan, catalog, keys) as (statement, diagnostics):
            return Fetched(self.run(statement, statement.parameters(plan), keys), diagnostics)

    def made_of(self, plan: Plan, make: Make[T]) -> Made[T]:
        """What `make` makes of the columns that `fetch` gives, in parts: they take as much memory as what is made."""
        with self._prepare(plan, None) as (statement, diagnostics):
            found: list[T] = []
            for columns in self.run_in_parts(statement, statement.parameters(plan)):
                found += make(columns)
            return Made(found, diagnostics)

    def table(self, plan: Plan, keys: pa.Table | None = None, catalog: Catalog | None = None) -> pa.Table:
        with self._prepare(plan, catalog, keys) as (statement, _):
            return self.run_arrow(statement, statement.parameters(plan), keys)

    def table_at(self, plan: Plan, catalog: Catalog, keys: pa.Table | None = None) -> pa.Table:
        """The answer from the very layouts of a catalog, whatever versions they are of, without a word besides."""
        with self.stored_rows(plan, catalog, []) as stored_rows:
            statement = self._statement(plan, stored_rows)
            return self.run_arrow(statement, statement.parameters(plan), keys)

    def as_stored(self, plan: Plan) -> list[StoredTable]:
        """The rows of a plan's window under the schema they had: a table for each version that has any."""
        from ontologia.engines.across_versions import rows_as_stored

        if not self.capabilities.past_versions:
            raise past_versions_refused(self.backend)
        with self.snapshot():
            catalog = self.catalog()
            catalog.check(plan.schemas)
            catalog.check_remembers(plan.window)
            report_dropped_types(plan, catalog)
            if plan.source not in catalog.layouts:
                return []
            return [
                StoredTable(version.schema, version.layout.schema_version_id, table)
                for version, table in rows_as_stored(self, plan, catalog)
                if table.num_rows
            ]

    def explain(self, plan: Plan) -> str:
        with self._prepare(plan, None) as (statement, _):
            text = self.dialect.render(statement.tree, pretty=True)
            return f"{text}\n\n{self.explain_statement(statement, statement.parameters(plan))}"

    def get_last_query_diagnostics(self) -> list[dict[str, Any]]:
        """What the last query of this thread had to say besides its rows (RFC 0009 §2.3)."""
        return list(getattr(self._local, "diagnostics", ()))

    @contextmanager
    def _prepare(
        self, plan: Plan, catalog: Catalog | None, keys: pa.Table | None = None
    ) -> Iterator[tuple[Statement, list[dict[str, Any]]]]:
        with self.snapshot():
            catalog = catalog or self.catalog()
            catalog.check(plan.schemas)
            catalog.check_remembers(plan.window)
            if plan.across is not None and not self.capabilities.past_versions:
                raise past_versions_refused(self.backend)
            if plan.search is not None and not self.capabilities.search:
                raise ValidationError(f"nearest() and search() are for graphs; {self.backend} has no such indexes")
            diagnostics = plan_diagnostics(plan, self, catalog)
            self._local.diagnostics = diagnostics
            with self.stored_rows(plan, catalog, diagnostics) as stored_rows:
                if plan.across is None:
                    yield self._statement(plan, stored_rows), diagnostics
                    return
                from ontologia.engines.across_versions import stored_rows_across

                with stored_rows_across(self, plan, catalog, keys, diagnostics, stored_rows) as carried:
                    yield self._statement(plan, carried), diagnostics

    def _statement(self, plan: Plan, stored_rows: Mapping[TypeRef, StoredRows]) -> Statement:
        key = (plan.shape, tuple(rows.key for rows in stored_rows.values()))
        statement = self._statements.get(key)
        if statement is None:
            if len(self._statements) >= MAX_CACHED_STATEMENTS:
                self._statements.clear()
            statement = self._statements[key] = compile(plan, stored_rows, self.dialect)
        return statement

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def output_schema(statement: Statement) -> pa.Schema:
    """The Arrow schema of a statement's result."""
    import pyarrow as pa

    fields = []
    for output in statement.outputs:
        if output.columns:
            fields += [pa.field(name, column.arrow_type) for name, column in output.columns]
        else:
            kind = pa.string() if output.scalar is None else arrow_type(SCALARS[output.scalar].arrow)
            fields.append(pa.field(output.name, kind))
    return pa.schema(fields)


def as_outputs(rows: pa.Table, statement: Statement) -> pa.Table:
    """Rows under the names and with the types that a statement gives its outputs."""
    return rows.rename_columns([output.name for output in statement.outputs]).cast(output_schema(statement))


def past_versions_refused(backend: str) -> ValidationError:
    return ValidationError(
        "across_versions() and as_stored() are for SQLite files and object storage in engine versions v1 and v2; "
        f"{backend} gives no rows of earlier schema versions here"
    )
