"""What a migration does to the data, field by field, said before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ontologia.model import TypeSchema, TypeSchemaDiff, widens

Effect = Literal["carried", "renamed", "widened", "filled", "discarded", "upgraded", "needs_upgrader"]


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
    code: TypeSchema, change: TypeSchemaDiff, rows: int, discarded: Mapping[str, int], *, told: bool, automatic: bool
) -> list[FieldEffect]:
    """The effects on one type: of fields in code, in their order, then of those that are given up.

    `told` says that somebody wrote an upgrader, `automatic` that none is needed.
    """
    old_names = {after: before for before, after in change.renamed}
    changed = {item.name: item for item in change.changed}

    def effect(name: str) -> Effect:
        if told:
            return "upgraded"
        if name in changed and not widens(changed[name].stored, changed[name].code):
            return "needs_upgrader"
        if name in change.added:
            return "filled" if automatic else "needs_upgrader"
        if name in old_names:
            return "renamed"
        return "widened" if name in changed else "carried"

    names = [*([code.instance_key] if code.instance_key is not None else []), *code.names]
    found = [FieldEffect(name, effect(name), rows, old_names.get(name)) for name in names]
    for name in change.removed:
        found.append(FieldEffect(name, "upgraded" if told else "discarded", rows if told else discarded.get(name, 0)))
    return found
