"""Giving up the early history of a bucket: what was in force at a commit stays, and nothing from before is read again.

In this order, under the write lease, so that a kill leaves the history as it was or given up, and nothing between:

1. Of each type and schema version, files that have rows from before are merged into a snapshot of what stays: what was
   not superseded at that commit, and all that came after. Its rows are counted. Files of which nothing goes stay.
2. The store is stamped, and a record is written: the commit at which history begins, and what there is up to it.
3. A commit says so, whose head names the record. From its swap on nobody looks for earlier files.
4. Indices follow. One that was written under another beginning does not count, before as after (`cover`).
5. Vacuum deletes files that only history needs that was given up, once those who began to read before have had time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import SchemaVersion
from ontologia.engines.features import FORGOTTEN
from ontologia.engines.forgetting import Forgotten, Superseded, head_moved
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.retention import is_whole, put_record
from ontologia.engines.parquet.care.snapshots import SnapshotTask
from ontologia.engines.parquet.log.coverage import cover, entry_of, renew
from ontologia.engines.parquet.log.records import Compacted, Head, IndexEntry
from ontologia.engines.parquet.setup import use_feature
from ontologia.engines.parquet.write.accelerators import write_index
from ontologia.engines.parquet.write.commit import ParquetTransaction
from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.files.duck import AS_STORED
from ontologia.files.json_objects import now
from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, TypeRef
from ontologia.objects import Info, new_token
from ontologia.query.in_force import is_removal

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


@dataclass(frozen=True, slots=True)
class _Part:
    """The entries of a schema version that have rows from before a commit; it may have ended by then."""

    version: SchemaVersion
    entries: Sequence[IndexEntry]
    has_ended: bool


@dataclass(frozen=True, slots=True)
class _Count:
    """How many rows there are, and how many of them were superseded at a commit or before it."""

    rows: int
    superseded: int


def find(engine: ParquetEngine, base: int) -> list[Superseded]:
    """How many versions of each type would go."""
    counts: Counter[TypeRef] = Counter()
    for part in _parts(engine, engine.catalog().version, base):
        counts[part.version.ref] += _count(engine, part, base).superseded
    return [Superseded(ref, rows) for ref, rows in sorted(counts.items())]


def forget(engine: ParquetEngine, base: int, head: int, metadata: Mapping[str, Any]) -> Forgotten:
    """All steps but the last, which is vacuum's."""
    with engine.locked() as lease:
        found = engine.log.head()
        if found.head.commit_id != head:
            raise head_moved(found.head.commit_id, head)
        record = _what_stays(engine, found.head, base)  # step 1
        use_feature(engine.objects, FORGOTTEN)  # step 2
        transaction = ParquetTransaction(engine, lease, found)
        transaction.compacted_path = put_record(engine, record)
        commit_id = transaction.publish(metadata)  # step 3, and 4 for types that are there
        _renew_dropped(engine)  # step 4
    return Forgotten(commit_id, "the room is free after onto vacuum --apply, once its age guard for readers is over")


def _what_stays(engine: ParquetEngine, head: Head, base: int) -> Compacted:
    known = engine.log.compacted(head)
    entries = {ref: [entry for entry in some if entry.min_commit_id > base] for ref, some in known.entries.items()}
    for part in _parts(engine, head, base):
        if not part.has_ended:
            entries.setdefault(part.version.ref, []).extend(_left_of(engine, part, base))
    return Compacted({ref: tuple(some) for ref, some in entries.items() if some}, base, now())


def _left_of(engine: ParquetEngine, part: _Part, base: int) -> Sequence[IndexEntry]:
    """The entries as they are, where nothing goes; else one snapshot with what stays, or nothing."""
    counted = _count(engine, part, base)
    if not counted.superseded:
        return part.entries
    version, number = part.version, part.version.schema_version_id
    first, last = part.entries[0].min_commit_id, part.entries[-1].max_commit_id
    path = paths.another(engine.snapshot_path(version.ref, number, first, last), new_token(4))
    files = tuple(file for entry in part.entries for file in entry.files)
    task = SnapshotTask(
        engine.location, path, version.schema, engine.has_document, files, engine.objects.store_id, base
    )
    file = task.write_file(engine.reader)
    if file.row_count != counted.rows - counted.superseded:
        raise StorageBackendError(
            f"{engine.objects.url(path)} has {file.row_count} rows, and {counted.rows - counted.superseded} should "
            f"stay of {version.ref}: nothing was given up; run onto check"
        )
    return [IndexEntry.of_file(first, last, number, file)] if file.row_count else []


def _parts(engine: ParquetEngine, head: Head, base: int) -> Iterator[_Part]:
    """Where rows from before a commit are, by schema version: all go of one that had ended by then."""
    schemas, gone = engine.log.schemas(head), _find_dropped(engine, head, base)
    for ref in sorted({version.ref for version in schemas.versions} - schemas.purged):
        covered = cover(engine.log, head, ref, engine.log.index(ref).index)
        early = [entry for entry in covered.entries if entry.min_commit_id <= base]
        versions = sorted(schemas.of(ref), key=_start)
        for version, following in pairwise([*(version for version in versions if 0 < _start(version) <= base), None]):
            assert version is not None
            entries = [entry for entry in early if entry.schema_version_id in (None, version.schema_version_id)]
            yield _Part(version, entries, following is not None or ref in gone)


def _start(version: SchemaVersion) -> int:
    return version.activation_commit_id or 0


def _find_dropped(engine: ParquetEngine, head: Head, base: int) -> frozenset[TypeRef]:
    """The types that were dropped at a commit or before it."""
    at = engine.log.find(head, base) if engine.log.schemas(head).dropped else None
    if at is None:
        return frozenset()
    chain = engine.log.chain(replace(head, commit_id=base, manifest_path=at[0]))
    return next((manifest.schemas.dropped for _, manifest in chain if manifest.schemas is not None), frozenset())


def _count(engine: ParquetEngine, part: _Part, base: int) -> _Count:
    """Read nothing where it is known: all rows of a version that had ended, and none of a commit that removes none."""
    counts = [entry.row_count for entry in part.entries]
    rows = None if None in counts else sum(count or 0 for count in counts)
    if rows is not None and part.has_ended:
        return _Count(rows, rows)
    if rows is not None and (not rows or (len(part.entries) == 1 and not part.entries[0].is_settled)):
        return _Count(rows, 0)
    return _count_rows(engine, part, base)


def _count_rows(engine: ParquetEngine, part: _Part, base: int) -> _Count:
    """Of each identity the last row up to a commit stays, unless it says that it was removed."""
    files = [file for entry in part.entries for file in entry.files]
    is_settled = any(entry.is_settled for entry in part.entries)
    removed = is_removal().sql("duckdb") if is_settled else "false"
    identity = ", ".join(map(quote_name, part.version.ref.identity))
    sql = (
        "SELECT coalesce(sum(rows), 0), coalesce(sum(early), 0) - count(*) FILTER (NOT removed AND early > 0) FROM ("
        f"SELECT count(*) AS rows, count(*) FILTER ({COMMIT_ID} <= $base) AS early, "
        f"max_by({removed}, {COMMIT_ID}) FILTER ({COMMIT_ID} <= $base) AS removed "
        f"FROM read_parquet($files, {AS_STORED}) GROUP BY {identity})"
    )
    with engine.reader.places(files) as places, engine.duck.cursor() as cursor:
        found = cursor.execute(sql, {"files": [places[file.path] for file in files], "base": base}).fetchone()
    assert found is not None
    rows, superseded = map(int, found)
    return _Count(rows, rows if part.has_ended else superseded)


def _renew_dropped(engine: ParquetEngine) -> None:
    """Bring the indices of types that were dropped in line, best effort: without it, answers are right and slower."""
    try:
        head = engine.log.head().head
        schemas, base = engine.log.schemas(head), engine.log.compacted(head).base
        for ref in sorted(schemas.dropped - schemas.purged):
            found = engine.log.index(ref)
            if found.index.base != base:
                entries = cover(engine.log, head, ref, found.index).entries
                write_index(engine, ref, found, renew(found.index, ref, head.commit_id, entries, base), schemas)
    except (OntologiaError, OSError) as problem:
        engine.warn(f"history was given up; indices of types that were dropped are not up to date: {problem}")


# --- what vacuum asks ---


def forgotten_at(record: Compacted) -> datetime:
    """When history was given up; long ago, where it never was."""
    text = record.forgotten_at
    return datetime.min.replace(tzinfo=UTC) if text is None else datetime.fromisoformat(text)


def find_given_up_files(
    engine: ParquetEngine, head: Head, listed: Sequence[Info], before: datetime, *, verify: bool
) -> set[str]:
    """The files of commits up to the one at which history begins, if that was said before a time. Those that stay are
    named elsewhere. None, where what stands for them is damaged: they may be needed to mend it."""
    record = engine.log.compacted(head)
    if not record.base or forgotten_at(record) > before:
        return set()
    early = (manifest for _, manifest in engine.log.chain(head) if manifest.commit_id <= record.base)
    files = {
        file.path
        for manifest in early
        for written in manifest.files
        for file in entry_of(manifest.commit_id, written).files
    }
    found = (files - record.files) & {info.key for info in listed}
    snapshots = [entry for some in record.entries.values() for entry in some if entry.is_snapshot]
    for entry in snapshots if found and verify else ():
        if not is_whole(engine, entry):
            engine.warn(f"{entry.path} is damaged, so files from before history begins stay: run onto check")
            return set()
    return found
