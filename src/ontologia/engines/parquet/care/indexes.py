"""Indices verified, and repaired from the manifest chain (RFC 0004 §3.5, §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ontologia.engines.care import IndexHealth, IndexReport, RepairReport
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.coverage import cover, renew
from ontologia.engines.parquet.log.log import IndexVersion
from ontologia.engines.parquet.log.records import Head, TypeIndex
from ontologia.engines.parquet.log.schemas import SchemaCatalog
from ontologia.engines.parquet.write.accelerators import mend_known_types, mirror, write_index
from ontologia.errors import StorageBackendError
from ontologia.model import TypeRef
from ontologia.objects import ConditionFailed

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine

REPLANS = 5


def verify(engine: ParquetEngine) -> IndexReport:
    """Compare every index with the head. Fails when the known types cannot be read (§5).

    Types that the list should have and has not are looked at too: a writer that stalled may have put an old list back.
    """
    head = engine.log.head().head
    refs = sorted({*engine.log.known_types().refs, *engine.log.schemas(head).current})
    types = engine.objects.map(lambda ref: _health(engine, head, ref), refs)
    return IndexReport(head.commit_id, types)


def _health(engine: ParquetEngine, head: Head, ref: TypeRef) -> IndexHealth:
    try:
        found = engine.log.index(ref)
    except StorageBackendError as problem:
        return IndexHealth(ref, None, problem=str(problem))
    covered = cover(engine.log, head, ref, found.index)
    return IndexHealth(ref, found.index.max_indexed_commit, covered.lagging, covered.missing_latest)


def repair(engine: ParquetEngine, *, apply: bool) -> RepairReport:
    """Rebuild what lags or is unreadable from the manifest chain, under the write lease (§3.5). No commit is made."""
    if not apply:
        report = verify(engine)
        return RepairReport(report.head, [item.ref for item in report.types if not item.healthy])
    with engine.locked():
        for _ in range(REPLANS):
            plan = _repair_plan(engine)
            if plan is not None:
                return plan
    raise StorageBackendError("the head kept moving while indices were being repaired; try again")


def _repair_plan(engine: ParquetEngine) -> RepairReport | None:
    """One try; None when the head moved before the repaired indices could be written."""
    start = engine.log.head()
    schemas = engine.log.schemas(start.head)
    known, base = engine.log.known_types(), engine.log.compacted(start.head).base
    broken = [item for item in verify(engine).types if not item.healthy]
    plans: list[tuple[TypeRef, IndexVersion, TypeIndex]] = []
    for item in broken:
        found = _readable(engine, item)
        entries = cover(engine.log, start.head, item.ref, found.index).entries
        plans.append((item.ref, found, renew(found.index, item.ref, start.head.commit_id, entries, base)))
    engine.lease.guard()
    if engine.log.head().head != start.head:
        return None
    mend_known_types(engine, known, schemas)
    for ref, found, index in plans:
        _replace(engine, ref, found, index, schemas)
    mirror(engine, start.head, schemas)
    return RepairReport(start.head.commit_id, [item.ref for item in broken], applied=True)


def _readable(engine: ParquetEngine, item: IndexHealth) -> IndexVersion:
    """The index to mend; one that cannot be read is rebuilt from nothing, on top of exactly what is there."""
    if item.problem is None:
        return engine.log.index(item.ref)
    return IndexVersion(TypeIndex(item.ref.name), engine.objects.get(paths.index(item.ref)).etag)


def _replace(
    engine: ParquetEngine, ref: TypeRef, found: IndexVersion, index: TypeIndex, schemas: SchemaCatalog
) -> None:
    try:
        write_index(engine, ref, found, index, schemas)
    except ConditionFailed as problem:
        raise StorageBackendError(f"the index of {ref} changed while it was being repaired; try again") from problem
