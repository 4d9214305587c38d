"""How a type is cut into ranges of keys, so that tasks read side by side what an engine would read at once.

Files are sorted by identity, and their statistics say where; merging the tail happens inside each range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from ontologia.engines import shares
from ontologia.engines.catalog import Catalog
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.scan import Scan
from ontologia.engines.shares import Share
from ontologia.engines.versions import read_in, versions_of
from ontologia.files.data_files import DataFile
from ontologia.files.footers import Footer
from ontologia.files.key_ranges import key_ranges
from ontologia.files.reading import FileReader
from ontologia.files.writing import ROW_GROUP_ROWS
from ontologia.model import TypeSchema
from ontologia.query.plan import Window

if TYPE_CHECKING:
    from ontologia.engines.parquet.read.answering import ParquetReads

MOST_ROWS = 2_000_000
SAMPLED_FILES, SAMPLED_KEYS = 64, 64


def is_small(file: DataFile) -> bool:
    """Whether a file is one row group, which may have keys from everywhere."""
    return file.row_count is not None and file.row_count <= ROW_GROUP_ROWS


def cuts_of_files(reader: FileReader, files: Sequence[DataFile], key: str) -> list[str]:
    """Where to cut files into ranges.

    Large files are sorted, and their footers say where which keys are. Small ones, such as those of many commits, may
    each have keys from everywhere: some of them are looked into.
    """
    if sum(math.inf if file.row_count is None else file.row_count for file in files) <= shares.ROWS_PER_SHARE:
        return []
    small = [file for file in files if is_small(file)]
    large = [file for file in files if not is_small(file)]
    some = small[:: -(-len(small) // SAMPLED_FILES) or 1]
    keys = reader.objects.map(lambda file: _some_keys(reader, file, key), some)
    seen = [value for found in keys for value in found]
    weight = sum(file.row_count or 0 for file in small) / max(len(seen), 1)
    starts = reader.objects.map(lambda file: _starts(reader, file, key), large)
    marks = [(value, weight) for value in seen] + [mark for found in starts for mark in found]
    cuts, rows = [], 0.0
    for start, size in sorted(marks):
        if rows >= shares.ROWS_PER_SHARE:
            cuts.append(start)
            rows = 0.0
        rows += size
    return cuts


def _some_keys(reader: FileReader, file: DataFile, key: str) -> list[str]:
    with reader.open(file) as source, pq.ParquetFile(source) as parquet:
        keys = parquet.read([key]).column(0)
    return [keys[place].as_py() for place in range(0, len(keys), len(keys) // SAMPLED_KEYS + 1)]


def _starts(reader: FileReader, file: DataFile, key: str) -> list[tuple[str, float]]:
    """The first key and the number of rows of each row group."""
    with reader.open(file) as source, pq.ParquetFile(source) as parquet:
        groups = Footer.of(parquet.metadata, key).groups
    return [(low.decode(), float(group.rows)) for group in groups if (low := group.ranges[key].low) is not None]


def by_file_or_key(
    engine: ParquetReads, schema: TypeSchema, window: Window, catalog: Catalog, head: int | None
) -> list[Share]:
    """Files that can be read apart, where there is a head to read up to; else ranges of keys."""
    files = engine.scan(schema.ref, window, catalog)
    apart = None if head is None else by_file(files, window, head)
    if apart is not None:
        return [Share(files=share) for share in apart]
    return _by_key(engine.reader, schema, files.files)


def across_versions(
    engine: ParquetReads, schema: TypeSchema, window: Window, catalog: Catalog, head: int | None
) -> list[Share]:
    """Ranges of keys, found in the files of all versions."""
    files: list[DataFile] = []
    for version in read_in(versions_of(engine, schema, catalog), window):
        at = engine.catalog_at_version(version.layout, version.until, catalog)
        files += engine.scan(version.layout.ref, window, at).files
    return _by_key(engine.reader, schema, files)


def _by_key(reader: FileReader, schema: TypeSchema, files: Sequence[DataFile]) -> list[Share]:
    return [Share(keys) for keys in key_ranges(cuts_of_files(reader, files, schema.ref.identity[0]))]


def by_file(files: Scan, window: Window, head: int) -> list[Scan] | None:
    """Files that can be read apart from each other, in shares; None where rows of one identity lie in several entries.

    Nothing has to be looked for by its key then. A file that is large for one task is cut by keys all the same.
    """
    entries = [entry for entry in files.entries if entry.min_commit_id <= head]
    found = [(entry, file) for entry in entries for file in entry.files]
    is_apart = not window.deduplicated or not any(entry.min_commit_id <= head for entry in files.tail)
    if not found or not is_apart or any(file.row_count is None or file.row_count > MOST_ROWS for _, file in found):
        return None
    found_shares: list[dict[IndexEntry, list[DataFile]]] = []
    room = 0
    for entry, file in found:
        if room <= 0:
            found_shares.append({})
            room = shares.ROWS_PER_SHARE
        found_shares[-1].setdefault(entry, []).append(file)
        room -= file.row_count or 0
    return [_share(share, files.upper if window.deduplicated else head) for share in found_shares]


def _share(share: Mapping[IndexEntry, Sequence[DataFile]], upper: int | None) -> Scan:
    chosen = {entry: {file.path for file in some} for entry, some in share.items()}
    entries = [
        replace(entry, parts=tuple(part for part in entry.parts if part.path in chosen[entry])) for entry in chosen
    ]
    return Scan(tuple(entries), (), upper)
