"""What a commit changed: its own rows against those before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ontologia.engines.changes import VersionRows, change_entry, changed_rows_sql
from ontologia.engines.parquet.log.coverage import cover, entry_of
from ontologia.engines.parquet.log.records import CommitFile, Head, IndexEntry, stands_for
from ontologia.files.duck import AS_STORED

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


def list_changes(engine: ParquetEngine, commit_id: int) -> list[dict[str, Any]]:
    """Every identity that a commit wrote or removed, by type; nothing of types that were purged since."""
    log = engine.log
    head = log.head().head
    log.catalog(head).check_remembers_changes(commit_id)
    found = log.find(head, commit_id)
    if found is None:
        return []
    purged = log.schemas(head).purged
    files = sorted((file for file in found[1].files if file.ref not in purged), key=lambda file: file.ref)
    return [
        change_entry(file.ref, identity, operation)
        for file in files
        for *identity, operation in _changed_rows(engine, head, commit_id, file)
    ]


def _changed_rows(engine: ParquetEngine, head: Head, commit_id: int, file: CommitFile) -> Iterator[Sequence[Any]]:
    """Identity and operation of each row."""
    covered = cover(engine.log, head, file.ref, engine.log.index(file.ref).index)
    earlier = [entry for entry in covered.entries if entry.min_commit_id < commit_id]
    own = entry_of(commit_id, file)
    if engine.log.compacted(head).has(commit_id, file):  # its own file may be gone
        own = next(entry for entry in covered.entries if stands_for(entry, commit_id, file))
    return _compare(engine, file.ref.identity, commit_id, own, earlier)


def _compare(
    engine: ParquetEngine, identity: Sequence[str], commit_id: int, own: IndexEntry, earlier: Sequence[IndexEntry]
) -> Iterator[Sequence[Any]]:
    before = [file for entry in earlier for file in entry.files]
    with engine.reader.places([*own.files, *before]) as places, engine.duck.cursor() as cursor:
        values: dict[str, Any] = {"own": [places[file.path] for file in own.files], "commit": commit_id}
        if before:
            values["earlier"] = [places[file.path] for file in before]
        source, known = (f"read_parquet(${name}, {AS_STORED})" for name in ("own", "earlier"))
        written = VersionRows(source, own.removals > 0)
        stored = [VersionRows(known, any(entry.removals for entry in earlier))] if before else []
        yield from cursor.execute(changed_rows_sql(identity, written, stored, "$commit"), values).fetchall()
