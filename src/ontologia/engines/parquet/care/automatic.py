"""A store that keeps itself in shape: small files are merged after a load, once they have become many.

This is off the commit's way: it begins when the commit is done, and what goes wrong here is told, never raised. Small
commits are merged with each other and not with the millions of rows before them, so that it takes seconds, and others
who want to commit wait no longer than that. A large type as a whole is for `onto compact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig
from ontologia.engines.care import TypeCompaction
from ontologia.engines.parquet.care import compaction
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.layers import is_large

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine

QUICK_BYTES, QUICK_ROWS = 64 << 20, 1_000_000
"""What is merged as a whole in seconds."""


def tidy(engine: ParquetEngine) -> list[TypeCompaction]:
    """Merge what is due, of all types."""
    try:
        return _tidy(engine)
    except Exception as problem:  # the load is committed, whatever becomes of its files
        engine.warn(f"small files were not merged this time: {problem}")
        return []


def _tidy(engine: ParquetEngine) -> list[TypeCompaction]:
    catalog = engine.catalog()
    types = engine.objects.map(lambda ref: engine.files.at(ref, catalog), sorted(catalog.layouts))
    if not any(due(files.entries, engine.config) for files in types):
        return []
    return compaction.merge(engine, lambda entries: due(entries, engine.config))


def due(entries: Sequence[IndexEntry], settings: OntologiaConfig) -> Sequence[IndexEntry]:
    """Which entries of a type, that come oldest first, are to become one: the small ones at its end, or all of them
    where all is little."""
    start = len(entries)
    while start and not is_large(entries[start - 1]):
        start -= 1
    run = entries[start:]
    size = sum(entry.size or 0 for entry in run)
    if len(run) < 2 or (len(run) < settings.compact_after_commits and size < settings.compact_after_bytes):
        return ()
    is_little = (
        sum(entry.size or 0 for entry in entries) <= QUICK_BYTES
        and sum(entry.row_count or 0 for entry in entries) <= QUICK_ROWS
    )
    return entries if is_little else run
