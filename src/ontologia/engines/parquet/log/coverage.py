"""Which files hold the rows of a type at a head (RFC 0004 §4.1): the index, and the gap behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ontologia.engines.catalog import TypeLayout
from ontologia.engines.parquet.log.log import Log
from ontologia.engines.parquet.log.records import CommitFile, Head, IndexEntry, TypeIndex
from ontologia.model import TypeRef


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


def cover(log: Log, head: Head, ref: TypeRef, index: TypeIndex) -> Coverage:
    """The authoritative files of a type: index entries, corrected and completed from the manifest chain. Where files of
    commits are gone, from the snapshots that the head's record has in their place. Up to the commit at which history
    begins, that record has the last word."""
    record = log.compacted(head)
    if index.base != record.base:  # written before or after history was given up, which this head is not
        index = TypeIndex(ref.name)
    entries = [entry for entry in index.entries if entry.min_commit_id <= head.commit_id]
    entries = with_compacted(entries, record.of(ref), head)
    covered = max(min(index.max_indexed_commit, head.commit_id), record.base)
    missing_latest = False
    if covered == head.commit_id > record.base and head.manifest_path is not None and not _is_of_head(entries, head):
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


def with_compacted(entries: Sequence[IndexEntry], compacted: Sequence[IndexEntry], head: Head) -> list[IndexEntry]:
    """Entries of an index, with the snapshots of the head's record where it has none that covers the same commits."""
    found = list(entries)
    for entry in compacted:
        is_known = any(
            known.covers(entry.min_commit_id) and (known.is_snapshot or known.path == entry.path) for known in found
        )
        if entry.min_commit_id <= head.commit_id and not is_known:
            found = [known for known in found if not entry.covers(known.min_commit_id)] + [entry]
    return found


def _is_of_head(entries: Sequence[IndexEntry], head: Head) -> bool:
    """Whether the index has a file of the very attempt that the head names, or a snapshot with its rows: no need to
    read its manifest then."""
    assert head.manifest_path is not None
    if not entries or not entries[-1].covers(head.commit_id):
        return False
    return entries[-1].is_snapshot or entries[-1].path.startswith(head.manifest_path.removesuffix("manifest.json"))


def _agrees(entries: Sequence[IndexEntry], commit_id: int, latest: CommitFile | None) -> bool:
    """Whether the index says of the head commit what its manifest says. A snapshot covers it whatever the path."""
    covering = next((entry for entry in entries if entry.covers(commit_id)), None)
    if covering is None or covering.is_snapshot:
        return latest is None or covering is not None
    return latest is not None and covering.path == latest.path


def entry_of(commit_id: int, file: CommitFile) -> IndexEntry:
    digest = None if file.parts else file.content_sha256  # a bulk load has the hash of its parts' names there
    return IndexEntry(
        commit_id,
        commit_id,
        file.path,
        file.schema_version_id,
        file.size,
        file.row_count,
        file.parts,
        digest,
        file.keys,
        own_removals=file.own_removals,
    )


def current_entries(found: Coverage, layout: TypeLayout) -> list[IndexEntry]:
    """The entries that hold rows of the current schema version (RFC 0009 §4.3)."""
    return [
        entry
        for entry in found.entries
        if entry.max_commit_id >= layout.activation_commit_id
        and entry.schema_version_id in (None, layout.schema_version_id)
    ]


def renew(index: TypeIndex, ref: TypeRef, head_commit_id: int, entries: Sequence[IndexEntry], base: int) -> TypeIndex:
    """An index brought up to a head whose history begins at a commit."""
    return replace(index, type_name=ref.name, max_indexed_commit=head_commit_id, entries=tuple(entries), base=base)
