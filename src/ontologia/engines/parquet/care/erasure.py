"""Erasing identities from a bucket, whose files and manifests never change: what had them is replaced, and deleted.

In this order, under the write lease, so that readers find the other rows at every point and a kill loses nothing:

1. Every file that has the identities is written anew without them, under another name.
2. Indices name the new files. From here on no reader, compaction or migration takes a row from the old ones.
3. Manifests from the oldest commit concerned up to the head are written anew, each with its new parent, and after them
   that of the commit that says that an erasure took place.
4. The head is swapped; whoever prepared a commit on the old one has lost.
5. What nothing names any more and has the identities is deleted, here and in the cache of this machine.

Done again after it was cut off, it finds what is left by reading it, whatever step it came to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.erasure import Eraser, FoundIdentities, Trace, Wanted, copy_comes_first
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.retention import put_record
from ontologia.engines.parquet.care.traces import delete_copies, delete_unnamed, find_unnamed, has_identity, places_with
from ontologia.engines.parquet.log.log import HeadVersion
from ontologia.engines.parquet.log.records import CommitFile, CommitManifest, Compacted, Head, IndexEntry
from ontologia.engines.parquet.log.swapping import names_manifest_of, swap_head
from ontologia.engines.parquet.write.accelerators import write_index
from ontologia.errors import ConcurrentWriteError
from ontologia.files.data_files import DataFile, KeySpan
from ontologia.files.json_objects import encode, now
from ontologia.files.spools import Spool
from ontologia.files.writing import LOOKUP_GROUP_ROWS, parquet_writer, write_rows
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef
from ontologia.objects import new_token
from ontologia.query.in_force import are_removals

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine

Replaced = Mapping[str, DataFile | None]
"""Files by their old path: what stands for them now, None where no row is left."""


class ParquetEraser(Eraser):
    """Takes identities out of one bucket."""

    def __init__(self, engine: ParquetEngine) -> None:
        self._engine = engine

    def find(self, wanted: Sequence[Wanted]) -> list[FoundIdentities]:
        """In the files of commits and in snapshots."""
        head = self._engine.log.head().head
        found = []
        for item in wanted:
            versions: set[tuple[Any, ...]] = set()
            for file in _files_of(self._engine, head, item.ref).values():
                for rows in _find_meant(self._engine, file, item):
                    versions |= set(zip(*(column.to_pylist() for column in rows.columns), strict=True))
            found.append(FoundIdentities(item.ref, len({version[:-1] for version in versions}), len(versions)))
        return found

    def erase(self, wanted: Sequence[Wanted], metadata: Mapping[str, Any]) -> int:
        """All steps."""
        engine = self._engine
        if engine.objects.exists(paths.COPY):
            raise copy_comes_first(engine.objects.uri)
        with engine.locked() as lease:
            found = engine.log.head()
            replaced = _replace_files(engine, found.head, wanted)
            _replace_in_indices(engine, found.head, wanted, replaced)
            lease.guard()
            head = _swap_chain(engine, found, replaced, metadata)
            _forget(engine)
            delete_unnamed(engine, wanted)
        return head.commit_id

    def is_pending(self, wanted: Sequence[Wanted]) -> bool:
        return any(has_identity(self._engine.objects.get(key).data, key, wanted) for key in find_unnamed(self._engine))

    def finish(self, wanted: Sequence[Wanted]) -> None:
        with self._engine.locked():
            delete_unnamed(self._engine, wanted)

    def traces(self, wanted: Sequence[Wanted]) -> list[Trace]:
        """In every object of the prefix, and every file of the cache."""
        rows = [Trace("row", str(item.ref)) for item in self.find(wanted) if item.rows]
        delete_copies(self._engine, wanted)
        return [*rows, *places_with(self._engine, wanted)]


def _files_of(engine: ParquetEngine, head: Head, ref: TypeRef) -> dict[str, DataFile]:
    """Every file that a commit, the index or the record names for a type, by path."""
    if ref in engine.log.schemas(head).purged:
        return {}
    found: dict[str, DataFile] = {}
    for _, manifest in engine.log.chain(head):
        file = manifest.file_of(ref)
        if file is not None:
            found |= {part.path: part for part in file.files}
    for entry in (*engine.log.compacted(head).of(ref), *engine.log.index(ref).index.entries):
        found |= {part.path: part for part in entry.files}
    # A vacuum may have taken files of commits whose rows are in a snapshot.
    there = {info.key for folder in (paths.COMMITS, paths.SNAPSHOTS) for info in engine.objects.list(folder)}
    return {path: file for path, file in found.items() if path in there}


def _find_meant(engine: ParquetEngine, file: DataFile, wanted: Wanted) -> Iterator[pa.Table]:
    """Identity and commit of the rows of a file that are meant."""
    if file.keys is not None and not _may_have(file.keys, wanted):
        return
    names = [*wanted.ref.identity, COMMIT_ID]
    with engine.reader.open(file) as source, pq.ParquetFile(source) as parquet:
        for batch in parquet.iter_batches(LOOKUP_GROUP_ROWS, columns=names, use_threads=False):
            rows = pa.Table.from_batches([batch]).select(names)
            meant = rows.filter(wanted.mask(rows))
            if meant.num_rows:
                yield meant


def _may_have(span: KeySpan, wanted: Wanted) -> bool:
    """Whether the first column of the identity, between these keys, may have one that is meant."""
    if wanted.right:
        return True
    first = {key for name, keys in wanted.columns for key in keys if name != "right_key"}
    first |= {identity[0] for identity in wanted.rows_by_identity}
    return any(span.low <= key <= span.high for key in first)


# --- taking away ---


def _replace_files(engine: ParquetEngine, head: Head, wanted: Sequence[Wanted]) -> dict[str, DataFile | None]:
    """Step 1."""
    attempt = new_token(4)
    replaced: dict[str, DataFile | None] = {}
    for item in wanted:
        for path, file in _files_of(engine, head, item.ref).items():
            if next(_find_meant(engine, file, item), None) is not None:
                replaced[path] = _rewrite(engine, file, _new_name(path, attempt), item)
    return replaced


def _new_name(path: str, attempt: str) -> str:
    """Another name for an object, where its kind belongs."""
    found = paths.attempt_of(path)
    if found is None:
        return paths.another(path, attempt)
    commit_id, folder = found
    return paths.attempt(commit_id, attempt) + path.removeprefix(folder)


def _rewrite(engine: ParquetEngine, file: DataFile, path: str, wanted: Wanted) -> DataFile | None:
    """A file without the rows that are meant; None where none is left."""
    spool = Spool()
    count = in_force = removals = 0
    span: KeySpan | None = None
    key = wanted.ref.identity[0]
    try:
        with engine.reader.open(file) as source, pq.ParquetFile(source) as parquet:
            settled = SUPERSEDED_BY in parquet.schema_arrow.names
            with parquet_writer(pa.PythonFile(spool, mode="w"), parquet.schema_arrow) as writer:
                for number in range(parquet.num_row_groups):
                    rows = parquet.read_row_group(number, use_threads=False)
                    rows = rows.filter(pc.invert(wanted.mask(rows)))
                    if not rows.num_rows:
                        continue
                    write_rows(writer, rows, LOOKUP_GROUP_ROWS)
                    count += rows.num_rows
                    if settled:
                        in_force += rows.column(SUPERSEDED_BY).null_count
                        removals += pc.sum(are_removals(rows)).as_py() or 0
                    bounds = pc.min_max(rows.column(key)).as_py()
                    span = KeySpan(bounds["min"], bounds["max"]).join(span)
        if not count:
            return None
        digest = spool.complete()
        spool.put(engine.objects, path)
        counted = in_force if file.rows_in_force is not None else None
        return replace(
            file,
            path=path,
            size=spool.size,
            row_count=count,
            content_sha256=digest,
            keys=None if file.keys is None else span,
            rows_in_force=counted,
            removals=removals,
        )
    finally:
        spool.discard()


def _replace_in_indices(engine: ParquetEngine, head: Head, wanted: Sequence[Wanted], replaced: Replaced) -> None:
    """Step 2. An index is replaced in the version that was read, as by every writer."""
    schemas = engine.log.schemas(head)
    for item in wanted:
        found = engine.log.index(item.ref)
        entries = [new for entry in found.index.entries if (new := _entry_anew(entry, replaced)) is not None]
        if found.etag is not None and entries != list(found.index.entries):
            write_index(engine, item.ref, found, replace(found.index, entries=tuple(entries)), schemas)


def _entry_anew(entry: IndexEntry, replaced: Replaced) -> IndexEntry | None:
    if not any(file.path in replaced for file in entry.files):
        return entry
    files = _files_anew(entry.files, replaced)
    if not files:
        return None
    if not entry.parts:
        (file,) = files
        return replace(
            entry,
            path=file.path,
            size=file.size,
            row_count=file.row_count,
            content_sha256=file.content_sha256,
            own_keys=file.keys,
            rows_in_force=file.rows_in_force,
            own_removals=file.removals,
        )
    return replace(entry, parts=files, size=_total(files, "size"), row_count=_total(files, "row_count"))


def _files_anew(files: Sequence[DataFile], replaced: Replaced) -> tuple[DataFile, ...]:
    new = (replaced.get(file.path, file) for file in files)
    return tuple(file for file in new if file is not None)


def _total(files: Sequence[DataFile], name: str) -> int:
    return sum(getattr(file, name) or 0 for file in files)


def _swap_chain(engine: ParquetEngine, found: HeadVersion, replaced: Replaced, metadata: Mapping[str, Any]) -> Head:
    """Steps 3 and 4."""
    attempt = new_token(4)
    compacted = engine.log.compacted(found.head)
    renewed = _replace_compacted(compacted, replaced)
    moved, writes = _chain_anew(engine, found.head, replaced, compacted, renewed, attempt)
    before = replace(
        found.head,
        manifest_path=moved.get(found.head.manifest_path or "", found.head.manifest_path),
        schema_manifest_path=moved.get(found.head.schema_manifest_path or "", found.head.schema_manifest_path),
        compacted_path=found.head.compacted_path if renewed is compacted else put_record(engine, renewed),
    )
    commit_id = found.head.commit_id + 1
    last = CommitManifest(commit_id, before.commit_id, before.manifest_path, now(), engine.runtime_id, metadata, [])
    path = paths.manifest(paths.attempt(commit_id, attempt))
    writes[path] = encode(last.body())
    engine.put_all(writes)
    engine.lease.guard()
    head = replace(
        before,
        commit_id=commit_id,
        manifest_path=path,
        updated_at=now(),
        runtime_id=engine.runtime_id,
        commit_sha256=hashlib.sha256(encode(last.body())).hexdigest(),
    )
    swap_head(
        engine.objects,
        paths.HEAD,
        head,
        etag=found.etag,
        lost=lambda _: ConcurrentWriteError(
            f"{engine.objects.uri}: somebody else committed meanwhile; preview and erase again"
        ),
        buried=names_manifest_of(head),
    )
    schemas = engine.log.schemas(head)
    engine.after_swap(before, head, last, schemas, schemas, {})
    return head


def _chain_anew(
    engine: ParquetEngine, head: Head, replaced: Replaced, compacted: Compacted, renewed: Compacted, attempt: str
) -> tuple[dict[str, str], dict[str, bytes | Spool]]:
    """The manifests that change, and those that name them, under new paths: by their old path, and what to write."""
    kept = list(engine.log.chain(head))
    chain = [(path, _without_gone(manifest, compacted, renewed)) for path, manifest in kept]
    changed = [
        place
        for place, (_, manifest) in enumerate(chain)
        if _has_any(manifest, replaced) or manifest is not kept[place][1]
    ]
    moved: dict[str, str] = {}
    writes: dict[str, bytes | Spool] = {}
    for path, manifest in reversed(chain[: changed[-1] + 1] if changed else []):
        parent = manifest.parent_manifest_path
        files = [new for file in manifest.files if (new := _commit_file_anew(file, replaced)) is not None]
        anew = replace(manifest, files=files, parent_manifest_path=moved.get(parent or "", parent))
        moved[path] = _new_name(path, attempt)
        writes[moved[path]] = encode(anew.body())
    return moved, writes


def _replace_compacted(known: Compacted, replaced: Replaced) -> Compacted:
    """The record of snapshots that stand for files which are gone, where some of those are replaced."""
    if known.files.isdisjoint(replaced):
        return known
    entries = {
        ref: tuple(new for entry in some if (new := _entry_anew(entry, replaced)) is not None)
        for ref, some in known.entries.items()
    }
    return replace(known, entries=entries)


def _without_gone(manifest: CommitManifest, compacted: Compacted, renewed: Compacted) -> CommitManifest:
    """A manifest that does not say between which keys the rows of files were that a vacuum has taken: nobody can read
    any more whether what is erased was among them. Where no snapshot is left for such a file, it had nothing else."""
    commit_id = manifest.commit_id
    files = [
        replace(file, keys=None, parts=tuple(replace(part, keys=None) for part in file.parts))
        if compacted.has(commit_id, file)
        else file
        for file in manifest.files
        if renewed.has(commit_id, file) or not compacted.has(commit_id, file)
    ]
    same = [file.body() for file in files] == [file.body() for file in manifest.files]
    return manifest if same else replace(manifest, files=files)


def _has_any(manifest: CommitManifest, replaced: Replaced) -> bool:
    return any(part.path in replaced for file in manifest.files for part in file.files)


def _commit_file_anew(file: CommitFile, replaced: Replaced) -> CommitFile | None:
    if not any(part.path in replaced for part in file.files):
        return file
    files = _files_anew(file.files, replaced)
    if not files:
        return None
    if file.parts:
        return replace(file, parts=files, row_count=_total(files, "row_count"), size=_total(files, "size"))
    (only,) = files
    return replace(
        file,
        path=only.path,
        row_count=only.row_count or 0,
        size=only.size,
        content_sha256=only.content_sha256 or "",
        keys=only.keys,
        own_removals=only.removals,
    )


def _forget(engine: ParquetEngine) -> None:
    """Nothing of what was read may be used again."""
    engine.log.forget()
    engine.forget_files()
