"""The shape of a row that was taken out of a file: commit, identity and fields, whatever the file has."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.model import COMMIT_ID, TypeSchema


def row_shape(schema: TypeSchema) -> pa.Schema:
    """Commit, identity and fields."""
    fields = [(COMMIT_ID, pa.int64()), *((name, pa.string()) for name in schema.ref.identity)]
    return pa.schema([*fields, *((column.physical, column.arrow_type) for column in schema.columns)])


def stored_names(schema: TypeSchema, metadata: pq.FileMetaData) -> list[str]:
    """The columns of a row that a file has."""
    there = set(metadata.schema.names)
    return [name for name in row_shape(schema).names if name in there]


def shaped(schema: TypeSchema, rows: pa.Table) -> pa.Table:
    """Rows of a file in their shape; what the file has no column for is null."""
    shape = row_shape(schema)
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in shape
    ]
    return pa.table(columns, names=shape.names).cast(shape)
