"""The history in an export of Ontologia 0.3: records with commit ids, and nothing else.

It has no log and no schemas. Commits get the time of the files and a note that says so; types are as their classes have
them. Records from before a migration do not fit these: what was written up to the last of them is an earlier version,
whose fields are of the kind that their values are, and JSON where those are of several kinds or structured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.history import AsDeclared, Declared, Past
from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, FieldSchema, TypeRef, TypeSchema
from ontologia.model.typespec import ANY, NONE, TypeSpec, union_spec
from ontologia.runtime.transfer.export_03 import ours, without_leftovers
from ontologia.runtime.transfer.export_source import FileHistory, Record, in_batches, read_records, rows_table
from ontologia.runtime.transfer.records import RecordReader, decode_defaults

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.files.duck import Duck

NOTE = {"kind": "import", "source": "an export of Ontologia 0.3, which has no times: this is the time of its files"}
EVER = 1 << 62
SCALARS = {bool: "bool", int: "int", float: "float", str: "str"}
LARGEST_INT = 1 << 63


@dataclass
class _RecordedType:
    """What the files say of one type, read with its class."""

    path: Path
    known: AsDeclared
    first: int = EVER
    last: int = 0
    boundary: int = 0
    """The last commit with a record that does not fit the class; 0 where all do."""
    first_later: int | None = None
    """The first commit after that."""
    earlier_rows: int = 0
    values: dict[str, list[Any]] = field(default_factory=dict)
    """By field, a value of each kind that it has up to the boundary, and how often it is there at all."""
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = RecordReader(self.known.schema)
        self.defaults = decode_defaults(self.known)

    def complete(self, record: Record) -> Record:
        """The record as 0.3 read it: without what upgraders left behind, with the defaults of what they left out."""
        found = without_leftovers(record, self.known.schema)
        fields = found.get("fields")
        return {**found, "fields": {**self.defaults, **fields}} if isinstance(fields, dict) else found

    def fits(self, record: Record) -> bool:
        try:
            self.reader.read(self.complete(record))
        except ValidationError:
            return False
        return True

    def learn(self, record: Record) -> None:
        """Take note of the fields of a record from before the boundary."""
        self.earlier_rows += 1
        for name, value in (record.get("fields") or {}).items():
            self.counts[name] = self.counts.get(name, 0) + 1
            seen = self.values.setdefault(name, [])
            if not any(_kind(value) == _kind(known) for known in seen):
                seen.append(value)

    def earlier_schema(self) -> TypeSchema:
        """The schema that those records have."""
        current, key = self.known.schema, self.known.schema.primary_key
        fields = tuple(
            FieldSchema(name, current.by_name[name].spec, primary_key=True)
            if name == key
            else FieldSchema(name, _spec(self.values[name], is_missing=self.counts[name] < self.earlier_rows))
            for name in self.values
            if name != current.instance_key
        )
        return TypeSchema(current.ref, fields, current.left, current.right, current.instance_key)


class RecordedHistory(FileHistory):
    """The past in a folder of records."""

    def __init__(self, folder: Path, duck: Duck) -> None:
        super().__init__(folder, duck)
        self._files = sorted(folder.glob("*.jsonl"))
        self._declared: Declared = {}
        self._types: dict[TypeRef, _RecordedType] = {}

    @property
    def has_commits(self) -> bool:
        """Whether records say in which commit they were written."""
        for path in self._files:
            with path.open("rb") as file:
                line = file.readline()
            if line.strip():
                return f'"{COMMIT_ID}"'.encode() in line
        return False

    def read_with(self, declared: Declared) -> RecordedHistory:
        """Read what the types are, with the classes."""
        self._declared = declared
        for path in self._files:
            for _, ref, record in self._records(path):
                found = self._types.setdefault(ref, _RecordedType(path, declared[ref]))
                found.first, found.last = min(found.first, record[COMMIT_ID]), max(found.last, record[COMMIT_ID])
                if record[COMMIT_ID] > found.boundary and not found.fits(record):
                    found.boundary = record[COMMIT_ID]
        for found in self._types.values():
            for _, _, record in self._records(found.path):
                if record[COMMIT_ID] <= found.boundary:
                    found.learn(record)
                else:
                    found.first_later = min(found.first_later or EVER, record[COMMIT_ID])
        return self

    def past(self) -> Past:
        versions: list[SchemaVersion] = []
        for ref, found in sorted(self._types.items()):
            if found.boundary:
                versions.append(SchemaVersion(ref, 1, found.earlier_schema(), self._time, found.first))
            if found.first_later is not None:
                number = 2 if found.boundary else 1
                versions.append(SchemaVersion(ref, number, found.known.schema, self._time, found.first_later))
        return Past(max((found.last for found in self._types.values()), default=0), versions)

    def commits(self, after: int, up_to: int) -> Iterator[Commit]:
        return (Commit(number, self._time, "", dict(NOTE)) for number in range(after + 1, up_to + 1))

    def tables(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        found = self._types[version.ref]
        is_earlier = bool(found.boundary) and version.schema_version_id == 1
        if is_earlier:
            reader, up_to = RecordReader(version.schema), min(up_to, found.boundary)
            nothing = dict.fromkeys(version.schema.names)
        else:
            reader, after = found.reader, max(after, found.boundary)
        records = (
            (number, {**record, "fields": {**nothing, **record["fields"]}} if is_earlier else found.complete(record))
            for number, _, record in _last_words(self._records(found.path, after, up_to))
        )
        for some in in_batches(records):
            yield rows_table(reader, found.path, some).drop_columns([SUPERSEDED_BY])

    @property
    def _time(self) -> str:
        newest = max((path.stat().st_mtime for path in self._files), default=0.0)
        return datetime.fromtimestamp(newest, UTC).isoformat()

    def _records(self, path: Path, after: int = 0, up_to: int = EVER) -> Iterator[tuple[int, TypeRef, Record]]:
        for number, found in read_records(path, after, up_to):
            record = ours(found)
            ref = TypeRef(record.get("kind"), record.get("type"))  # type: ignore[arg-type]
            if ref not in self._declared:
                raise ValidationError(
                    f"{path}:{number}: {ref} is not among the classes, and an export of 0.3 does not say what a type "
                    "is: name its models"
                )
            if not isinstance(record.get("fields"), dict):
                raise ValidationError(f"{path}:{number}: {ref}: a record needs fields, a JSON object")
            yield number, ref, record


def _last_words(records: Iterator[tuple[int, TypeRef, Record]]) -> Iterator[tuple[int, TypeRef, Record]]:
    """Of records of one identity in one commit, which 0.3 could write, the last, as it was read."""
    names = (COMMIT_ID, "key", "left_key", "right_key", "instance_key")
    for _, same in groupby(records, lambda item: [item[2].get(name) for name in names]):
        *_, last = same
        yield last


def _kind(value: Any) -> str | None:
    """What scalar a value is; None for one that is structured, or too large."""
    if value is None:
        return "NoneType"
    return None if isinstance(value, int) and abs(value) >= LARGEST_INT else SCALARS.get(type(value))


def _spec(values: list[Any], *, is_missing: bool) -> TypeSpec:
    kinds = {_kind(value) for value in values} - {"NoneType"}
    if kinds == {"int", "float"}:
        kinds = {"float"}
    if len(kinds) != 1 or None in kinds:
        return ANY
    plain: TypeSpec = {"kind": "primitive", "name": kinds.pop()}
    has_none = is_missing or any(value is None for value in values)
    return union_spec([NONE, plain]) if has_none else plain
