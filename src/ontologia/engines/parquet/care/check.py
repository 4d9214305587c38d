"""A walk over all that a store consists of, from the head to the last file: what is damaged, and what that costs.

Nothing is repaired here and nothing is believed: files are read whole and compared with the hashes that their commits
wrote down. Files that have none, which older releases wrote, are decoded to the last page.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.coverage import with_compacted
from ontologia.engines.parquet.log.log import Log
from ontologia.engines.parquet.log.records import CommitFile, CommitManifest, Compacted, Head, IndexEntry, TypeIndex
from ontologia.errors import StorageBackendError
from ontologia.files.data_files import DataFile
from ontologia.files.hashes import chunks, hash_of_object
from ontologia.model import TypeRef
from ontologia.objects import ObjectNotFound, Objects

What = Literal["head", "manifest", "schemas", "file", "index", "snapshot"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One object that is not as it should be, and what cannot be read because of it."""

    what: What
    key: str
    problem: str
    effect: str


@dataclass(slots=True)
class CheckReport:
    """What was looked at, and what was found."""

    head: int | None = None
    commits: int = 0
    files: int = 0
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not self.damages


Progress = Callable[[int, int], None]


def check(objects: Objects, progress: Progress | None = None) -> CheckReport:
    """Check the head, the chain of manifests, the files of every commit, and the index and snapshots of every type."""
    log, report = Log(objects), CheckReport()
    try:
        head = log.head().head
    except StorageBackendError as problem:
        effect = "nothing can be read; its commits are there: onto recover makes a head from them"
        report.damages.append(Damage("head", paths.HEAD, str(problem), effect))
        return report
    report.head = head.commit_id
    manifests = list(_walk(log, head, report))
    purged = _find_purged(log, head, report)
    compacted = _record(log, head, report)
    indices = _indices(log, head, report)
    entries = {
        ref: with_compacted(index.entries if index.base == compacted.base else (), compacted.of(ref), head)
        for ref, index in indices
    }
    whole = _whole_snapshots(objects, entries, compacted, report)
    files = [
        (manifest.commit_id, file)
        for manifest in manifests
        for file in manifest.files
        if file.ref not in purged and not compacted.has(manifest.commit_id, file)  # else it may be gone
    ]
    _check_files(objects, files, whole, report, progress)
    return report


# --- the log ---


def _walk(log: Log, head: Head, report: CheckReport) -> Iterator[CommitManifest]:
    """The manifests from the head back. Past one that is damaged it goes on where a commit has only one attempt."""
    path, commit_id = head.manifest_path, head.commit_id
    while commit_id:
        found, problem = _manifest(log, path, commit_id, head)
        if found is not None:
            report.commits += 1
            yield found
            path = found.parent_manifest_path
        else:
            effect = (
                f"the log cannot be followed past commit {commit_id}; questions that go by healthy indices are answered"
            )
            report.damages.append(Damage("manifest", path or f"{paths.COMMITS}{commit_id}-…", problem, effect))
            path = _only_attempt(log, commit_id - 1)
        commit_id -= 1


def _manifest(log: Log, path: str | None, commit_id: int, head: Head) -> tuple[CommitManifest | None, str]:
    if path is None:
        return None, f"nothing names the manifest of commit {commit_id}"
    try:
        manifest = log.manifest(path)
    except StorageBackendError as problem:
        return None, str(problem)
    if manifest.commit_id != commit_id:
        return None, f"it should be commit {commit_id}, and says {manifest.commit_id}"
    is_newest = commit_id == head.commit_id and head.commit_sha256 is not None
    if is_newest and hashlib.sha256(log.objects.get(path).data).hexdigest() != head.commit_sha256:
        return None, "it is not what the head says it is"
    return manifest, ""


def _only_attempt(log: Log, commit_id: int) -> str | None:
    listed = (info.key for info in log.objects.list(f"{paths.COMMITS}{commit_id}-"))
    attempts = [key for key in listed if key.endswith("/manifest.json")]
    return attempts[0] if len(attempts) == 1 else None


def _find_purged(log: Log, head: Head, report: CheckReport) -> frozenset[TypeRef]:
    """The types that were dropped with their history, by the catalog, which must be readable."""
    try:
        return log.schemas(head).purged
    except StorageBackendError as problem:
        key = head.schema_manifest_path or paths.TYPES
        report.damages.append(Damage("schemas", key, str(problem), "no type can be read"))
        return frozenset()


# --- indices and snapshots ---


def _record(log: Log, head: Head, report: CheckReport) -> Compacted:
    """The record of snapshots that stand for files which are gone."""
    try:
        return log.compacted(head)
    except StorageBackendError as problem:
        effect = "where files of commits were let go, rows are found by healthy indices alone: restore it from a backup"
        report.damages.append(Damage("index", head.compacted_path or "", str(problem), effect))
        return Compacted()


def _indices(log: Log, head: Head, report: CheckReport) -> Iterator[tuple[TypeRef, TypeIndex]]:
    try:
        types = log.schemas(head).current
    except StorageBackendError:
        return  # said above
    for ref in sorted(types):
        try:
            yield ref, log.index(ref).index
        except StorageBackendError as problem:
            effect = f"questions about {ref} fail; its commits are whole: run onto index repair --apply"
            report.damages.append(Damage("index", paths.index(ref), str(problem), effect))


def _whole_snapshots(
    objects: Objects, entries: Mapping[TypeRef, Sequence[IndexEntry]], compacted: Compacted, report: CheckReport
) -> dict[TypeRef, list[IndexEntry]]:
    """The snapshots that can be read to the last page."""
    found: dict[TypeRef, list[IndexEntry]] = {}
    for ref, some in entries.items():
        for entry in some:
            if not entry.is_snapshot:
                continue
            problems = list(_snapshot_problems(objects, entry))
            report.files += len(entry.files)
            report.bytes += entry.size or 0
            for key, problem in problems:
                effect = (
                    f"questions about {ref} fail, and its commits have the same rows: delete {paths.index(ref)}, "
                    "then run onto index repair --apply and onto compact --apply"
                )
                if any(entry.covers(old.min_commit_id) for old in compacted.of(ref)):
                    effect = f"questions about {ref} fail, and files of its commits were let go: restore a backup"
                report.damages.append(Damage("snapshot", key, problem, effect))
            if not problems:
                found.setdefault(ref, []).append(entry)
    return found


def _snapshot_problems(objects: Objects, entry: IndexEntry) -> Iterator[tuple[str, str]]:
    for file in entry.files:
        yield from ((file.path, problem) for problem in _problems(objects, file))


# --- files ---


def _check_files(
    objects: Objects,
    files: Sequence[tuple[int, CommitFile]],
    whole: dict[TypeRef, list[IndexEntry]],
    report: CheckReport,
    progress: Progress | None,
) -> None:
    for start in range(0, len(files), objects.concurrency):
        some = files[start : start + objects.concurrency]
        found = objects.map(lambda item: list(_file_problems(objects, item[1])), some)
        for (commit_id, file), problems in zip(some, found, strict=True):
            report.files += len(file.parts) or 1
            report.bytes += file.size or 0
            for key, problem in problems:
                report.damages.append(Damage("file", key, problem, _cost(file, commit_id, whole)))
        if progress is not None:
            progress(start + len(some), len(files))


def _file_problems(objects: Objects, file: CommitFile) -> Iterator[tuple[str, str]]:
    own = DataFile(file.path, file.size, file.row_count, file.content_sha256)
    for part in file.parts or (own,):  # with parts, the file's own hash is of their names
        yield from ((part.path, problem) for problem in _problems(objects, part))


def _problems(objects: Objects, file: DataFile) -> list[str]:
    """What is wrong with a file, by its hash; one whose hash nobody wrote down is read to its last page."""
    if file.content_sha256 is None:
        return _unreadable(objects, file)
    try:
        found = hash_of_object(objects, file.path)
    except ObjectNotFound:
        return ["it is missing"]
    except StorageBackendError as problem:
        return [str(problem)]
    return [] if found == file.content_sha256 else ["it is not what was written: its hash is another"]


def _unreadable(objects: Objects, file: DataFile) -> list[str]:
    """Why a file cannot be read to its last page; nothing where it can."""
    with tempfile.TemporaryFile(prefix="ontologia-check-") as copy:
        try:
            for chunk in chunks(objects, file.path):
                copy.write(chunk)
            _decode(copy, file)
        except ObjectNotFound:
            return ["it is missing"]
        except (StorageBackendError, pa.ArrowException, OSError, ValueError) as problem:
            return [str(problem).partition("\n")[0]]
    return []


def _decode(copy: IO[bytes], file: DataFile) -> None:
    copy.seek(0)
    with pq.ParquetFile(copy, page_checksum_verification=True) as reader:
        if file.row_count is not None and reader.metadata.num_rows != file.row_count:
            raise ValueError(f"it has {reader.metadata.num_rows} rows, and should have {file.row_count}")
        for group in range(reader.metadata.num_row_groups):
            reader.read_row_group(group)


def _cost(file: CommitFile, commit_id: int, whole: dict[TypeRef, list[IndexEntry]]) -> str:
    if any(entry.covers(commit_id) for entry in whole.get(file.ref, ())):
        return (
            f"a snapshot has its rows: questions about {file.ref} are answered, what commit {commit_id} changed is not"
        )
    return f"what commit {commit_id} wrote of {file.ref} is lost, and questions that need it fail; all else can be read"
