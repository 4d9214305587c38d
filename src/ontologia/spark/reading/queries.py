"""The typed query on Spark: the same plan, compiled in the third dialect, over the same rows."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql
from sqlglot import exp

from ontologia.engines.base import Engine, output_schema
from ontologia.engines.catalog import Catalog
from ontologia.engines.diagnostics import plan_diagnostics
from ontologia.files.duck import python_values
from ontologia.model import (
    COMMIT_ID,
    SCALARS,
    SUPERSEDED_BY,
    Column,
    Origin,
    TypeRef,
    commit_column,
    removed_column,
    to_utc,
)
from ontologia.query.compiler import ResultColumn, Statement, compile
from ontologia.query.dialects import DIALECTS
from ontologia.query.in_force import is_removal
from ontologia.query.plan import Plan, Window
from ontologia.query.query import Fetched, Made, Make, T
from ontologia.query.results import StoredTable
from ontologia.query.sources import KEYS
from ontologia.query.stored_rows import StoredRows
from ontologia.spark.failures import explain_failures
from ontologia.spark.reading.rows import read_stored_rows
from ontologia.spark.types import spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SPARK = DIALECTS["spark"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_naming = threading.Lock()


class ViewRows(StoredRows):
    """The rows of a type as a view that is cut to the window already; where they are versions, with removals."""

    def __init__(self, ref: TypeRef, view: str, *, versions: bool) -> None:
        self.ref = ref
        self.view = view
        self.key = view
        self.has_removals = versions

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        names += [SUPERSEDED_BY] if removals else []
        columns_of = (exp.column(name, table="t", quoted=True) for name in names)
        select = exp.select(*columns_of).from_(exp.to_table(self.view, alias="t"))
        return select.where(exp.not_(is_removal("t"))) if self.has_removals and not removals else select


class SparkSource:
    """Answers plans on Spark instead of in process: `QueryRoot(SparkSource(spark, engine))`."""

    def __init__(self, spark: SparkSession, engine: Engine) -> None:
        self.spark = spark
        self.engine = engine

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def origin(self, window: Window) -> Origin:
        return self.engine.origin(window)

    def made_of(self, plan: Plan, make: Make[T]) -> Made[T]:
        return self.fetch(plan).made(make)

    def fetch(self, plan: Plan, keys: pa.Table | None = None) -> Fetched:
        catalog = self.engine.catalog()
        columns = [python_values(column) for column in self._table(plan, keys, catalog).columns]
        return Fetched(columns, plan_diagnostics(plan, self.engine, catalog))

    def table(self, plan: Plan, keys: pa.Table | None = None) -> pa.Table:
        return self._table(plan, keys, self.engine.catalog())

    def _table(self, plan: Plan, keys: pa.Table | None, catalog: Catalog) -> pa.Table:
        with explain_failures("running a query"):
            frame, statement = self.frame(plan, keys, catalog)
            found = frame.toArrow()
        return found.rename_columns([output.name for output in statement.outputs]).cast(output_schema(statement))

    def as_stored(self, plan: Plan) -> list[StoredTable]:
        return self.engine.as_stored(plan)

    def explain(self, plan: Plan) -> str:
        frame, statement = self.frame(plan, None, self.engine.catalog())
        physical = frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple")  # type: ignore[union-attr]
        return f"{SPARK.render(statement.tree, pretty=True)}\n\n{physical}"

    def frame(self, plan: Plan, keys: pa.Table | None, catalog: Catalog) -> tuple[DataFrame, Statement]:
        """The result as a DataFrame, its columns named c0, c1, … All types are read at one head."""
        catalog.check(plan.schemas)
        views: dict[str, DataFrame] = {}
        stored_rows: dict[TypeRef, StoredRows] = {}
        for ref, schema in plan.schemas.items():
            view = f"ontologia_{uuid.uuid4().hex}"
            where = plan.where if len(plan.schemas) == 1 and not plan.hops else ()  # else its rows have other uses
            rows = read_stored_rows(
                self.spark, self.engine, catalog, schema, plan.window, where=where, across=plan.across
            )
            views[view] = rows
            stored_rows[ref] = ViewRows(ref, view, versions=not plan.window.deduplicated)
        if keys is not None:
            views[KEYS] = self.spark.createDataFrame(keys)
        statement = compile(plan, stored_rows, SPARK)
        with _register_views(self.spark, views):
            parameters = statement.parameters(plan)
            asked = _with_java_time(self.spark) if any(map(_is_skipped, parameters.values())) else self.spark
            found = asked.sql(statement.sql, args=_exact(self.spark, parameters))
        typed = (found[f"c{place}"].cast(_type(output)) for place, output in enumerate(statement.outputs))
        return found.select(*typed).toDF(*(f"c{place}" for place in range(len(statement.outputs)))), statement


@contextmanager
def _register_views(spark: SparkSession, views: Mapping[str, DataFrame]) -> Iterator[None]:
    """Give DataFrames the names that a statement has for them, while Spark looks them up.

    A Connect session looks them up only when the statement runs, so there they keep their names.
    """
    with _naming:
        for name, frame in views.items():
            frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            if getattr(spark, "_sc", None) is not None:
                for name in views:
                    spark.catalog.dropTempView(name)


def to_spark(spark: SparkSession, engine: Any, plan: Plan) -> DataFrame:
    """A plan's result as a DataFrame, with the columns of `to_arrow`."""
    source = SparkSource(spark, engine)
    with explain_failures("running a query"):
        found, statement = source.frame(plan, None, source.engine.catalog())
    names = [output.name for output in statement.outputs]
    if plan.aggregates:
        return found.toDF(*names)
    names[0] = commit_column(plan.schema)  # the commit comes first, and is shown only where rows are versions
    if plan.shows_removals:
        names[-1] = removed_column(plan.schema)
    shown = found.toDF(*(f"c{place}" for place in range(len(names))))
    first = 1 if plan.window.deduplicated else 0
    return shown.select(*(shown[f"c{place}"].alias(names[place]) for place in range(first, len(names))))


def _is_skipped(value: Any) -> bool:
    """Whether a time is of the ten days that Java's old calendar does not have, or a list has one."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_skipped, value))
    if isinstance(value, str):  # as a statement has dates
        return value.startswith("1582-10-")
    if isinstance(value, datetime):
        value = to_utc(value).date()
    return isinstance(value, date) and date(1582, 10, 4) <= value <= date(1582, 10, 15)


def _with_java_time(spark: SparkSession) -> SparkSession:
    """A copy of the session that hands filters to files in Java's new calendar: in the old one, times that it does
    not have become others."""
    from pyspark.sql import SparkSession

    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return spark
    copy = session.cloneSession()
    copy.conf().set("spark.sql.datetime.java8API.enabled", "true")
    return SparkSession(spark.sparkContext, copy)


def _exact(spark: SparkSession, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with times that Spark does not shift: PySpark hands them over in Java's old calendar, which was
    another one before 1582. A Connect session hands over numbers."""
    jvm: Any = getattr(spark, "_jvm", None)

    def exact(value: Any) -> Any:
        if isinstance(value, datetime):
            seconds, micros = divmod((to_utc(value) - EPOCH) // timedelta(microseconds=1), 1_000_000)
            return sql.lit(jvm.java.time.Instant.ofEpochSecond(seconds, micros * 1_000))
        if isinstance(value, date):
            return sql.lit(jvm.java.time.LocalDate.ofEpochDay((value - EPOCH.date()).days))
        if isinstance(value, (list, tuple)) and any(isinstance(item, date) for item in value):
            return sql.array(*(sql.lit(exact(item)) for item in value))
        return value

    return dict(parameters) if jvm is None else {name: exact(value) for name, value in parameters.items()}


def _type(output: ResultColumn) -> Any:
    return spark_type("string" if output.scalar is None else SCALARS[output.scalar].spark)
