"""What becomes of a field when the schema of its type changes: the one rule, for migrations and for reading back.

A change carries over by itself when no value has to be made up by somebody who knows what it means: a field was
dropped, renamed, widened, or added with a value that can be filled in. Everything else needs an upgrader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from ontologia.model.diff import TypeSchemaDiff, widens

Effect = Literal["carried", "renamed", "widened", "filled", "discarded", "upgraded", "needs_upgrader"]


def effect_on(change: TypeSchemaDiff, name: str, *, fillable: bool) -> Effect:
    """What becomes of a field that the new schema has, when nobody wrote an upgrader.

    `fillable` says whether there is a value for it in rows that do not have it.
    """
    changed = next((item for item in change.changed if item.name == name), None)
    if changed is not None and not widens(changed.stored, changed.code):
        return "needs_upgrader"
    if name in change.added:
        return "filled" if fillable else "needs_upgrader"
    if name_before(change, name) != name:
        return "renamed"
    return "carried" if changed is None else "widened"


def name_before(change: TypeSchemaDiff, name: str) -> str:
    """What a field of the new schema was called in the old one."""
    return next((before for before, after in change.renamed if after == name), name)


def carries_over(change: TypeSchemaDiff, names: Iterable[str], is_fillable: Callable[[str], bool]) -> bool:
    """Whether rows can be carried over without being told how; `names` are the fields of the new schema."""
    effects = (effect_on(change, name, fillable=is_fillable(name)) for name in names)
    return not change.identity and "needs_upgrader" not in effects
