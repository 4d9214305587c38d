"""Small sources as Arrow tables: files of this machine, and DataFrames of pandas and polars."""

from __future__ import annotations

import csv
import glob
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv
from pyarrow import orc

from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.files.arrays import table_of_pandas
from ontologia.files.csv_quotes import check_quotes_of

ENDINGS = {"tsv": "csv", "jsonl": "json", "ndjson": "json"} | {kind: kind for kind in ("csv", "json", "parquet", "orc")}
PACKED = {".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate"}
OPTIONS = {"csv": {"sep", "delimiter", "header"}}
MOST_BYTES = 64 << 20
"""Beyond this, a source is Spark's."""


class OnlySpark(Exception):
    """A load that cannot be done in process, and why."""


def suffix_of(source: str | Path) -> str:
    """What a file calls itself: `csv` of `people.CSV`."""
    return Path(source).suffix.removeprefix(".").lower()


def files_of(source: str) -> list[Path]:
    """The files that a source names: one, or those of a pattern."""
    if "://" in source or source.startswith("jdbc:"):
        raise OnlySpark(f"{source} is not a file of this machine")
    found = [Path(source)] if os.path.exists(source) else sorted(map(Path, glob.glob(source)))
    if not found:
        raise UnreadableFileError(f"{source}: there is no such file")
    if any(file.is_dir() for file in found):
        raise OnlySpark(f"{source} is a folder")
    return found


def read_source(source: Any, format: str | None = None, options: Mapping[str, str] | None = None) -> pa.Table:
    """A source as a table. Raises `OnlySpark` for what is not read in process."""
    if not isinstance(source, (str, os.PathLike)):
        return _frame(source)
    place = os.fspath(source)
    files = files_of(place)
    ending = (format or suffix_of(files[0])).lower()
    kind = ENDINGS.get(ending)
    if kind is None or any(file.suffix.lower() in PACKED for file in files):
        raise OnlySpark(f"{place} is of no kind that is read in process")
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        raise OnlySpark(f"{place} is large")
    given = {name.lower(): value for name, value in (options or {}).items()}
    if given.keys() - OPTIONS.get(kind, set()) or given.get("header", "true").lower() != "true":
        raise OnlySpark(f"options of {place} are for Spark")
    separator = given.get("sep", given.get("delimiter", "\t" if ending == "tsv" else ","))
    if len(separator) != 1:
        raise OnlySpark(f"{separator!r} is not a single character")
    read = {"csv": lambda file: _csv(file, separator), "json": _json, "parquet": _parquet, "orc": _orc}[kind]
    return _join([(file, read(file)) for file in files])


def _join(tables: list[tuple[Path, pa.Table]]) -> pa.Table:
    """The rows of all files. Their columns may come in any order; files with others are refused by name."""
    tables = [(file, table) for file, table in tables if table.num_columns] or tables[:1]
    first, table = tables[0]
    names = table.column_names
    for file, other in tables[1:]:
        if set(other.column_names) != set(names):
            raise ValidationError(
                f"{first.name} has the columns {', '.join(names)}, and {file.name} has "
                f"{', '.join(other.column_names)}: load them one by one"
            )
        if other.select(names).schema != table.schema:
            raise OnlySpark(f"{file.name} has columns of other types than {first.name}")
    return pa.concat_tables([other.select(names) for _, other in tables])


def _csv(file: Path, separator: str) -> pa.Table:
    """A CSV file as text. What is empty is nothing, as it is to Spark; bytes that are not UTF-8 stay what they are."""
    names = _header(file, separator)
    if names is None:
        return pa.table({})
    seen = [name.casefold() for name in names if name]
    twice = next((name for name in names if name and seen.count(name.casefold()) > 1), None)
    if twice is not None:
        raise ValidationError(f"{file.name} has the column {twice!r} more than once: rename one")
    named = [name or f"_c{place}" for place, name in enumerate(names)]
    check_quotes_of(file, separator)
    try:
        found = arrow_csv.read_csv(
            file,
            arrow_csv.ReadOptions(column_names=named, skip_rows=0, block_size=MOST_BYTES),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types={name: pa.binary() for name in named},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as problem:
        raise ValidationError(f"{file.name} cannot be read as CSV: {problem}") from None
    rows = found.slice(1)  # the first is that of the names
    return pa.table([_as_text(column) for column in rows.columns], names=named)


def _header(file: Path, separator: str) -> list[str] | None:
    """The names in the first row; None for a file that has none."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            return next((names for names in csv.reader(opened, delimiter=separator) if names), None)
    except UnicodeDecodeError:
        return _first_line(file, separator)
    except csv.Error as problem:
        raise ValidationError(f"{file.name} cannot be read as CSV: {problem}") from None


def _first_line(file: Path, separator: str) -> list[str]:
    """The names of a file that is not UTF-8 as a whole."""
    line = file.read_bytes().removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").splitlines()[0]
    try:
        return next(csv.reader([line.decode()], delimiter=separator))
    except UnicodeDecodeError:
        raise ValidationError(
            f'the first line of {file.name} is not UTF-8: say its encoding, as in options={{"encoding": "ISO-8859-1"}}'
        ) from None


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as the text they are said to be; whether they are is looked at row by row."""
    chunks = [chunk.view(pa.string()) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.string())


def _json(file: Path) -> pa.Table:
    """A file of JSON, an object in each line, as columns. Nested values are text again."""
    rows: list[dict[str, Any]] = []
    try:
        for number, line in enumerate(file.read_bytes().decode("utf-8-sig").splitlines(), 1):
            if line.strip():
                row = json.loads(line, object_pairs_hook=_without_repetition)
                if isinstance(row, list):
                    raise OnlySpark(f"{file.name} has a JSON array")
                if not isinstance(row, dict):
                    raise ValidationError(f"{file.name}, line {number}: not a JSON object")
                rows.append(row)
    except UnicodeDecodeError:
        raise ValidationError(f"{file.name} has bytes that are not UTF-8") from None
    except ValueError as problem:
        raise ValidationError(f"{file.name}, line {number}: cannot be read as JSON: {problem}") from None
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table([_column(file, name, [row.get(name) for row in rows]) for name in names], names=names)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there more than once")
    return found


def _column(file: Path, name: str, values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds & {dict, list}:
        raise OnlySpark(f"{file.name} has nested values in {name}")
    if kinds <= {int, float} and float in kinds:
        values, kinds = [None if value is None else float(value) for value in values], {float}
    if len(kinds) > 1 or any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        raise OnlySpark(f"{file.name} has values of several kinds in {name}")
    try:
        return pa.array(values) if kinds else pa.nulls(len(values))
    except UnicodeEncodeError:
        raise ValidationError(f"{file.name}: {name} has a lone surrogate, which is not text") from None


def _parquet(file: Path) -> pa.Table:
    try:
        return pq.read_table(file, partitioning=None)
    except (pa.ArrowInvalid, OSError) as problem:
        raise UnreadableFileError(f"{file} cannot be read as Parquet: {problem}") from None


def _orc(file: Path) -> pa.Table:
    try:
        return orc.read_table(str(file))
    except (pa.ArrowInvalid, OSError) as problem:
        raise UnreadableFileError(f"{file} cannot be read as ORC: {problem}") from None


def _frame(source: Any) -> pa.Table:
    if not hasattr(source, "__arrow_c_stream__"):
        raise OnlySpark(f"{type(source).__name__} is Spark's")
    if type(source).__module__.partition(".")[0] == "pandas":
        return table_of_pandas(source)
    return pa.table(source)
