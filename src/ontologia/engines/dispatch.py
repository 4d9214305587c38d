"""Which engine a target needs: parsed from paths and URIs, decided by the stored stamp (RFC 0009 §1, §7)."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ontologia.config import OntologiaConfig, new_runtime_id
from ontologia.engines.features import KNOWN_IN_BUCKETS, KNOWN_IN_FILES, Stamp
from ontologia.engines.history import COPYING
from ontologia.errors import (
    EngineVersionError,
    StorageBackendError,
    UnfinishedCopyError,
    UninitializedStorageError,
    ValidationError,
)
from ontologia.objects import Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from ontologia.engines.base import Engine
    from ontologia.engines.catalog import Commit
    from ontologia.engines.parquet.care.check import CheckReport
    from ontologia.engines.parquet.care.recovery import Recovery
    from ontologia.engines.parquet.engine import ParquetEngine
    from ontologia.engines.repository import Repository
    from ontologia.engines.sqlite.engine import SqliteEngine
    from ontologia.objects import Lease, Objects

DEFAULT_PATH = "onto.db"
LATEST_VERSION = "v2"
KNOWN_VERSIONS = ("v1", "v2")
OBJECT_SCHEMES = ("s3", "gs", "file", "memory")
V1_TABLES = {"commits", "entity_history", "relation_history"}


@dataclass(frozen=True, slots=True)
class StorageTarget:
    """A parsed target: the backend (`sqlite` or `s3`, which is any object store), and where it is."""

    backend: str
    location: str

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.location}" if self.backend == "sqlite" else self.location

    def __str__(self) -> str:
        return self.location


@dataclass(frozen=True, slots=True)
class InitReport:
    """What an initialization wrote, or would write. `token` confirms a forced one."""

    target: StorageTarget
    engine_version: str
    planned: list[str] = field(default_factory=list)
    token: str | None = None
    initialized: bool = False


def parse_storage_target(
    db_path: str | os.PathLike[str] | None = None, *, storage_uri: str | None = None
) -> StorageTarget:
    """Resolve the two ways to name a target; giving both is fine when they mean the same file.

    >>> parse_storage_target("onto.db")
    StorageTarget(backend='sqlite', location='onto.db')
    """
    if db_path is not None and not os.fspath(db_path):
        raise ValidationError("db_path is empty: give the path of a file, or leave it out for onto.db")
    path = None if db_path is None else os.fspath(db_path)
    if path is not None and "://" in path and storage_uri is None:
        path, storage_uri = None, path  # a URI is a URI wherever it is given
    by_path = None if path is None else _sqlite(path)
    by_uri = None if storage_uri is None else _parse_uri(storage_uri)
    if by_path is not None and by_uri is not None:
        same = by_uri.backend == "sqlite" and _resolved(by_uri.location) == _resolved(by_path.location)
        if not same:
            raise ValidationError(f"db_path {by_path.location!r} and storage_uri {storage_uri!r} are different targets")
    return by_uri or by_path or StorageTarget("sqlite", DEFAULT_PATH)


def _parse_uri(uri: str) -> StorageTarget:
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    if scheme == "sqlite":
        rest = uri.removeprefix("sqlite:")
        if not rest.startswith("///") or len(rest) == 3:
            raise ValidationError(f"{uri!r}: write sqlite:///relative/path.db or sqlite:////absolute/path.db")
        return _sqlite(unquote(rest[3:]))
    if scheme in OBJECT_SCHEMES and "://" in uri:
        from ontologia.objects import checked_uri

        checked_uri(uri)
        return StorageTarget("s3", uri.rstrip("/"))
    raise ValidationError(
        f"{uri!r} is no storage URI: write sqlite:///path.db, s3://bucket/prefix, gs://bucket/prefix or file:///folder"
    )


def _sqlite(path: str) -> StorageTarget:
    if "\0" in path:
        raise ValidationError(f"{path!r} has a zero byte, which no path has")
    return StorageTarget("sqlite", path)


def _resolved(path: str) -> str:
    return path if path == ":memory:" else str(Path(path).resolve())


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
    where: str | os.PathLike[str] | Location, config: OntologiaConfig | None = None, engine_version: str | None = None
) -> Engine:
    """The engine of a store. A plain path is SQLite, a URI selects its engine."""
    location = Location.of(where, config)
    return _open(parse_storage_target(location.uri), location.settings, engine_version, branch=location.branch)


def _open(
    target: StorageTarget,
    config: OntologiaConfig | None,
    wanted: str | None,
    *,
    branch: str | None = None,
    make_file: bool = True,
) -> Engine:
    _check_version(wanted)
    if target.backend == "sqlite":
        opened = _open_sqlite(target.location, config, wanted, make_file=make_file)
    else:
        opened = open_objects_engine(Location.of(target.location, config).open_objects(), config, wanted, branch)
    if branch is not None and not opened.capabilities.branches:
        opened.close()
        raise ValidationError(f"{target}: only graphs have branches, so {branch!r} cannot be opened here")
    return opened


def initialize_storage(
    db_path: str | os.PathLike[str] | None = None,
    *,
    storage_uri: str | None = None,
    config: OntologiaConfig | None = None,
    engine: str | None = None,
    engine_version: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    token: str | None = None,
) -> InitReport:
    """Lay out an empty store (RFC 0004 §7). `force` empties an existing one, and needs the token of its dry run."""
    _check_version(engine_version)
    target = parse_storage_target(db_path, storage_uri=storage_uri)
    version = engine_version or LATEST_VERSION
    if engine == "omnigraph":
        return _initialize_graph(target, config, dry_run=dry_run, force=force)
    if target.backend == "sqlite":
        return _initialize_sqlite(target, config, version, dry_run=dry_run, force=force, token=token)
    return _initialize_objects(target, config, version, dry_run=dry_run, force=force, token=token)


def _check_version(wanted: str | None) -> None:
    if wanted is not None and wanted not in KNOWN_VERSIONS:
        raise EngineVersionError(f"engine version {wanted!r} is unknown; known are {', '.join(KNOWN_VERSIONS)}")


def _agreed(where: str, stored: str, wanted: str | None, known: frozenset[str]) -> str:
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


def _kept_for_03(where: str) -> ValidationError:
    return ValidationError(
        f"{where} holds an ontology of Ontologia 0.3, which is kept as it is: initialize another place, and move the "
        "data there with onto export and onto import"
    )


def _check_token(where: str, expected: str, token: str | None) -> None:
    if token != expected:
        raise ValidationError(f"{where}: re-initializing needs the token of a forced dry run on this very state")


# --- SQLite ---


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
    version = _agreed(path, stored.version, wanted, KNOWN_IN_FILES)
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
    if found >= V1_TABLES:
        return SqliteStamp("v1", by_03)
    raise StorageBackendError(f"{path}: this SQLite file holds something else, not an ontology; choose another path")


def _stamp(connection: sqlite3.Connection, path: str) -> str:
    stamps = dict(connection.execute("SELECT key, value FROM storage_meta"))
    if "engine_version" not in stamps:
        raise EngineVersionError(f"{path}: storage_meta has no engine_version")
    return str(stamps["engine_version"])


def _initialize_sqlite(
    target: StorageTarget,
    config: OntologiaConfig | None,
    version: str,
    *,
    dry_run: bool,
    force: bool,
    token: str | None,
) -> InitReport:
    path = target.location
    stamp = stored_sqlite_stamp(path)
    if stamp is not None and stamp.written_by_03:
        raise _kept_for_03(path)
    exists = stamp is not None
    if exists and not force:
        raise ValidationError(f"{path} holds an ontology already; re-initialize it with force, which empties it")
    if dry_run:
        expected = None
        if exists:
            with open_engine(path) as engine:
                expected = _reset_token(path, engine.commits(limit=1))
        return InitReport(target, version, [path], expected)
    if exists:
        from ontologia.engines.sqlite import control

        def check(found: sqlite3.Connection) -> None:
            _check_token(path, _reset_token(path, control.list_commits(found, 1, None)), token)

        sqlite_classes()[version].reset(path, config, check)
    else:
        open_repository(path, config=config, engine_version=version).close()
    return InitReport(target, version, [path], initialized=True)


def _reset_token(path: str, newest: Sequence[Commit]) -> str:
    """Binds a reset to the last commit of a file."""
    head, made = (newest[0].id, newest[0].created_at) if newest else (0, "")
    return hashlib.sha256(f"reset {_resolved(path)} {head} {made}".encode()).hexdigest()[:32]


# --- object storage ---


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


def is_graph(objects: Objects) -> bool:
    """Whether a graph lies here: its manifest has a version."""
    return next(iter(objects.list("__manifest/_versions/")), None) is not None


def _open_graph(objects: Objects, config: OntologiaConfig | None, branch: str | None) -> Engine:
    from ontologia.engines.omnigraph.engine import GraphEngine
    from ontologia.omnigraph.graph import Graph

    return GraphEngine(Graph.open(objects, config, deferred=True), branch=branch or "main")


def _open_parquet(objects: Objects, config: OntologiaConfig | None, engine_version: str | None) -> Engine:
    from ontologia.engines.ontologia_03.detection import is_bucket_of_03
    from ontologia.engines.parquet.setup import stored_version

    version = _agreed(objects.uri, stored_version(objects), engine_version, KNOWN_IN_BUCKETS)
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


def _initialize_graph(
    target: StorageTarget, config: OntologiaConfig | None, *, dry_run: bool, force: bool
) -> InitReport:
    from ontologia.omnigraph.datasets import storage_options
    from ontologia.omnigraph.graph import Graph
    from ontologia.omnigraph.names import ACTORS, COMMITS, MANIFEST

    if target.backend == "sqlite":
        raise ValidationError(f"a graph lives in a directory or a bucket: write file:///folder, not {target}")
    if force:
        raise ValidationError("a graph is not emptied by force: delete its folder or prefix, or choose another one")
    objects = Location.of(target.location, config).open_objects()
    storage_options(objects)  # where graphs cannot be is said before anything is asked of the place
    found = next(iter(objects.list()), None)
    if found is not None:
        held = "a graph" if is_graph(objects) else found.key
        raise ValidationError(f"{objects.uri} holds {held} already; a graph is made in an empty place")
    if not dry_run:
        Graph.init(objects, config)
    return InitReport(target, "v1", [MANIFEST, COMMITS, ACTORS], initialized=not dry_run)


def _initialize_objects(
    target: StorageTarget,
    config: OntologiaConfig | None,
    version: str,
    *,
    dry_run: bool,
    force: bool,
    token: str | None,
) -> InitReport:
    from ontologia.engines.ontologia_03.detection import REGISTRY
    from ontologia.engines.parquet import paths, setup

    objects = Location.of(target.location, config).open_objects()
    if objects.exists(REGISTRY):
        raise _kept_for_03(target.location)
    if not (force and (objects.exists(paths.HEAD) or setup.is_half_empty(objects))):
        if dry_run:
            setup.check_free(objects)
            return InitReport(target, version, list(setup.planned_objects(version)))
        return InitReport(target, version, setup.initialize(objects, version), initialized=True)
    expected = setup.reset_token(objects)
    if dry_run:
        return InitReport(target, version, list(setup.planned_objects(version)), expected)
    _check_token(target.location, expected, token)
    lease = _write_lease(objects, config)
    return InitReport(target, version, setup.reset(objects, version, lease), initialized=True)


def _write_lease(objects: Objects, config: OntologiaConfig | None) -> Lease:
    from ontologia.engines.parquet import paths
    from ontologia.objects import Lease

    settings = config or OntologiaConfig()
    return Lease(
        objects,
        paths.lock(),
        settings.s3_lease_ttl_ms / 1000,
        owner_id=settings.runtime_id or new_runtime_id(),
        timeout_s=settings.s3_lock_timeout_ms / 1000,
        timeout_setting="OntologiaConfig.s3_lock_timeout_ms",
    )


# --- damage ---


def check_storage(
    target: StorageTarget, config: OntologiaConfig | None = None, progress: Callable[[int, int], None] | None = None
) -> CheckReport:
    """Walk over everything a store consists of, and say what is damaged and what that costs."""
    from ontologia.engines.parquet.care import check

    if target.backend == "sqlite":
        return _check_sqlite(target.location)
    return check.check(_checkable(target, config), progress)


def _check_sqlite(path: str) -> CheckReport:
    from ontologia.engines.parquet.care.check import CheckReport, Damage
    from ontologia.engines.sqlite.connections import Connections

    if stored_sqlite_stamp(path) is None:
        raise UninitializedStorageError(f"{path}: there is no ontology here")
    connections = Connections(path, 5_000)
    try:
        with connections.use() as connection:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            head, commits = connection.execute("SELECT coalesce(max(id), 0), count(*) FROM commits").fetchone()
    finally:
        connections.close()
    effect = "restore the file from a backup, or save with onto export what can still be read"
    damages = [Damage("file", path, problem, effect) for problem in problems if problem != "ok"]
    return CheckReport(head, commits, 1, os.stat(path).st_size, damages)


def recover_head(
    target: StorageTarget,
    config: OntologiaConfig | None = None,
    *,
    apply: bool = False,
    token: str | None = None,
    manifest_path: str | None = None,
) -> Recovery:
    """Make a lost or damaged head again from the chain of manifests; a preview with a token unless `apply` is set."""
    from ontologia.engines.parquet.care import recovery

    objects = _checkable(target, config)
    if not apply:
        return recovery.plan_recovery(objects, manifest_path)
    return recovery.recover(objects, _write_lease(objects, config), token, manifest_path)


def _checkable(target: StorageTarget, config: OntologiaConfig | None) -> Objects:
    from ontologia.engines.ontologia_03.detection import REGISTRY
    from ontologia.engines.parquet import paths

    if target.backend == "sqlite":
        raise ValidationError(f"{target}: a SQLite file has no head to recover; this is for a bucket or a folder")
    objects = Location.of(target.location, config).open_objects()
    if objects.exists(REGISTRY):
        raise ValidationError(f"{target}: a store of Ontologia 0.3 is compared with its hashes whenever it is read")
    if is_graph(objects):
        raise ValidationError(f"{target} is a graph, whose files Lance keeps")
    if objects.exists(paths.COPY) and not objects.exists(paths.HEAD):
        raise UnfinishedCopyError.at(objects.uri)
    return objects
