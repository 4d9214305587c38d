"""The rows of a type in all its schema versions, for one statement; and each version's rows as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.engines.catalog import Catalog
from ontologia.engines.upgrading import Journey, upgrade_rows
from ontologia.engines.versions import Version, read_in, versions_of
from ontologia.engines.ways import Way
from ontologia.errors import ValidationError
from ontologia.model import (
    COMMIT_ID,
    SUPERSEDED_BY,
    Combination,
    Condition,
    FieldExpr,
    Negation,
    Predicate,
    TypeRef,
    TypeSchema,
)
from ontologia.query.carried_rows import Projection, RowsTogether
from ontologia.query.compiler import REMOVED
from ontologia.query.in_force import mark_removals
from ontologia.query.plan import Across, Plan
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    from ontologia.engines.base import Engine

ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class _Question:
    """What is asked of an engine, and everything that is known while its rows are being found."""

    engine: Engine
    plan: Plan
    across: Across
    catalog: Catalog
    keys: pa.Table | None
    diagnostics: list[dict[str, Any]]


@contextmanager
def stored_rows_across(
    engine: Engine,
    plan: Plan,
    catalog: Catalog,
    keys: pa.Table | None,
    diagnostics: list[dict[str, Any]],
    current: Mapping[TypeRef, StoredRows],
) -> Iterator[Mapping[TypeRef, StoredRows]]:
    """The rows of every type a plan names, from all versions that its window has rows of. `current` are those of the
    versions in force."""
    assert plan.across is not None
    asked = _Question(engine, plan, plan.across, catalog, keys, diagnostics)
    with ExitStack() as stack:
        found = {}
        for ref, rows in current.items():
            parts = [stack.enter_context(part) for part in _parts(asked, ref, rows)]
            found[ref] = RowsTogether(ref, parts) if parts else rows
        yield found


def _parts(asked: _Question, ref: TypeRef, current: StoredRows) -> Iterator[Any]:
    """What a type's rows come from, oldest first; nothing where the version in force has them all."""
    if ref not in asked.catalog.layouts:
        return
    versions = versions_of(asked.engine, asked.plan.schemas[ref], asked.catalog)
    wanted = read_in(versions, asked.plan.window)
    if all(version.until is None for version in wanted):
        return
    for version in wanted:
        if version.until is None:
            yield _as_it_is(current)
            continue
        way = Way(
            versions[versions.index(version) :],
            asked.plan.schemas[ref],
            asked.across.declarations.get(ref),
            asked.across.upgraders,
        )
        yield _carry_over(asked, ref, version, way)


@contextmanager
def _as_it_is(rows: StoredRows) -> Iterator[StoredRows]:
    yield rows


@contextmanager
def _carry_over(asked: _Question, ref: TypeRef, version: Version, way: Way) -> Iterator[StoredRows]:
    """The rows of an earlier version: by a projection, or, where an upgrader is on the way, in a table of their own."""
    name = f"version_{list(asked.plan.schemas).index(ref)}_{version.until}"
    journey = way.journey
    if journey is not None:
        rows = _upgrade_rows(asked, ref, version, journey)
        with asked.engine.held(name, asked.plan.schemas[ref], rows) as held:
            yield held
        return
    schema, catalog = version.schema, asked.engine.catalog_at_version(version.layout, version.until, asked.catalog)
    stored = Plan.of(schema, asked.plan.window)
    key = ("projection", ref, schema.ref, version.layout.schema_version_id, way.declaration)
    sources = asked.catalog.remembered.get(key)
    if sources is None:
        sources = asked.catalog.remembered[key] = way.projection()
    with asked.engine.stored_rows(stored, catalog, asked.diagnostics) as stored_rows:
        yield stored_rows[schema.ref].carried(Projection(ref, sources, name, asked.engine.dialect))


def _upgrade_rows(asked: _Question, ref: TypeRef, version: Version, journey: Journey) -> pa.Table:
    """The rows that a plan needs of a version, past the upgraders, some at a time; with their commits."""
    plan, schema = asked.plan, version.schema
    is_source = ref == plan.source
    where = _of_identity(plan, schema) if is_source else ()
    keyed = plan.keyed and is_source
    stored = Plan.of(schema, plan.window, where, keyed=keyed, stored=True, unordered=True)
    rows = asked.engine.table_at(
        stored,
        asked.engine.catalog_at_version(version.layout, version.until, asked.catalog),
        asked.keys if keyed else None,
    )
    arrived = [
        upgrade_rows(journey, rows.slice(start, ROWS_AT_ONCE))
        for start in range(0, max(rows.num_rows, 1), ROWS_AT_ONCE)
    ]
    commits = rows.column(COMMIT_ID)
    found = pa.concat_tables(arrived).append_column(COMMIT_ID, commits)
    if REMOVED not in rows.column_names or not pc.any(rows.column(REMOVED)).as_py():
        return found
    return found.append_column(SUPERSEDED_BY, mark_removals(rows.column(REMOVED), commits))


def _of_identity(plan: Plan, stored: TypeSchema) -> tuple[Predicate, ...]:
    """The filters of a plan that are about nothing but identity: a row keeps that on its way, so that they can leave
    rows out before the upgraders see them."""
    key, before = plan.schema.primary_key, stored.primary_key

    def as_stored(condition: Condition) -> FieldExpr[Any] | None:
        operand = condition.operand
        if operand.side is not None or operand.owner != plan.source:
            return None
        if operand.column is None:
            name = operand.name if operand.name in stored.ref.identity else "instance_key"
            return FieldExpr(stored.ref, name, None)
        if operand.name != key or before is None or operand.column.scalar != stored.by_name[before].scalar:
            return None
        return FieldExpr(stored.ref, before, stored.by_name[before])

    found = (_repoint(predicate, as_stored) for predicate in plan.where)
    return tuple(predicate for predicate in found if predicate is not None)


def _repoint(predicate: Predicate, point: Callable[[Condition], FieldExpr[Any] | None]) -> Predicate | None:
    """A filter with other operands; None where there is none for one of them."""
    if isinstance(predicate, Condition):
        operand = point(predicate)
        return None if operand is None else Condition(operand, predicate.op, predicate.value)
    if isinstance(predicate, Negation):
        part = _repoint(predicate.part, point)
        return None if part is None else Negation(part)
    if not isinstance(predicate, Combination):
        return None
    parts = [_repoint(part, point) for part in predicate.parts]
    known = tuple(part for part in parts if part is not None)
    return Combination(predicate.op, known) if len(known) == len(parts) else None


def rows_as_stored(engine: Engine, plan: Plan, catalog: Catalog) -> Iterator[tuple[Version, pa.Table]]:
    """The rows of a plan's window version by version, oldest first, under the schema that each had."""
    for version in read_in(versions_of(engine, plan.schema, catalog), plan.window):
        schema = version.schema
        where = _of_identity(plan, schema)
        if len(where) < len(plan.where):
            raise ValidationError(
                f"{schema.ref} in version {version.layout.schema_version_id} has another type of key, so that rows as "
                "stored cannot be filtered by it: leave the filter out"
            )
        stored = Plan.of(schema, plan.window, where)
        yield version, engine.table_at(stored, engine.catalog_at_version(version.layout, version.until, catalog))
