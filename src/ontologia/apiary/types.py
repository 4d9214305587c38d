"""What a frame's columns can be: the names the ledger uses for types, and the Arrow types they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from ontologia.errors import FrameSchemaError, UnknownNameError
from ontologia.files.json_objects import text

_ARROW = {
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{name: name for name in ("float16", "float32", "float64")},
    "string": "string",
    "boolean": "bool_",
    "date": "date32",
    "binary": "binary",
}
_ALIASES = {
    "int": "int64",
    "integer": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "utf8": "string",
    "text": "string",
    "large_string": "string",
    "bool": "boolean",
    "timestamp": "datetime",
    "date32": "date",
    "bytes": "binary",
}
_ZONED = re.compile(r"timestamp\[us, tz=(.+)\]")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
TYPE_NAMES = (*_ARROW, "timestamp", "timestamp[us, tz=UTC]", "decimal128(38, 9)")


@dataclass(frozen=True, slots=True)
class FrameField:
    """One column: its name, the name of its type, and whether it may be null."""

    name: str
    data_type: str
    nullable: bool = True

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.data_type)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "data_type": self.data_type, "nullable": self.nullable}


@dataclass(frozen=True)
class FrameSchema:
    """The columns of a frame, in order."""

    fields: tuple[FrameField, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def by_name(self) -> dict[str, FrameField]:
        return {field.name: field for field in self.fields}

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of tables that are read. All columns are nullable, as they are in the cells."""
        return pa.schema([(field.name, field.arrow) for field in self.fields])

    def column(self, name: str) -> FrameField:
        if name not in self.by_name:
            raise UnknownNameError(f"there is no column {name!r}; there are {', '.join(self.names)}")
        return self.by_name[name]

    @cached_property
    def flat(self) -> dict[str, str]:
        """Column → type name, as the registry has it."""
        return {field.name: field.data_type for field in self.fields}

    def to_json(self) -> dict[str, Any]:
        return {"fields": [field.to_json() for field in self.fields]}

    @classmethod
    def from_json(cls, body: object) -> FrameSchema:
        """Either form: `{"fields": [...]}` of the ledger, or the flat map of the registry."""
        if not isinstance(body, Mapping):
            raise TypeError(f"a schema must be an object, not {body!r}")
        if isinstance(body.get("fields"), list):
            return cls(tuple(_stored_field(field) for field in body["fields"]))
        return cls(tuple(_flat_field(name, said) for name, said in body.items()))


def _stored_field(body: Mapping[str, Any]) -> FrameField:
    return FrameField(text(body, "name"), text(body, "data_type"), body.get("nullable", True) is not False)


def _flat_field(name: str, said: object) -> FrameField:
    if isinstance(said, Mapping):
        return FrameField(name, str(said.get("type", "string")), said.get("nullable", True) is not False)
    return FrameField(name, said if isinstance(said, str) else "string")


def declare_schema(schema: object) -> FrameSchema:
    """What a caller declares, as a schema: a `pyarrow.Schema`, `{column: type}` with names or Arrow types, or
    `{"fields": [{"name": …, "data_type": …}, …]}` as the ledger has it.

    `{"type": "int64", "nullable": False}` declares a column that must have a value.
    """
    if isinstance(schema, pa.Schema):
        found = [FrameField(field.name, type_name(field.type), field.nullable) for field in schema]
    elif isinstance(schema, FrameSchema):
        found = list(schema.fields)
    elif isinstance(schema, Mapping) and isinstance(schema.get("fields"), list):
        found = [_listed_field(field) for field in schema["fields"]]
    elif isinstance(schema, Mapping):
        found = [_declared_field(name, said) for name, said in schema.items()]
    else:
        raise FrameSchemaError(f"a schema is a pyarrow.Schema or {{column: type}}, not {type(schema).__name__}")
    names = [field.name for field in found]
    if not names:
        raise FrameSchemaError("a frame needs at least one column")
    for name in names:
        if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 200:
            raise FrameSchemaError(f"a column needs a name of 1 to 200 printable characters, not {name!r:.60}")
    folded = [name.casefold() for name in names]
    twice = sorted({name for name in names if folded.count(name.casefold()) > 1})
    if twice:
        raise FrameSchemaError(f"columns must differ by more than case, or SQL cannot tell them apart: {twice}")
    return FrameSchema(tuple(found))


def _listed_field(said: Any) -> FrameField:
    """A field as the ledger has it: `{"name": "temp", "data_type": "float64", "nullable": true}`."""
    if not isinstance(said, Mapping) or "name" not in said or not {"data_type", "type"} & said.keys():
        raise FrameSchemaError(f"a field has a name and a data_type, and may have nullable: not {said!r:.100}")
    kind = said["data_type"] if "data_type" in said else said["type"]
    return _declared_field(said["name"], {"type": kind, "nullable": said.get("nullable", True)})


def _declared_field(name: str, said: Any) -> FrameField:
    nullable: Any = True
    if isinstance(said, Mapping):
        unknown = sorted(set(said) - {"type", "nullable"})
        if unknown or "type" not in said:
            raise FrameSchemaError(f"column {name!r} is declared by 'type' and 'nullable', not by {dict(said)!r}")
        said, nullable = said["type"], said.get("nullable", True)
        if not isinstance(nullable, bool):
            raise FrameSchemaError(f"nullable of column {name!r} is True or False, not {nullable!r}")
    if isinstance(said, pa.DataType):
        return FrameField(name, type_name(said), nullable)
    if not isinstance(said, str):
        raise FrameSchemaError(f"column {name!r}: {said!r} is not a type; types are {', '.join(TYPE_NAMES)}")
    return FrameField(name, type_name(arrow_type(said, column=name)), nullable)


def arrow_type(name: str, *, column: str | None = None) -> pa.DataType:
    """The Arrow type of a type name, in any case."""
    lower = name.strip()
    if zoned := _ZONED.fullmatch(lower):
        return pa.timestamp("us", zoned[1])
    lower = lower.lower()
    if decimal := _DECIMAL.fullmatch(lower):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    lower = _ALIASES.get(lower, lower)
    if lower == "datetime":
        return pa.timestamp("us")
    if lower not in _ARROW:
        where = f"column {column!r}: " if column else ""
        raise FrameSchemaError(f"{where}there is no type {name!r}; types are {', '.join(TYPE_NAMES)}")
    return getattr(pa, _ARROW[lower])()


def type_name(arrow: pa.DataType) -> str:
    """The name of an Arrow type, as the ledger has it."""
    kinds = pa.types
    if kinds.is_dictionary(arrow):
        return type_name(arrow.value_type)
    if kinds.is_timestamp(arrow):
        return "datetime" if arrow.tz is None else f"timestamp[us, tz={arrow.tz}]"
    if kinds.is_decimal128(arrow) and arrow.scale >= 0:
        return f"decimal128({arrow.precision}, {arrow.scale})"
    if kinds.is_date(arrow):
        return "date"
    if kinds.is_boolean(arrow):
        return "boolean"
    if kinds.is_string(arrow) or kinds.is_large_string(arrow) or arrow == pa.string_view():
        return "string"
    if kinds.is_binary(arrow) or kinds.is_large_binary(arrow) or arrow == pa.binary_view():
        return "binary"
    simple = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(arrow), str(arrow))
    if simple in _ARROW:
        return simple
    raise FrameSchemaError(
        f"frames have no columns of type {arrow}: keep nested values as JSON text; types are {', '.join(TYPE_NAMES)}"
    )


def check_partitioning(schema: FrameSchema, partition_by: Sequence[str]) -> tuple[str, ...]:
    """Which columns a frame is partitioned by, once they are found to suit."""
    if isinstance(partition_by, str):
        raise FrameSchemaError(f"partition_by is a list of columns, as in [{partition_by!r}]")
    for name in partition_by:
        arrow = schema.column(name).arrow
        if pa.types.is_binary(arrow) or arrow == pa.float16():
            raise FrameSchemaError(f"a frame cannot be partitioned by {name!r}, whose type is {arrow}")
    if len(set(partition_by)) < len(partition_by):
        raise FrameSchemaError(f"partition_by names a column twice: {list(partition_by)}")
    return tuple(partition_by)
