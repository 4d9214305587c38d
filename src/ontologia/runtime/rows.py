"""Objects as one Arrow table per type, named and typed as storage has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ontologia.model import Declaration, Declared, encode_json, key_text

if TYPE_CHECKING:
    import pyarrow as pa


def identity_of(obj: Declared) -> tuple[str, ...]:
    """What makes an object this one: its key, or its endpoints and instance key."""
    declaration, values = obj.__declaration__, obj.__dict__
    if declaration.ref.kind == "entity":
        return (key_text(values[declaration.primary_key or ""]),)
    instance_key = declaration.instance_key
    return values["left_key"], values["right_key"], "" if instance_key is None else values[instance_key]


def table_of(declaration: Declaration, identities: Sequence[tuple[str, ...]], objects: Sequence[Declared]) -> pa.Table:
    """Identity columns, then fields."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, keys in zip(declaration.ref.identity, zip(*identities, strict=True), strict=True):
        columns[name] = pa.array(keys, pa.string())
    rows = [obj.__dict__ for obj in objects]
    for column in declaration.schema.columns:
        name = column.name
        values = [row[name] for row in rows]
        if column.scalar is None:
            values = [None if value is None else encode_json(value) for value in values]
        columns[column.physical] = pa.array(values, column.arrow_type)
    return pa.table(columns)
