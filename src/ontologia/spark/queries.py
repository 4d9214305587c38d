"""The typed query on Spark: the same plan, compiled in the third dialect, over the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, Column, TypeRef, commit_column
from ontologia.query.compiler import Output, compile
from ontologia.query.dialects import DIALECTS
from ontologia.query.plan import Plan, Window
from ontologia.query.relation import Relation
from ontologia.spark.failures import explained
from ontologia.spark.reading import stored_rows
from ontologia.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

SPARK = DIALECTS["spark"]


class ViewRelation(Relation):
    """The rows of a type as a view that is cut to the window already."""

    def __init__(self, ref: TypeRef, view: str) -> None:
        self.ref = ref
        self.view = view
        self.key = view

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool) -> exp.Select:
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        return exp.select(*(exp.column(name, quoted=True) for name in names)).from_(exp.to_table(self.view))


def to_spark(spark: SparkSession, repository: Any, plan: Plan) -> DataFrame:
    """A plan's result as a DataFrame. All its types are read at one head."""
    if not isinstance(repository, RowwiseRepository):
        raise ValidationError(f"{type(repository).__name__} cannot be read by Spark")
    catalog = repository.catalog()
    catalog.check(plan.schemas)
    relations: dict[TypeRef, Relation] = {}
    for ref, schema in plan.schemas.items():
        view = f"ontologia_{uuid.uuid4().hex}"
        stored_rows(spark, repository, catalog, schema, plan.window).createOrReplaceTempView(view)
        relations[ref] = ViewRelation(ref, view)
    statement = compile(plan, relations, SPARK)
    with explained("running a query"):
        found = spark.sql(statement.sql, args=statement.parameters(plan))
        return found.select(*_named(plan, statement.outputs))


def _named(plan: Plan, outputs: Sequence[Output]) -> list[SparkColumn]:
    """The columns of `to_arrow`: the commit comes first, and only where rows are versions."""
    from pyspark.sql import functions as sql

    names = [output.name for output in outputs]
    first = 0
    if not plan.aggregates:
        names[0] = commit_column(plan.schema)
        first = 1 if plan.window.deduplicated else 0
    types = [spark_type(_spark_name(output)) for output in outputs]
    chosen = range(first, len(outputs))
    return [sql.col(f"c{number}").cast(types[number]).alias(names[number]) for number in chosen]


def _spark_name(output: Output) -> str:
    from ontologia.model import SCALARS

    return "string" if output.scalar is None else SCALARS[output.scalar].spark
