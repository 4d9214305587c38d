"""`LocalPipeline`: what `Pipeline` does, in process, for sources that fit in memory.

The mapping, the table of conversions, the checks, the delta rule and the report are the same. What differs is who
works: Arrow instead of executors, and one transaction that holds the rows itself.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, user_metadata
from ontologia.engines.dispatch import open_engine
from ontologia.engines.transaction import Transaction
from ontologia.errors import ValidationError
from ontologia.files.identity import identity_key, sort_by_identity
from ontologia.model import Column, Declaration, TypeRef, TypeSchema, encode_json
from ontologia.model.typespec import accepts_none
from ontologia.objects import Location
from ontologia.query.plan import LATEST, Plan
from ontologia.runtime.delta import OPERATION, delta
from ontologia.runtime.intake.checks import RowCheck, checks_of
from ontologia.runtime.intake.comparing import (
    COUNTS,
    Missing,
    Mode,
    OnConflict,
    OnDuplicate,
    OnInvalid,
    OnTie,
    count_ties,
    keep_stored,
    one_each,
    resolve_conflicts,
    tally,
)
from ontologia.runtime.intake.conversions import kind_of, read_float, rule_of
from ontologia.runtime.intake.loads import LoadTerms, check_choices, end_key, fills, load_terms
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.reports import PipelineReport, TypeReport, by_type_name
from ontologia.runtime.intake.rows import ORDER, Intake, RejectedRow, must_be_filled
from ontologia.runtime.intake.syncing import check_removals, check_sync, identities_to_remove
from ontologia.runtime.loading.expressions import evaluate
from ontologia.runtime.loading.sources import OnlySpark, read_source

WHERE = "in process"
"""What the metadata of a commit names as the application that ran the load."""


@dataclass(frozen=True, slots=True)
class _Load:
    declaration: Declaration
    rows: pa.Table
    """Rows that fit, as storage has them."""
    rejected: list[RejectedRow]
    read: int
    terms: LoadTerms
    unfilled: tuple[str, ...]
    """The fields that the source has no column for."""
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Changes:
    """What a load does to a type: rows to write, identities that go, and the counts."""

    rows: pa.Table
    gone: pa.Table | None
    report: TypeReport


@dataclass(slots=True)
class LocalPipeline:
    """Loads from any number of small sources, committed together. `OnlySpark` is raised for what is none."""

    target: str | os.PathLike[str] | Location
    config: OntologiaConfig | None = None
    on_invalid: OnInvalid = "abort"
    on_conflict: OnConflict = "upsert"
    _loads: dict[TypeRef, list[_Load]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choices({"on_invalid": self.on_invalid, "on_conflict": self.on_conflict})

    def load(
        self,
        source: Any,
        *,
        into: type[Any],
        map: Mapping[str, Any] | None = None,
        key: Any = None,
        left: Any = None,
        right: Any = None,
        instance_key: Any = None,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        order_by: Any = None,
        on_duplicate: OnDuplicate | None = None,
        on_tie: OnTie = "error",
        mode: Mode = "upsert",
        max_removals: int | None = None,
        missing: Missing = "default",
    ) -> Self:
        """Add a source, as `Pipeline.load` does."""
        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        rules: dict[str, Any] = {"on_duplicate": on_duplicate, "on_tie": on_tie}
        rules |= {"mode": mode, "max_removals": max_removals, "missing": missing}
        terms = load_terms(into, map, identity, order_by=order_by, **rules)
        declaration = terms.declaration
        loads = self._loads.setdefault(declaration.ref, [])
        if loads:
            raise OnlySpark(f"{declaration.ref} is loaded from several sources")
        table = read_source(source, format, options)
        given = _map(table, declaration, terms.expressions, order_by)
        rows, rejected = _intake(declaration, given, has_order=order_by is not None).take(given, table)
        names = table.column_names
        unfilled, ignored = terms.fields_without(names), terms.columns_without(names, order_by)
        if declaration.validates_rows and terms.kept_columns(unfilled):
            raise ValidationError(
                f"{declaration.ref} has validators of whole rows, and missing='keep' leaves parts to the store: "
                "load all columns, or without it"
            )
        loads.append(_Load(declaration, rows, rejected, table.num_rows, terms, unfilled, ignored))
        return self

    def commit(self, *, meta: Mapping[str, str] | None = None, dry_run: bool = False) -> PipelineReport:
        """Compare all loads with the store and publish what differs as one commit."""
        if not self._loads:
            raise ValidationError("nothing to commit: add a source with load() first")
        started, metadata = time.monotonic(), user_metadata(meta)
        loads = [load for each in self._loads.values() for load in each]
        for load in loads:
            if load.rejected and self.on_invalid == "abort":
                first = load.rejected[0]
                raise ValidationError(f"{load.declaration.ref}: {first.reason}. The source row is {first.source}")
        with open_engine(Location.of(self.target, self.config), make_file=False) as engine:
            engine.catalog().check({load.declaration.ref: load.declaration.schema for load in loads})
            for load in loads:
                if load.terms.mode == "sync":
                    check_sync(load.declaration.ref, engine.capabilities, self.on_conflict, len(load.rejected))
            run = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{secrets.token_hex(4)}"
            quarantine = Quarantine(engine.staging_area, run)
            if dry_run:
                catalog = engine.catalog()
                reports = {load.declaration.ref: self._changes(engine, catalog, load).report for load in loads}
                commit_id = None
            else:
                try:
                    for load in loads:
                        if load.rejected:
                            quarantine.of(load.declaration.ref).add(load.rejected)
                    reports, commit_id = engine.transact(lambda tx: self._publish(engine, tx, loads, metadata, started))
                except BaseException:
                    quarantine.clear()
                    raise
                engine.tidy("load")
        rejected = any(load.rejected for load in loads) and not dry_run
        seconds = time.monotonic() - started
        defaulted = by_type_name({load.declaration.ref: load.terms.defaulted(load.unfilled) for load in loads})
        ignored = by_type_name({load.declaration.ref: load.ignored for load in loads})
        aside = quarantine.uri if rejected else None
        return PipelineReport(commit_id, by_type_name(reports), seconds, dry_run, "", aside, defaulted, ignored)

    def _publish(
        self,
        engine: Engine,
        transaction: Transaction,
        loads: Sequence[_Load],
        metadata: Mapping[str, str],
        started: float,
    ) -> tuple[dict[TypeRef, TypeReport], int | None]:
        catalog = transaction.catalog
        catalog.check({load.declaration.ref: load.declaration.schema for load in loads})
        reports, total = {}, TypeReport()
        for load in loads:
            ref, changes = load.declaration.ref, self._changes(engine, catalog, load, transaction)
            if changes.gone is not None and changes.gone.num_rows:
                transaction.remove(catalog.layouts[ref], transaction.current(load.declaration.schema, changes.gone))
            if changes.rows.num_rows:
                transaction.append(transaction.layout_for(load.declaration.schema), changes.rows)
            reports[ref] = changes.report
            total = total.plus(changes.report)
        if not total.inserted and not total.updated and not total.removed:
            return reports, None
        record = {"pipeline": WHERE, **total.as_metadata(), "duration_s": f"{time.monotonic() - started:.3f}"}
        return reports, transaction.publish({**metadata, **record})

    def _changes(
        self, engine: Engine, catalog: Catalog, load: _Load, transaction: Transaction | None = None
    ) -> _Changes:
        """What differs from the store, and the counts."""
        schema = load.declaration.schema
        counts = dict.fromkeys(COUNTS, 0)
        counts["read"], counts["rejected"] = load.read, len(load.rejected)
        rows = in_order(load.rows, schema.ref)
        wanted = one_each(rows, schema.ref, load.terms.on_duplicate)
        if ORDER in rows.column_names:
            counts["ties"] = count_ties(rows, schema.ref, load.terms.on_tie)
            wanted = wanted.drop_columns([ORDER])
        current = None
        if schema.ref in catalog.layouts and wanted.num_rows:
            if transaction is None:
                current = engine.rows_of(schema, wanted, LATEST, catalog, dense=False)
            else:
                current = transaction.current(schema, wanted.select(list(schema.ref.identity)))
        wanted = keep_stored(wanted, current, schema.ref, load.terms.kept_columns(load.unfilled))
        changed = resolve_conflicts(delta(wanted, current, schema.ref.identity), schema.ref, self.on_conflict)
        tally(counts, changed, wanted.num_rows)
        gone = None
        if load.terms.mode == "sync" and schema.ref in catalog.layouts:
            gone = identities_to_remove(self._read_identities(engine, catalog, schema), wanted, schema.ref.identity)
            check_removals(schema.ref, gone.num_rows, wanted.num_rows, load.terms.max_removals)
            counts["removed"] = gone.num_rows
        return _Changes(changed.drop_columns([OPERATION]), gone, TypeReport(**counts))

    def _read_identities(self, engine: Engine, catalog: Catalog, schema: TypeSchema) -> pa.Table:
        """The identities of all rows in force."""
        plan = Plan.of(schema, stored=True, only=schema.ref.identity, unordered=True)
        return engine.table(plan, None, catalog)


def _map(table: pa.Table, declaration: Declaration, expressions: Mapping[str, Any], order_by: Any) -> pa.Table:
    """What fills the fields and keys of a type, under their names, and the order."""
    chosen = fills(table.column_names, declaration, expressions)
    try:
        found = {
            name: table.column(name) if expression is None else evaluate(table, expression)
            for name, expression in chosen.items()
        }
        if order_by is not None:
            parts = order_by if isinstance(order_by, (list, tuple)) else [order_by]
            found[ORDER] = ranks([evaluate(table, part) for part in parts])
    except pa.ArrowInvalid as problem:
        raise OnlySpark(str(problem)) from problem
    return pa.table(found)


def _intake(declaration: Declaration, given: pa.Table, *, has_order: bool) -> Intake:
    """The rules of a load for rows of the class."""
    schema = declaration.schema
    kinds = {column.name: column.type for column in given.schema}
    for column in schema.columns:
        if column.scalar is not None and column.name in kinds and kind_of(kinds[column.name]) is None:
            raise ValidationError(
                f"{column.name} is {column.describe()}, and the source has {kinds[column.name]}: map it"
            )
    columns = {name: name for name in given.column_names if name != ORDER}
    ends: dict[str, Column] = {}
    if declaration.ref.kind == "relation":
        parts = {"left_key": "left_key", "right_key": "right_key"}
        if declaration.instance_key is not None:
            parts["instance_key"] = declaration.instance_key
            columns["instance_key"] = columns.pop(declaration.instance_key)
        ends = {end: end_key(declaration, end, name) for end, name in parts.items()}
    keys = [*ends.values()] or [schema.by_name[declaration.primary_key or ""]]
    for key in keys:
        if key.name in kinds:
            _check_key(key, kinds[key.name])
    defaulted = [column for column in schema.columns if _has_default(declaration, column)]
    open_ = {column.name: _default(declaration, column) for column in defaulted}
    return Intake(
        schema,
        columns,
        {name: value for name, value in open_.items() if name not in columns},
        frozenset(column.name for column in schema.columns if column.scalar is None and _is_text(kinds, column.name)),
        checks_of(declaration),
        ORDER if has_order else None,
        {name: value for name, value in open_.items() if name in columns and not _takes_none(schema.by_name[name])},
        ends,
        RowCheck.of(declaration),
    )


def _check_key(key: Column, kind: pa.DataType) -> None:
    found = kind_of(kind)
    if found is None or rule_of(key.scalar or "str", found) is None:
        raise ValidationError(
            f"{key.name} is a key: text, a whole number, a date or a time, and the source has {kind}: map it"
        )


def _has_default(declaration: Declaration, column: Column) -> bool:
    return column.name in declaration.options and not must_be_filled(declaration.options[column.name])


def _default(declaration: Declaration, column: Column) -> Any:
    value = declaration.options[column.name].make_default()
    return value if column.scalar is not None or value is None else encode_json(value)


def _takes_none(column: Column) -> bool:
    return accepts_none(column.spec) if column.scalar is None else column.nullable


def _is_text(kinds: Mapping[str, pa.DataType], name: str) -> bool:
    return name in kinds and kind_of(kinds[name]) == "text"


def ranks(parts: Sequence[pa.ChunkedArray]) -> pa.Array:
    """What decides which row is the last, as numbers. Text that reads as a number counts as one, as on Spark."""
    rows = list(zip(*(map(_place, part.to_pylist()) for part in parts), strict=True))
    numbers = {key: number for number, key in enumerate(sorted(set(rows)))}
    return pa.array([numbers[row] for row in rows], pa.int64())


def _place(value: Any) -> tuple[Any, ...]:
    """A value as something that can be sorted: nothing first, and NaN last of all numbers."""
    if value is None:
        return (0,)
    if isinstance(value, str):
        return (1, _place(read_float(value)), value)
    if isinstance(value, float):
        return (1, 1, 0.0) if value != value else (1, 0, value)
    return (1, 0, value)


def in_order(rows: pa.Table, ref: TypeRef) -> pa.Table:
    """Rows by identity; those of one identity by their order, and where that is equal by their values."""
    found = sort_by_identity(rows, list(ref.identity))
    if ORDER not in rows.column_names or found.num_rows < 2:
        return found
    keys = identity_key(found, ref.identity).to_pylist()
    places, start = list(range(found.num_rows)), 0
    for place in range(1, len(keys) + 1):
        if place == len(keys) or keys[place] != keys[start]:
            if place - start > 1:
                places[start:place] = _by_order(found.slice(start, place - start), start)
            start = place
    return found.take(pa.array(places, pa.int64()))


def _by_order(rows: pa.Table, first: int) -> list[int]:
    """The places of rows of one identity, which begin at `first`, by their order and their values."""
    values = rows.drop_columns([ORDER]).to_pylist()
    order = rows.column(ORDER).to_pylist()
    sortable = [(order[place], [_place(value) for value in row.values()]) for place, row in enumerate(values)]
    return [first + place for place in sorted(range(len(sortable)), key=sortable.__getitem__)]
