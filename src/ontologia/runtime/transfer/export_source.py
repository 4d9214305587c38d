"""Exports as sources of a copy: the history that is in their files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.features import REMOVALS
from ontologia.engines.history import Declared, History, Past
from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeSchema
from ontologia.runtime.transfer.history_format import (
    ExportedHistory,
    parts_of,
    read_header,
    read_history,
    read_log,
)
from ontologia.runtime.transfer.records import RecordReader

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.files.duck import Duck

ROWS_AT_ONCE = 5_000
Record = dict[str, Any]


def is_export(place: str) -> bool:
    """Whether a place is a folder of files. Stores in a directory are named by a URI."""
    return "://" not in place and Path(place).is_dir()


def is_exported_history(place: str) -> bool:
    """Whether a place is a folder of files that say what was in which commit. (Those of 0.3 do not say.)"""
    header = read_header(Path(place)) if is_export(place) else None
    return header is not None and read_history(Path(place), header) is not None


class ExportSource:
    """An export, seen as a copy sees the store that it is made from."""

    engine_version = "export"

    def __init__(self, folder: Path, config: OntologiaConfig | None) -> None:
        from ontologia.files.duck import Duck
        from ontologia.runtime.transfer.history_03 import RecordedHistory  # which is a history in files, too

        self.folder = folder
        self._duck = Duck((config or OntologiaConfig()).s3_duckdb_memory_limit)
        header = read_header(folder)
        self._exported = None if header is None else read_history(folder, header)
        self._recorded = RecordedHistory(folder, self._duck) if header is None else None

    @property
    def has_history(self) -> bool:
        """Whether it says what was in which commit, from the first one on."""
        return self._exported is not None or (self._recorded is not None and self._recorded.has_commits)

    def history(self, declared: Declared) -> History:
        if not self.has_history:
            raise ValidationError(
                f"{self.folder} has a state, or a part of a history: copy it without --with-history, as one commit, or "
                "export the store again with onto export --with-history"
            )
        if self._recorded is not None:
            return self._recorded.read_with(declared)
        assert self._exported is not None
        return ExportHistory(self.folder, self._exported, self._duck)

    def features(self) -> frozenset[str]:
        return frozenset({REMOVALS} if self._exported is not None and self._exported.has_removals else ())

    def close(self) -> None:
        self._duck.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileHistory(History):
    """What histories in files share: rows are read from their files and put into the order of commits."""

    def __init__(self, folder: Path, duck: Duck) -> None:
        self.folder = folder
        self._duck = duck

    @abstractmethod
    def tables(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        """The rows of a version in these commits, in the order of the files."""

    def rows(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        found = self.tables(version, after, up_to)
        first = next(found, None)
        if first is None:
            return

        def every() -> Iterator[pa.Table]:
            yield first
            yield from found

        yield from self._duck.sort_rows(first.schema, every(), (COMMIT_ID, *version.ref.identity))


class ExportHistory(FileHistory):
    """The history in an export of ours."""

    def __init__(self, folder: Path, exported: ExportedHistory, duck: Duck) -> None:
        super().__init__(folder, duck)
        self._exported = exported

    def past(self) -> Past:
        return self._exported.past

    def commits(self, after: int, up_to: int) -> Iterator[Commit]:
        return (commit for commit in read_log(self.folder) if after < commit.id <= up_to)

    def tables(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        file = self._exported.files.get((version.ref, version.schema_version_id))
        for path in () if file is None else parts_of(self.folder, file):
            read = _parquet_rows if path.suffix == ".parquet" else _jsonl_rows
            for table in read(path, version.schema, after, up_to):
                yield table if self._exported.has_removals else table.drop_columns([SUPERSEDED_BY])


def _jsonl_rows(path: Path, schema: TypeSchema, after: int, up_to: int) -> Iterator[pa.Table]:
    reader = RecordReader(schema)
    for some in in_batches(read_records(path, after, up_to)):
        yield rows_table(reader, path, some)


def rows_table(reader: RecordReader, path: Path, records: Iterable[tuple[int, Record]]) -> pa.Table:
    """Records as versions: identity, fields, commit, and the commit again where it is a removal."""
    import pyarrow as pa

    identities, values, commits, removed = [], [], [], []
    for number, record in records:
        try:
            identity, row = reader.read(record)
        except ValidationError as problem:
            raise ValidationError(f"{path}:{number}: {problem}. Nothing was copied of it") from None
        identities.append(identity)
        values.append(row)
        commits.append(record[COMMIT_ID])
        removed.append(record[COMMIT_ID] if record.get("removed") else None)
    table = reader.table(identities, values).append_column(COMMIT_ID, pa.array(commits, pa.int64()))
    return table.append_column(SUPERSEDED_BY, pa.array(removed, pa.int64()))


def read_records(path: Path, after: int, up_to: int) -> Iterator[tuple[int, Record]]:
    """The records of a file of these commits, with their lines."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    record = _record(path, number, line)
                    if after < record[COMMIT_ID] <= up_to:
                        yield number, record
    except OSError as problem:
        raise UnreadableFileError(f"{path} cannot be read: {problem.strerror or problem}") from problem


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError as problem:
        raise ValidationError(f"{path}:{number}: not JSON: {problem}") from None
    if not isinstance(record, Mapping) or not isinstance(record.get(COMMIT_ID), int) or record[COMMIT_ID] < 1:
        raise ValidationError(f"{path}:{number}: a record of a history is a JSON object that says its commit_id")
    return dict(record)


def in_batches(records: Iterator[tuple[int, Record]]) -> Iterator[list[tuple[int, Record]]]:
    while some := list(islice(records, ROWS_AT_ONCE)):
        yield some


def _parquet_rows(path: Path, schema: TypeSchema, after: int, up_to: int) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    wanted = pa.schema(
        [
            *((name, pa.string()) for name in schema.ref.identity),
            *((column.physical, column.arrow_type) for column in schema.columns),
            (COMMIT_ID, pa.int64()),
            (SUPERSEDED_BY, pa.int64()),
        ]
    )
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=wanted.names):
                rows = pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)
                commits = rows.column(COMMIT_ID)
                yield rows.filter(pc.and_(pc.greater(commits, after), pc.less_equal(commits, up_to)))
    except (pa.ArrowException, KeyError, OSError) as problem:
        raise UnreadableFileError(f"{path} is not what its export says it is: {problem}") from problem
