"""Files as rows of a frame: Parquet, CSV and JSON lines, in batches, columns read as the frame declares them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, dataset, json
from pyarrow.dataset import FileFormat

from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.files.csv_quotes import check_quotes_of

FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def rows_of(paths: list[Path], declared: pa.Schema) -> pa.RecordBatchReader:
    """The rows of some files, all of one kind. What the frame has no column for is read as well, and reported there."""
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise ValidationError("files of several kinds at once: write them one kind after another")
    with _explain_failures(paths):
        for path in paths if kinds == {"csv"} else ():
            check_quotes_of(path, _separator(path))
        found = dataset.dataset([str(path) for path in paths], format=_format(kinds.pop(), paths[0], declared))
        batches = found.scanner(use_threads=False).to_reader()
    return pa.RecordBatchReader.from_batches(batches.schema, _read(batches, paths))


def _read(batches: pa.RecordBatchReader, paths: list[Path]) -> Iterator[pa.RecordBatch]:
    with _explain_failures(paths):
        yield from batches


@contextmanager
def _explain_failures(paths: list[Path]) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as problem:
        reason = str(problem).partition("\n")[0].rpartition("Invalid: ")[2]
        raise UnreadableFileError(f"{', '.join(map(str, paths))} cannot be read: {reason}") from problem


def _kind(path: Path) -> str:
    if not path.is_file():
        raise UnreadableFileError(f"{path}: there is no such file")
    if path.suffix.lower() not in FORMATS:
        raise ValidationError(f"{path}: a file is {', '.join(FORMATS)} by its name")
    return FORMATS[path.suffix.lower()]


def _separator(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _format(kind: str, path: Path, declared: pa.Schema) -> FileFormat | str:
    """Text has no types: its columns are read as the frame has them, so that 007 stays a text where one is declared.
    What is empty is null, and nothing else is: NA is a text."""
    if kind == "csv":
        parse = csv.ParseOptions(delimiter=_separator(path), newlines_in_values=True)
        types = {field.name: field.type for field in declared}
        convert = csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        return dataset.CsvFileFormat(parse_options=parse, convert_options=convert)
    if kind == "json":
        options = json.ParseOptions(explicit_schema=declared, unexpected_field_behavior="infer")
        return dataset.JsonFileFormat(parse_options=options)
    return "parquet"
