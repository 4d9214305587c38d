"""The one way data files are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def parquet_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer with statistics on every column but floats.

    Parquet's statistics leave NaN out, and readers that prune by them would lose the rows that have it: to us NaN is
    a value, equal to itself and greater than all others.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    exact = [field.name for field in schema if not pa.types.is_floating(field.type)]
    return pq.ParquetWriter(sink, schema, compression="zstd", write_statistics=exact)
