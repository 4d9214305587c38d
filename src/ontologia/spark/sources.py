"""What a load may name as its source: a DataFrame, a frame, files that Spark reads, or a table behind JDBC."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ontologia.apiary import Frame
from ontologia.errors import ValidationError
from ontologia.files.arrays import table_of_pandas
from ontologia.runtime.loading.named_sources import check_source
from ontologia.runtime.loading.sources import suffix_of
from ontologia.spark.failures import explain_failures
from ontologia.spark.text_files import read_csv, read_json

_PATTERN = re.compile(r"([*?\[\]{}\\])")
"""What Spark takes for a pattern in a path."""


def opened(
    spark: SparkSession,
    source: Any,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    as_text: Collection[str] = (),
) -> DataFrame:
    """A source as a DataFrame. Options are those of Spark's readers; a JDBC address needs `dbtable` or `query`, the
    root of frames `frame`. Of JSON, nested values of the columns `as_text` are text."""
    if not isinstance(source, (str, os.PathLike)):
        return _frame(spark, source)
    place = os.fspath(source)
    kind = check_source(place, format, options)
    given = dict(options or {})
    if kind == "jdbc":
        with explain_failures("opening a JDBC source"):
            return spark.read.format("jdbc").options(url=place, **given).load()
    if kind == "frame":
        with explain_failures(f"opening a frame at {place}"):
            return spark.read.format("ontologia").options(**given).load(place)
    found = _as_spark_names_it(place)
    with explain_failures(f"opening {place}"):
        if kind == "csv":
            is_tabbed = "tsv" in (suffix_of(place), (format or "").lower())
            return read_csv(spark, found, {**({"sep": "\t"} if is_tabbed else {}), **given})
        if kind == "json":
            return read_json(spark, found, given, as_text)
        return spark.read.format(kind).options(**given).load(found)


def _as_spark_names_it(place: str) -> str:
    """Spark's own working directory, and the file system it means by default, may be others. A file is no pattern."""
    if "://" in place:
        return place
    path = os.path.abspath(place)
    return "file:" + (_PATTERN.sub(r"\\\1", path) if os.path.exists(path) else path)


def _frame(spark: SparkSession, source: Any) -> DataFrame:
    """A DataFrame of Spark as it is; a frame, a DataFrame of pandas or polars, or an Arrow table as one of Spark."""
    if isinstance(source, DataFrame):
        return source
    if isinstance(source, Frame):
        return cast("DataFrame", source.to_spark())
    if not hasattr(source, "__arrow_c_stream__"):
        raise TypeError(
            "load() takes a DataFrame of Spark, pandas or polars, an Arrow table, files, or a jdbc: address, "
            f"not {type(source).__name__}"
        )
    # Through Arrow, which takes the NaN of a missing number in pandas for what it means.
    is_pandas = type(source).__module__.partition(".")[0] == "pandas"
    table = table_of_pandas(source) if is_pandas else pa.table(source)
    fields = [field.with_type(_spark_arrow_type(field.type)) for field in table.schema]
    try:
        return spark.createDataFrame(table.cast(pa.schema(fields)))
    except pa.ArrowInvalid as problem:
        raise ValidationError(f"the source has times that say more than microseconds: round them ({problem})") from None


def _spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    """A column's type as Spark has it. It would take a time without a zone for one in the zone of its session."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)
