"""Which engine a target needs: the stamp that is stored there decides (RFC 0009 §7)."""

from __future__ import annotations

import os
import sqlite3
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig, new_runtime_id
from ontologia.engines.features import KNOWN_IN_BUCKETS, KNOWN_IN_FILES, Stamp
from ontologia.engines.history import COPYING
from ontologia.engines.nesting import is_graph
from ontologia.engines.targets import StorageTarget, parse_storage_target
from ontologia.errors import (
    EngineVersionError,
    StorageBackendError,
    UnfinishedCopyError,
    UninitializedStorageError,
    ValidationError,
)
from ontologia.objects import Location

if TYPE_CHECKING:
    from ontologia.engines.base import Engine
    from ontologia.engines.parquet.engine import ParquetEngine
    from ontologia.engines.repository import Repository
    from ontologia.engines.sqlite.engine import SqliteEngine
    from ontologia.objects import Lease, Objects

LATEST_VERSION = "v2"
KNOWN_VERSIONS = ("v1", "v2")
V1_TABLES = {"commits", "entity_history", "relation_history"}


def open_repository(
    db_path: str | os.PathLike[str] | None = None,
    *,
    storage_uri: str | None = None,
    config: OntologiaConfig | None = None,
    engine_version: str | None = None,
    branch: str | None = None,
    make_file: bool = True,
) -> Repository:
    """Open a store with the engine it was made with; a graph, on a branch of it.

    A new SQLite file is laid out on the way, with the latest engine or the one asked for; without `make_file`, the
    first write does that. An object store must be initialized first. An `engine_version` that disagrees with the stamp
    of an existing store is an error.
    """
    from ontologia.engines.repository import Repository

    target = parse_storage_target(db_path, storage_uri=storage_uri)
    return Repository(_open(target, config, engine_version, branch=branch, make_file=make_file))


def open_engine(
    where: str | os.PathLike[str] | Location,
    config: OntologiaConfig | None = None,
    engine_version: str | None = None,
    *,
    make_file: bool = True,
) -> Engine:
    """The engine of a store. A plain path is SQLite, a URI selects its engine. Without `make_file`, a new SQLite file
    is made by the first write."""
    location = Location.of(where, config)
    target = parse_storage_target(location.uri)
    return _open(target, location.settings, engine_version, branch=location.branch, make_file=make_file)


def _open(
    target: StorageTarget,
    config: OntologiaConfig | None,
    wanted: str | None,
    *,
    branch: str | None = None,
    make_file: bool = True,
) -> Engine:
    check_version(wanted)
    if target.backend == "sqlite":
        opened = _open_sqlite(target.location, config, wanted, make_file=make_file)
    else:
        opened = open_objects_engine(Location.of(target.location, config).open_objects(), config, wanted, branch)
    if branch is not None and not opened.capabilities.branches:
        opened.close()
        raise ValidationError(f"{target}: only graphs have branches, so {branch!r} cannot be opened here")
    return opened


def check_version(wanted: str | None) -> None:
    if wanted is not None and wanted not in KNOWN_VERSIONS:
        raise EngineVersionError(f"engine version {wanted!r} is unknown; known are {', '.join(KNOWN_VERSIONS)}")


def _agree_on_version(where: str, stored: str, wanted: str | None, known: frozenset[str]) -> str:
    """The engine version of a stamp, if this release knows it and what the store uses besides."""
    if stored.startswith(COPYING):
        raise UnfinishedCopyError.at(where)
    stamp = Stamp.read(stored)
    if stamp.version not in KNOWN_VERSIONS:
        raise EngineVersionError(
            f"{where}: this store has engine version {stamp.version!r}, and this release knows "
            f"{', '.join(KNOWN_VERSIONS)}; upgrade ontologia to open it"
        )
    stamp.check(where, known)
    if wanted is not None and wanted != stamp.version:
        raise EngineVersionError(f"{where}: this store has engine version {stamp.version}, not {wanted}")
    return stamp.version


def kept_for_03_error(where: str) -> ValidationError:
    return ValidationError(
        f"{where} holds an ontology of Ontologia 0.3, which is kept as it is: initialize another place, and move the "
        "data there with onto export and onto import"
    )


def _open_sqlite(path: str, config: OntologiaConfig | None, wanted: str | None, *, make_file: bool) -> Engine:
    classes = sqlite_classes()
    stored = stored_sqlite_stamp(path)
    if stored is None and not make_file and path != ":memory:":
        return classes[wanted or LATEST_VERSION].awaiting(path, config)
    if stored is None:
        made = classes[wanted or LATEST_VERSION].create(path, config)
        stored = stored_sqlite_stamp(path)  # another process may have been first, with another engine
        if stored in (None, SqliteStamp(made.engine_version)):
            return made
        made.close()
    version = _agree_on_version(path, stored.version, wanted, KNOWN_IN_FILES)
    if stored.written_by_03:
        return _open_sqlite_03(path, version, config)
    return classes[version](path, config)


def sqlite_classes() -> dict[str, type[SqliteEngine]]:
    from ontologia.engines.sqlite.v1 import SqliteEngineV1
    from ontologia.engines.sqlite.v2 import SqliteEngineV2

    return {"v1": SqliteEngineV1, "v2": SqliteEngineV2}


def _open_sqlite_03(path: str, version: str, config: OntologiaConfig | None) -> Engine:
    from ontologia.engines.ontologia_03.engine import Engine03
    from ontologia.engines.ontologia_03.sqlite_file import SqliteFile

    return Engine03(SqliteFile(path, version, (config or OntologiaConfig()).lock_timeout_ms), config)


@dataclass(frozen=True, slots=True)
class SqliteStamp:
    """What a file says of itself. Release 0.3 used the same versions for other layouts."""

    version: str
    written_by_03: bool = False


def stored_sqlite_stamp(path: str) -> SqliteStamp | None:
    """What a file is stamped with; v1 for files older than stamps; None for a new or empty file."""
    from ontologia.engines.ontologia_03.detection import is_sqlite_of_03
    from ontologia.engines.sqlite.connections import Connections
    from ontologia.engines.sqlite.engine import tables

    if path == ":memory:":
        return None
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as problem:
        raise StorageBackendError(f"{path!r}: the file cannot be opened ({problem})") from problem
    if status.st_size == 0:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise StorageBackendError(f"{path}: this is a folder; a SQLite store is a file")
    connections = Connections(path, 1_000)
    try:
        with connections.use() as connection:
            found = tables(connection)
            by_03 = is_sqlite_of_03(connection, found)
            if "storage_meta" in found:
                return SqliteStamp(_stamp(connection, path), by_03)
    finally:
        connections.close()
    if not found:
        return None
    if found >= V1_TABLES or by_03:  # RFC 0009 §7.1: without a stamp, it is v1
        return SqliteStamp("v1", by_03)
    raise StorageBackendError(f"{path}: this SQLite file holds something else, not an ontology; choose another path")


def _stamp(connection: sqlite3.Connection, path: str) -> str:
    stamps = dict(connection.execute("SELECT key, value FROM storage_meta"))
    if "engine_version" not in stamps:
        raise EngineVersionError(f"{path}: storage_meta has no engine_version")
    return str(stamps["engine_version"])


def open_objects_engine(
    objects: Objects,
    config: OntologiaConfig | None = None,
    engine_version: str | None = None,
    branch: str | None = None,
) -> Engine:
    """The engine on an object store that is open already."""
    try:
        return _open_parquet(objects, config, engine_version)
    except UninitializedStorageError:
        if not is_graph(objects):
            raise
    return _open_graph(objects, config, branch)


def _open_graph(objects: Objects, config: OntologiaConfig | None, branch: str | None) -> Engine:
    from ontologia.engines.omnigraph.engine import GraphEngine
    from ontologia.omnigraph.graph import Graph

    return GraphEngine(Graph.open(objects, config, deferred=True), branch=branch or "main")


def _open_parquet(objects: Objects, config: OntologiaConfig | None, engine_version: str | None) -> Engine:
    from ontologia.engines.ontologia_03.detection import is_bucket_of_03
    from ontologia.engines.parquet.setup import read_version

    version = _agree_on_version(objects.uri, read_version(objects), engine_version, KNOWN_IN_BUCKETS)
    engine = parquet_classes()[version](objects, config)
    if not is_bucket_of_03(objects, engine.opened_at.schema_manifest_path):
        return engine
    from ontologia.engines.ontologia_03.bucket import Bucket
    from ontologia.engines.ontologia_03.engine import Engine03

    engine.close()
    return Engine03(Bucket(objects, version), config)


def parquet_classes() -> dict[str, type[ParquetEngine]]:
    from ontologia.engines.parquet.versions import ParquetEngineV1, ParquetEngineV2

    return {"v1": ParquetEngineV1, "v2": ParquetEngineV2}


def write_lease(objects: Objects, config: OntologiaConfig | None) -> Lease:
    """The lease under which whoever writes to a bucket works."""
    from ontologia.engines.parquet.write import holding

    settings = config or OntologiaConfig()
    return holding.write_lease(objects, settings, settings.runtime_id or new_runtime_id())
