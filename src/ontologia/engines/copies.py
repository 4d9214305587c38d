"""Where a copy with history goes: an empty place, one that it has begun in, or the place of its source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig
from ontologia.engines.dispatch import open_engine, parquet_classes, sqlite_classes, stored_sqlite_stamp
from ontologia.engines.history import CopyNote, CopyTarget
from ontologia.engines.nesting import check_outside, is_graph
from ontologia.engines.targets import StorageTarget, parse_storage_target
from ontologia.errors import UninitializedStorageError, ValidationError
from ontologia.objects import Location, open_objects

if TYPE_CHECKING:
    from ontologia.engines.base import Engine
    from ontologia.objects import Objects

AFTERWARDS = {"v1": "v2"}
"""What a store can become in place."""


def open_source(place: str, config: OntologiaConfig | None, *, in_place: bool) -> Engine:
    """The store to copy. One that is being changed in place is still read as what it was."""
    target = parse_storage_target(place)
    if target.backend == "sqlite" and stored_sqlite_stamp(target.location) is None:
        raise UninitializedStorageError(f"{target}: there is no ontology here to copy")
    if in_place and target.backend == "s3":
        objects = _objects(target, config)
        note = _unfinished(target, config)
        if note is not None and note.in_place:
            return parquet_classes()["v1"](objects, config)
    return open_engine(target.uri if target.backend == "s3" else target.location, config)


def full_name(place: str) -> str:
    """A place as it is called from everywhere, behind every link."""
    target = parse_storage_target(place)
    if target.backend == "sqlite":
        return str(Path(target.location).resolve())
    return open_objects(target.location).uri if target.location.startswith("file:") else target.location


def unfinished_copy(place: str, config: OntologiaConfig | None) -> CopyNote | None:
    """The copy that a place is in the middle of becoming."""
    return _unfinished(parse_storage_target(place), config)


def _unfinished(target: StorageTarget, config: OntologiaConfig | None) -> CopyNote | None:
    from ontologia.engines.parquet.write import copying as in_bucket
    from ontologia.engines.sqlite import copying as in_file
    from ontologia.engines.sqlite.connections import Connections

    if target.backend == "s3":
        return in_bucket.unfinished_copy(_objects(target, config))
    if target.location == ":memory:":
        raise ValidationError("a store in memory ends with its process: copy into a file, or into a bucket")
    if stored_sqlite_stamp(target.location) is None:
        return None
    connections = Connections(target.location, 5_000)
    try:
        with connections.use() as connection:
            return in_file.unfinished_copy(connection)
    finally:
        connections.close()


def check_free(place: str, config: OntologiaConfig | None) -> None:
    """Refuse a place that has anything, before anything is written."""
    from ontologia.engines.parquet import paths, setup

    target = parse_storage_target(place)
    if target.backend == "sqlite":
        if stored_sqlite_stamp(target.location) is not None:
            raise ValidationError(f"{target} holds an ontology already; a copy with history is made in an empty place")
        return
    objects = _objects(target, config)
    if is_graph(objects):
        raise ValidationError(f"{target} holds a graph, which numbers its commits by itself: choose an empty place")
    if objects.exists(paths.HEAD):
        raise ValidationError(f"{target} holds an ontology already; a copy with history is made in an empty place")
    setup.check_free(objects)
    check_outside(objects)


@contextmanager
def open_copy(
    place: str, config: OntologiaConfig | None, note: CopyNote, *, begun: CopyNote | None
) -> Iterator[CopyTarget]:
    """Begin a copy, or go on with the one that was begun; in the block nobody else writes there."""
    target = parse_storage_target(place)
    if begun is not None:
        note = replace(begun, head=note.head) if begun.in_place else begun
    if target.backend == "sqlite":
        from ontologia.engines.sqlite.copying import SqliteCopy

        kind, path = sqlite_classes()[note.engine_version], target.location
        copy = SqliteCopy.begin(kind, path, config, note) if begun is None else SqliteCopy(kind(path, config), note)
        with copy.engine, copy.locked() if note.in_place else nullcontext():
            yield copy
        return
    from ontologia.engines.parquet import paths
    from ontologia.engines.parquet.write.copying import ParquetCopy, begin_copy

    objects = _objects(target, config)
    if begun is None:
        begin_copy(objects, note)
    engine = parquet_classes()[note.engine_version](objects, config, head_path=paths.COPY)
    with engine, engine.locked() as lease:
        yield ParquetCopy(engine, note, lease)


def _objects(target: StorageTarget, config: OntologiaConfig | None) -> Objects:
    return Location.of(target.location, config).open_objects()
