"""What a read will touch, before it is run: files, rows and bytes, and who reads them, above Spark's own plan."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ontologia.engines.base import Engine
from ontologia.engines.dispatch import open_engine
from ontologia.engines.shares import FilesInForce
from ontologia.files.data_files import DataFile
from ontologia.objects import Location
from ontologia.query.plan import Window
from ontologia.spark.reading.across import across_options
from ontologia.spark.reading.rows import across_of, existing, native_paths, read, resolve, window_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = ParamSpec("P")
T = TypeVar("T")
WINDOW = ("as_of", "timestamp_as_of", "history", "since")


def takes_what(other: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the arguments of another, for people and for type checkers."""

    def known(function: Callable[..., T]) -> Callable[P, T]:
        function.__signature__ = inspect.signature(other).replace(return_annotation=str)  # type: ignore[attr-defined]
        return function

    return known


@takes_what(read)
def explain(*arguments: Any, **options: Any) -> str:
    """What `read` with the same arguments will do: which of the type's files are read and which are not, how many rows
    they hold, whether Spark's own reader takes them, and Spark's plan.

    >>> print(explain(spark, "s3://bucket/onto", Customer, as_of=12))   # doctest: +SKIP
    """
    bound = inspect.signature(read).bind(*arguments, **options)
    bound.apply_defaults()
    asked = bound.arguments
    spark, type_ = asked["spark"], asked["type_"]
    with open_engine(existing(Location.of(asked["uri"], asked["config"]))) as engine:
        ref, schema = resolve(engine, type_, asked["kind"])
        window = window_of(engine, **{name: asked[name] for name in WINDOW})
        across = across_of(type_, asked["upgraders"]) if asked["across_versions"] else None
        catalog = engine.catalog()
        lines = [f"{ref}, {_state(window, catalog.head)}"]
        is_cut = bool(across_options(engine, catalog, schema, window, across))
        found = None if is_cut else engine.files_in_force(ref, window, catalog)
        if found is None:
            shares = engine.shares(schema, window, across=is_cut)
            versions = ", across schema versions" if is_cut else ""
            lines.append(f"ranges of keys, read through Arrow{versions}: {len(shares)}")
        else:
            all_ = engine.files_in_force(ref, Window("history"), catalog)
            lines += _files(spark, engine, _of(found), len(_of(all_) if all_ is not None else ()))
    rows = read(*bound.args, **bound.kwargs)
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
