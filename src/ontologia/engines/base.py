"""The one protocol behind every storage: what an engine must do, in columns.

An engine supplies a catalog, the rows of a type as a `Relation`, a way to run a compiled statement, and write
transactions. Planning, schema checks and diagnostics are here, the same for all. The row-wise calls that callers of a
repository know are in `rowwise`, thin shells over this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from ontologia.config import OntologiaConfig, new_runtime_id
from ontologia.errors import CommitAfterHeadWarning, SchemaOutdatedError, ValidationError, warn
from ontologia.model import TypeRef, TypeSchema, diff, to_utc
from ontologia.model.columns import SCALARS, arrow_type
from ontologia.query.builder import Fetched
from ontologia.query.compiler import Statement, compile
from ontologia.query.dialects import Dialect
from ontologia.query.plan import Plan, Window
from ontologia.query.relation import Relation

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

WRITE_LOCK = "ontology_write"
MAX_CACHED_STATEMENTS = 512


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; the conformance suite reads it."""

    typed_columns: bool
    object_storage: bool = False
    concurrent_processes: bool = True
    read_only: bool = False
    branches: bool = False
    removals: bool = False
    search: bool = False


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One stored version of a type's schema."""

    ref: TypeRef
    schema_version_id: int
    schema: TypeSchema
    created_at: str
    activation_commit_id: int | None = None
    is_current: bool = False

    @property
    def fingerprint(self) -> str:
        return self.schema.fingerprint


@dataclass(frozen=True, slots=True)
class TypeLayout:
    """Where the current rows of a type lie, and since which commit they are read."""

    ref: TypeRef
    schema: TypeSchema
    schema_version_id: int
    activation_commit_id: int
    table_name: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a store holds at a head: the current layout of every type, and the names of dropped ones."""

    head: int
    layouts: Mapping[TypeRef, TypeLayout] = field(default_factory=dict)
    dropped: frozenset[TypeRef] = frozenset()
    version: Any = None

    def outdated(self, schemas: Mapping[TypeRef, TypeSchema]) -> list[Any]:
        """The differences between these schemas and the stored ones; types not stored yet are no difference."""
        found = []
        for ref, schema in schemas.items():
            layout = self.layouts.get(ref)
            if layout is not None and layout.schema.fingerprint != schema.fingerprint:
                found.append(diff(layout.schema, schema, layout.schema_version_id))
        return found

    def check(self, schemas: Mapping[TypeRef, TypeSchema]) -> None:
        outdated = self.outdated(schemas)
        if outdated:
            raise SchemaOutdatedError(outdated)


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log."""

    id: int
    created_at: str
    runtime_id: str
    metadata: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_at": self.created_at,
            "runtime_id": self.runtime_id,
            "metadata": dict(self.metadata),
        }


class Transaction(ABC):
    """One commit in the making, under the write lock. Nothing is visible before `publish`."""

    catalog: Catalog

    @property
    def commit_id(self) -> int:
        """The id this commit will have."""
        return self.catalog.head + 1

    def keep(self) -> None:  # noqa: B027
        """Said by who goes on with the transaction in later calls; else it ends with the call that began it."""

    @abstractmethod
    def current(self, schema: TypeSchema, keys: pa.Table) -> pa.Table:
        """The latest rows of these identities: identity, commit and fields, in one read."""

    @abstractmethod
    def scan(self, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        """The latest row of every identity as stored, in batches of one schema version each."""

    @abstractmethod
    def recorded(self, ref: TypeRef) -> list[SchemaVersion]:
        """The versions of a type's schema, with those of this transaction."""

    @abstractmethod
    def record(self, schema: TypeSchema, schema_version_id: int | None = None) -> int:
        """Write a schema down as a version of its type, the next one by default; the same again is that version."""

    @abstractmethod
    def activate(self, schema: TypeSchema, schema_version_id: int | None = None) -> TypeLayout:
        """Make a schema current from this commit on: for a new type, or as a new version of a known one."""

    def ensure_indexes(self, layout: TypeLayout, schema: TypeSchema) -> None:  # noqa: B027
        """Make the indexes that the schema asks for, in engines that have any."""

    @abstractmethod
    def append(self, layout: TypeLayout, rows: pa.Table) -> None:
        """Add rows (identity and fields, as storage names them) to this commit."""

    @abstractmethod
    def drop(self, ref: TypeRef, *, purge: bool) -> None:
        """Make a type's rows unreachable; `purge` also deletes what is stored of it."""

    @abstractmethod
    def publish(self, metadata: Mapping[str, Any]) -> int:
        """The commit point: all of it becomes visible, or none. Returns the commit id."""


class Engine(ABC):
    """A storage engine, seen from above."""

    backend: ClassVar[str]
    engine_version: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    dialect: Dialect

    def __init__(self, config: OntologiaConfig | None = None) -> None:
        self.config = config or OntologiaConfig()
        self.runtime_id = self.config.runtime_id or new_runtime_id()
        self._statements: dict[Any, Statement] = {}
        self._diagnostics: list[dict[str, Any]] = []

    # --- what each engine supplies ---

    @abstractmethod
    def catalog(self) -> Catalog:
        """The catalog at the head. Cheap when nothing changed."""

    @abstractmethod
    def relations(self, plan: Plan, catalog: Catalog) -> AbstractContextManager[Mapping[TypeRef, Relation]]:
        """The rows of every type a plan names, for the compiler; good while in the block."""

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

    def commit_at(self, moment: datetime) -> int:
        """The last commit made at or before a time, by the clocks of its writers; 0 when there is none."""
        limit = to_utc(moment)
        return next((commit.id for commit in self.walk() if datetime.fromisoformat(commit.created_at) <= limit), 0)

    def walk(self) -> Iterator[Commit]:
        """The log, newest first, read as far back as it is asked for."""
        return iter(self.commits())

    @abstractmethod
    def get_commit(self, commit_id: int) -> dict[str, Any] | None: ...

    @abstractmethod
    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]: ...

    @abstractmethod
    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        """Every stored schema version, oldest first."""

    @abstractmethod
    def storage_info(self) -> dict[str, Any]: ...

    def event_place(self) -> Any:
        """Where the events beside the rows lie: the `Connections` of a SQLite file, or an `Objects`."""
        raise ValidationError(f"{self.backend} keeps no events")

    @abstractmethod
    def close(self) -> None: ...

    def ensure_exists(self) -> None:  # noqa: B027
        """Make the store where an engine waits with that for the first write."""

    # --- changes, the same for every engine ---

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a write transaction; an engine that can lose a race runs it again from the new head."""
        with self.write() as transaction:
            return work(transaction)

    # --- questions, the same for every engine ---

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads in the block see one state, in engines where a read could otherwise straddle two."""
        return nullcontext()

    def fetch(self, plan: Plan, keys: pa.Table | None = None, catalog: Catalog | None = None) -> Fetched:
        with self._prepared(plan, catalog) as (statement, diagnostics):
            return Fetched(self.run(statement, statement.parameters(plan), keys), diagnostics)

    def table(self, plan: Plan, keys: pa.Table | None = None, catalog: Catalog | None = None) -> pa.Table:
        with self._prepared(plan, catalog) as (statement, _):
            return self.run_arrow(statement, statement.parameters(plan), keys)

    def explain(self, plan: Plan) -> str:
        with self._prepared(plan, None) as (statement, _):
            text = self.dialect.render(statement.tree, pretty=True)
            return f"{text}\n\n{self.explain_statement(statement, statement.parameters(plan))}"

    def get_last_query_diagnostics(self) -> list[dict[str, Any]]:
        """What the last query had to say besides its rows (RFC 0009 §2.3)."""
        return list(self._diagnostics)

    @contextmanager
    def _prepared(self, plan: Plan, catalog: Catalog | None) -> Iterator[tuple[Statement, list[dict[str, Any]]]]:
        with self.snapshot():
            catalog = catalog or self.catalog()
            catalog.check(plan.schemas)
            if plan.search is not None and not self.capabilities.search:
                raise ValidationError(f"nearest() and search() are for graphs; {self.backend} has no such indexes")
            self._diagnostics = plan_diagnostics(plan, catalog)
            with self.relations(plan, catalog) as relations:
                yield self._statement(plan, relations), self._diagnostics

    def _statement(self, plan: Plan, relations: Mapping[TypeRef, Relation]) -> Statement:
        key = (plan.shape, tuple(relation.key for relation in relations.values()))
        statement = self._statements.get(key)
        if statement is None:
            if len(self._statements) >= MAX_CACHED_STATEMENTS:
                self._statements.clear()
            statement = self._statements[key] = compile(plan, relations, self.dialect)
        return statement

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan_diagnostics(plan: Plan, catalog: Catalog) -> list[dict[str, Any]]:
    """What a caller should know about a result, besides its rows (RFC 0009 §2.3).

    Of the type that is asked about, and of every other type the question touches, which then is named.
    """
    return window_diagnostics(plan.window, plan.schemas, catalog, unnamed=plan.source)


def window_diagnostics(
    window: Window, refs: Iterable[TypeRef], catalog: Catalog, *, unnamed: TypeRef | None = None
) -> list[dict[str, Any]]:
    """What a caller should know about a window of these types. Each is named, but for the one that is asked about."""
    commit = window.commit
    if window.mode != "as_of" or commit is None:
        return []
    found: list[dict[str, Any]] = []
    for ref in refs:
        layout = catalog.layouts.get(ref)
        if layout is not None and commit < layout.activation_commit_id:
            named = {} if ref == unnamed else {"type": str(ref)}
            since = layout.activation_commit_id
            found.append({"reason": "commit_before_activation", **named, "activation_commit_id": since})
    if commit > catalog.head:
        found.append({"reason": "commit_after_head", "commit_id": commit, "head_commit_id": catalog.head})
        warn(CommitAfterHeadWarning(f"commit {commit} is not there yet: this is the state at the head, {catalog.head}"))
    return found


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


def summarized_layouts(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The layouts of `storage_info()`, from (kind, name, version, activation, is current).

    A dropped type has no current version. A relation named like an entity is listed as `relation:name`.
    """
    layouts: dict[str, Any] = {}
    for kind, name, version, activation, is_current in rows:
        summary = layouts.setdefault(
            name if name not in layouts or layouts[name]["type_kind"] == kind else f"{kind}:{name}",
            {
                "type_kind": kind,
                "current_schema_version_id": None,
                "activation_commit_id": None,
                "historical_versions": [],
            },
        )
        if is_current:
            summary["current_schema_version_id"] = version
            summary["activation_commit_id"] = activation
        else:
            summary["historical_versions"].append(version)
    return layouts


def change_entry(ref: TypeRef, identity: Sequence[str], existed: bool) -> dict[str, Any]:
    """One change of a commit, as callers see it."""
    names = ("key",) if ref.kind == "entity" else ref.identity
    return {
        "kind": ref.kind,
        "type_name": ref.name,
        **dict(zip(names, identity, strict=True)),
        "operation": "update_version" if existed else "insert",
    }


def user_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Commit metadata as given by a caller: text to text, nothing else."""
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValidationError(f"commit metadata is text to text, and {key!r}: {value!r} is not")
    return dict(metadata or {})
