"""`Repository`: the row-wise calls, as thin shells over an engine.

Types are named by text and read with the schema the store has, so these serve tools that have no classes at hand. The
engine is the store; a transaction of it is the unit of work that the rows of a thread are collected for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.catalog import SchemaVersion, TypeLayout, user_metadata
from ontologia.engines.locks import WRITE_LOCK
from ontologia.engines.transaction import Transaction
from ontologia.errors import LockContentionError, ValidationError
from ontologia.model import (
    FieldExpr,
    Kind,
    Predicate,
    TypeRef,
    TypeSchema,
    field_at,
    parse_texts,
    removed_column,
)
from ontologia.model.values import field_texts
from ontologia.objects import SYSTEM_CLOCK, system
from ontologia.query.aggregates import Aggregate, AggregateCondition
from ontologia.query.plan import LATEST, Order, Plan, Window


@dataclass(slots=True)
class _OpenTransaction:
    context: AbstractContextManager[Transaction]
    transaction: Transaction
    metadata: dict[str, str] = field(default_factory=dict)
    rows: dict[TypeRef, list[dict[str, Any]]] = field(default_factory=dict)
    identities: set[tuple[Any, ...]] = field(default_factory=set)


class Repository:
    """One row, one query, one lock at a time, on any engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._local = threading.local()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.engine.close()

    # --- about the store ---

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    @property
    def config(self) -> OntologiaConfig:
        return self.engine.config

    def storage_info(self) -> dict[str, Any]:
        """The backend, the engine version, and the layout of every type."""
        return self.engine.storage_info()

    def get_last_query_diagnostics(self) -> list[dict[str, Any]]:
        """What the last query of this thread had to say besides its rows (RFC 0009 §2.3)."""
        return self.engine.get_last_query_diagnostics()

    # --- a transaction, row by row ---

    def begin_transaction(self) -> None:
        """Take the write lock. Ends with `commit_transaction` or `rollback_transaction`, in the same thread."""
        if getattr(self._local, "open", None) is not None:
            raise ValidationError("this thread has a transaction open already")
        context = self.engine.write()
        transaction = context.__enter__()
        transaction.keep()
        self._local.open = _OpenTransaction(context, transaction)

    def create_commit(self, metadata: Mapping[str, str] | None = None) -> int:
        """Name the commit that `commit_transaction` will publish; its id is final unless that is rolled back."""
        opened = self._require_open()
        opened.metadata |= user_metadata(metadata)
        return opened.transaction.commit_id

    def insert_entity(
        self,
        entity_type: str,
        entity_key: str,
        fields: Mapping[str, Any],
        *,
        schema_version_id: int | None = None,
    ) -> None:
        self._insert(TypeRef("entity", entity_type), {"entity_key": entity_key}, fields, schema_version_id)

    def insert_relation(
        self,
        relation_type: str,
        left_key: str,
        right_key: str,
        fields: Mapping[str, Any],
        *,
        instance_key: str = "",
        schema_version_id: int | None = None,
    ) -> None:
        identity = {"left_key": left_key, "right_key": right_key, "instance_key": instance_key}
        self._insert(TypeRef("relation", relation_type), identity, fields, schema_version_id)

    def commit_transaction(self) -> int:
        """Publish what was inserted as one commit."""
        opened = self._require_open()
        try:
            for ref, rows in opened.rows.items():
                layout = opened.transaction.catalog.layouts[ref]
                opened.transaction.append(layout, _table(layout, rows))
            commit_id = opened.transaction.publish(opened.metadata)
        except BaseException as problem:
            self._local.open = None
            opened.context.__exit__(type(problem), problem, problem.__traceback__)
            raise
        self._local.open = None
        opened.context.__exit__(None, None, None)
        return commit_id

    def rollback_transaction(self) -> None:
        opened = self._require_open()
        self._local.open = None
        opened.context.__exit__(None, None, None)

    def _require_open(self) -> _OpenTransaction:
        opened: _OpenTransaction | None = getattr(self._local, "open", None)
        if opened is None:
            raise ValidationError("no transaction is open in this thread: call begin_transaction() first")
        return opened

    def _insert(self, ref: TypeRef, identity: dict[str, Any], fields: Mapping[str, Any], version: int | None) -> None:
        opened = self._require_open()
        if ref in opened.transaction.catalog.dropped:
            raise ValidationError(f"{ref} was dropped; it takes no new rows")
        layout = opened.transaction.catalog.layouts.get(ref)
        if layout is None:
            raise ValidationError(f"{ref} is not in this store: create and activate a schema version first")
        self._check_version(layout, version)
        unknown = set(fields) - set(layout.schema.by_name)
        if unknown:
            raise ValidationError(f"{ref} has no field {', '.join(sorted(unknown))}")
        identified = (ref, *identity.values())
        if identified in opened.identities:
            said = "/".join(map(str, identity.values()))
            raise ValidationError(f"{ref} {said!r} is in this commit already: a commit has each identity once")
        opened.identities.add(identified)
        opened.rows.setdefault(ref, []).append({**identity, "fields": dict(fields)})

    def _check_version(self, layout: TypeLayout, version: int | None) -> None:
        """RFC 0009 §8.2: v2 wants the version said, and right; v1 takes silence for the current one."""
        if version is None and self.engine.engine_version == "v1":
            return
        if version != layout.schema_version_id:
            said = "no schema_version_id was given" if version is None else f"schema_version_id {version} was given"
            raise ValidationError(f"{layout.ref} is at schema version {layout.schema_version_id}, and {said}")

    # --- schema versions ---

    def create_schema_version(self, schema: TypeSchema) -> int:
        """Record a schema as the next version of its type, in the open transaction, without making it current."""
        return self._require_open().transaction.record(schema)

    def activate_schema_version(self, kind: Kind, type_name: str, schema_version_id: int) -> TypeLayout:
        """Make a recorded version current from the open transaction's commit on; for the current one, do nothing."""
        transaction = self._require_open().transaction
        ref = TypeRef(kind, type_name)
        current = transaction.catalog.layouts.get(ref)
        if current is not None and current.schema_version_id == schema_version_id:
            return current
        for version in transaction.recorded(ref):
            if version.schema_version_id == schema_version_id:
                if version.activation_commit_id is not None:
                    raise ValidationError(
                        f"{ref} left schema version {schema_version_id} behind: what was written since would be lost. "
                        "Migrate to it instead"
                    )
                layout = transaction.activate(version.schema, schema_version_id)
                transaction.catalog = replace(transaction.catalog, layouts={**transaction.catalog.layouts, ref: layout})
                return layout
        raise ValidationError(f"{ref} has no schema version {schema_version_id}")

    def list_schema_versions(self, kind: Kind, type_name: str) -> list[SchemaVersion]:
        return self.engine.schema_versions(TypeRef(kind, type_name))

    def get_schema_version(self, kind: Kind, type_name: str, schema_version_id: int) -> SchemaVersion | None:
        versions = self.list_schema_versions(kind, type_name)
        return next((version for version in versions if version.schema_version_id == schema_version_id), None)

    def get_current_schema_version(self, kind: Kind, type_name: str) -> SchemaVersion | None:
        return next((version for version in self.list_schema_versions(kind, type_name) if version.is_current), None)

    def apply_schema_drop(
        self, refs: Sequence[TypeRef], *, purge_history: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> int:
        """Drop types in one commit (RFC 0009 §9). Whether that is safe is decided above, in the runtime."""

        def work(transaction: Transaction) -> int:
            for ref in refs:
                if ref not in transaction.catalog.layouts:
                    raise ValidationError(f"{ref} is not in this store, so it cannot be dropped")
                transaction.drop(ref, purge=purge_history)
            return transaction.publish(dict(metadata or {}))

        return self.engine.transact(work)

    # --- the log ---

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        """One commit as a dict; None when there is no such commit."""
        return self.engine.get_commit(commit_id)

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        """What a commit wrote: kind, type_name, identity, operation."""
        return self.engine.list_commit_changes(commit_id)

    def get_head_commit_id(self) -> int:
        return self.engine.catalog().head

    def list_commits(self, limit: int | None = 10, since_commit_id: int | None = None) -> list[dict[str, Any]]:
        """Commits newest first, as dicts."""
        return [commit.to_dict() for commit in self.engine.commits(limit=limit, since=since_commit_id)]

    # --- locks ---

    def acquire_lock(self, owner_id: str, ttl_ms: int, timeout_ms: int | None = None, name: str = WRITE_LOCK) -> None:
        """Wait for a lock, with jittered backoff, up to the timeout."""
        timeout_ms = self.engine.config.lock_timeout_ms if timeout_ms is None else timeout_ms
        deadline = SYSTEM_CLOCK.steady() + timeout_ms / 1000
        pause = 0.005
        while not self.engine.locks.acquire(name, owner_id, ttl_ms):
            if SYSTEM_CLOCK.steady() + pause > deadline:
                raise LockContentionError(f"the lock {name!r} was not free within {timeout_ms} ms")
            SYSTEM_CLOCK.sleep(pause * system().random.uniform(0.5, 1.0))
            pause = min(pause * 2, 0.25)

    def renew_lock(self, owner_id: str, ttl_ms: int, name: str = WRITE_LOCK) -> bool:
        """Hold a lock longer; False when it is no longer ours."""
        return self.engine.locks.renew(name, owner_id, ttl_ms)

    def release_lock(self, owner_id: str, name: str = WRITE_LOCK) -> bool:
        """Give a lock back; False when it was no longer ours."""
        return self.engine.locks.release(name, owner_id)

    # --- care, for object storage ---

    def index_verify(self) -> Any:
        """Compare every index with the head (RFC 0004 §3.5)."""
        return self.engine.index_verify()

    def index_repair(self, *, apply: bool = False) -> Any:
        """Rebuild what lags or is unreadable. A preview unless `apply` is set."""
        return self.engine.index_repair(apply=apply)

    def compact(self, type_name: str | None = None, *, apply: bool = False) -> Any:
        """Merge the files of each type into one snapshot (RFC 0004 §6). A preview unless `apply` is set."""
        return self.engine.compact(type_name, apply=apply)

    def vacuum(self, older_than_s: float = 7 * 86_400.0, *, apply: bool = False, compacted: bool = False) -> Any:
        """Delete what nobody can reach any more. A preview unless `apply` is set."""
        return self.engine.vacuum(older_than_s, apply=apply, compacted=compacted)

    # --- questions without classes ---

    def field(self, kind: Kind, type_name: str, path: str) -> FieldExpr[Any]:
        """A stored field as an expression: `repo.field("entity", "Customer", "address.city") == "Rome"`."""
        return field_at(self.engine.catalog().find_type(type_name, kind).schema, path)

    def query_entities(self, entity_type: str, **question: Any) -> list[dict[str, Any]]:
        """Rows as dicts. `question` takes `where`, `window`, `order`, `limit`, `offset`."""
        with self.engine.snapshot():  # the schema and the rows of one state
            return self._rows(self._plan("entity", entity_type, **question))

    def query_relations(self, relation_type: str, **question: Any) -> list[dict[str, Any]]:
        with self.engine.snapshot():
            return self._rows(self._plan("relation", relation_type, **question))

    def get_latest_entity(self, entity_type: str, entity_key: str) -> dict[str, Any] | None:
        return self._latest(TypeRef("entity", entity_type), (entity_key,))

    def get_latest_relation(
        self, relation_type: str, left_key: str, right_key: str, instance_key: str = ""
    ) -> dict[str, Any] | None:
        return self._latest(TypeRef("relation", relation_type), (left_key, right_key, instance_key))

    def count_entities(self, entity_type: str, **question: Any) -> int:
        return self._number("entity", entity_type, Aggregate("count"), question)  # type: ignore[no-any-return]

    def count_relations(self, relation_type: str, **question: Any) -> int:
        return self._number("relation", relation_type, Aggregate("count"), question)  # type: ignore[no-any-return]

    def aggregate_entities(self, entity_type: str, aggregate: Aggregate, **question: Any) -> Any:
        return self._number("entity", entity_type, aggregate, question)

    def aggregate_relations(self, relation_type: str, aggregate: Aggregate, **question: Any) -> Any:
        return self._number("relation", relation_type, aggregate, question)

    def group_by_entities(
        self, entity_type: str, groups: Sequence[FieldExpr[Any]], aggregates: Mapping[str, Aggregate], **question: Any
    ) -> list[dict[str, Any]]:
        return self._groups("entity", entity_type, groups, aggregates, question)

    def group_by_relations(
        self, relation_type: str, groups: Sequence[FieldExpr[Any]], aggregates: Mapping[str, Aggregate], **question: Any
    ) -> list[dict[str, Any]]:
        return self._groups("relation", relation_type, groups, aggregates, question)

    def iter_latest_entities(self, entity_type: str) -> Iterator[dict[str, Any]]:
        yield from self.query_entities(entity_type)

    def iter_latest_relations(self, relation_type: str) -> Iterator[dict[str, Any]]:
        yield from self.query_relations(relation_type)

    def _plan(
        self,
        kind: Kind,
        type_name: str,
        *,
        where: Sequence[Predicate] = (),
        window: Window = LATEST,
        order: Sequence[Order] = (),
        limit: int | None = None,
        offset: int | None = None,
    ) -> Plan:
        schema = self.engine.catalog().find_type(type_name, kind).schema
        return Plan.of(schema, window, tuple(where), order=tuple(order), limit=limit, offset=offset)

    def _latest(self, ref: TypeRef, identity: tuple[str, ...]) -> dict[str, Any] | None:
        import pyarrow as pa

        keys = pa.table({name: pa.array([key], pa.string()) for name, key in zip(ref.identity, identity, strict=True)})
        with self.engine.snapshot():
            if ref not in self.engine.catalog().layouts:
                return None
            found = self._rows(replace(self._plan(ref.kind, ref.name), keyed=True), keys)
        return found[0] if found else None

    def _rows(self, plan: Plan, keys: Any = None) -> list[dict[str, Any]]:
        schema = plan.schema
        identity = plan.source.identity if plan.source.kind == "relation" else ()
        names = ["commit_id", *identity, *(column.name for column in schema.columns)]
        if plan.shows_removals:
            names.append(removed_column(schema))
        json_columns = {column.name for column in schema.columns if column.scalar is None}
        columns = [
            parse_texts(values) if name in json_columns else values
            for name, values in zip(names, self.engine.fetch(plan, keys).columns, strict=True)
        ]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _number(self, kind: Kind, type_name: str, aggregate: Aggregate, question: Mapping[str, Any]) -> Any:
        with self.engine.snapshot():
            plan = replace(self._plan(kind, type_name, **question), aggregates=(("value", aggregate),))
            return self.engine.fetch(plan).columns[0][0]

    def _groups(
        self,
        kind: Kind,
        type_name: str,
        groups: Sequence[FieldExpr[Any]],
        aggregates: Mapping[str, Aggregate],
        question: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        having: tuple[AggregateCondition, ...] = tuple(question.get("having", ()))
        rest = {name: value for name, value in question.items() if name != "having"}
        terms: dict[str, Any] = {"groups": tuple(groups), "aggregates": tuple(aggregates.items()), "having": having}
        with self.engine.snapshot():
            columns = self.engine.fetch(replace(self._plan(kind, type_name, **rest), **terms)).columns
        names = [*(group.name for group in groups), *aggregates]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _table(layout: TypeLayout, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows given one by one as the table that `append` takes."""
    import pyarrow as pa

    columns: dict[str, Any] = {name: pa.array([row[name] for row in rows], pa.string()) for name in layout.ref.identity}
    for column in layout.schema.columns:
        values = [row["fields"].get(column.name) for row in rows]
        if column.scalar is None:
            values = field_texts(f"{layout.ref}.{column.name}", values)
        if not column.nullable and any(value is None for value in values):
            raise ValidationError(f"{layout.ref}.{column.name} must have a value")
        try:
            columns[column.physical] = pa.array(values, column.arrow_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
            raise ValidationError(f"{layout.ref}.{column.name} takes {column.describe()}: {problem}") from None
    return pa.table(columns)
