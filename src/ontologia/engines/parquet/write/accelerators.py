"""What follows a commit: indices, the list of known types and other objects that spare readers the manifest chain.

RFC 0004 §2.3, §3.5, §5. None of this decides what is committed; the head and its manifests do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.coverage import cover, entry_of, renew
from ontologia.engines.parquet.log.log import IndexVersion
from ontologia.engines.parquet.log.records import CommitManifest, Head, TypeIndex
from ontologia.engines.parquet.log.schemas import KnownTypes, SchemaCatalog, registry_body, version_body, versions_from
from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.files.json_objects import encode, now, parse
from ontologia.model import TypeRef
from ontologia.objects import ConditionFailed, ObjectNotFound

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


def bring_up(
    engine: ParquetEngine,
    before: Head,
    head: Head,
    manifest: CommitManifest,
    schemas: SchemaCatalog,
    known: SchemaCatalog,
) -> None:
    """All of it, up to a new head: indices, what repeats the catalog, and what was purged."""
    types = _read_known(engine, head, schemas)
    advance(engine, types, before, head, manifest, schemas)
    _finish_mirrors(engine, types, head, schemas)
    if schemas.purged != known.purged:
        purge(engine, head, schemas.purged - known.purged)


def _finish_mirrors(engine: ParquetEngine, types: Types | None, head: Head, schemas: SchemaCatalog) -> None:
    """Bring the mirrors in line with the catalog, unless the list of known types says that they are: a migration that
    died after its swap is finished by the next commit (RFC 0009 §6.5). Where nobody could say so, once per process."""
    path = head.schema_manifest_path
    marked = None if types is None or path is None else types.listed.mirrored == path
    if marked or (marked is None and engine.mirrored == (path,)):
        return
    mirror(engine, head, schemas)
    if types is not None and path is not None:
        engine.objects.put(paths.TYPES, encode(replace(types.listed, mirrored=path).body()))


def advance(
    engine: ParquetEngine,
    types: Types | None,
    before: Head,
    head: Head,
    manifest: CommitManifest,
    schemas: SchemaCatalog,
) -> None:
    """Bring the indices of all known types up to a new head (§2.3, normative; §3.5 repair on the way)."""

    def one(ref: TypeRef) -> None:
        try:
            _advance_one(engine, ref, before, head, manifest, schemas)
        except (OntologiaError, OSError) as problem:
            engine.log.indices.pop(ref, None)
            engine.warn(f"the index of {ref} stays behind commit {head.commit_id}: {problem}")

    engine.objects.map(one, [] if types is None else types.refs)


class Types(NamedTuple):
    """The list of known types as it is now, and those whose indices are brought up: also what it has just lost."""

    listed: KnownTypes
    refs: Sequence[TypeRef]


def _read_known(engine: ParquetEngine, head: Head, schemas: SchemaCatalog) -> Types | None:
    """The types whose indices to advance: None while the list of known types cannot be read (§5).

    The list is mended where a writer that stalled or died left it behind the catalog; one that is malformed stays for
    the operator to see.
    """
    try:
        known = engine.log.known_types()
    except StorageBackendError as problem:
        engine.warn(f"commit {head.commit_id} is done; no index was updated, because {problem}")
        if problem.context.get("kind") == "missing":
            engine.objects.put_if_absent(paths.TYPES, encode(KnownTypes.of(schemas.current).body()))
        return None
    listed = mend_known_types(engine, known, schemas)
    return Types(listed, sorted({*known.refs, *listed.refs}))


def mend_known_types(engine: ParquetEngine, known: KnownTypes, schemas: SchemaCatalog) -> KnownTypes:
    """The list of known types as the catalog has it, written where it was not so."""
    right = known.adjust(schemas.current, schemas.dropped)
    if right is not known:
        engine.objects.put(paths.TYPES, encode(right.body()))
    return right


def _advance_one(
    engine: ParquetEngine, ref: TypeRef, before: Head, head: Head, manifest: CommitManifest, schemas: SchemaCatalog
) -> None:
    remembered = engine.log.indices.get(ref)
    at = replace(before, compacted_path=head.compacted_path)  # the rows before this commit, as its own record has them
    for found in (remembered, None):
        if found is None:
            found = engine.log.index(ref)
        if found.index.max_indexed_commit >= head.commit_id:
            return  # somebody newer keeps this index now; what this writer knows is older
        entries = list(cover(engine.log, at, ref, found.index).entries)
        file = manifest.file_of(ref)
        if file is not None:
            entries.append(entry_of(head.commit_id, file))
        try:
            base = engine.log.compacted(head).base
            write_index(engine, ref, found, renew(found.index, ref, head.commit_id, entries, base), schemas)
        except ConditionFailed as problem:
            engine.log.indices.pop(ref, None)
            failure = problem
            continue
        return
    raise failure


def write_index(
    engine: ParquetEngine, ref: TypeRef, found: IndexVersion, index: TypeIndex, schemas: SchemaCatalog
) -> None:
    """Replace exactly the index that was read: a late writer must not undo a newer one's work."""
    index = replace(index, **engine.index_extras(schemas, ref))
    key, body = paths.index(ref), encode(index.body())
    if found.etag is None:
        etag = engine.objects.put_if_absent(key, body)
    else:
        etag = engine.objects.put_if_match(key, body, found.etag)
    engine.log.indices[ref] = IndexVersion(index, etag)


def mirror(engine: ParquetEngine, head: Head, schemas: SchemaCatalog) -> None:
    """Bring layout catalog (RFC 0009 §4.4), dropped types and schema registry in line with the catalog in force."""
    for key, content in engine.mirrors(schemas).items():
        try:
            stored = parse(engine.objects.get(key).data, engine.objects.url(key), dict)
        except ObjectNotFound:
            stored = {}
        except StorageBackendError as problem:
            if "kind" in problem.context:  # the store failed; else the object is malformed, and made anew
                raise
            stored = {}
        if any(stored.get(name) != value for name, value in content.items()):
            engine.objects.put(key, encode({**stored, **content, "updated_at": now()}))
    if head.schema_manifest_path is not None:
        _correct_registry(engine, schemas)
    engine.mirrored = (head.schema_manifest_path,)


def _correct_registry(engine: ParquetEngine, schemas: SchemaCatalog) -> None:
    """Take back what a writer registered that died before its swap. One listing tells whether there is such a thing."""
    sizes = {info.key: info.size for info in engine.objects.list(paths.VERSIONS)}
    right = {paths.versions(ref): registry_body(schemas.of(ref)) for ref in {v.ref for v in schemas.versions}}
    for key, body in right.items():
        if sizes.get(key) != len(encode(body)) and _read_registered(engine, key) != body["versions"]:
            engine.objects.put(key, encode(body))
    engine.objects.delete_many([key for key in sizes if key not in right])


def _read_registered(engine: ParquetEngine, key: str) -> list[dict[str, Any]] | None:
    try:
        data = engine.objects.get(key).data
        return [version_body(version) for version in parse(data, engine.objects.url(key), versions_from)]
    except (ObjectNotFound, StorageBackendError):
        return None


def purge(engine: ParquetEngine, head: Head, refs: Iterable[TypeRef]) -> None:
    """Delete the data files and snapshots of dropped types. Manifests stay: they are the record of what was."""
    named = files_of(engine, head, refs)
    listed = (info.key for folder in (paths.COMMITS, paths.SNAPSHOTS) for info in engine.objects.list(folder))
    engine.objects.delete_many([key for key in listed if is_among(key, named)])


def is_among(key: str, files: set[str]) -> bool:
    """Whether an object is one of these files, or a part in the folder of that name."""
    return key in files or key.rpartition("/")[0] in files


def files_of(engine: ParquetEngine, head: Head, refs: Iterable[TypeRef]) -> set[str]:
    """Every file that a commit, an index or the record names for these types: their own names may be alike."""
    wanted = set(refs)
    found: set[str] = set()
    if wanted:
        for _, manifest in engine.log.chain(head):
            for file in manifest.files:
                if file.ref in wanted:
                    found |= {file.path, *(part.path for part in file.parts)}
        for ref in wanted:
            entries = (*engine.log.index(ref).index.entries, *engine.log.compacted(head).of(ref))
            found |= {file.path for entry in entries for file in entry.files}
    return found
