"""Structured fields as Spark's own nested types, as far as their types are declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ontologia.model import TypeSchema
from ontologia.model.typespec import NONE, TypeSpec
from ontologia.spark.types import quoted, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Nested = Literal["json", "struct", "variant"]
READ = {"mode": "FAILFAST", "timeZone": "UTC"}
_SCALARS = {"str": "string", "int": "bigint", "float": "double", "bool": "boolean"}


def structured(rows: DataFrame, schema: TypeSchema, nested: Nested) -> DataFrame:
    """Rows with their structured fields as asked. What has no one type stays JSON text."""
    from pyspark.sql import functions as sql

    wanted = {column.name: column.spec for column in schema.columns if column.scalar is None}
    if nested == "json" or not wanted.keys() & set(rows.columns):
        return rows
    columns: list[Any] = []
    for name in rows.columns:
        value = sql.col(quoted(name))
        kind: Any = None if name not in wanted else type_of(wanted[name])
        if name in wanted and nested == "variant":
            value = sql.parse_json(value)
        elif kind is not None:
            value = sql.from_json(value, kind, READ)
        columns.append(value.alias(name))
    return rows.select(*columns)


def type_of(spec: TypeSpec) -> DataType | None:
    """The type of Spark that a declared type has; None where several are possible, or none is exact.

    Times and bytes inside are text in JSON, and stay that.
    """
    from pyspark.sql import types

    members = [member for member in (spec["members"] if spec["kind"] == "union" else [spec]) if member != NONE]
    if len(members) != 1:
        return None
    match members[0]:
        case {"kind": "list", "item": item}:
            inner = type_of(item)
            return None if inner is None else types.ArrayType(inner)
        case {"kind": "dict", "value": value}:
            inner = type_of(value)
            return None if inner is None else types.MapType(types.StringType(), inner)
        case {"kind": "typed_dict", "fields": fields}:
            found = {name: type_of(member["type"]) for name, member in fields.items()}
            if not found or None in found.values():
                return None
            return types.StructType([types.StructField(name, kind) for name, kind in found.items() if kind is not None])
        case {"kind": "primitive", "name": name}:
            if name in ("datetime", "date", "bytes"):
                return types.StringType()
            return spark_type(_SCALARS[name]) if name in _SCALARS else None
    return None
