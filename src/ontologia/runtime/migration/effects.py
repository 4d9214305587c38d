"""What a migration does to the data, field by field, said before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ontologia.model import Declaration, TypeSchema, TypeSchemaDiff
from ontologia.model.carrying import Effect, effect_on, name_before
from ontologia.model.diff import under_new_names
from ontologia.model.typespec import accepts_none


@dataclass(frozen=True, slots=True)
class FieldEffect:
    """What becomes of a field, and in how many rows.

    `carried`, `renamed` (from `before`) and `widened` keep every value; `filled` gives a new field its default;
    `discarded` loses the values that are not null; `upgraded` is whatever an upgrader makes of it, and
    `needs_upgrader` waits for one.
    """

    field: str
    effect: Effect
    rows: int
    before: str | None = None

    def to_json(self) -> dict[str, Any]:
        found = {"field": self.field, "effect": self.effect, "rows": self.rows}
        return found if self.before is None else {**found, "before": self.before}


def effects_of(
    stored: TypeSchema,
    declaration: Declaration,
    change: TypeSchemaDiff,
    rows: int,
    discarded: Mapping[str, int],
    *,
    is_upgraded: bool,
) -> list[FieldEffect]:
    """The effects on one type: of fields in code, in their order, then of those that are given up.

    `is_upgraded` says that somebody wrote an upgrader.
    """
    code = declaration.schema
    new_keys = _keys(code) - _keys(under_new_names(stored, code))

    def effect(name: str) -> Effect:
        if is_upgraded:
            return "upgraded"
        if name in new_keys:  # which row is which has to be said by somebody, whatever the field holds
            return "needs_upgrader"
        return effect_on(change, name, fillable=is_fillable(declaration, name))

    def found_in(name: str) -> FieldEffect:
        before = name_before(change, name)
        return FieldEffect(name, effect(name), rows, None if before == name else before)

    keys = [] if code.instance_key is None else [code.instance_key]
    found = [found_in(name) for name in (*keys, *code.names)]
    for name in change.removed:
        gone = FieldEffect(name, "discarded", discarded.get(name, 0))
        found.append(FieldEffect(name, "upgraded", rows) if is_upgraded else gone)
    return found


def is_fillable(declaration: Declaration, name: str) -> bool:
    """Whether there is a value for a field in rows that do not have it: its default, or None."""
    column = declaration.schema.by_name.get(name)
    return not declaration.options[name].required or (column is not None and accepts_none(column.spec))


def _keys(schema: TypeSchema) -> set[str | None]:
    return {schema.primary_key, schema.instance_key}
