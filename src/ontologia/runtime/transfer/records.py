"""One row as one line of JSON (RFC 0004 §8): kind, type, identity, fields; values in the forms the store uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any

import pydantic

from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Column, Declaration, TypeRef, TypeSchema, encode_json, key_text
from ontologia.model.fields import FieldOptions
from ontologia.model.typespec import accepts_none, annotation_of
from ontologia.model.validation import add_checks, row_adapter
from ontologia.model.values import field_texts, instant_text

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.history import AsDeclared

Identity = tuple[str, ...]
_KEYS = {"entity": {"entity_key": "key"}, "relation": {}}


def record_keys(ref: TypeRef) -> list[str]:
    """The names of the identity in a record: `key`, or those of a relation's ends and instance."""
    return [_KEYS[ref.kind].get(name, name) for name in ref.identity]


# --- out ---


def lines(schema: TypeSchema, rows: pa.Table, *, with_metadata: bool) -> Iterator[str]:
    """Stored rows as records, one text each. Made by columns, so that a million of them take seconds."""
    head = f'{{"kind":"{schema.ref.kind}","type":{quoted(schema.ref.name)}'
    parts = [
        [f',"{key}":{quoted(value)}' for value in rows.column(name).to_pylist()]
        for name, key in zip(schema.ref.identity, record_keys(schema.ref), strict=True)
    ]
    if with_metadata:
        parts.append([f',"{COMMIT_ID}":{value}' for value in rows.column(COMMIT_ID).to_pylist()])
    if SUPERSEDED_BY in rows.column_names:
        parts.append(["" if value is None else ',"removed":true' for value in rows.column(SUPERSEDED_BY).to_pylist()])
    fields = [_field_texts(column, rows.column(column.physical).to_pylist()) for column in schema.columns]
    fields = fields or [[""] * rows.num_rows]
    for about, row in zip(zip(*parts, strict=True), zip(*fields, strict=True), strict=True):
        yield f'{head}{"".join(about)},"fields":{{{"".join(row)[1:]}}}}}'


def _field_texts(column: Column, values: list[Any]) -> list[str]:
    """A field in each row, with a comma before it. One that must not be null and is, as in rows that Ontologia 0.3
    migrated, is left out: whoever reads the record has a default for it, or says that it is missing."""
    name, encode = f",{quoted(column.name)}:", _ENCODERS[column.scalar]
    nothing = f"{name}null" if accepts_none(column.spec) else ""
    return [nothing if value is None else f"{name}{encode(value)}" for value in values]


def _float_text(value: float) -> str:
    return repr(value) if abs(value) < float("inf") else encode_json(value)


_ENCODERS: dict[str | None, Callable[[Any], str]] = {
    None: str,  # JSON already
    "str": quoted,
    "int": str,
    "float": _float_text,
    "bool": lambda value: "true" if value else "false",
    "datetime": lambda value: f'"{instant_text(value)}"',
    "date": lambda value: f'"{value.isoformat()}"',
    "bytes": lambda value: f'"{value.hex()}"',
}


# --- in ---


class RecordReader:
    """Checks the records of one type, with the class where there is one, else with the stored schema."""

    def __init__(self, schema: TypeSchema, declaration: Declaration | None = None) -> None:
        self.schema = schema
        self.ref = schema.ref
        self._keys = record_keys(schema.ref)
        adapter = _adapter(schema) if declaration is None else declaration.adapter
        # Bytes are hex in JSON. Those of a field are undone here; those deep inside one by Pydantic, from JSON text.
        self._hex = [column.name for column in schema.columns if column.scalar == "bytes"]
        deep = any('"bytes"' in json.dumps(column.spec) for column in schema.columns if column.scalar is None)
        self._from_text = adapter.validator.validate_json if deep else None
        self._validate: Callable[[Any], dict[str, Any]] = adapter.validator.validate_python

    def read(self, record: Mapping[str, Any]) -> tuple[Identity, dict[str, Any]]:
        """A record as identity and checked values."""
        fields = record.get("fields")
        if not isinstance(fields, dict):
            raise ValidationError(f"{self.ref}: a record needs fields, a JSON object")
        keys = tuple([record.get(key) for key in self._keys])
        if self.ref.kind == "relation":
            return self._relation(keys, fields)
        values = self._check(fields, keys)
        key = key_text(values[self.schema.primary_key or ""])
        if keys[0] is not None and keys[0] != key:
            raise ValidationError(f"{self.ref}: the record's key is {keys[0]!r}, and its fields say {key!r}")
        return (key,), values

    def _relation(self, keys: tuple[Any, ...], fields: dict[str, Any]) -> tuple[Identity, dict[str, Any]]:
        left, right, instance = keys
        named = {"left_key": left, "right_key": right}
        if self.schema.instance_key is not None:
            named[self.schema.instance_key] = instance
        elif instance:
            raise ValidationError(f"{self.ref} has no instance key, and the record gives {instance!r}")
        values = self._check({**fields, **named}, keys)
        key = "" if self.schema.instance_key is None else values[self.schema.instance_key]
        return (values["left_key"], values["right_key"], key), values

    def _check(self, values: dict[str, Any], keys: tuple[Any, ...]) -> dict[str, Any]:
        try:
            if self._from_text is not None:
                checked_values: dict[str, Any] = self._from_text(json.dumps(values))
                return checked_values
            return self._validate(self._with_bytes(values))
        except pydantic.ValidationError as problem:
            raise self._rejection(keys, _reasons(problem)) from None
        except ValueError as problem:
            raise self._rejection(keys, f"bytes are written in hex: {problem}") from None

    def _with_bytes(self, values: dict[str, Any]) -> dict[str, Any]:
        texts = [name for name in self._hex if isinstance(values.get(name), str)]
        return {**values, **{name: bytes.fromhex(values[name]) for name in texts}} if texts else values

    def _rejection(self, keys: tuple[Any, ...], reasons: str) -> ValidationError:
        name = "/".join(str(key) for key in keys if key)
        return ValidationError(f"{self.ref} {name!r}: {reasons}")

    def table(self, identities: list[Identity], rows: list[dict[str, Any]]) -> pa.Table:
        """Checked values as storage has them: identity, then fields."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            name: pa.array([identity[number] for identity in identities], pa.string())
            for number, name in enumerate(self.ref.identity)
        }
        for column in self.schema.columns:
            values = [row[column.name] for row in rows]
            if column.scalar is None:
                values = field_texts(f"{self.ref}.{column.name}", values)
            columns[column.physical] = pa.array(values, column.arrow_type)
        return pa.table(columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.table([], []).schema


def decode_defaults(known: AsDeclared) -> dict[str, Any]:
    """What stands for fields that a record does not have, as a record would say it."""
    found: dict[str, Any] = {}
    for column in known.schema.columns:
        if column.name in known.defaults:
            value = known.defaults[column.name]
            found[column.name] = None if value is None else json.loads(_ENCODERS[column.scalar](value))
    return found


def _reasons(problem: pydantic.ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors())


def _adapter(schema: TypeSchema) -> Any:
    """A validator from the stored description of a type; a field that may be null may be left out."""
    members: dict[str, tuple[Any, FieldOptions]] = {}
    if schema.ref.kind == "relation":
        endpoint = (add_checks(str, "endpoint_key"), FieldOptions())
        members |= {"left_key": endpoint, "right_key": endpoint}
    if schema.instance_key is not None:
        members[schema.instance_key] = (add_checks(str, "instance_key"), FieldOptions())
    for column in schema.columns:
        annotation = add_checks(annotation_of(column.spec), column.scalar)
        accepts_none = column.nullable and column.scalar is not None
        members[column.name] = (annotation, FieldOptions(None) if accepts_none else FieldOptions())
    return row_adapter(schema.ref.name, members, {})
