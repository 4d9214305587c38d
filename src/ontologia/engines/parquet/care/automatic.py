"""A store that keeps itself in shape: small files are merged, once they have become many.

This is off the commit's way: it begins when the commit is done, and what goes wrong here is told, never raised. Files
are merged with others of their size, not with the millions of rows before them: a row is written again a few times in
its life, and others who want to commit wait for seconds at most. So the files of a type, and with them its index and
what a reader opens first, grow with the logarithm of its commits. A large type as a whole is for `onto compact`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ontologia.config import OntologiaConfig
from ontologia.engines.care import TypeCompaction
from ontologia.engines.parquet.care import compaction
from ontologia.engines.parquet.log.records import CommitManifest, IndexEntry
from ontologia.errors import LockContentionError
from ontologia.objects import Thread, system

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine

QUICK_BYTES, QUICK_ROWS, QUICK_FILES = 64 << 20, 1_000_000, 1_000
"""What is merged in seconds."""
ALIKE = 4
"""A file is merged with later ones unless it has more rows than so many times all of them."""
_log = logging.getLogger(__name__)


class Tidying:
    """When a store merges its small files: after a load in that thread, after a commit beside whoever made it."""

    def __init__(self, engine: ParquetEngine) -> None:
        self._engine = engine
        self._thread: Thread | None = None
        self._is_due = False

    def look_at(self, manifest: CommitManifest) -> None:
        """See whether a commit has given one of its types too many files."""
        self._is_due = is_due_after(self._engine, manifest)

    def begin(self, after: Literal["load", "commit"]) -> None:
        wanted = self._engine.config.auto_compact
        if wanted == "never" or (after == "commit" and wanted != "commits"):
            return
        if after == "load":
            tidy(self._engine)
        elif self._is_due and (self._thread is None or not self._thread.is_alive()):
            self._thread = system().start(lambda: tidy(self._engine), "tidying", daemon=False)

    def wait(self) -> None:
        """Until what was begun is done, unless it is this very thread that does it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def tidy(engine: ParquetEngine) -> list[TypeCompaction]:
    """Merge what is due, of all types."""
    try:
        return _tidy(engine)
    except LockContentionError as problem:  # whoever is writing will merge, or the next commit of this process
        _log.info("small files were not merged this time: %s", problem)
    except Exception as problem:  # the load is committed, whatever becomes of its files
        if threading.main_thread().is_alive():
            engine.warn(f"small files were not merged this time: {problem}")
    return []


def _tidy(engine: ParquetEngine) -> list[TypeCompaction]:
    catalog = engine.catalog()
    types = engine.objects.map(lambda ref: engine.files.at(ref, catalog), sorted(catalog.layouts))
    if not any(due(files.entries, engine.config) for files in types):
        return []
    return compaction.merge(engine, lambda entries: due(entries, engine.config))


def is_due_after(engine: ParquetEngine, manifest: CommitManifest) -> bool:
    """By the indices just written: nothing is read."""
    for file in manifest.files:
        known = engine.log.indices.get(file.ref)
        if known is not None and due(
            [entry for entry in known.index.entries if entry.schema_version_id in (None, file.schema_version_id)],
            engine.config,
        ):
            return True
    return False


def due(entries: Sequence[IndexEntry], settings: OntologiaConfig) -> Sequence[IndexEntry]:
    """Which entries of a type, that come oldest first, are to become one: those at its end, as far back as they are
    alike, once they are many or large."""
    start, rows, size = len(entries), 0, 0
    while start:
        entry = entries[start - 1]
        if entry.row_count is None or entry.size is None or (rows and entry.row_count > ALIKE * rows):
            break
        rows, size = rows + entry.row_count, size + entry.size
        if rows > QUICK_ROWS or size > QUICK_BYTES:
            break
        start -= 1
    run = entries[start:]
    is_much = (
        len(run) >= settings.compact_after_commits or sum(e.size or 0 for e in run) >= settings.compact_after_bytes
    )
    return run[:QUICK_FILES] if len(run) > 1 and is_much else ()
