"""What a read will touch, before it is run: files, rows and bytes, and who reads them, above Spark's own plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine, FilesInForce
from ontologia.engines.dispatch import open_engine
from ontologia.files.data_files import DataFile
from ontologia.model import Kind, Predicate
from ontologia.objects import Location
from ontologia.query.plan import Window
from ontologia.spark.reading.rows import existing, native_paths, read, resolve, window_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def explain(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Location,
    type_: type[Any] | str,
    *,
    kind: Kind | None = None,
    as_of: int | None = None,
    timestamp_as_of: datetime | None = None,
    history: bool = False,
    since: int | None = None,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    config: OntologiaConfig | None = None,
) -> str:
    """What `read` with the same arguments will do: which of the type's files are read and which are not, how many rows
    they hold, whether Spark's own reader takes them, and Spark's plan.

    >>> print(explain(spark, "s3://bucket/onto", Customer, as_of=12))   # doctest: +SKIP
    """
    with open_engine(existing(Location.of(uri, config))) as engine:
        ref, schema = resolve(engine, type_, kind)
        window = window_of(engine, as_of=as_of, timestamp_as_of=timestamp_as_of, history=history, since=since)
        catalog = engine.catalog()
        lines = [f"{ref}, {_state(window, catalog.head)}"]
        found = engine.files_in_force(ref, window, catalog)
        if found is None:
            lines.append(f"ranges of keys, read through Arrow: {len(engine.shares(schema, window))}")
        else:
            all_ = engine.files_in_force(ref, Window("history"), catalog)
            lines += _files(spark, engine, _of(found), len(_of(all_) if all_ is not None else ()))
        here = engine.location
    rows = read(
        *(spark, here, type_),
        kind=kind, as_of=window.commit if window.mode == "as_of" else None, history=history, since=since,
        where=where, columns=columns,
    )  # fmt: skip
    return "\n".join([*lines, "", _plan(rows)])


def _state(window: Window, head: int) -> str:
    match window.mode:
        case "as_of":
            return f"as of commit {window.commit}"
        case "since":
            return f"every version since commit {window.commit}, at commit {head}"
        case "history":
            return f"every version, at commit {head}"
    return f"the latest state, at commit {head}"


def _of(found: FilesInForce) -> list[DataFile]:
    return [*found.base, *found.tail_files]


def _files(spark: SparkSession, engine: Engine, files: Sequence[DataFile], all_: int) -> list[str]:
    rows, size = sum(file.row_count or 0 for file in files), sum(file.size or 0 for file in files)
    native = bool(files) and native_paths(spark, engine, files) is not None
    reader = "Spark's own Parquet reader" if native else "tasks that hand over Arrow batches"
    return [
        f"{len(files)} of {all_} files, {all_ - len(files)} pruned; {rows:,} rows and {size:,} bytes in them",
        f"read by {reader}",
    ]


def _plan(rows: DataFrame) -> str:
    """Spark's own text, which it would print."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as said:
        rows.explain("formatted")
    return said.getvalue()
