"""Objects as an Arrow table, named and typed as storage has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.model import Declaration, Declared, is_unicode, key_text
from ontologia.model.typespec import ambiguous
from ontologia.model.values import field_texts

if TYPE_CHECKING:
    import pyarrow as pa


def identity_of(obj: Declared) -> tuple[str, ...]:
    """What makes an object this one: its key, or its endpoints and instance key."""
    return identity_of_values(obj.__declaration__, obj.__dict__)


def identity_of_values(declaration: Declaration, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The same, of the values of an object."""
    if declaration.ref.kind == "entity":
        return (key_text(values[declaration.primary_key or ""]),)
    instance_key = declaration.instance_key
    return values["left_key"], values["right_key"], "" if instance_key is None else values[instance_key]


def transpose(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as columns. `zip(*rows)` would make an iterator for every row."""
    return [list(map(itemgetter(place), rows)) for place in range(width)]


def table_of(
    declaration: Declaration, identities: Sequence[Sequence[str]], columns: Sequence[Sequence[Any]]
) -> pa.Table:
    """Identity columns, then the columns of the schema, from columns of Python values."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name, keys in zip(declaration.ref.identity, identities, strict=True):
        arrays[name] = _array(declaration, name, keys, pa.string())
    for column, values in zip(declaration.schema.columns, columns, strict=True):
        plain = values
        if column.scalar is None:
            plain = field_texts(f"{declaration.ref}.{column.name}", values)
            if ambiguous(column.spec):
                _check_readable(declaration, column.name, values, plain)
        arrays[column.physical] = _array(declaration, column.name, plain, column.arrow_type)
    return pa.table(arrays)


def _check_readable(declaration: Declaration, name: str, values: Sequence[Any], texts: Sequence[str | None]) -> None:
    """Refuse a value that would come back as another: JSON cannot tell a date from its text, or say NaN."""
    decode = declaration.json_decoder(name)
    for value, text in zip(values, texts, strict=True):
        if text is not None and not _same(decode(text), value):
            raise ValidationError(
                f"{declaration.ref}.{name}: {value!r} would be read back as {decode(text)!r}; give the field a type "
                "that tells them apart, or store it as text"
            )


def _same(left: Any, right: Any) -> bool:
    """Equal, and alike all the way down: 1, 1.0 and True are equal and not the same."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and left == right


def _array(declaration: Declaration, name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    from ontologia.files.arrays import array_of

    try:
        return array_of(values, kind)
    except UnicodeEncodeError:
        wrong = next(value for value in values if isinstance(value, str) and not is_unicode(value))
        shown = repr(wrong[:100])
        raise ValidationError(f"{declaration.ref}.{name}: {shown} has a lone surrogate, which is not text") from None
