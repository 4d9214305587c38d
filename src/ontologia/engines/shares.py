"""How the rows of a type are shared out among tasks that read side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontologia.model import FieldExpr, Predicate, TypeSchema

if TYPE_CHECKING:
    from ontologia.files.key_ranges import KeyRange


def range_predicates(schema: TypeSchema, keys: KeyRange) -> tuple[Predicate, ...]:
    """A range of the first identity column as filters, which an engine answers by its index or its statistics."""
    key: FieldExpr[Any] = FieldExpr(schema.ref, schema.ref.identity[0], None)
    found: list[Predicate] = []
    if keys.first is not None:
        found.append(key >= keys.first)
    if keys.end is not None:
        found.append(key < keys.end)
    return tuple(found)
