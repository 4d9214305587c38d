"""The janitor: deletes what no reader can reach and no writer can still make reachable.

Leftovers are attempts that lost or died before the swap, files staged by loads that did not finish, snapshots that a
newer one replaced, and lock files long expired. Every committed attempt stays, and so does every snapshot an index
names, but for what only history needs that was given up (`forgetting`). Where it is asked for, files of commits go
whose rows such a snapshot has (`retention`). Rows in quarantine are their owner's: they are not even listed.

A writer that stalls just before its swap has files here that look orphaned. Before anything is deleted, the head is
rewritten in place under the write lease: same commit, new version of the object. From then on the stalled writer's
swap fails, whatever its lease says, so its files are orphans for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ontologia.engines.care import VacuumItem, VacuumReport
from ontologia.engines.features import COMPACTED
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.forgetting import find_given_up_files, forgotten_at
from ontologia.engines.parquet.care.retention import find_covered_files, write_record
from ontologia.engines.parquet.log.records import Head
from ontologia.engines.parquet.log.swapping import swap_head
from ontologia.engines.parquet.setup import use_feature
from ontologia.engines.parquet.write.accelerators import files_of, is_among, write_index
from ontologia.errors import ConcurrentWriteError, ValidationError
from ontologia.files.json_objects import now, parse
from ontologia.objects import Info, LeaseRecord, ObjectNotFound, utc_now
from ontologia.objects.conditional import decode

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


_range = re.compile(r"\d+-\d+(-[0-9a-f]+)?\.parquet$")


def vacuum(engine: ParquetEngine, older_than_s: float, *, apply: bool, compacted: bool = False) -> VacuumReport:
    """Find leftovers older than an age, and delete exactly those that were found; with `compacted`, the files of
    commits whose rows a snapshot has are among them."""
    if older_than_s < 0:
        raise ValidationError(f"older_than must not be negative, and is {older_than_s} s")
    before = utc_now() - timedelta(seconds=older_than_s)
    if not apply:
        head = engine.log.head().head
        listed = _list_objects(engine)
        more = find_covered_files(engine, head, listed, before, verify=False).items if compacted else []
        return VacuumReport(False, [*_leftovers(engine, head, listed, before, verify=False), *more])
    with engine.locked():
        listed = _list_objects(engine)
        head, more = _let_go(engine, listed, before) if compacted else (_fence(engine), [])
        found = [*_leftovers(engine, head, listed, before, verify=True), *more]
        if any(item.key.startswith(paths.SNAPSHOTS) for item in found):
            _fence_indices(engine, head)
        engine.lease.guard()
        engine.objects.delete_many([item.key for item in found])
        engine.reader.cache.drop_combined(engine.objects)
        engine.objects.sweep(older_than_s=max(older_than_s, 3600.0))
    return VacuumReport(True, found)


def _list_objects(engine: ParquetEngine) -> list[Info]:
    return [
        info
        for folder in (paths.COMMITS, paths.SNAPSHOTS, paths.STAGING, paths.LOCKS, paths.COMPACTED, *paths.PROBES)
        for info in engine.objects.list(folder)
    ]


def _let_go(engine: ParquetEngine, listed: list[Info], before: datetime) -> tuple[Head, list[VacuumItem]]:
    """Swap the head to a record of the snapshots that stand for files of commits; those files can go then."""
    head = engine.log.head().head
    found = find_covered_files(engine, head, listed, before, verify=True)
    if not found.items:
        return _fence(engine), []
    use_feature(engine.objects, COMPACTED)
    return _fence(engine, write_record(engine, head, found)), found.items


def _fence(engine: ParquetEngine, compacted_path: str | None = None) -> Head:
    """Rewrite the head in place, so that a swap prepared against its old version cannot succeed any more."""
    found = engine.log.head()
    head = replace(found.head, updated_at=now(), compacted_path=compacted_path or found.head.compacted_path)
    swap_head(
        engine.objects,
        paths.HEAD,
        head,
        etag=found.etag,
        lost=lambda _: ConcurrentWriteError("the head moved while vacuum was starting; run it again"),
        buried=lambda winner: Head.read(winner) == head,
    )
    return head


def _fence_indices(engine: ParquetEngine, head: Head) -> None:
    """The same for indices: a compaction that stalled must not name a snapshot that is about to go."""
    schemas = engine.log.schemas(head)
    for ref in sorted({version.ref for version in schemas.versions}):
        found = engine.log.index(ref)
        if found.etag is not None:
            index = replace(found.index, other={**found.index.other, "fenced_at": now()})
            write_index(engine, ref, found, index, schemas)


def _leftovers(
    engine: ParquetEngine, head: Head, listed: list[Info], before: datetime, *, verify: bool
) -> Iterator[VacuumItem]:
    purged = files_of(engine, head, engine.log.schemas(head).purged)
    committed = _find_committed_files(engine, head)
    named = _find_named_files(engine, head) | engine.log.compacted(head).files
    given_up = find_given_up_files(engine, head, listed, before, verify=verify)
    forgotten = forgotten_at(engine.log.compacted(head))
    # Readers that began at the record before may not have read it yet.
    record_is_old = any(info.key == head.compacted_path and info.modified <= before for info in listed)
    for info in listed:
        attempt = paths.attempt_of(info.key)
        if is_among(info.key, purged):
            yield VacuumItem(info.key, info.size, "rows of a type that was dropped with its history")
        elif info.key in named or info.modified > before:
            continue
        elif info.key in given_up:
            yield VacuumItem(info.key, info.size, "of history that was given up")
        elif attempt is not None and info.key not in committed:
            yield VacuumItem(info.key, info.size, f"of an attempt at commit {attempt[0]} that was never committed")
        elif info.key.startswith(paths.STAGING):
            yield VacuumItem(info.key, info.size, "staged by a load that did not finish")
        elif info.key.startswith(paths.SNAPSHOTS) and _replacement_time(info, listed, forgotten) <= before:
            yield VacuumItem(info.key, info.size, "a snapshot that no index names")
        elif info.key.startswith(paths.COMPACTED) and info.key != head.compacted_path and record_is_old:
            yield VacuumItem(info.key, info.size, "a record that a newer one replaced")
        elif info.key.startswith(paths.PROBES):
            yield VacuumItem(info.key, info.size, "a probe whose writer died")
        elif info.key.startswith(paths.LOCKS) and info.key != paths.lock() and _is_over(engine, info.key, before):
            yield VacuumItem(info.key, info.size, "a lock that expired long ago")


def _replacement_time(info: Info, listed: list[Info], forgotten: datetime) -> datetime:
    """When readers may have begun to use a newer snapshot of the same type instead of this one, or to do without."""
    of_type = _range.sub("", info.key)
    later = [
        other.modified for other in listed if other.modified > info.modified and _range.sub("", other.key) == of_type
    ]
    return max(min(later, default=info.modified), forgotten)


def _find_committed_files(engine: ParquetEngine, head: Head) -> set[str]:
    """Every object that is part of a commit: manifests, and the files and parts they list."""
    found: set[str] = set()
    for tip in (head, *_copy_in_place(engine)):
        for path, manifest in engine.log.chain(tip):
            found.add(path)
            for file in manifest.files:
                found |= {file.path, *(part.path for part in file.parts)}
    return found


def _copy_in_place(engine: ParquetEngine) -> list[Head]:
    """The head of the copy that is to take this store's place, while there is one."""
    try:
        blob = engine.objects.get(paths.COPY)
    except ObjectNotFound:
        return []
    return [parse(blob.data, engine.objects.url(paths.COPY), Head.read)]


def _find_named_files(engine: ParquetEngine, head: Head) -> set[str]:
    """Every file an index names, of all types that ever had one; one that counts no more names nothing."""
    refs = {version.ref for version in engine.log.schemas(head).versions}
    base = engine.log.compacted(head).base
    indices = [found.index for found in engine.objects.map(engine.log.index, sorted(refs))]
    return {file.path for index in indices if index.base == base for entry in index.entries for file in entry.files}


def _is_over(engine: ParquetEngine, key: str, before: datetime) -> bool:
    record = LeaseRecord.read(decode(engine.objects.get(key).data))
    return record is None or record.expires_at < before
