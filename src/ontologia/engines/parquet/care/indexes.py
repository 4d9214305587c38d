"""Indices verified, and repaired from the manifest chain (RFC 0004 §3.5, §5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    from ontologia.engines.parquet.engine import S3Repository

REPLANS = 5


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """How one type's index stands against the head. `problem` is set when it cannot be read."""

    ref: TypeRef
    max_indexed_commit: int | None
    lagging: bool = False
    missing_latest: bool = False
    problem: str | None = None

    @property
    def healthy(self) -> bool:
        return not (self.lagging or self.missing_latest or self.problem)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The health of every index at a head."""

    head: int
    types: list[IndexHealth] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return all(item.healthy for item in self.types)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Which indices need to be written, or were."""

    head: int
    repaired: list[TypeRef] = field(default_factory=list)
    applied: bool = False


def verify(repository: S3Repository) -> IndexReport:
    """Compare every index with the head. Fails when the known types cannot be read (§5).

    Types that the list should have and has not are looked at too: a writer that stalled may have put an old list back.
    """
    head = repository.log.head().head
    refs = sorted({*repository.log.known_types().refs, *repository.log.schemas(head).current})
    types = repository.objects.map(lambda ref: _health(repository, head, ref), refs)
    return IndexReport(head.commit_id, types)


def _health(repository: S3Repository, head: Head, ref: TypeRef) -> IndexHealth:
    try:
        found = repository.log.index(ref)
    except StorageBackendError as problem:
        return IndexHealth(ref, None, problem=str(problem))
    covered = cover(repository.log, head, ref, found.index)
    return IndexHealth(ref, found.index.max_indexed_commit, covered.lagging, covered.missing_latest)


def repair(repository: S3Repository, *, apply: bool) -> RepairReport:
    """Rebuild what lags or is unreadable from the manifest chain, under the write lease (§3.5). No commit is made."""
    if not apply:
        report = verify(repository)
        return RepairReport(report.head, [item.ref for item in report.types if not item.healthy])
    with repository.locked():
        for _ in range(REPLANS):
            plan = _repair_plan(repository)
            if plan is not None:
                return plan
    raise StorageBackendError("the head kept moving while indices were being repaired; try again")


def _repair_plan(repository: S3Repository) -> RepairReport | None:
    """One try; None when the head moved before the repaired indices could be written."""
    start = repository.log.head()
    schemas = repository.log.schemas(start.head)
    known = repository.log.known_types()
    broken = [item for item in verify(repository).types if not item.healthy]
    plans: list[tuple[TypeRef, IndexVersion, TypeIndex]] = []
    for item in broken:
        found = _readable(repository, item)
        entries = cover(repository.log, start.head, item.ref, found.index).entries
        plans.append((item.ref, found, renew(found.index, item.ref, start.head.commit_id, entries)))
    repository.lease.guard()
    if repository.log.head().head != start.head:
        return None
    mend_known_types(repository, known, schemas)
    for ref, found, index in plans:
        _replace(repository, ref, found, index, schemas)
    repository.mirrored = None
    mirror(repository, start.head, schemas)
    return RepairReport(start.head.commit_id, [item.ref for item in broken], applied=True)


def _readable(repository: S3Repository, item: IndexHealth) -> IndexVersion:
    """The index to mend; one that cannot be read is rebuilt from nothing, on top of exactly what is there."""
    if item.problem is None:
        return repository.log.index(item.ref)
    return IndexVersion(TypeIndex(item.ref.name), repository.objects.get(paths.index(item.ref)).etag)


def _replace(
    repository: S3Repository, ref: TypeRef, found: IndexVersion, index: TypeIndex, schemas: SchemaCatalog
) -> None:
    try:
        write_index(repository, ref, found, index, schemas)
    except ConditionFailed as problem:
        raise StorageBackendError(f"the index of {ref} changed while it was being repaired; try again") from problem
