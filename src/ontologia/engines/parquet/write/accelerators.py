"""What follows a commit: indices, the list of known types and other objects that spare readers the manifest chain.

RFC 0004 §2.3, §3.5, §5. None of this decides what is committed; the head and its manifests do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.coverage import cover, entry_of, renew
from ontologia.engines.parquet.log.log import IndexVersion
from ontologia.engines.parquet.log.records import Head, Manifest, TypeIndex
from ontologia.engines.parquet.log.schemas import KnownTypes, SchemaCatalog
from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.files.json_objects import encode, now, parse
from ontologia.model import TypeRef
from ontologia.objects import ConditionFailed, ObjectNotFound

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import S3Repository


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
            repository.objects.put_if_absent(paths.TYPES, encode(KnownTypes.of(schemas.current).body()))
        return []
    return sorted({*known.refs, *mend_known_types(repository, known, schemas).refs})


def mend_known_types(repository: S3Repository, known: KnownTypes, schemas: SchemaCatalog) -> KnownTypes:
    """The list of known types as the catalog has it, written where it was not so."""
    right = known.adjusted(schemas.current, schemas.dropped)
    if right is not known:
        repository.objects.put(paths.TYPES, encode(right.body()))
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
        entries = list(cover(repository.log, before, ref, found.index).entries)
        file = manifest.file_of(ref)
        if file is not None:
            entries.append(entry_of(head.commit_id, file))
        try:
            write_index(repository, ref, found, renew(found.index, ref, head.commit_id, entries), schemas)
        except ConditionFailed as problem:
            repository._indices.pop(ref, None)
            failure = problem
            continue
        return
    raise failure


def write_index(
    repository: S3Repository, ref: TypeRef, found: IndexVersion, index: TypeIndex, schemas: SchemaCatalog
) -> None:
    """Replace exactly the index that was read: a late writer must not undo a newer one's work."""
    index = replace(index, **repository.index_extras(schemas, ref))
    key, body = paths.index(ref), encode(index.body())
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
            stored = parse(repository.objects.get(key).data, repository.objects.url(key), dict)
        except ObjectNotFound:
            stored = {}
        if any(stored.get(name) != value for name, value in content.items()):
            repository.objects.put(key, encode({**stored, **content, "updated_at": now()}))
    repository.mirrored = (head.schema_manifest_path,)


def purge(repository: S3Repository, refs: Sequence[TypeRef]) -> None:
    """Delete the data files and snapshots of dropped types. Manifests stay: they are the record of what was."""
    listed = [*repository.objects.list(paths.COMMITS), *repository.objects.list(paths.SNAPSHOTS)]
    doomed = [info.key for info in listed if any(paths.is_data_of(ref, info.key) for ref in refs)]
    repository.objects.delete_many(doomed)
