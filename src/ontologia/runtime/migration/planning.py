"""How the rows of each type get from the stored version to the one in code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, SchemaVersion, TypeLayout
from ontologia.engines.transaction import unique_refused
from ontologia.errors import ValidationError
from ontologia.model import (
    Declaration,
    FieldExpr,
    TypeRef,
    TypeSchema,
    TypeSchemaDiff,
    diff,
)
from ontologia.model.carrying import carries_over
from ontologia.model.typespec import accepts_none
from ontologia.model.upgraders import Upgraders
from ontologia.model.values import plain
from ontologia.query.aggregates import Aggregate
from ontologia.query.plan import Plan
from ontologia.runtime.fingerprints import class_fingerprint, code_fingerprint
from ontologia.runtime.migration.effects import FieldEffect, effects_of, is_fillable
from ontologia.runtime.migration.results import MigrationPreview, by_type
from ontologia.runtime.tokens import token_for


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
        """The type as it is stored now."""
        return self.layout.ref

    @property
    def new_ref(self) -> TypeRef:
        return self.declaration.ref

    @property
    def new_version(self) -> int:
        """Under another name, versions are counted anew."""
        return self.target if self.new_ref == self.ref else 1

    @property
    def is_upgraded(self) -> bool:
        """Whether an upgrader sees the rows, and with them what is given up."""
        return any(number >= self.layout.schema_version_id for number, _ in self.code)

    @property
    def change(self) -> str:
        return "weakening" if self.difference.is_weakening and self.automatic else "strengthening"

    def defaults_of_new_fields(self) -> dict[str, Any]:
        """What new fields have in rows that do not say otherwise, as JSON can say it, where it is the same in all."""
        found: dict[str, Any] = {}
        for name in self.difference.added:
            options = self.declaration.options[name]
            if not options.required and options.default_factory is None:
                found[name] = plain(self.declaration.default_of(name))
            elif options.required and accepts_none(self.declaration.schema.by_name[name].spec):
                found[name] = None
        return found

    def effects(self) -> list[FieldEffect]:
        return effects_of(
            self.layout.schema,
            self.declaration,
            self.difference,
            self.rows,
            self.discarded,
            is_upgraded=self.is_upgraded,
        )


def plan_steps(
    engine: Engine,
    catalog: Catalog,
    recorded: Sequence[SchemaVersion],
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
) -> list[Step]:
    check_renames(catalog, declarations)
    steps = []
    for declaration in sorted(declarations, key=lambda item: item.ref):
        layout = catalog.layout_of(declaration.schema)
        if layout is None or not catalog.outdated({declaration.ref: declaration.schema}):
            continue
        if declaration.schema.unique and not engine.capabilities.unique_fields:
            raise unique_refused(declaration.schema)
        versions = {v.schema_version_id: v.schema for v in recorded if v.ref == layout.ref}
        steps.append(plan_step(engine, catalog, declaration, layout, versions, upgraders))
    return steps


def check_renames(catalog: Catalog, declarations: Iterable[Declaration]) -> None:
    """Refuse classes that would make two types of a stored one, or one beside the type whose place it takes."""
    declared = {declaration.ref: declaration for declaration in declarations}
    claimed: dict[TypeRef, TypeRef] = {}
    for ref in sorted(declared):
        layout = catalog.layout_of(declared[ref].schema)
        if layout is None or layout.ref == ref:
            continue
        old = layout.ref
        if old in declared:
            raise ValidationError(f"{ref} has renamed_from={old.name!r}, and {old} is declared still: leave one out")
        if old in claimed:
            raise ValidationError(f"{claimed[old]} and {ref} cannot both be what {old} was before")
        claimed[old] = ref


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
    step = Step(declaration, layout, change, target, rows, versions, missing, automatic, code, {})
    return step if step.is_upgraded else replace(step, discarded=_count_discarded(engine, catalog, layout, change))


def _count_discarded(engine: Engine, catalog: Catalog, layout: TypeLayout, change: TypeSchemaDiff) -> dict[str, int]:
    """In how many rows a field that is given up has a value."""
    fields: list[FieldExpr[Any]] = [FieldExpr(layout.ref, name, layout.schema.by_name[name]) for name in change.removed]
    if not fields:
        return {}
    aggregates = tuple((item.name, Aggregate("count_where", where=item.is_not_null())) for item in fields)
    plan = Plan.of(layout.schema, aggregates=aggregates)
    counts = [int(column[0]) for column in engine.fetch(plan, catalog=catalog).columns]
    return {item.name: rows for item, rows in zip(fields, counts, strict=True) if rows}


def _count(engine: Engine, catalog: Catalog, layout: TypeLayout) -> int:
    plan = Plan.counting(layout.schema)
    return int(engine.fetch(plan, catalog=catalog).columns[0][0])


def is_automatic(stored: TypeSchema, declaration: Declaration) -> bool:
    """Whether rows can be carried over without being told how: fields dropped, widened, or added with a default."""
    change = diff(stored, declaration.schema)
    return carries_over(change, declaration.schema.names, partial(is_fillable, declaration))


def describe(engine: Engine, steps: Sequence[Step]) -> MigrationPreview:
    """The plan as callers see it."""
    content = [
        [
            str(step.ref),
            step.layout.schema.fingerprint,
            step.declaration.schema.fingerprint,
            class_fingerprint(step.declaration),
            step.target,
            step.code,
            step.difference.renamed,
        ]
        for step in steps
    ]
    return MigrationPreview(
        has_changes=bool(steps),
        token=token_for(engine, "migration", content) if steps else "",
        diffs=[step.difference for step in steps],
        estimated_rows=by_type({step.ref: step.rows for step in steps}),
        types_requiring_upgraders=[step.ref.name for step in steps if step.rows and not step.automatic],
        types_schema_only=[step.ref.name for step in steps if step.automatic or not step.rows],
        missing_upgraders=list(dict.fromkeys(name for step in steps for name, _ in step.missing)),
        missing_steps=[missing for step in steps for missing in step.missing],
        discarded_values={step.ref.name: step.discarded for step in steps if step.discarded},
        effects={step.new_ref.name: step.effects() for step in steps},
        changes={step.new_ref.name: step.change for step in steps},
    )
