"""What a bucket still has of identities that were erased: objects that nothing names, and places that mention them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.erasure import Trace, Wanted, as_bytes, is_in_texts, needles_of
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.records import Head
from ontologia.files.json_objects import load
from ontologia.files.writing import LOOKUP_GROUP_ROWS
from ontologia.model import TypeRef
from ontologia.objects import ObjectNotFound

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


def delete_unnamed(engine: ParquetEngine, wanted: Sequence[Wanted]) -> None:
    """Step 5: objects that nothing names and that have the identities, and copies in the cache of this machine."""
    gone = [key for key in find_unnamed(engine) if has_identity(engine.objects.get(key).data, key, wanted)]
    engine.objects.delete_many(gone)
    delete_copies(engine, wanted)


def delete_copies(engine: ParquetEngine, wanted: Sequence[Wanted]) -> None:
    """Copies in the cache of this machine. Their names do not tell of which store or type they are: all that have one
    of the keys go, and come again when they are read."""
    engine.reader.cache.drop_combined(engine.objects)  # made again by who needs it, and this way gone if it is damaged
    for path in _copies(engine):
        with suppress(FileNotFoundError):  # another process made room
            if has_identity(path.read_bytes(), path.name, wanted):
                path.unlink(missing_ok=True)


def _copies(engine: ParquetEngine) -> list[Path]:
    """The files in the cache of this machine, whose names do not tell what they are. Of a directory it has no copies of
    files, only what was made of several."""
    cache = engine.reader.cache
    return cache.files() if engine.objects.local_path(paths.HEAD) is None else cache.combined(engine.objects)


def find_unnamed(engine: ParquetEngine) -> list[str]:
    """The objects that no reader can come to."""
    named = _find_named(engine, engine.log.head().head)
    ours = (paths.COMMITS, paths.SNAPSHOTS, paths.STAGING)
    return [info.key for info in engine.objects.list() if info.key not in named and info.key.startswith(ours)]


def _find_named(engine: ParquetEngine, head: Head) -> set[str]:
    """Every object that a reader can come to."""
    found = engine.log.compacted(head).files
    for path, manifest in engine.log.chain(head):
        found |= {path, *(part.path for file in manifest.files for part in file.files)}
    for ref in {version.ref for version in engine.log.schemas(head).versions}:
        found |= {file.path for entry in engine.log.index(ref).index.entries for file in entry.files}
    return found


def has_identity(data: bytes, name: str, wanted: Sequence[Wanted]) -> bool:
    """Whether an object has one of the identities: in the columns of a data file, or as the bound of one in a manifest
    or an index. What is of another type may have the same keys."""
    if name.endswith(".parquet"):
        return _has_rows(data, [item for item in wanted if paths.may_be_of(name, item.ref)])
    if not name.endswith(".json"):
        return False
    try:
        return _has_bound(load(data), [item for item in wanted if _may_be_index_of(name, item.ref)])
    except ValueError:
        return False


def _may_be_index_of(name: str, ref: TypeRef) -> bool:
    return not name.startswith(paths.INDICES) or name == paths.index(ref)


def _has_rows(data: bytes, wanted: Sequence[Wanted]) -> bool:
    try:
        return _has_rows_in(pq.ParquetFile(io.BytesIO(data)), wanted)
    except (pa.ArrowException, OSError):  # cut short by who wrote it, or damaged
        return any(needle in data for needle in as_bytes(needles_of(wanted)))


def _has_rows_in(parquet: pq.ParquetFile, wanted: Sequence[Wanted]) -> bool:
    names = set(parquet.schema_arrow.names)
    for item in wanted:
        if not names >= set(item.ref.identity):
            continue
        type_column = f"{item.ref.kind}_type"
        columns = [*item.ref.identity, *([type_column] if type_column in names else [])]
        for batch in parquet.iter_batches(LOOKUP_GROUP_ROWS, columns=columns, use_threads=False):
            rows = pa.Table.from_batches([batch])
            if type_column in names:  # as engine v1 writes it
                rows = rows.filter(pc.equal(rows.column(type_column), item.ref.name))
            if pc.any(item.mask(rows)).as_py():
                return True
    return False


def _has_bound(body: Any, wanted: Sequence[Wanted]) -> bool:
    """Whether rows of one of the types lie between keys of which one is to go."""
    if isinstance(body, list):
        return any(_has_bound(value, wanted) for value in body)
    if not isinstance(body, dict):
        return False
    kind, name = body.get("kind"), body.get("type_name")
    inner = [item for item in wanted if kind in (None, item.ref.kind) and name in (None, item.ref.name)]
    if any(body.get(bound) in item.first_keys for item in inner for bound in ("min_key", "max_key")):
        return True
    return any(_has_bound(value, inner) for value in body.values())


def places_with(engine: ParquetEngine, wanted: Sequence[Wanted]) -> list[Trace]:
    """Every object of the prefix, and every file of the cache, that still has one of the keys."""
    found: list[Trace] = []
    needles = needles_of(wanted)
    tokens = [*as_bytes(needles), *(json.dumps(key, ensure_ascii=False).encode() for key in needles)]

    def look(name: str, place: str, data: bytes) -> None:
        if has_identity(data, name, wanted):
            found.append(Trace("row", place))
        elif any(token in data for token in tokens) or (name.endswith(".parquet") and is_in_texts(data, needles)):
            found.append(Trace("mention", place))

    for info in engine.objects.list():
        try:
            look(info.key, engine.objects.url(info.key), engine.objects.get(info.key).data)
        except ObjectNotFound:
            continue
    for path in _copies(engine):
        with suppress(FileNotFoundError):  # another process made room
            look(path.name, str(path), path.read_bytes())
    return found
