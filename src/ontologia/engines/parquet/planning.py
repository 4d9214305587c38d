"""Which files a question has to read (RFC 0004 §4.1): the index, the gap behind it, and the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ontologia.engines.base import TypeLayout
from ontologia.engines.parquet.log import Log
from ontologia.engines.parquet.records import CommitFile, Head, IndexEntry, TypeIndex
from ontologia.model import TypeRef
from ontologia.query.plan import Window


@dataclass(frozen=True, slots=True)
class Coverage:
    """The files of a type up to a head, and what was wrong with its index on the way."""

    entries: Sequence[IndexEntry]
    lagging: bool = False
    missing_latest: bool = False
    max_indexed_commit: int = 0

    def diagnostics(self, ref: TypeRef, head: Head) -> list[dict[str, Any]]:
        """The warnings of RFC 0004 §3.5: reads are right all the same, and slower."""
        found = []
        context = {"type": str(ref), "max_indexed_commit": self.max_indexed_commit, "head_commit_id": head.commit_id}
        if self.lagging:
            found.append({"reason": "index_lagging", **context})
        if self.missing_latest:
            found.append({"reason": "index_latest_entry_missing", **context})
        return found


def coverage(log: Log, head: Head, ref: TypeRef, index: TypeIndex) -> Coverage:
    """The authoritative files of a type: index entries, corrected and completed from the manifest chain."""
    entries = [entry for entry in index.entries if entry.min_commit_id <= head.commit_id]
    covered = min(index.max_indexed_commit, head.commit_id)
    missing_latest = False
    if covered == head.commit_id and head.manifest_path is not None:
        latest = log.manifest(head.manifest_path).file_of(ref)
        if not _agrees(entries, head.commit_id, latest):
            missing_latest = True
            entries = [entry for entry in entries if entry.is_snapshot or entry.max_commit_id != head.commit_id]
            covered = head.commit_id - 1
    for _, manifest in log.chain(head, covered):
        file = manifest.file_of(ref)
        if file is not None and not any(entry.covers(manifest.commit_id) for entry in entries):
            entries.append(entry_of(manifest.commit_id, file))
    entries.sort(key=lambda entry: entry.min_commit_id)
    lagging = index.max_indexed_commit < head.commit_id
    return Coverage(entries, lagging, missing_latest, index.max_indexed_commit)


def _agrees(entries: Sequence[IndexEntry], commit_id: int, latest: CommitFile | None) -> bool:
    """Whether the index says of the head commit what its manifest says. A snapshot covers it whatever the path."""
    covering = next((entry for entry in entries if entry.covers(commit_id)), None)
    if covering is None or covering.is_snapshot:
        return latest is None or covering is not None
    return latest is not None and covering.path == latest.path


def entry_of(commit_id: int, file: CommitFile) -> IndexEntry:
    return IndexEntry(commit_id, commit_id, file.path, file.schema_version_id, file.size, file.row_count, file.parts)


def current_entries(found: Coverage, layout: TypeLayout) -> list[IndexEntry]:
    """The entries that hold rows of the current schema version (RFC 0009 §4.3)."""
    return [
        entry
        for entry in found.entries
        if entry.max_commit_id >= layout.activation_commit_id
        and entry.schema_version_id in (None, layout.schema_version_id)
    ]


@dataclass(frozen=True, slots=True)
class Scan:
    """The files of one type in one window.

    `snapshot` is compacted: every row knows the commit that superseded it. `tail` are the commits after it, whose
    rows must be deduplicated. `upper` bounds the commits that count, where files may hold later ones.
    """

    snapshot: IndexEntry | None
    tail: tuple[IndexEntry, ...]
    upper: int | None

    @property
    def files(self) -> tuple[IndexEntry, ...]:
        return self.tail if self.snapshot is None else (self.snapshot, *self.tail)

    @property
    def inside_snapshot(self) -> bool:
        """Whether the window ends within the snapshot, so that later rows of it are not superseding yet."""
        return self.snapshot is not None and self.upper is not None and self.upper < self.snapshot.max_commit_id


def scan(entries: Sequence[IndexEntry], window: Window, head: Head) -> Scan:
    """Prune the files of a type to a window (RFC 0004 §2.3, §4.1)."""
    bound = head.commit_id
    if window.mode == "as_of" and window.commit is not None:
        bound = min(window.commit, bound)
    kept = [entry for entry in entries if entry.min_commit_id <= bound]
    if window.mode == "since" and window.commit is not None:
        kept = [entry for entry in kept if entry.max_commit_id > window.commit]
    beyond = any(entry.max_commit_id > bound for entry in kept)
    snapshot = next((entry for entry in kept if entry.is_snapshot), None) if window.deduplicated else None
    if snapshot is not None and kept[0] is not snapshot:
        snapshot = None  # something lies before it, so that it is no base to build on
    tail = tuple(entry for entry in kept if entry is not snapshot)
    return Scan(snapshot, tail, bound if beyond else None)


def renewed(index: TypeIndex, ref: TypeRef, head_commit_id: int, entries: Sequence[IndexEntry]) -> TypeIndex:
    """An index brought up to a head."""
    return replace(index, type_name=ref.name, max_indexed_commit=head_commit_id, entries=tuple(entries))
