"""Rows that were set aside: Parquet files beside the store, one folder per run and type.

Each row has the reason and, as JSON, the source row. Nothing ever removes them: they are for a person to look at,
`spark.read.parquet` and DuckDB read them as they are.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.errors import OntologiaError
from ontologia.model import TypeRef
from ontologia.objects import Location
from ontologia.runtime.intake.rows import RejectedRow

QUARANTINE = "quarantine/"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Where a run sets rows aside, or those of one type. It can be sent to executors."""

    area: Location
    run: str
    ref: TypeRef | None = None

    @property
    def folder(self) -> str:
        folder = f"{QUARANTINE}{self.run}/"
        return folder if self.ref is None else f"{folder}{self.ref.kind}-{quote(self.ref.name, safe='')}/"

    @property
    def uri(self) -> str:
        return f"{self.area.uri}/{self.folder}"

    def of(self, ref: TypeRef) -> Quarantine:
        return replace(self, ref=ref)

    def add(self, rows: Sequence[RejectedRow], name: str | None = None) -> str:
        """Set rows aside. Returns the path of their file; one of the same name is replaced."""
        schema = pa.schema([(name, pa.string()) for name in RejectedRow._fields])
        table = pa.Table.from_pylist([row._asdict() for row in rows], schema=schema)
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        path = f"{self.folder}{name or uuid.uuid4().hex}.parquet"
        self.area.open_objects().put(path, sink.getvalue())
        return path

    def clear(self) -> None:
        """Take back, best effort, what was set aside: only a run that ends well sets rows aside."""
        with suppress(OntologiaError, OSError):
            objects = self.area.open_objects()
            objects.delete_many([info.key for info in objects.list(self.folder)])
