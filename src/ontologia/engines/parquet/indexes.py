"""Indices and other accelerators: advanced after every commit, verified, and repaired from the manifest chain.

RFC 0004 §2.3, §3.5, §5. None of this decides what is committed; the head and its manifests do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.bodies import encoded, now, parsed
from ontologia.engines.parquet.log import IndexVersion
from ontologia.engines.parquet.planning import coverage, entry_of, renewed
from ontologia.engines.parquet.records import Head, Manifest, TypeIndex
from ontologia.engines.parquet.schemas import KnownTypes, SchemaCatalog
from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.model import TypeRef
from ontologia.objects import ConditionFailed, ObjectNotFound

if TYPE_CHECKING:
    from ontologia.engines.parquet.repository import S3Repository

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


# --- after a commit ---


def advance(repository: S3Repository, before: Head, head: Head, manifest: Manifest, schemas: SchemaCatalog) -> None:
    """Bring the indices of all known types up to a new head (§2.3, normative; §3.5 repair on the way)."""
    refs = _known(repository, head, schemas)

    def one(ref: TypeRef) -> None:
        try:
            _advance_one(repository, ref, before, head, manifest, schemas)
        except (OntologiaError, OSError) as problem:
            repository._indices.pop(ref, None)
            repository.warn(f"the index of {ref} stays behind commit {head.commit_id}: {problem}")

    repository.objects.map(one, refs)


def _known(repository: S3Repository, head: Head, schemas: SchemaCatalog) -> list[TypeRef]:
    """The types whose indices to advance: none while the list of known types cannot be read (§5).

    The list is mended where a writer that stalled or died left it behind the catalog; one that is malformed stays for
    the operator to see.
    """
    try:
        known = repository.log.known_types()
    except StorageBackendError as problem:
        repository.warn(f"commit {head.commit_id} is done; no index was updated, because {problem}")
        if problem.context.get("kind") == "missing":
            repository.objects.put_if_absent(paths.TYPES, encoded(KnownTypes.of(schemas.current).body()))
        return []
    return sorted({*known.refs, *_mend(repository, known, schemas).refs})


def _mend(repository: S3Repository, known: KnownTypes, schemas: SchemaCatalog) -> KnownTypes:
    """The list of known types as the catalog has it, written where it was not so."""
    right = known.adjusted(schemas.current, schemas.dropped)
    if right is not known:
        repository.objects.put(paths.TYPES, encoded(right.body()))
    return right


def _advance_one(
    repository: S3Repository, ref: TypeRef, before: Head, head: Head, manifest: Manifest, schemas: SchemaCatalog
) -> None:
    remembered = repository._indices.get(ref)
    for found in (remembered, None):
        if found is None:
            found = repository.log.index(ref)
        if found.index.max_indexed_commit >= head.commit_id:
            return  # somebody newer keeps this index now; what this writer knows is older
        entries = list(coverage(repository.log, before, ref, found.index).entries)
        file = manifest.file_of(ref)
        if file is not None:
            entries.append(entry_of(head.commit_id, file))
        try:
            write(repository, ref, found, renewed(found.index, ref, head.commit_id, entries), schemas)
        except ConditionFailed as problem:
            repository._indices.pop(ref, None)
            failure = problem
            continue
        return
    raise failure


def write(
    repository: S3Repository, ref: TypeRef, found: IndexVersion, index: TypeIndex, schemas: SchemaCatalog
) -> None:
    """Replace exactly the index that was read: a late writer must not undo a newer one's work."""
    index = replace(index, **repository.index_extras(schemas, ref))
    key, body = paths.index(ref), encoded(index.body())
    if found.etag is None:
        etag = repository.objects.put_if_absent(key, body)
    else:
        etag = repository.objects.put_if_match(key, body, found.etag)
    repository._indices[ref] = IndexVersion(index, etag)


def mirror(repository: S3Repository, head: Head, schemas: SchemaCatalog) -> None:
    """Bring the layout catalog (RFC 0009 §4.4) and the list of dropped types in line with the catalog in force.

    Looked at once per change of the catalog, whoever made it: a migration that died after its swap is finished by the
    next commit or repair (RFC 0009 §6.5).
    """
    if repository.mirrored == (head.schema_manifest_path,):
        return
    for key, content in repository.mirrors(schemas).items():
        try:
            stored = parsed(repository.objects.get(key).data, repository.objects.url(key), dict)
        except ObjectNotFound:
            stored = {}
        if any(stored.get(name) != value for name, value in content.items()):
            repository.objects.put(key, encoded({**stored, **content, "updated_at": now()}))
    repository.mirrored = (head.schema_manifest_path,)


def purge(repository: S3Repository, refs: Sequence[TypeRef]) -> None:
    """Delete the data files and snapshots of dropped types. Manifests stay: they are the record of what was."""
    listed = [*repository.objects.list(paths.COMMITS), *repository.objects.list(paths.SNAPSHOTS)]
    doomed = [info.key for info in listed if any(paths.is_data_of(ref, info.key) for ref in refs)]
    repository.objects.delete_many(doomed)


# --- operators ---


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
    covered = coverage(repository.log, head, ref, found.index)
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
        entries = coverage(repository.log, start.head, item.ref, found.index).entries
        plans.append((item.ref, found, renewed(found.index, item.ref, start.head.commit_id, entries)))
    repository.lease.guard()
    if repository.log.head().head != start.head:
        return None
    _mend(repository, known, schemas)
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
        write(repository, ref, found, index, schemas)
    except ConditionFailed as problem:
        raise StorageBackendError(f"the index of {ref} changed while it was being repaired; try again") from problem
