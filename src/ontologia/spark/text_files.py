"""CSV and JSON files as DataFrames that have what the files say.

Spark's reader takes the first file's header for that of all, ends a row at a line break inside quotes, puts a sign in
place of bytes it cannot decode, and drops what it cannot parse. So files are looked at first, in one pass over their
lines: what can be read is read right, and what cannot is refused by name. A few small files of this machine are looked
at here, because a job of Spark's, the first one above all, takes longer than that.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from ontologia.errors import ValidationError
from ontologia.files.csv_quotes import check_quotes
from ontologia.runtime.loading.named_sources import FEW_BYTES
from ontologia.runtime.loading.sources import ENDINGS, suffix_of
from ontologia.spark.types import quote_name

# A first line of names, quotes doubled inside quotes, and no line that is silently dropped.
CSV = {"header": "true", "escape": '"', "mode": "FAILFAST", "enforceSchema": "true"}
CSV |= {"unescapedQuoteHandling": "RAISE_ERROR"}  # a value that continues after its closing quote
BYTES = "ISO-8859-1"
"""An encoding in which every byte is a sign, so that bytes can be had back from text."""
SAY_SO = 'say its encoding, as in options={"encoding": "ISO-8859-1"}'
ABOUT_FILES = frozenset(
    ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "compression", "linesep")
)
"""Options, in lower case, that say which files are read, and where lines end."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a file from a look at its lines."""

    path: str
    line: bytes
    """The first one, with what is before its line feed."""
    is_utf8: bool
    has_open_quotes: bool
    """Whether a line ends inside quotes, so that a row goes on in the next."""
    has_odd_quotes: bool = False
    """Whether a quote has no other one: most likely, it is never closed."""

    @property
    def header(self) -> bytes:
        return self.line.removesuffix(b"\r")

    @property
    def line_end(self) -> str:
        return "\r\n" if self.line.endswith(b"\r") else "\n"

    @property
    def name(self) -> str:
        return unquote(self.path).rpartition("/")[2]


def read_csv(spark: SparkSession, place: str, options: Mapping[str, str]) -> DataFrame:
    """CSV files, which may have their columns in any order, rows over several lines, and bytes that are not UTF-8.

    Options are those of Spark's reader; where they say how lines or signs are to be read, that holds.
    """
    given = _Options({**CSV, **options})
    looks = [look for look in _look_at(spark, place, given) if look.header]
    if given["escape"] == given.value("quote", default='"'):
        _check_closed(looks)
    is_open = any(look.has_open_quotes for look in looks)
    if is_open:
        given.default("multiLine", "true")
    as_bytes = not all(look.is_utf8 for look in looks) and not given.says("encoding", "charset")
    if as_bytes:
        given.default("encoding", BYTES)
    if given["header"].lower() != "true" or not looks:
        return _decode(spark.read.format("csv").options(**given).load(place), as_bytes)
    alike: dict[tuple[tuple[str, ...], str], list[Look]] = {}
    for look in looks:
        alike.setdefault((_columns(look, given, as_bytes), look.line_end if is_open else ""), []).append(look)
    _check_columns({look.name: columns for (columns, _), looks in alike.items() for look in looks})
    frames = []
    for (_, line_end), looks in alike.items():
        options = _Options(given)
        if line_end:  # unless it is told, Spark takes every line break inside quotes for the same
            options.default("lineSep", line_end)
        reader = spark.read.format("csv").options(**options)
        frames.append(_decode(reader.load(place if len(alike) == 1 else _paths(looks)), as_bytes))
    return reduce(lambda all_, more: all_.unionByName(more), frames)


def _check_closed(looks: Sequence[Look]) -> None:
    for look in looks:
        if look.has_odd_quotes:
            raise ValidationError(
                f"{look.name} has an odd number of quotes, so one is never closed, as in a file that was cut off: "
                "mend it, or say which character quotes, as in options={'quote': ''}"
            )


def _check_columns(files: Mapping[str, tuple[str, ...]]) -> None:
    (first, columns), *others = files.items()
    for other, names in others:
        if set(names) != set(columns):
            told = f"{first} has the columns {', '.join(columns)}, and {other} has {', '.join(names)}"
            raise ValidationError(f"{told}: load them one by one")


def read_json(spark: SparkSession, place: str, options: Mapping[str, str], as_text: Collection[str] = ()) -> DataFrame:
    """JSON files. A line that is not JSON stops a load; by Spark's default it would be a row of nothing.

    Nested values of the columns `as_text` come as the JSON they are. Spark would give all of them the fields that any
    has.
    """
    given = _Options({"mode": "FAILFAST", **options})
    if not given.says("encoding", "charset"):
        for look in _look_at(spark, place, given):
            if not look.is_utf8:
                raise ValidationError(f"{look.name} has bytes that are not UTF-8: {SAY_SO}")
    if not given.says("multiLine", "lineSep", "compression"):
        for file in (_few_here(spark.read.format("text").load(place)) or {}).values():
            _check_one_each(file)
    found = spark.read.format("json").options(**given).load(place)
    nested = {field.name for field in found.schema if isinstance(field.dataType, (ArrayType, StructType))}
    if not nested.intersection(as_text):
        return found
    whole = [
        StructField(field.name, StringType()) if field.name in nested.intersection(as_text) else field
        for field in found.schema
    ]
    return spark.read.format("json").options(**given).schema(StructType(whole)).load(place)


def _check_one_each(file: Path) -> None:
    """Refuse a file with several values in a line, of which Spark would read the first and forget the others."""
    for number, line in enumerate(file.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            json.loads(line or b"0")
        except ValueError as problem:  # what is not JSON at all is Spark's to refuse
            if "Extra data" in str(problem):
                raise ValidationError(f"{file.name}, line {number}: has more than one value") from None


class _Options(dict[str, str]):
    """Options of Spark's readers, whose names ignore case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        names: dict[str, str] = {}
        for name in given:  # a later spelling of a name takes the place of an earlier one
            names[name.lower()] = name
        super().__init__({name: str(given[name]) for name in names.values()})

    def says(self, *names: str) -> bool:
        return any(name.lower() in {given.lower() for given in self} for name in names)

    def default(self, name: str, value: str) -> None:
        if not self.says(name):
            self[name] = value

    def value(self, *names: str, default: str) -> str:
        wanted = {name.lower() for name in names}
        return next((value for name, value in self.items() if name.lower() in wanted), default)


def _look_at(spark: SparkSession, place: str, options: _Options) -> list[Look]:
    """One pass over the lines of all files. Lines are bytes here, whatever is in them."""
    kept = {name: value for name, value in options.items() if name.lower() in ABOUT_FILES}
    lines = spark.read.format("text").option("lineSep", "\n").options(**kept).load(place)
    quote = "" if options.says("multiLine") else options.value("quote", default='"')
    few = None if options.says("lineSep", "compression") else _few_here(lines)
    if few is None:
        return _look_by_spark(lines, quote)
    contents = {path: file.read_bytes() for path, file in few.items()}
    looks = (_look(path, content, quote.encode()) for path, content in contents.items())
    found = [look for look in looks if look is not None]
    separator = options.value("sep", "delimiter", default=",")
    if len(separator) == len(quote) == 1 and options.value("escape", default="") == quote:
        for look in found:
            check_quotes(look.name, contents[look.path], separator, quote)
    return found


def _few_here(lines: DataFrame) -> dict[str, Path] | None:
    """The files of a DataFrame, by the names that Spark has for them, if they are few bytes and lie on this machine."""
    if getattr(lines, "_jdf", None) is None:  # a Connect session, whose files are the server's
        return None
    files = {path: Path(unquote(urlsplit(path).path)) for path in sorted(lines.inputFiles())}
    for path, file in files.items():
        if not path.startswith("file:") or suffix_of(file) not in ENDINGS or not file.is_file():
            return None
    return files if sum(file.stat().st_size for file in files.values()) <= FEW_BYTES else None


def _look(path: str, content: bytes, quote: bytes) -> Look | None:
    if not content:
        return None
    try:
        content.decode()
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    lines = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return Look(path, lines[0], is_utf8, bool(quote) and any(line.count(quote) % 2 for line in lines))


def _look_by_spark(lines: DataFrame, quote: str) -> list[Look]:
    line, quotes = sql.col("value"), sql.lit(0)
    if quote:
        quotes = sql.length(line) - sql.length(sql.replace(line, sql.lit(quote), sql.lit("")))
    at_start = sql.when(sql.col("_metadata.file_block_start") == 0, sql.struct("place", "value"))
    numbered = lines.select("value", "_metadata").withColumn("place", sql.monotonically_increasing_id())
    found = numbered.groupBy(sql.col("_metadata.file_path").alias("path")).agg(
        sql.min(at_start)["value"].cast("binary").alias("line"),
        sql.bool_and(sql.is_valid_utf8(line)).alias("is_utf8"),
        sql.bool_or(quotes % 2 == 1).alias("open"),
        (sql.sum(quotes) % 2 == 1).alias("odd"),
    )
    rows = found.orderBy("path").collect()
    return [Look(row.path, bytes(row.line or b""), row.is_utf8, row.open, row.odd) for row in rows]


def _columns(look: Look, options: _Options, as_bytes: bool) -> tuple[str, ...]:
    """The names in a file's first line. Two of one name would be told apart by numbers that nobody wrote."""
    encoding = "utf-8" if as_bytes else options.value("encoding", "charset", default="utf-8")
    try:
        line = look.header.decode(encoding).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        raise ValidationError(f"the first line of {look.name} is not UTF-8: {SAY_SO}") from None
    separator, quote = options.value("sep", "delimiter", default=","), options.value("quote", default='"')
    if len(separator) == 1 and len(quote) == 1:
        names = next(csv.reader([line], delimiter=separator, quotechar=quote), [])
    else:
        names = line.split(separator)
    seen = [name.casefold() for name in names if name]
    twice = next((name for name in names if name and seen.count(name.casefold()) > 1), None)
    if twice is not None:
        raise ValidationError(f"{look.name} has the column {twice!r} more than once: rename one")
    return tuple(names)


def _paths(looks: Sequence[Look]) -> list[str]:
    paths = [unquote(look.path) for look in looks]
    return [path.replace("file:///", "file:/", 1) for path in paths]


def _decode(frame: DataFrame, as_bytes: bool) -> DataFrame:
    """Text that was read as bytes, as what it is: rows with bytes that are not text are found where they are mapped."""
    if not as_bytes:
        return frame
    columns: list[Any] = []
    for field in frame.schema:
        value = sql.col(quote_name(field.name))
        text = sql.encode(value, BYTES).cast("string") if isinstance(field.dataType, StringType) else value
        name = field.name.encode(BYTES).decode(errors="replace").removeprefix("\ufeff")
        columns.append(text.alias(name))
    return frame.select(*columns)
