"""The columns of a frame as Spark has them. Spark knows no unsigned numbers: they take the next larger type."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ontologia.apiary.types import FrameSchema

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def spark_arrow(schema: FrameSchema) -> pa.Schema:
    """The columns in Arrow types that Spark takes. Instants are in UTC."""
    return pa.schema([(field.name, _widen(field.arrow)) for field in schema.fields])


def _widen(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return pa.timestamp("us", "UTC")
    return _WIDER.get(arrow, arrow)


def struct_of(schema: FrameSchema) -> StructType:
    return from_arrow_schema(spark_arrow(schema), prefer_timestamp_ntz=True)
