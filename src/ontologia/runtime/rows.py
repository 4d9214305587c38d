"""Objects as one Arrow table per type, named and typed as storage has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.model import Declaration, Declared, encode_json, is_unicode, key_text

if TYPE_CHECKING:
    import pyarrow as pa


def identity_of(obj: Declared) -> tuple[str, ...]:
    """What makes an object this one: its key, or its endpoints and instance key."""
    declaration, values = obj.__declaration__, obj.__dict__
    if declaration.ref.kind == "entity":
        return (key_text(values[declaration.primary_key or ""]),)
    instance_key = declaration.instance_key
    return values["left_key"], values["right_key"], "" if instance_key is None else values[instance_key]


def row_of(obj: Declared, names: Iterable[str]) -> tuple[Any, ...]:
    """The values of an object as they are now, in the order of these fields."""
    return tuple(map(obj.__dict__.__getitem__, names))


def table_of(
    declaration: Declaration, identities: Sequence[tuple[str, ...]], rows: Sequence[tuple[Any, ...]]
) -> pa.Table:
    """Identity columns, then fields; rows have the values of objects in the order of the schema."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, keys in zip(declaration.ref.identity, zip(*identities, strict=True), strict=True):
        columns[name] = _array(declaration, name, keys, pa.string())
    for column, found in zip(declaration.schema.columns, zip(*rows, strict=True), strict=True):
        values: Sequence[Any] = found
        if column.scalar is None:
            values = [None if value is None else encode_json(value) for value in found]
        columns[column.physical] = _array(declaration, column.name, values, column.arrow_type)
    return pa.table(columns)


def _array(declaration: Declaration, name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        wrong = next(value for value in values if isinstance(value, str) and not is_unicode(value))
        shown = repr(wrong[:100])
        raise ValidationError(f"{declaration.ref}.{name}: {shown} has a lone surrogate, which is no text") from None
