"""What tasks tell the driver, and what the process they run in keeps from one to the next."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa

from ontologia.engines.base import Engine
from ontologia.engines.dispatch import open_engine
from ontologia.errors import OntologiaError
from ontologia.files.data_files import DataFile, KeySpan
from ontologia.objects import Location


@dataclass(frozen=True, slots=True)
class Message:
    """What tasks report in rows: the columns, for Spark and for Arrow."""

    fields: Mapping[str, str]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.fields.items())

    def batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        settle()
        kinds = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in self.fields.items()])
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)


PART = {"path": "string", "size": "bigint", "rows": "bigint", "content_sha256": "string", "removals": "bigint"}
PART |= {"low": "string", "high": "string"}


def part_messages(parts: Iterable[DataFile]) -> list[dict[str, Any]]:
    """Parts as rows of a message."""
    return [
        {
            "path": part.path,
            "size": part.size,
            "rows": part.row_count,
            "content_sha256": part.content_sha256,
            "removals": part.removals,
            "low": None if part.keys is None else part.keys.low,
            "high": None if part.keys is None else part.keys.high,
        }
        for part in parts
    ]


def parts_of(messages: Iterable[Any]) -> list[DataFile]:
    """The parts that messages tell of."""
    return [
        DataFile(row.path, row["size"], row.rows, row.content_sha256, _span_of(row), removals=row.removals or 0)
        for row in messages
        if row.path is not None
    ]


def _span_of(row: Any) -> KeySpan | None:
    return None if row.low is None else KeySpan(row.low, row.high)


HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""What Spark's worker asks, when a call has failed, before it writes down the way that led there."""


@contextmanager
def plainly_said() -> Iterator[None]:
    """Let an error of ours end a call of the data source with its sentence alone; bugs keep their traceback."""
    if os.environ.get(HIDE_TRACEBACK) == __name__:  # from an earlier call in this process
        del os.environ[HIDE_TRACEBACK]
    try:
        yield
    except OntologiaError:
        os.environ.setdefault(HIDE_TRACEBACK, __name__)
        raise


def engine_at(location: Location) -> Engine:
    """One open engine per store in a worker process, which lives for many tasks: longer than a file may."""
    uri = location.uri
    found = None if "://" in uri or not os.path.exists(uri) else os.stat(uri)
    return _open(location, None if found is None else (found.st_dev, found.st_ino))


@lru_cache(maxsize=16)
def _open(location: Location, file: tuple[int, int] | None) -> Engine:
    return open_engine(location)


@cache
def settle() -> None:
    """Set what is loaded apart, once per process.

    Spark's worker collects garbage after every task. With the modules of an engine that takes a tenth of a second,
    as long as thousands of rows.
    """
    gc.freeze()
