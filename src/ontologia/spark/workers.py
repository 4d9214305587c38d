"""What tasks tell the driver, and what the process they run in keeps from one to the next."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Message:
    """What tasks report in rows: the columns, for Spark and for Arrow."""

    fields: Mapping[str, str]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.fields.items())

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        settle()
        kinds = {"string": pa.string(), "bigint": pa.int64()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in self.fields.items()])
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)


@cache
def settle() -> None:
    """Set what is loaded apart, once per process.

    Spark's worker collects garbage after every task. With the modules of an engine that takes a tenth of a second,
    as long as thousands of rows.
    """
    gc.freeze()
