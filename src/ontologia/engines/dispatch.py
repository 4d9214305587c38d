"""Which engine a target needs: parsed from paths and URIs, decided by the stored stamp (RFC 0009 §1, §7)."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ontologia.config import OntologiaConfig
from ontologia.errors import EngineVersionError, StorageBackendError, ValidationError

if TYPE_CHECKING:
    from ontologia.engines.rowwise import RowwiseRepository

DEFAULT_PATH = "onto.db"
LATEST_VERSION = "v2"
KNOWN_VERSIONS = ("v1", "v2")
V1_TABLES = {"commits", "entity_history", "relation_history"}


@dataclass(frozen=True, slots=True)
class StorageTarget:
    """A parsed target: the backend, and where it is."""

    backend: str
    location: str

    @property
    def uri(self) -> str:
        if self.backend == "sqlite":
            return f"sqlite:///{self.location}"
        return self.location


def parse_storage_target(
    db_path: str | os.PathLike[str] | None = None, *, storage_uri: str | None = None
) -> StorageTarget:
    """Resolve the two ways to name a target; giving both is fine when they mean the same file.

    >>> parse_storage_target("onto.db")
    StorageTarget(backend='sqlite', location='onto.db')
    """
    by_path = None if db_path is None else StorageTarget("sqlite", os.fspath(db_path))
    by_uri = None if storage_uri is None else _parse_uri(storage_uri)
    if by_path is not None and by_uri is not None:
        same = by_uri.backend == "sqlite" and _resolved(by_uri.location) == _resolved(by_path.location)
        if not same:
            raise ValidationError(f"db_path {by_path.location!r} and storage_uri {storage_uri!r} are different targets")
    return by_uri or by_path or StorageTarget("sqlite", DEFAULT_PATH)


def _parse_uri(uri: str) -> StorageTarget:
    scheme = urlsplit(uri).scheme
    if scheme == "sqlite":
        rest = uri.removeprefix("sqlite:")
        if not rest.startswith("///") or len(rest) == 3:
            raise ValidationError(f"{uri!r}: write sqlite:///relative/path.db or sqlite:////absolute/path.db")
        return StorageTarget("sqlite", unquote(rest[3:]))
    raise ValidationError(f"{uri!r}: this release opens sqlite:///path")


def _resolved(path: str) -> str:
    return path if path == ":memory:" else str(Path(path).resolve())


def open_repository(
    db_path: str | os.PathLike[str] | None = None,
    *,
    storage_uri: str | None = None,
    config: OntologiaConfig | None = None,
    engine_version: str | None = None,
) -> RowwiseRepository:
    """Open a store with the engine it was made with; a new SQLite file is laid out with the latest one.

    `engine_version` chooses the layout of a new store, and must agree with the stamp of an existing one.
    """
    if engine_version is not None and engine_version not in KNOWN_VERSIONS:
        raise EngineVersionError(f"engine version {engine_version!r} is unknown; known are {', '.join(KNOWN_VERSIONS)}")
    target = parse_storage_target(db_path, storage_uri=storage_uri)
    return _open_sqlite(target.location, config, engine_version)


def _open_sqlite(path: str, config: OntologiaConfig | None, wanted: str | None) -> RowwiseRepository:
    from ontologia.engines.sqlite.v1 import SqliteRepositoryV1
    from ontologia.engines.sqlite.v2 import SqliteRepositoryV2

    classes = {"v1": SqliteRepositoryV1, "v2": SqliteRepositoryV2}
    stored = stored_sqlite_version(path)
    if stored is None:
        return classes[wanted or LATEST_VERSION].create(path, config)
    if stored not in classes:
        raise EngineVersionError(
            f"{path}: this store has engine version {stored!r}, and this release knows {', '.join(classes)}; "
            "upgrade ontologia to open it"
        )
    if wanted is not None and wanted != stored:
        raise EngineVersionError(f"{path}: this store has engine version {stored}, not {wanted}")
    return classes[stored](path, config)


def stored_sqlite_version(path: str) -> str | None:
    """The engine version a file is stamped with; v1 for files older than stamps; None for a new or empty file."""
    from ontologia.engines.sqlite.connections import Connections
    from ontologia.engines.sqlite.repository import tables

    if path == ":memory:" or not Path(path).exists() or Path(path).stat().st_size == 0:
        return None
    if Path(path).is_dir():
        raise StorageBackendError(f"{path}: this is a folder; a SQLite store is a file")
    connections = Connections(path, 1_000)
    try:
        with connections.use() as connection:
            found = tables(connection)
            if "storage_meta" in found:
                return _stamp(connection, path)
    finally:
        connections.close()
    if not found:
        return None
    if found >= V1_TABLES:
        return "v1"
    raise StorageBackendError(f"{path}: this SQLite file holds something else, not an ontology; choose another path")


def _stamp(connection: sqlite3.Connection, path: str) -> str:
    stamps = dict(connection.execute("SELECT key, value FROM storage_meta"))
    if "engine_version" not in stamps:
        raise EngineVersionError(f"{path}: storage_meta has no engine_version")
    return str(stamps["engine_version"])
