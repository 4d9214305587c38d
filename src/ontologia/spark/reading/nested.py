"""Structured fields as Spark's own nested types, as far as their types are declared."""

from __future__ import annotations

import json
from typing import Any, Literal, cast, get_args

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, DoubleType, MapType, StructField, StructType, VariantType
from pyspark.sql.variant_utils import VariantUtils

from ontologia.errors import ValidationError
from ontologia.model import TypeSchema
from ontologia.model.typespec import NONE, TypeSpec
from ontologia.spark.types import by_place, spark_type

Nested = Literal["json", "struct", "variant"]
READ = {"mode": "FAILFAST", "timeZone": "UTC"}
_SCALARS = {"str": "string", "int": "bigint", "float": "double", "bool": "boolean"}


def check_nested(text: str) -> Nested:
    """One of the three ways."""
    if text not in get_args(Nested):
        raise ValidationError(f"nested is one of {', '.join(get_args(Nested))}, not {text!r}")
    return cast("Nested", text)


def nested_types(schema: TypeSchema, nested: Nested) -> dict[str, DataType]:
    """Which fields do not come as JSON text, and as what."""
    fields = {column.name: column.spec for column in schema.columns if column.scalar is None}
    if nested == "json":
        return {}
    if nested == "variant":
        return dict.fromkeys(fields, VariantType())
    found = {name: type_of(spec) for name, spec in fields.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def nested_struct(struct: StructType, kinds: dict[str, DataType]) -> StructType:
    """Columns with these types in place of JSON text."""
    return StructType(
        [StructField(field.name, kinds.get(field.name, field.dataType), field.nullable) for field in struct]
    )


def nested_column(texts: pa.ChunkedArray, kind: DataType) -> pa.ChunkedArray:
    """JSON text as values of a nested type, each distinct one read once."""
    wanted = to_arrow_type(kind)
    chunks = []
    for chunk in texts.dictionary_encode().chunks:
        values = pa.array([_value(text, kind) for text in chunk.dictionary.to_pylist()], wanted)
        chunks.append(values.take(chunk.indices))
    return pa.chunked_array(chunks, wanted)


def _value(text: str, kind: DataType) -> Any:
    if isinstance(kind, VariantType):
        value, metadata = VariantUtils.parse_json(text)
        return {"value": value, "metadata": metadata}
    return _arrange(json.loads(text), kind)


def _arrange(value: Any, kind: DataType) -> Any:
    """What was read from JSON, as Arrow takes it: maps as pairs, and numbers that JSON cannot say from their names."""
    if value is None:
        return None
    match kind:
        case ArrayType():
            return [_arrange(item, kind.elementType) for item in value]
        case MapType():
            return [(name, _arrange(item, kind.valueType)) for name, item in value.items()]
        case StructType():
            return {field.name: _arrange(value.get(field.name), field.dataType) for field in kind}
        case DoubleType():
            return float(value)
    return value


def parse_structured(rows: DataFrame, schema: TypeSchema, nested: Nested) -> DataFrame:
    """Rows with their structured fields as asked. What has no one type stays JSON text."""
    kinds: dict[str, Any] = nested_types(schema, nested)
    if not kinds.keys() & set(rows.columns):
        return rows
    columns: list[Any] = []
    rows, by_name = by_place(rows)
    for name, value in by_name.items():
        if name in kinds:
            value = sql.parse_json(value) if nested == "variant" else sql.from_json(value, kinds[name], READ)
        columns.append(value.alias(name))
    return rows.select(*columns)


def type_of(spec: TypeSpec) -> DataType | None:
    """The type of Spark that a declared type has; None where several are possible, or none is exact.

    Times and bytes inside are text in JSON, and stay that.
    """
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
