"""Files of commits that can go because a snapshot has their rows: what a store keeps is then close to one copy.

Snapshots hold every version of every row, so that nothing is lost to any question. What is lost is the second copy, and
with it the right of the index to be rebuilt from commits alone. Therefore a record that the head names says which
snapshots stand for files that are gone, and `cover` takes them from there where an index does not have them.

The order of steps is that of every deletion here. Snapshots are read to the last byte and their rows counted; the
record is written; the head is swapped to it, from where on nobody looks for the files; and only then are they deleted.
A crash in between leaves files that the next run finds again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ontologia.engines.care import VacuumItem
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.coverage import cover, entry_of
from ontologia.engines.parquet.log.records import CommitFile, Compacted, Head, IndexEntry, stands_for
from ontologia.errors import StorageBackendError
from ontologia.files.hashes import hash_of_object
from ontologia.files.json_objects import encode
from ontologia.model import TypeRef
from ontologia.objects import Info, ObjectNotFound, new_token

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine

Commits = Mapping[TypeRef, Sequence[tuple[int, CommitFile]]]


@dataclass(slots=True)
class Covered:
    """Snapshots that stand for files of commits, and those of the files that are still there."""

    entries: dict[TypeRef, list[IndexEntry]] = field(default_factory=dict)
    items: list[VacuumItem] = field(default_factory=list)


def find_covered_files(
    engine: ParquetEngine, head: Head, listed: Sequence[Info], before: datetime, *, verify: bool
) -> Covered:
    """What can go. A snapshot counts once it is older than `before`: readers may have begun without it."""
    found, there = Covered(), {info.key: info for info in listed}
    commits, known = _files_of_commits(engine, head), engine.log.compacted(head)
    for ref in sorted({*commits, *known.entries} - engine.log.schemas(head).purged):
        for entry in cover(engine.log, head, ref, engine.log.index(ref).index).entries:
            made_of = [
                entry_of(commit_id, file)
                for commit_id, file in commits.get(ref, ())
                if stands_for(entry, commit_id, file)
            ]
            made_of += [old for old in known.of(ref) if not old.is_snapshot and _is_in(old, entry)]
            left = [there[file.path] for old in made_of for file in old.files if file.path in there]
            is_old = all(file.path in there and there[file.path].modified <= before for file in entry.files)
            if not made_of or not is_old or _rows_of(entry, made_of, known.of(ref)) != entry.row_count:
                continue
            if left and verify and not is_whole(engine, entry):
                engine.warn(f"{entry.path} is damaged, so the files it was made of stay: run onto check")
                continue
            if left or known.of(ref):
                found.entries.setdefault(ref, []).append(entry)
                found.items += [VacuumItem(it.key, it.size, f"its rows are in {entry.path}") for it in left]
    return found


def _files_of_commits(engine: ParquetEngine, head: Head) -> Commits:
    """Those of commits after the one at which history begins: up to it, the record has all there is."""
    found: dict[TypeRef, list[tuple[int, CommitFile]]] = {}
    for _, manifest in engine.log.chain(head, engine.log.compacted(head).base):
        for file in manifest.files:
            found.setdefault(file.ref, []).append((manifest.commit_id, file))
    return found


def _is_in(old: IndexEntry, entry: IndexEntry) -> bool:
    """Whether a snapshot has the rows of a file that the record names as it is, because nothing of it was given up."""
    return entry.is_snapshot and entry.covers(old.min_commit_id)


def _rows_of(entry: IndexEntry, made_of: Sequence[IndexEntry], known: Sequence[IndexEntry]) -> int:
    """How many rows a snapshot should have: those of the snapshots that the record has of its commits, from which an
    erasure or a forgetting may have taken some, and those of files that none of these stands for."""
    recorded = [old for old in known if entry.covers(old.min_commit_id)]
    files = [file for file in made_of if not any(old.covers(file.min_commit_id) for old in recorded)]
    return sum(old.row_count or 0 for old in (*recorded, *files))


def is_whole(engine: ParquetEngine, entry: IndexEntry) -> bool:
    """Whether every byte of a snapshot is what was written. One whose hash nobody wrote down is not known to be."""
    try:
        return all(
            file.content_sha256 is not None and hash_of_object(engine.objects, file.path) == file.content_sha256
            for file in entry.files
        )
    except (ObjectNotFound, StorageBackendError):
        return False


def write_record(engine: ParquetEngine, head: Head, found: Covered) -> str:
    """Put down which snapshots stand for files of commits, with those of the record before that no newer one covers."""
    entries = {ref: list(some) for ref, some in found.entries.items()}
    known = engine.log.compacted(head)
    for ref, old in known.entries.items():
        kept = entries.setdefault(ref, [])
        kept += [entry for entry in old if not any(new.covers(entry.min_commit_id) for new in kept)]
    return put_record(engine, replace(known, entries={ref: tuple(some) for ref, some in entries.items()}))


def put_record(engine: ParquetEngine, record: Compacted) -> str:
    """Write a record under a name of its own."""
    path = f"{paths.COMPACTED}{new_token(8)}.json"
    engine.objects.put_if_absent(path, encode(record.body()))
    engine.log.remember_compacted(path, record)
    return path
