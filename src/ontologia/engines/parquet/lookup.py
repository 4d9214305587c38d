"""The rows in force of given identities, for the comparison that a commit makes.

A commit touches few rows of a large type, and a scan would decode all columns of every row group that may hold them.
Here the footers of files tell which of them, and which of their row groups, may have a wanted key. The newest files
come first, and the search ends when every identity was found. Small files, most of the commits after a snapshot, stay
in memory once read. Of a row group of a large one the key is read, and the other columns where a wanted key was there.
Files never change, so neither does what is kept of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ontologia.engines.parquet.planning import Scan
from ontologia.engines.parquet.remote import Reading
from ontologia.engines.parquet.wanted import Footer, Kept, Wanted
from ontologia.model import COMMIT_ID, TypeSchema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SMALL_FILE_BYTES = 1 << 20
HELD_BYTES = 64 << 20
"""What the rows of small files may take of memory, decoded."""
FOOTER_BYTES = 8 << 20

File = tuple[str, int | None]


class Lookup:
    """Finds rows by identity in the files of one store. For the one thread that holds the write lease."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._footers: Kept[str, Footer] = Kept(FOOTER_BYTES)
        self._held: Kept[tuple[str, str], pa.Table] = Kept(HELD_BYTES)

    def rows(self, schema: TypeSchema, scan: Scan, keys: pa.Table) -> pa.Table:
        """The last row of each of these identities in the scan: commit, identity and fields."""
        import pyarrow as pa

        wanted = Wanted.of(schema.ref.identity, keys)
        found = [_shape(schema).empty_table()]
        room = max(SMALL_FILE_BYTES, wanted.keys.nbytes)  # many identities are matched with many rows at once
        for files in _batches(self._touched(schema, scan, wanted), room):
            if not wanted.keys.num_rows:
                break
            if _is_small(files[0]):
                candidates = self._small(schema, files)
            else:
                candidates = list(self._large(schema, files[0], wanted, scan))
            if candidates:
                newest, wanted = wanted.newest(pa.concat_tables(candidates), scan.upper)
                found.append(newest)
        return pa.concat_tables(found)

    def _touched(self, schema: TypeSchema, scan: Scan, wanted: Wanted) -> list[File]:
        """The files that may have a wanted row, newest first. Footers that are not known come side by side."""
        files = [file for entry in reversed(scan.files) for file in entry.files]
        known = {path: self._footers.get(path) for path, _ in files}
        missing = [file for file in files if known[file[0]] is None]
        read = self._reading.objects.map(lambda file: self._footer(schema, file), missing)
        for (path, _), fresh in zip(missing, read, strict=True):
            known[path] = self._footers.put(path, fresh, fresh.metadata.serialized_size)
        return [file for file in files if (footer := known[file[0]]) and footer.touched(wanted, scan.upper)]

    def _footer(self, schema: TypeSchema, file: File) -> Footer:
        import pyarrow.parquet as pq

        with self._reading.opened(*file) as source, pq.ParquetFile(source) as reader:
            return Footer.of(reader.metadata, schema.ref.identity[0])

    def _small(self, schema: TypeSchema, files: Sequence[File]) -> list[pa.Table]:
        """All rows of small files. What is not in memory is read side by side."""
        known = {path: self._held.get((path, schema.fingerprint)) for path, _ in files}
        missing = [file for file in files if known[file[0]] is None]
        read = self._reading.objects.map(lambda file: self._whole(schema, file), missing)
        for (path, _), rows in zip(missing, read, strict=True):
            known[path] = self._held.put((path, schema.fingerprint), rows, rows.nbytes)
        return [rows for rows in known.values() if rows is not None]

    def _whole(self, schema: TypeSchema, file: File) -> pa.Table:
        import pyarrow.parquet as pq

        with self._reading.opened(*file) as source, pq.ParquetFile(source) as reader:
            return _shaped(schema, reader.read(_stored(schema, reader.metadata)))

    def _large(self, schema: TypeSchema, file: File, wanted: Wanted, scan: Scan) -> Iterator[pa.Table]:
        """The rows of a large file that are likely wanted, by row group."""
        import pyarrow.parquet as pq

        footer = self._footers.get(file[0]) or self._footer(schema, file)
        first = schema.ref.identity[0]
        others = [name for name in _stored(schema, footer.metadata) if name != first]
        with (
            self._reading.opened(*file) as source,
            pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=True) as reader,
        ):
            for number, likely in footer.touched(wanted, scan.upper):
                column = reader.read_row_group(number, [first]).column(0)
                places = likely.places_in(column)
                if len(places):
                    rows = reader.read_row_group(number, others).append_column(first, column)
                    yield _shaped(schema, rows.take(places))


def _is_small(file: File) -> bool:
    return file[1] is not None and file[1] <= SMALL_FILE_BYTES


def _batches(files: Iterable[File], room: int) -> Iterator[list[File]]:
    """Large files one by one, small ones together, up to so many bytes."""
    batch: list[File] = []
    taken = 0
    for file in files:
        taken += file[1] or 0
        if batch and (taken > room or not _is_small(file) or not _is_small(batch[-1])):
            yield batch
            batch, taken = [], file[1] or 0
        batch.append(file)
    if batch:
        yield batch


def _shape(schema: TypeSchema) -> pa.Schema:
    """What a looked-up row has: commit, identity and fields."""
    import pyarrow as pa

    fields = [(COMMIT_ID, pa.int64()), *((name, pa.string()) for name in schema.ref.identity)]
    return pa.schema([*fields, *((column.physical, column.arrow_type) for column in schema.columns)])


def _stored(schema: TypeSchema, metadata: pq.FileMetaData) -> list[str]:
    """The columns of a row that a file has."""
    return [name for name in _shape(schema).names if name in metadata.schema.names]


def _shaped(schema: TypeSchema, rows: pa.Table) -> pa.Table:
    """Rows of a file as looked-up rows; what the file has no column for is null."""
    import pyarrow as pa

    shape = _shape(schema)
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in shape
    ]
    return pa.table(columns, names=shape.names).cast(shape)
