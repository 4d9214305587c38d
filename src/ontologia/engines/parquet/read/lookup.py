"""The rows in force of given identities, for the comparison that a commit makes.

A commit touches few rows of a large type, and a scan would decode all columns of every row group that may hold them.
Here the index tells which files may have a wanted key, and the footers of large ones which of their row groups (and of
files whose keys nobody wrote down, whether they have any). The newest files come first, and the search ends when every
identity was found. Small files, most of the commits after a snapshot, stay in memory once read. Of a row group of a
large one the key is read, and the other columns where a wanted key was there: for the first row that is wanted up to
that row, for the next all of them; where a question is about few row groups, they stay in memory, too. Files never
change, so neither does what is kept of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.parquet.read.scan import Scan
from ontologia.engines.parquet.read.shapes import row_shape, stored_names, to_shape, without_removals
from ontologia.engines.parquet.read.wanted import WantedKeys, find_groups
from ontologia.files.arrays import empty_table
from ontologia.files.data_files import DataFile
from ontologia.files.footers import Footer, Kept
from ontologia.files.reading import FileReader
from ontologia.model import SUPERSEDED_BY, TypeSchema

SMALL_FILE_BYTES = 1 << 20
FIRST_FILES = 8
HELD_BYTES = 64 << 20
"""What the rows of small files, and row groups of large ones, may take of memory, decoded."""
MOST_GROUPS_HELD = 16
"""Whoever looks into more row groups of a file will hardly come back to one of them."""
VISITS = 10_000
"""How many row groups are remembered of which one row was wanted."""
ROWS_AT_ONCE = 2_048
FOOTER_BYTES = 8 << 20


class Lookup:
    """Finds rows by identity in the files of one store."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._footers: Kept[str, Footer] = Kept(FOOTER_BYTES)
        self._held: Kept[tuple[str, str, bool, int | None], pa.Table] = Kept(HELD_BYTES)
        """By file, schema, whether removals are among the rows, and row group, if it is not of the whole file."""
        self._visited: Kept[tuple[str, int], bool] = Kept(VISITS)

    def rows(self, schema: TypeSchema, scan: Scan, keys: pa.Table) -> pa.Table:
        """The last row of each of these identities in the scan, unless it was removed: commit, identity and fields."""
        wanted = WantedKeys.of(schema.ref.identity, keys)
        found = [empty_table(row_shape(schema, removals=scan.has_removals))]
        room = max(SMALL_FILE_BYTES, wanted.keys.nbytes)  # many identities are matched with many rows at once
        for files in _batches(self._find_files(schema, scan, wanted), room):
            if not wanted.keys.num_rows:
                break
            if _is_small(files[0]):
                candidates = self._small(schema, files, removals=scan.has_removals)
            else:
                candidates = list(self._large(schema, files[0], wanted, scan))
            if candidates:
                newest, wanted = wanted.newest(pa.concat_tables(candidates), scan.upper)
                found.append(newest)
        rows = pa.concat_tables(found)
        return without_removals(rows) if scan.has_removals else rows

    def files(self, schema: TypeSchema, scan: Scan, keys: pa.Table) -> list[DataFile]:
        """The files that are looked into for these identities, in turn."""
        return self._find_files(schema, scan, WantedKeys.of(schema.ref.identity, keys))

    def _find_files(self, schema: TypeSchema, scan: Scan, wanted: WantedKeys) -> list[DataFile]:
        """The files that may have a wanted row, newest first. Footers that are not known come side by side."""
        likely = [scan.files[number] for number in wanted.within(scan.spans)]
        sure = {file.path for file in likely if file.keys is not None and _is_small(file)}
        files = [file for file in likely if file.path not in sure]
        known = {file.path: self._footers.get(file.path) for file in files}
        missing = [file for file in files if known[file.path] is None]
        read = self._reader.objects.map(lambda file: self._footer(schema, file), missing)
        for file, fresh in zip(missing, read, strict=True):
            known[file.path] = self._footers.put(file.path, fresh, fresh.metadata.serialized_size)
        touched = {
            file.path
            for file in files
            if (footer := known[file.path]) and find_groups(footer, wanted, scan.upper, removals=file.removals > 0)
        }
        return [file for file in reversed(likely) if file.path in sure or file.path in touched]

    def _footer(self, schema: TypeSchema, file: DataFile) -> Footer:
        with self._reader.open(file) as source, pq.ParquetFile(source) as parquet:
            return Footer.of(parquet.metadata, schema.ref.identity[0], SUPERSEDED_BY)

    def _small(self, schema: TypeSchema, files: Sequence[DataFile], *, removals: bool) -> list[pa.Table]:
        """All rows of small files. What is not in memory is read side by side."""
        known = {file.path: self._held.get((file.path, schema.fingerprint, removals, None)) for file in files}
        missing = [file for file in files if known[file.path] is None]
        read = self._reader.objects.map(lambda file: self._whole(schema, file, removals=removals), missing)
        for file, rows in zip(missing, read, strict=True):
            known[file.path] = self._held.put((file.path, schema.fingerprint, removals, None), rows, rows.nbytes)
        return [rows for rows in known.values() if rows is not None]

    def _whole(self, schema: TypeSchema, file: DataFile, *, removals: bool) -> pa.Table:
        with self._reader.open(file) as source, pq.ParquetFile(source) as parquet:
            names = stored_names(schema, parquet.metadata, removals=removals)
            return to_shape(schema, parquet.read(names), removals=removals)

    def _large(self, schema: TypeSchema, file: DataFile, wanted: WantedKeys, scan: Scan) -> Iterator[pa.Table]:
        """The rows of a large file that are likely wanted, by row group."""
        footer = self._footers.get(file.path) or self._footer(schema, file)
        removals, first = scan.has_removals, schema.ref.identity[0]
        touched = find_groups(footer, wanted, scan.upper, removals=file.removals > 0)
        missing = []
        for number, likely in touched:
            held = self._held.get((file.path, schema.fingerprint, removals, number))
            if held is None:
                missing.append((number, likely))
            else:
                yield held.take(likely.places_in(held.column(first)))
        if not missing:
            return
        others = [name for name in stored_names(schema, footer.metadata, removals=removals) if name != first]
        with (
            self._reader.open(file) as source,
            pq.ParquetFile(
                source,
                metadata=footer.metadata,
                pre_buffer=not isinstance(source, str),  # which only delays what is on this machine
                page_checksum_verification=True,
            ) as parquet,
        ):
            for number, likely in missing:
                column = parquet.read_row_group(number, [first], use_threads=False).column(0)
                places = likely.places_in(column)
                if len(places) == 1 and not self._came_before(file.path, number):
                    place = places[0].as_py()
                    row = _row_at(parquet, number, others, place).append_column(first, column.slice(place, 1))
                    yield to_shape(schema, row, removals=removals)
                elif len(places):
                    rows = parquet.read_row_group(number, others, use_threads=False).append_column(first, column)
                    rows = to_shape(schema, rows, removals=removals)
                    if len(touched) <= MOST_GROUPS_HELD:
                        self._held.put((file.path, schema.fingerprint, removals, number), rows, rows.nbytes)
                    yield rows.take(places)

    def _came_before(self, path: str, group: int) -> bool:
        """Whether somebody looked for a single row of this row group already, and may come again."""
        before = self._visited.get((path, group)) is not None
        self._visited.put((path, group), True, 1)
        return before


def _row_at(parquet: pq.ParquetFile, group: int, columns: Sequence[str], place: int) -> pa.Table:
    """One row of a row group, which is decoded no further than to it."""
    before = 0
    for batch in parquet.iter_batches(ROWS_AT_ONCE, [group], columns, use_threads=False):
        if place < before + batch.num_rows:
            return pa.Table.from_batches([batch.slice(place - before, 1)])
        before += batch.num_rows
    raise IndexError(f"row group {group} has no row {place}")


def _is_small(file: DataFile) -> bool:
    return file.size is not None and file.size <= SMALL_FILE_BYTES


def _batches(files: Iterable[DataFile], room: int) -> Iterator[list[DataFile]]:
    """Large files one by one, small ones together, up to so many bytes: few at first, since a row that is written
    again and again is in the newest ones, then more and more."""
    batch: list[DataFile] = []
    taken, most = 0, FIRST_FILES
    for file in files:
        taken += file.size or 0
        if batch and (taken > room or len(batch) == most or not _is_small(file) or not _is_small(batch[-1])):
            yield batch
            batch, taken, most = [], file.size or 0, most * 4
        batch.append(file)
    if batch:
        yield batch
