"""Exported files as checked records: which files, in which stretches, and who checks the records of which type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Catalog
from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.model import TypeRef, TypeSchema, is_unicode
from ontologia.model.values import TOO_DEEP, is_too_deep, may_be_too_deep
from ontologia.runtime.store import Store
from ontologia.runtime.transfer.export_03 import OutdatedRecords, ours, without_leftovers
from ontologia.runtime.transfer.history_format import HEADER
from ontologia.runtime.transfer.records import Identity, RecordReader, lines

if TYPE_CHECKING:
    from io import BufferedReader

    import pyarrow as pa

_parse = json.JSONDecoder().decode
SUFFIXES = (".jsonl", ".parquet")
WHOLE = 1 << 62
PARQUET_ROWS = 10_000
SAMPLE_BYTES = 1 << 20


def files_of(source: Path) -> list[Path]:
    """The files of an export in their order: a folder's by name, or the one that is named."""
    if source.is_dir():
        try:
            found = sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        except OSError as problem:
            raise _unreadable(source, problem) from problem
        if not found:
            raise UnreadableFileError(f"{source}: no .jsonl or .parquet files there")
        return found
    if not source.exists():
        raise UnreadableFileError(f"{source}: there is no such file or folder")
    if source.suffix not in SUFFIXES:
        raise UnreadableFileError(f"{source}: an import reads .jsonl and .parquet files, or a folder of them")
    return [source]


def _unreadable(path: Path, problem: OSError) -> UnreadableFileError:
    return UnreadableFileError(f"{path} cannot be read: {problem.strerror or problem}")


class Readers:
    """Who checks the records of which type: the declared class, else the stored schema, else that of the export.

    It holds no classes, only what they check with, so that it can be pickled to where nobody can import them.
    """

    def __init__(self, store: Store, catalog: Catalog, source: Path) -> None:
        self._dropped = frozenset(catalog.dropped)
        stored = {ref: layout.schema for ref, layout in catalog.layouts.items()}
        self._schemas = read_exported_schemas(source) | stored
        self._found = {
            ref: RecordReader(declaration.schema, declaration) for ref, declaration in store.declarations.items()
        }

    def of(self, ref: TypeRef) -> RecordReader:
        if ref in self._dropped:
            raise ValidationError(f"{ref} was dropped from this store; it takes no new rows")
        if ref not in self._found:
            if ref not in self._schemas:
                raise ValidationError(
                    f"{ref} is not in this store, and no declared class says what it is: give its models"
                )
            self._found[ref] = RecordReader(self._schemas[ref])
        return self._found[ref]


def read_exported_schemas(source: Path) -> dict[TypeRef, TypeSchema]:
    """What the header of an export says. A file of it, or a folder of parts, lies up to three levels below."""
    places = [source / HEADER, *(folder / HEADER for folder in source.absolute().parents[:3])]
    header = next((place for place in places if place.is_file()), None)
    if header is None:
        return {}
    try:
        content = json.loads(header.read_text(encoding="utf-8"))
        schemas = [TypeSchema.from_json(item["schema"]) for item in content["types"]]
    except (ValueError, KeyError, TypeError) as problem:
        raise ValidationError(f"{header} is malformed: {problem!r}") from problem
    except OSError as problem:
        raise _unreadable(header, problem) from problem
    return {schema.ref: schema for schema in schemas}


def rows_to_import(source: Path) -> int:
    """About how many records there are: JSON lines are counted in a sample, rows of Parquet in its footer."""
    found = 0
    for path in files_of(source):
        if path.suffix == ".parquet":
            with open_file(path) as file:
                found += file.metadata.num_rows
            continue
        with open_text(path) as text:
            sample = text.read(SAMPLE_BYTES)
        found += path.stat().st_size * sample.count(b"\n") // max(len(sample), 1)
    return found


# --- stretches of files ---


@dataclass(frozen=True, slots=True)
class Split:
    """A stretch of a file: bytes of JSON lines, or row groups of Parquet. A line belongs to where it begins."""

    path: Path
    start: int = 0
    end: int = WHOLE

    def place(self, number: int) -> str:
        """Where a record stands, by its number in this stretch. Lines before it are counted only when asked."""
        if self.path.suffix == ".jsonl":
            return f"{self.path}:{self._lines_before() + number}"
        return f"{self.path} row {self._rows_before() + number}"

    def _lines_before(self) -> int:
        if not self.start:
            return 0
        with self.path.open("rb") as file:
            left, found = first_line(file, self.start), 0
            file.seek(0)
            while left:
                block = file.read(min(left, 1 << 20))
                found += block.count(b"\n")
                left -= len(block)
            return found

    def _rows_before(self) -> int:
        if not self.start:
            return 0
        with open_file(self.path) as file:
            return sum(file.metadata.row_group(group).num_rows for group in range(self.start))


def first_line(file: BufferedReader, start: int) -> int:
    """Go to the first line that begins at or after a byte; its place."""
    if start:
        file.seek(start - 1)
        file.readline()
    return file.tell()


def splits_of(path: Path, size: int) -> list[Split]:
    """A file in stretches of about a size in bytes."""
    if path.suffix == ".jsonl":
        total = path.stat().st_size
        return [Split(path, start, start + size) for start in range(0, max(total, 1), size)]
    with open_file(path) as file:
        groups = [file.metadata.row_group(number).total_byte_size for number in range(file.metadata.num_row_groups)]
    found, start, held = [], 0, 0
    for number, group in enumerate(groups):
        held += group
        if held >= size:
            found.append(Split(path, start, number + 1))
            start, held = number + 1, 0
    return [*found, Split(path, start, len(groups))] if start < len(groups) or not found else found


def open_text(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as problem:
        raise _unreadable(path, problem) from problem


def open_file(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as problem:
        raise UnreadableFileError(f"{path}: not a Parquet file: {problem}") from None
    except OSError as problem:
        raise _unreadable(path, problem) from problem


# --- records ---


Checked = tuple[int, int, RecordReader, Identity, dict[str, Any]]
"""A good record: its number in the stretch, how far into the file that is, who checked it, and what it says."""


def check_records(split: Split, readers: Readers) -> Iterator[Checked]:
    """The records of a stretch. The first bad one is an error that names its place."""
    known: dict[str, RecordReader] = {}
    outdated = OutdatedRecords()
    for number, done, found in _jsonl(split) if split.path.suffix == ".jsonl" else _parquet(split, readers):
        if found.get("removed"):
            raise ValidationError(
                f"{split.place(number)}: this is a removal, of an export of history. A state can be imported: export "
                "without --history-since; or import every commit into an empty place, with --with-history. Nothing was "
                "imported"
            )
        record = ours(found)
        reader = known.get(f"{record.get('kind')} {record.get('type')}")
        if reader is None:
            ref = _ref(record, split, number)
            reader = known[str(ref)] = readers.of(ref)
        if record is not found:
            record = without_leftovers(record, reader.schema)
        try:
            identity, values = reader.read(record)
        except ValidationError as problem:
            bad = ValidationError(f"{split.place(number)}: {problem}. Nothing was imported")
            if record is found:
                raise bad from None
            outdated.add(reader.ref, record, bad)
            continue
        if record is not found:
            outdated.settle(reader.ref, record)
        yield number, done, reader, identity, values
    outdated.check()


Record = tuple[int, int, dict[str, Any]]


def _jsonl(split: Split) -> Iterator[Record]:
    with open_text(split.path) as file:
        done = first_line(file, split.start)
        for number, line in enumerate(file, 1):
            if done >= split.end:
                return
            done += len(line)
            if line.isspace():
                continue
            try:
                record = _parse_line(line.decode("utf-8-sig"), split, number)
            except ValueError as problem:
                raise ValidationError(f"{split.place(number)}: not JSON: {problem}. Nothing was imported") from None
            if not isinstance(record, dict):
                raise ValidationError(f"{split.place(number)}: a record is a JSON object. Nothing was imported")
            if b"\\u" in line and not is_unicode(json.dumps(record, ensure_ascii=False)):
                raise ValidationError(f"{split.place(number)}: half a surrogate pair is not text. Nothing was imported")
            yield number, done, record


def _parquet(split: Split, readers: Readers) -> Iterator[Record]:
    """A Parquet file's rows as the records they would be in JSON, so that both formats are checked alike."""
    import pyarrow as pa

    path = split.path
    with open_file(path) as file:
        about = file.schema_arrow.metadata or {}
        kind, name = about.get(b"ontologia.kind", b"").decode(), about.get(b"ontologia.type", b"").decode()
        reader = readers.of(_ref({"kind": kind, "type": name}, split, None))
        size, rows, number = path.stat().st_size, max(file.metadata.num_rows, 1), 0
        groups = range(split.start, min(split.end, file.metadata.num_row_groups))
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, row_groups=list(groups)):
            table = pa.Table.from_batches([batch])
            _check_columns(path, reader, table)
            for line in lines(reader.schema, table, with_metadata=False):
                number += 1
                yield number, size * number // rows, _parse_line(line, split, number)


def _parse_line(line: str, split: Split, number: int) -> Any:
    """What a line says. A value that is nested too deeply is refused before anybody walks through it."""
    try:
        record = _parse(line)
        deep = may_be_too_deep(line) and is_too_deep(record, above=2)
    except RecursionError:
        record, deep = {}, True
    if deep:
        fields = record.get("fields") if isinstance(record, dict) else None
        named = [name for name, value in fields.items() if is_too_deep(value)] if isinstance(fields, dict) else []
        where = "".join(f"{record.get('type')}.{name}: " for name in named)
        raise ValidationError(f"{split.place(number)}: {where}{TOO_DEEP}. Nothing was imported")
    return record


def _check_columns(path: Path, reader: RecordReader, table: pa.Table) -> None:
    for wanted in reader.arrow_schema:
        if wanted.name not in table.column_names:
            raise ValidationError(f"{path}: there is no column {wanted.name}, which {reader.ref} needs")
        found = table.schema.field(wanted.name).type
        if found != wanted.type:
            raise ValidationError(f"{path}: column {wanted.name} is {found}, and {reader.ref} needs {wanted.type}")


def _ref(record: Mapping[str, Any], split: Split, number: int | None) -> TypeRef:
    kind, name = record.get("kind"), record.get("type")
    if kind not in ("entity", "relation") or not isinstance(name, str) or not name:
        place = split.path if number is None else split.place(number)
        raise ValidationError(
            f"{place}: a record says its kind (entity or relation) and its type. Nothing was imported"
        )
    return TypeRef(kind, name)
