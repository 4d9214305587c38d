"""Spark's types for our columns, from the one table of RFC 0009 §5."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeSchema, commit_column, removed_column

if TYPE_CHECKING:
    import pyarrow as pa


def spark_type(name: str) -> DataType:
    found: dict[str, type[DataType]] = {
        "string": types.StringType,
        "bigint": types.LongType,
        "double": types.DoubleType,
        "boolean": types.BooleanType,
        "timestamp": types.TimestampType,
        "date": types.DateType,
        "binary": types.BinaryType,
    }
    return found[name]()


def stored_struct(schema: TypeSchema, *, settled: bool = False) -> StructType:
    """Rows as files have them: identity, commit, fields under their stored names; with what superseded them where that
    is `settled`, and where rows are versions, which may be removals."""
    fields = [StructField(name, StringType(), False) for name in schema.ref.identity]
    fields.append(StructField(COMMIT_ID, LongType(), False))
    fields += [StructField(one.physical, spark_type(one.spark_type), one.nullable) for one in schema.columns]
    if settled:
        fields.append(StructField(SUPERSEDED_BY, LongType()))
    return StructType(fields)


def result_struct(schema: TypeSchema, *, versions: bool) -> StructType:
    """Rows as callers see them: a relation's keys, fields under their own names; where rows are versions, the commit
    before them and after them whether the version is a removal.

    What cannot be None is said not to be.
    """
    fields = [StructField(commit_column(schema), spark_type("bigint"), False)] if versions else []
    if schema.ref.kind == "relation":
        fields += [StructField(name, StringType(), False) for name in schema.ref.identity]
    fields += [StructField(column.name, spark_type(column.spark_type), column.nullable) for column in schema.columns]
    if versions:
        fields.append(StructField(removed_column(schema), spark_type("boolean"), False))
    return StructType(fields)


def nullable(struct: StructType) -> StructType:
    """The same columns, any of which may be None: rows that an earlier release wrote can lack what a class requires."""
    return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in struct])


def quote_text(text: str) -> str:
    """A text as SQL of Spark has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """A name as one part of an expression, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def by_place(rows: DataFrame) -> tuple[DataFrame, dict[str, Column]]:
    """Rows whose columns have other names, and these columns by the names they had.

    Spark takes names that differ in case alone for one, unless the session says otherwise.
    """
    places = [f"c{place}" for place in range(len(rows.columns))]
    return rows.toDF(*places), dict(zip(rows.columns, map(sql.col, places), strict=True))


def narrow(struct: StructType, names: Container[str]) -> StructType:
    """Some of the columns."""
    return StructType([field for field in struct if field.name in names])


def arrow_schema_of(struct: StructType) -> pa.Schema:
    """The columns of a DataFrame as Arrow has them, instants in UTC."""
    try:
        return to_arrow_schema(struct, timezone="UTC")
    except PySparkException as problem:
        raise ValidationError(f"the DataFrame has a column that no field takes: {problem}") from None


def with_nullability(files: DataFrame, struct: StructType) -> DataFrame:
    """Files that Spark reads itself, with the columns that are never None said to be so.

    Spark takes every column of a file for nullable, whatever it is told, and a cast or a check in the plan would keep
    filters from the files. So the relation is made again with the schema as declared. Connect has no way to do that.
    """
    plan: Any = getattr(files, "_jdf", None)
    relation = None if plan is None else plan.queryExecution().analyzed()
    if relation is None or relation.getClass().getSimpleName() != "LogicalRelation":
        return files
    spark: Any = files.sparkSession
    found, session = relation.relation(), spark._jsparkSession
    declared = spark._jvm.org.apache.spark.sql.execution.datasources.HadoopFsRelation(
        *(found.location(), found.partitionSchema(), session.parseDataType(struct.json()), found.bucketSpec()),
        *(found.fileFormat(), found.options(), session),
    )
    return DataFrame(session.baseRelationToDataFrame(declared), spark)
