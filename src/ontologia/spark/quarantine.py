"""Rows that were set aside: Parquet files beside the store, one folder per run and type.

Each row has the reason and, as JSON, the source row. Nothing ever removes them: they are for a person to look at,
`spark.read.parquet` and DuckDB read them as they are.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from ontologia.model import TypeRef
from ontologia.objects import Objects

QUARANTINE = "quarantine/"


class Rejected(NamedTuple):
    """A row that does not fit, and why."""

    reason: str
    source: str


def quarantine_of(run: str, ref: TypeRef | None = None) -> str:
    """Where a run sets rows aside, or those of one type."""
    folder = f"{QUARANTINE}{run}/"
    return folder if ref is None else f"{folder}{ref.kind}-{ref.name}/"


def set_aside(objects: Objects, folder: str, rows: Sequence[Rejected], name: str | None = None) -> str:
    """Write rows to quarantine. Returns the path of their file; one of the same name is replaced."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in Rejected._fields])
    table = pa.Table.from_pylist([row._asdict() for row in rows], schema=schema)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    path = f"{folder}{name or uuid.uuid4().hex}.parquet"
    objects.put(path, sink.getvalue())
    return path
