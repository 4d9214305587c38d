"""What a load may name as its source: a DataFrame, files that Spark reads, or a table behind JDBC."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.spark.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("csv", "json", "parquet", "orc", "jdbc")
_ALIASES = {"jsonl": "json", "ndjson": "json", "tsv": "csv"}
# A first line of names, quotes doubled inside quotes, and no line that is silently dropped.
_CSV = {"header": "true", "escape": '"', "mode": "FAILFAST"}


def format_of(source: str, format: str | None = None) -> str:
    """What a source is, as said or by its suffix. A local file that is not there is refused before Spark starts."""
    if source.startswith("jdbc:"):
        return "jdbc"
    suffix = Path(source).suffix.lstrip(".").lower()
    kind = format or _ALIASES.get(suffix, suffix)
    if kind not in FORMATS[:-1]:
        raise ValidationError(f"{source}: say what it is with format: csv, json, parquet or orc")
    if "://" not in source and not glob.glob(source) and not Path(source).exists():
        raise UnreadableFileError(f"{source}: there is no such file")
    return kind


def opened(
    spark: SparkSession,
    source: DataFrame | str | os.PathLike[str],
    format: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A source as a DataFrame. Options are those of Spark's readers; a JDBC address needs `dbtable` or `query`."""
    if not isinstance(source, (str, os.PathLike)):
        return source
    place = os.fspath(source)
    kind = format_of(place, format)
    given = dict(options or {})
    if kind == "jdbc":
        if not given.keys() & {"dbtable", "query"}:
            raise ValidationError(f"{place}: say which table, with the option dbtable or query")
        with explained("opening a JDBC source"):
            return spark.read.format("jdbc").options(url=place, **given).load()
    if kind == "csv":
        given = {**_CSV, **({"sep": "\t"} if Path(place).suffix == ".tsv" else {}), **given}
    # Spark's own working directory, and the file system it means by default, may be others.
    found = place if "://" in place else f"file:{os.path.abspath(place)}"
    with explained(f"opening {place}"):
        return spark.read.format(kind).options(**given).load(found)
