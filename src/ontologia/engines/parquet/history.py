"""The past of a store on object storage: files in the order of their commits, and snapshots sorted back into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.history import History, Past, PastShare
from ontologia.engines.parquet.log.coverage import cover
from ontologia.engines.parquet.log.records import Head, IndexEntry, TypeIndex
from ontologia.engines.parquet.read.shares import cuts_of_files
from ontologia.files.data_files import DataFile
from ontologia.files.duck import AS_STORED, BATCH_ROWS
from ontologia.files.key_ranges import KeyRange, key_ranges
from ontologia.files.quoting import quote_name
from ontologia.files.reading import FileReader, reader_at, rows_between
from ontologia.files.sorting import Sorter
from ontologia.files.writing import LOOKUP_GROUP_ROWS
from ontologia.model import COMMIT_ID, SCHEMA_VERSION_ID, SUPERSEDED_BY, TypeRef
from ontologia.objects import Location
from ontologia.query.in_force import are_removals, mark_removals, removal_sql

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


class ParquetHistory(History):
    """Rows come from the files that indices name. A copy in the making has no index: there the chain of manifests
    says which files there are."""

    def __init__(self, engine: ParquetEngine) -> None:
        self._engine = engine
        self._log = engine.log

    def past(self) -> Past:
        head = self._log.head().head
        schemas = self._log.schemas(head)
        dropped: dict[TypeRef, int] = {}
        for _, manifest in self._log.chain(head):
            if manifest.schemas is not None:
                dropped |= dict.fromkeys(manifest.schemas.dropped & schemas.dropped, manifest.commit_id)
        return Past(head.commit_id, schemas.versions, dropped, schemas.purged)

    def commits(self, after: int, up_to: int) -> Iterator[Commit]:
        found = [
            Commit(manifest.commit_id, manifest.created_at, manifest.runtime_id, manifest.metadata)
            for _, manifest in self._log.chain(self._log.head().head, after)
            if manifest.commit_id <= up_to
        ]
        return reversed(found)

    def rows(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        head = self._log.head().head
        if version.ref in self._log.schemas(head).purged:
            return
        for entry in self._entries(head, version.ref):
            is_in_reach = entry.max_commit_id > after and entry.min_commit_id <= up_to
            if is_in_reach and entry.schema_version_id in (None, version.schema_version_id):
                yield from self._rows_of(entry, version, after, up_to)

    def commit_sizes(self) -> Mapping[int, int]:
        chain = self._log.chain(self._log.head().head)
        return {manifest.commit_id: sum(file.row_count for file in manifest.files) for _, manifest in chain}

    def shares(self, version: SchemaVersion, commit_id: int) -> Sequence[PastShare]:
        head = self._log.head().head
        if version.ref in self._log.schemas(head).purged:
            return ()
        files = tuple(
            (file, entry.is_snapshot or entry.schema_version_id is None)
            for entry in self._entries(head, version.ref)
            if entry.covers(commit_id) and entry.schema_version_id in (None, version.schema_version_id)
            for file in entry.files
        )
        if not files:
            return ()
        cuts = cuts_of_files(self._engine.reader, [file for file, _ in files], version.ref.identity[0])
        objects, location = self._engine.objects, self._engine.location
        return [FileShare(location, objects.store_id, version, commit_id, files, keys) for keys in key_ranges(cuts)]

    def _entries(self, head: Head, ref: TypeRef) -> list[IndexEntry]:
        index = TypeIndex(ref.name) if self._engine.is_copy else self._log.index(ref).index
        return list(cover(self._log, head, ref, index).entries)

    def _rows_of(self, entry: IndexEntry, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        if not entry.is_snapshot and entry.schema_version_id is not None:
            for file in entry.files:
                yield from self._rows_in_file(file, version)
            return
        with self._engine.reader.places(entry.files) as places, self._engine.duck.cursor() as cursor:
            wanted = _schema(version).append(pa.field(SUPERSEDED_BY, pa.int64()))
            names = ", ".join(map(quote_name, wanted.names[:-1]))
            removed = f"CASE WHEN {removal_sql('t')} THEN {COMMIT_ID} END"  # others were superseded later
            order = ", ".join(map(quote_name, (COMMIT_ID, *version.ref.identity)))
            sql = (
                f"SELECT {names}, {removed} AS {SUPERSEDED_BY} FROM read_parquet($files, {AS_STORED}) t "
                f"WHERE {SCHEMA_VERSION_ID} = $version AND {COMMIT_ID} > $after AND {COMMIT_ID} <= $up_to "
                f"ORDER BY {order}"
            )
            values: dict[str, Any] = {
                "files": [places[file.path] for file in entry.files],
                "version": version.schema_version_id,
                "after": after,
                "up_to": up_to,
            }
            for batch in cursor.execute(sql, values).to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch]).cast(wanted)

    def _rows_in_file(self, file: DataFile, version: SchemaVersion) -> Iterator[pa.Table]:
        wanted = _schema(version)
        with (
            self._engine.reader.open(file) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            if SUPERSEDED_BY in parquet.schema_arrow.names:
                wanted = wanted.append(pa.field(SUPERSEDED_BY, pa.int64()))
            for batch in parquet.iter_batches(LOOKUP_GROUP_ROWS, columns=wanted.names, use_threads=False):
                yield pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)


@dataclass(frozen=True, slots=True)
class FileShare(PastShare):
    """A range of keys in the files that have the rows of a commit; with each, whether it has other rows, too."""

    location: Location
    store_id: str | None
    version: SchemaVersion
    commit_id: int
    files: tuple[tuple[DataFile, bool], ...]
    keys: KeyRange

    def tables(self) -> Iterator[pa.Table]:
        reader = reader_at(self.location, self.store_id)
        with Sorter(self.version.ref.identity) as sorter:
            for file, is_mixed in self.files:
                for rows in self._rows_of(reader, file, is_mixed):
                    sorter.add(rows)
            yield from sorter.chunks()

    def _rows_of(self, reader: FileReader, file: DataFile, is_mixed: bool) -> Iterator[pa.Table]:
        wanted = _schema(self.version).append(pa.field(SUPERSEDED_BY, pa.int64()))
        with reader.open(file) as source, pq.ParquetFile(source) as parquet:
            stored = set(parquet.schema_arrow.names)
        names = [name for name in (*wanted.names, SCHEMA_VERSION_ID) if name in stored]
        if not {*wanted.names} - {SUPERSEDED_BY} <= stored:
            return  # of other versions alone
        for rows in rows_between(reader, file, names, self.keys, self.version.ref.identity[0]):
            own = self._own(rows) if is_mixed else rows
            if SUPERSEDED_BY not in stored:
                own = own.append_column(SUPERSEDED_BY, pa.nulls(own.num_rows, pa.int64()))
            yield own.select(wanted.names).cast(wanted).drop_columns([COMMIT_ID])

    def _own(self, rows: pa.Table) -> pa.Table:
        """The rows of the commit and version. What superseded them later is not of their commit."""
        is_own = pc.and_(
            pc.equal(rows.column(COMMIT_ID), self.commit_id),
            pc.equal(rows.column(SCHEMA_VERSION_ID), self.version.schema_version_id),
        )
        rows = rows.filter(is_own)
        if SUPERSEDED_BY not in rows.column_names:
            return rows
        removed = mark_removals(are_removals(rows), rows.column(COMMIT_ID))
        return rows.set_column(rows.column_names.index(SUPERSEDED_BY), SUPERSEDED_BY, removed)


def _schema(version: SchemaVersion) -> pa.Schema:
    fields = [(column.physical, column.arrow_type) for column in version.schema.columns]
    return pa.schema([*((name, pa.string()) for name in version.ref.identity), (COMMIT_ID, pa.int64()), *fields])
