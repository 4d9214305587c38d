"""Schema migrations: preview, token, and the rewrite of latest state under one commit (RFC 0009 §6)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pydantic

from ontologia.engines.base import Catalog, Engine, SchemaVersion, Transaction, TypeLayout, unique_refused
from ontologia.errors import MigrationError, MigrationTokenError, MissingUpgraderError
from ontologia.model import (
    Declaration,
    Declared,
    FieldExpr,
    TypeRef,
    TypeSchema,
    TypeSchemaDiff,
    canonical_json,
    diff,
    widens,
)
from ontologia.model.typespec import accepts_none
from ontologia.query.aggregates import Aggregate, count
from ontologia.query.plan import Plan
from ontologia.runtime.fingerprints import code_fingerprint
from ontologia.runtime.rows import identity_of, table_of, transposed
from ontologia.runtime.upgraders import Row, Upgrader, Upgraders

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 10_000
MOST_NAMED = 20  #: rows that an error names


class RowCounts(int):
    """A number of rows, which also says how many of them are of which type: `counts["Customer"]`."""

    by_type: Mapping[str, int]

    def __new__(cls, by_type: Mapping[str, int] | None = None) -> RowCounts:
        counts = super().__new__(cls, sum((by_type or {}).values()))
        counts.by_type = dict(by_type or {})
        return counts

    def __getitem__(self, type_name: str) -> int:
        return self.by_type[type_name]

    def __contains__(self, type_name: object) -> bool:
        return type_name in self.by_type

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_type)

    def __len__(self) -> int:
        return len(self.by_type)

    def get(self, type_name: str, default: int = 0) -> int:
        return self.by_type.get(type_name, default)

    def keys(self) -> KeysView[str]:
        return self.by_type.keys()

    def values(self) -> ValuesView[int]:
        return self.by_type.values()

    def items(self) -> ItemsView[str, int]:
        return self.by_type.items()

    def __eq__(self, other: object) -> bool:
        return self.by_type == other if isinstance(other, Mapping) else super().__eq__(other)

    __hash__ = int.__hash__


@dataclass(frozen=True, slots=True)
class MigrationPreview:
    """What a migration would do. The token binds this plan and its upgraders' code to this head.

    `discarded_values` says, by type, in how many rows a field has a value that the code has no field for.
    """

    has_changes: bool
    token: str
    diffs: list[TypeSchemaDiff] = field(default_factory=list)
    estimated_rows: RowCounts = field(default_factory=RowCounts)
    types_requiring_upgraders: list[str] = field(default_factory=list)
    types_schema_only: list[str] = field(default_factory=list)
    missing_upgraders: list[tuple[str, int]] = field(default_factory=list)
    discarded_values: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """What a migration did."""

    success: bool
    types_migrated: list[str] = field(default_factory=list)
    rows_migrated: RowCounts = field(default_factory=RowCounts)
    new_schema_versions: dict[str, int] = field(default_factory=dict)
    duration_s: float = 0.0
    commit_id: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One type's migration: from the stored version to the one in code."""

    declaration: Declaration
    layout: TypeLayout
    difference: TypeSchemaDiff
    target: int
    rows: int
    versions: Mapping[int, TypeSchema]
    missing: list[tuple[str, int]]
    automatic: bool
    code: list[tuple[int, str]]
    """The steps that somebody wrote an upgrader for, and the fingerprint of its code."""
    discarded: dict[str, int]

    @property
    def ref(self) -> TypeRef:
        return self.layout.ref


Rewrite = Callable[[Transaction, Step, Upgraders], int]


def preview(engine: Engine, declarations: Sequence[Declaration], upgraders: Upgraders) -> MigrationPreview:
    """The plan, without touching anything."""
    catalog = engine.catalog()
    return _preview(engine, catalog, plan_steps(engine, catalog, engine.schema_versions(), declarations, upgraders))


def apply(
    engine: Engine,
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
    *,
    token: str | None,
    force: bool,
    metadata: Mapping[str, str],
    rewrite: Rewrite | None = None,
) -> MigrationResult:
    """Run the plan under the write lock, in one commit; whatever goes wrong leaves the store as it was.

    `rewrite` is who carries the rows over: by default, this process.
    """
    if token is None and not force:
        raise MigrationTokenError("a migration needs the token of its preview, or force=True")
    started = time.monotonic()

    def work(transaction: Transaction) -> MigrationResult:
        versions = [version for ref in transaction.catalog.layouts for version in transaction.recorded(ref)]
        steps = plan_steps(engine, transaction.catalog, versions, declarations, upgraders)
        plan = _preview(engine, transaction.catalog, steps)
        if token != plan.token and (token is not None or not force):
            raise MigrationTokenError("the store or the code changed since the preview: preview again for a new token")
        if not plan.has_changes:
            return MigrationResult(success=True, duration_s=time.monotonic() - started)
        if plan.missing_upgraders:
            raise MissingUpgraderError(plan.missing_upgraders)
        rewritten = {step.ref: (rewrite or rewrite_rows)(transaction, step, upgraders) for step in steps}
        commit_id = transaction.publish({**metadata, **commit_metadata(steps, rewritten)})
        return MigrationResult(
            success=True,
            types_migrated=[step.ref.name for step in steps],
            rows_migrated=_by_type(rewritten),
            new_schema_versions={step.ref.name: step.target for step in steps},
            duration_s=time.monotonic() - started,
            commit_id=commit_id,
        )

    return engine.transact(work)


def commit_metadata(steps: Sequence[Step], rewritten: Mapping[TypeRef, int]) -> dict[str, Any]:
    """RFC 0009 §6.1."""
    return {
        "kind": "migration",
        "migrated_types": [
            {
                "type_kind": step.ref.kind,
                "type_name": step.ref.name,
                "from_schema_version_id": step.layout.schema_version_id,
                "to_schema_version_id": step.target,
                "rows_rewritten": rewritten[step.ref],
            }
            for step in steps
        ],
    }


# --- planning ---


def plan_steps(
    engine: Engine,
    catalog: Catalog,
    recorded: Sequence[SchemaVersion],
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
) -> list[Step]:
    steps = []
    for declaration in sorted(declarations, key=lambda item: item.ref):
        layout = catalog.layouts.get(declaration.ref)
        if layout is None or layout.schema.fingerprint == declaration.schema.fingerprint:
            continue
        if declaration.schema.unique and not engine.capabilities.unique_fields:
            raise unique_refused(declaration.schema)
        versions = {v.schema_version_id: v.schema for v in recorded if v.ref == declaration.ref}
        steps.append(plan_step(engine, catalog, declaration, layout, versions, upgraders))
    return steps


def plan_step(
    engine: Engine,
    catalog: Catalog,
    declaration: Declaration,
    layout: TypeLayout,
    versions: Mapping[int, TypeSchema],
    upgraders: Upgraders,
) -> Step:
    """How the rows of one type get from the stored version to the one in code."""
    name = layout.ref.name
    target = layout.schema_version_id + 1
    while (name, target) in upgraders:  # the code may be several versions ahead of this store
        target += 1
    automatic = is_automatic(layout.schema, declaration)
    rows = _count(engine, catalog, layout)
    missing: list[tuple[str, int]] = []
    if rows and not automatic:
        first = layout.schema_version_id
        missing = [(name, number) for number in range(first, target) if (name, number) not in upgraders]
    numbers = [number for number in range(1, target) if (name, number) in upgraders]
    code = [(number, code_fingerprint(upgraders[name, number])) for number in numbers]
    change = diff(layout.schema, declaration.schema, layout.schema_version_id)
    is_told = any(number >= layout.schema_version_id for number in numbers)  # an upgrader sees what is given up
    discarded = {} if is_told else _discarded(engine, catalog, layout, change)
    return Step(declaration, layout, change, target, rows, versions, missing, automatic, code, discarded)


def _discarded(engine: Engine, catalog: Catalog, layout: TypeLayout, change: TypeSchemaDiff) -> dict[str, int]:
    """In how many rows a field that is given up has a value."""
    fields: list[FieldExpr[Any]] = [FieldExpr(layout.ref, name, layout.schema.by_name[name]) for name in change.removed]
    if not fields:
        return {}
    aggregates = tuple((item.name, Aggregate("count_where", where=item.is_not_null())) for item in fields)
    plan = Plan(layout.ref, {layout.ref: layout.schema}, aggregates=aggregates)
    counts = [int(column[0]) for column in engine.fetch(plan, catalog=catalog).columns]
    return {item.name: rows for item, rows in zip(fields, counts, strict=True) if rows}


def _count(engine: Engine, catalog: Catalog, layout: TypeLayout) -> int:
    plan = Plan(layout.ref, {layout.ref: layout.schema}, aggregates=(("rows", count()),))
    return int(engine.fetch(plan, catalog=catalog).columns[0][0])


def is_automatic(stored: TypeSchema, declaration: Declaration) -> bool:
    """Whether rows can be carried over without being told how: fields dropped, widened, or added with a default."""
    change = diff(stored, declaration.schema)
    if change.identity:
        return False
    columns, options = declaration.schema.by_name, declaration.options
    fillable = all(not options[name].required or accepts_none(columns[name].spec) for name in change.added)
    return fillable and all(widens(item.stored, item.code) for item in change.changed)


def _preview(engine: Engine, catalog: Catalog, steps: Sequence[Step]) -> MigrationPreview:
    """The plan as callers see it. The newest commit tells this store from others at the same head."""
    newest = [[commit.created_at, commit.runtime_id] for commit in engine.commits(limit=1)]
    content = {
        "head": [catalog.head, newest],
        "types": [
            [str(step.ref), step.layout.schema.fingerprint, step.declaration.schema.fingerprint, step.target, step.code]
            for step in steps
        ],
    }
    return MigrationPreview(
        has_changes=bool(steps),
        token=hashlib.sha256(canonical_json(content).encode()).hexdigest()[:32],
        diffs=[step.difference for step in steps],
        estimated_rows=_by_type({step.ref: step.rows for step in steps}),
        types_requiring_upgraders=[step.ref.name for step in steps if step.rows and not step.automatic],
        types_schema_only=[step.ref.name for step in steps if step.automatic or not step.rows],
        missing_upgraders=[missing for step in steps for missing in step.missing],
        discarded_values={step.ref.name: step.discarded for step in steps if step.discarded},
    )


def _by_type(rows: Mapping[TypeRef, int]) -> RowCounts:
    by_name: dict[str, int] = {}
    for ref, number in rows.items():
        by_name[ref.name] = by_name.get(ref.name, 0) + number
    return RowCounts(by_name)


# --- the rewrite ---


def rewrite_rows(transaction: Transaction, step: Step, upgraders: Upgraders) -> int:
    """Bring the latest state of a type into its new version. Returns how many rows there were."""
    old = list(transaction.scan(step.ref))
    layout = transaction.activate(step.declaration.schema, step.target)
    return carry_over(transaction, layout, step, old, upgraders)


def carry_over(
    transaction: Transaction,
    layout: TypeLayout,
    step: Step,
    stored: Sequence[tuple[int, pa.Table]],
    upgraders: Upgraders,
) -> int:
    """Append stored rows in their new version; how many. Rows that cannot be upgraded are all named, or counted."""
    rows, failures = 0, Failures(step.ref)
    for version, table in stored:
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            upgraded = upgraded_rows(step, version, table.slice(start, ROWS_AT_ONCE), upgraders, failures)
            transaction.append(layout, upgraded)
            rows += upgraded.num_rows
    failures.raise_any()
    return rows


class Failures:
    """Rows that could not be upgraded: the first are named, all are counted."""

    def __init__(self, ref: TypeRef) -> None:
        self._ref = ref
        self._named: list[MigrationError] = []
        self._total = 0

    def add(self, problem: MigrationError) -> None:
        self._total += 1
        if len(self._named) < MOST_NAMED:
            self._named.append(problem)

    def raise_any(self) -> None:
        if self._total == 1:
            raise self._named[0]
        if self._total:
            more = f"; and {self._total - MOST_NAMED:,} more" if self._total > MOST_NAMED else ""
            said = "; ".join(map(str, self._named))
            raise MigrationError(f"{self._total:,} rows of {self._ref} cannot be upgraded: {said}{more}") from (
                self._named[0].__cause__
            )


def upgraded_rows(
    step: Step, version: int, table: pa.Table, upgraders: Upgraders, failures: Failures | None = None
) -> pa.Table:
    """Stored rows of one version, carried over and validated. Those that fail are left to `failures`, or raised."""
    chain = _chain(step, version, upgraders)
    upgraded, failed = [], failures or Failures(step.ref)
    for identity, row in _stored_rows(step.versions[version], table):
        try:
            upgraded.append(_upgraded(step, identity, row, chain))
        except MigrationError as problem:
            failed.add(problem)
    if failures is None:
        failed.raise_any()
    identities = transposed([identity for identity, _ in upgraded], len(step.ref.identity))
    columns = [[obj.__dict__[name] for _, obj in upgraded] for name in step.declaration.schema.names]
    return table_of(step.declaration, identities, columns)


def _chain(step: Step, version: int, upgraders: Upgraders) -> list[Upgrader]:
    name = step.ref.name
    return [upgraders[name, number] for number in range(version, step.target) if (name, number) in upgraders]


def _stored_rows(schema: TypeSchema, table: pa.Table) -> Iterator[tuple[tuple[str, ...], Row]]:
    """Rows as an upgrader sees them: fields by name, a relation's endpoints and instance key among them."""
    keys = zip(*(table.column(name).to_pylist() for name in schema.ref.identity), strict=True)
    columns = []
    for column in schema.columns:
        values = table.column(column.physical).cast(column.arrow_type).to_pylist()  # instants in UTC, whoever read them
        if column.scalar is None:
            values = [None if text is None else json.loads(text) for text in values]
        columns.append(values)
    names = [column.name for column in schema.columns]
    rows = zip(*columns, strict=True) if columns else ((),) * table.num_rows
    for identity, values in zip(keys, rows, strict=True):
        row: Row = dict(zip(names, values, strict=True))
        if schema.ref.kind == "relation":
            row |= {"left_key": identity[0], "right_key": identity[1]}
            if schema.instance_key is not None:
                row[schema.instance_key] = identity[2]
        yield identity, row


def _upgraded(
    step: Step, identity: tuple[str, ...], old: Row, chain: Sequence[Upgrader]
) -> tuple[tuple[str, ...], Declared]:
    row = dict(old)
    try:
        for function in chain:
            row = function(row)
            if not isinstance(row, dict):
                raise TypeError(f"{getattr(function, '__name__', function)} returned {row!r}, not a dict")
            row = _keys_of(step, identity) | row
        obj = _built(step, row)
    except Exception as problem:
        raise MigrationError(
            f"{step.ref} {'/'.join(identity)!r} cannot be upgraded: {_reason(problem)}. The row is {old!r}"
        ) from problem
    if identity_of(obj) != identity:
        raise MigrationError(
            f"{step.ref} {'/'.join(identity)!r}: an upgrader must keep the identity of a row, and this one became "
            f"{'/'.join(identity_of(obj))!r}. The row is {old!r}"
        )
    return identity, obj


def _keys_of(step: Step, identity: tuple[str, ...]) -> Row:
    """What a relation's upgrader need not return: the keys of its ends, and its instance key."""
    if step.ref.kind == "entity":
        return {}
    keys: Row = {"left_key": identity[0], "right_key": identity[1]}
    if step.declaration.instance_key is not None:
        keys[step.declaration.instance_key] = identity[2]
    return keys


def _built(step: Step, row: Row) -> Declared:
    """The upgraded row as an object of the class, which validates it. Fields the class gave up are left out."""
    declaration = step.declaration
    values = {name: value for name, value in row.items() if name not in step.difference.removed}
    for name in step.difference.added:
        needed = name not in values and declaration.options[name].required
        if needed and accepts_none(declaration.schema.by_name[name].spec):
            values[name] = None
    return declaration.cls(**values)


def _reason(problem: Exception) -> str:
    if isinstance(problem, pydantic.ValidationError):
        return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors())
    return f"{type(problem).__name__}: {problem}"
