"""Which store a command is about, and with which settings: flags, then environment, then the config file.

The first of these that names a target decides. Two different targets named in the same place are a mistake, and an
error before anything is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.cli.exits import UsageError
from ontologia.cli.options import GlobalOptions
from ontologia.config import OntologiaConfig
from ontologia.errors import OntologiaError, UninitializedStorageError

if TYPE_CHECKING:
    from ontologia.engines.repository import Repository
    from ontologia.engines.targets import StorageTarget

PAGED_MEMORY_LIMIT = "128MB"
CONSOLE_KEYS = ("db", "storage_uri", "models", "upgraders", "log_level")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a command needs to know before it opens a store."""

    db: str | None
    storage_uri: str | None
    target: StorageTarget
    config: OntologiaConfig
    models: tuple[str, ...] = ()
    upgraders: tuple[str, ...] = ()
    log_level: str = "WARNING"

    @property
    def where(self) -> str:
        """The target in full, as it is echoed."""
        if self.target.backend != "sqlite":
            return self.target.uri
        location = self.target.location
        return f"sqlite {location if location == ':memory:' else Path(location).resolve()}"

    @property
    def is_named(self) -> bool:
        """Whether somebody said which target, so that it is not the default file."""
        return self.db is not None or self.storage_uri is not None

    def is_missing(self) -> bool:
        """Whether the target is a SQLite file that is not there yet; opening it would create it."""
        if self.target.backend != "sqlite":
            return False
        path = Path(self.target.location)
        return (
            self.target.location != ":memory:" and not path.is_dir() and (not path.exists() or path.stat().st_size == 0)
        )

    def with_little_memory(self) -> Settings:
        """For work that goes page by page: DuckDB needs little for that, unless the operator said otherwise."""
        if self.config.s3_duckdb_memory_limit != OntologiaConfig().s3_duckdb_memory_limit:
            return self
        return replace(self, config=replace(self.config, s3_duckdb_memory_limit=PAGED_MEMORY_LIMIT))

    def open(self, *, create: bool = False, branch: str | None = None) -> Repository:
        """Open the store. Only a write may create a SQLite file."""
        from ontologia.engines.dispatch import open_repository

        if self.is_missing() and not create:
            hint = "" if self.is_named else ", or name the one you mean with --db or --storage-uri"
            raise UninitializedStorageError(
                f"{self.where}: there is no ontology here yet; make one with onto init{hint}"
            )
        return open_repository(
            self.db, storage_uri=self.storage_uri, config=self.config, branch=branch, make_file=False
        )


def resolve(given: GlobalOptions, environ: Mapping[str, str] | None = None) -> Settings:
    """Put flags, environment and config file together."""
    environ = os.environ if environ is None else environ
    file = _read_config(given.config or environ.get("ONTOLOGIA_CONFIG") or None)
    db, storage_uri = _first_named(
        (given.db, given.storage_uri),
        (environ.get("ONTOLOGIA_DB") or None, environ.get("ONTOLOGIA_STORAGE_URI") or None),
        (file.get("db"), file.get("storage_uri")),
    )
    return Settings(
        db,
        storage_uri,
        _target(db, storage_uri),
        _ontologia_config(file),
        _names(file, "models"),
        _names(file, "upgraders"),
        str(environ.get("ONTOLOGIA_LOG_LEVEL") or file.get("log_level") or "WARNING").upper(),
    )


def _first_named(*levels: tuple[str | None, str | None]) -> tuple[str | None, str | None]:
    return next((level for level in levels if level != (None, None)), (None, None))


def _target(db: str | None, storage_uri: str | None) -> StorageTarget:
    from ontologia.engines.targets import parse_storage_target

    try:
        return parse_storage_target(db, storage_uri=storage_uri)
    except OntologiaError as problem:
        if db is not None and storage_uri is not None:
            raise UsageError(f"--db {db} and --storage-uri {storage_uri} are different targets: give one") from problem
        raise UsageError(f"{'--db' if storage_uri is None else '--storage-uri'} {problem}") from problem


def _read_config(path: str | None) -> dict[str, Any]:
    import tomllib

    if path is None:
        return {}
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"--config {path} cannot be read: {problem.strerror}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"--config {path} is not TOML: {problem}") from problem
    known = (*CONSOLE_KEYS, *(field.name for field in fields(OntologiaConfig)))
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise UsageError(f"--config {path}: unknown setting {', '.join(unknown)}; known are {', '.join(known)}")
    for key in ("db", "storage_uri", "log_level"):
        if not isinstance(content.get(key, ""), str):
            raise UsageError(f"--config {path}: {key} must be text, not {content[key]!r}")
    return content


def _ontologia_config(file: Mapping[str, Any]) -> OntologiaConfig:
    values = {field.name: file[field.name] for field in fields(OntologiaConfig) if field.name in file}
    try:
        return OntologiaConfig(**values)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"config: {problem}") from problem


def _names(file: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = file.get(key, [])
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"config: {key} must be a module or a list of modules, not {value!r}")
    return tuple(names)
