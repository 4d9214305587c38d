"""The files of each type at a head, remembered until the head or the index is another one.

A question about a store of ten thousand commits would else sort ten thousand entries before it reads a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import Catalog, TypeLayout
from ontologia.engines.parquet.log.coverage import Coverage, cover, current_entries
from ontologia.engines.parquet.log.log import Log
from ontologia.engines.parquet.log.records import Head, IndexEntry, TypeIndex
from ontologia.engines.parquet.read.file_rows import can_number
from ontologia.engines.parquet.read.layers import Layers, layers
from ontologia.engines.parquet.read.scan import Scan, scan
from ontologia.engines.parquet.read.tails import TailKey
from ontologia.model import TypeRef
from ontologia.query.plan import LATEST, Window

WINDOWS_KEPT = 32


@dataclass(frozen=True, slots=True)
class WindowFiles:
    """The files of a type in a window: by what is in force, and how they are read in this process."""

    scan: Scan
    layers: Layers | None
    tail: TailKey | None

    @property
    def compares_large(self) -> bool:
        """Whether large files have to be compared by key to tell which of their rows are in force."""
        return bool(self.scan.tail) and (self.layers is None or any(self.layers.later))


@dataclass(frozen=True)
class TypeFiles:
    """The files of one type at a head."""

    layout: TypeLayout
    index: TypeIndex
    head: Head
    coverage: Coverage
    entries: Sequence[IndexEntry]
    _windows: dict[tuple[str, int | None], WindowFiles] = field(default_factory=dict, compare=False)

    def diagnostics(self, settings: OntologiaConfig) -> list[dict[str, Any]]:
        """What to say of these files beside an answer from them."""
        found = self.coverage.diagnostics(self.layout.ref, self.head)
        if self.is_overdue(settings.compact_after_commits):
            found.append({"reason": "compaction_overdue", "type": str(self.layout.ref), "files": len(self.entries)})
        return found

    def is_overdue(self, commits: int) -> bool:
        """Whether questions have become slow for want of compaction."""
        if len(self.entries) < 2:
            return False
        latest = self.in_window(LATEST)
        return len(self.entries) > 2 * commits or (latest.layers is None and bool(latest.scan.tail))

    def in_window(self, window: Window) -> WindowFiles:
        key = (window.mode, window.commit)
        found = self._windows.get(key)
        if found is None:
            if len(self._windows) >= WINDOWS_KEPT:
                self._windows.clear()
            found = self._windows[key] = self._find(window)
        return found

    def _find(self, window: Window) -> WindowFiles:
        files = scan(self.entries, window, self.head)
        in_memory = window.deduplicated and files.upper is None and len(files.entries) > 1
        in_memory = in_memory and can_number(self.layout.schema)
        split = layers(files.entries) if in_memory else None
        if split is None or not split.small:
            return WindowFiles(files, None, None)
        return WindowFiles(files, split, TailKey(self.layout, split))


class FilesOfTypes:
    """What is known of the types of one store."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[tuple[TypeRef, int], TypeFiles] = {}

    def at(self, ref: TypeRef, catalog: Catalog) -> TypeFiles:
        """The files of a type at the head of a catalog, which must have it."""
        index, layout, head = self._log.index(ref).index, catalog.layouts[ref], catalog.version
        key = (ref, layout.schema_version_id)
        known = self._known.get(key)
        if known is not None and known.index is index and known.head == head and known.layout == layout:
            return known
        covered = cover(self._log, head, ref, index)
        found = TypeFiles(layout, index, head, covered, current_entries(covered, layout))
        self._known[key] = found
        return found
