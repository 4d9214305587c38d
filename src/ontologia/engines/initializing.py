"""Laying out an empty store, or emptying one (RFC 0004 §7)."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig
from ontologia.engines.dispatch import (
    LATEST_VERSION,
    check_version,
    kept_for_03,
    open_engine,
    open_repository,
    sqlite_classes,
    stored_sqlite_stamp,
    write_lease,
)
from ontologia.engines.nesting import check_alone, check_outside, is_graph
from ontologia.engines.targets import StorageTarget, parse_storage_target, resolved_path
from ontologia.errors import ValidationError
from ontologia.objects import Location

if TYPE_CHECKING:
    from ontologia.engines.catalog import Commit


@dataclass(frozen=True, slots=True)
class InitReport:
    """What an initialization wrote, or would write. `token` confirms a forced one."""

    target: StorageTarget
    engine_version: str
    planned: list[str] = field(default_factory=list)
    token: str | None = None
    initialized: bool = False


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
    check_version(engine_version)
    target = parse_storage_target(db_path, storage_uri=storage_uri)
    version = engine_version or LATEST_VERSION
    if engine == "omnigraph":
        return _initialize_graph(target, config, dry_run=dry_run, force=force)
    if target.backend == "sqlite":
        return _initialize_sqlite(target, config, version, dry_run=dry_run, force=force, token=token)
    return _initialize_objects(target, config, version, dry_run=dry_run, force=force, token=token)


def _check_token(where: str, expected: str, token: str | None) -> None:
    if token != expected:
        raise ValidationError(f"{where}: re-initializing needs the token of a forced dry run on this very state")


# --- SQLite ---


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
        raise kept_for_03(path)
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
    return hashlib.sha256(f"reset {resolved_path(path)} {head} {made}".encode()).hexdigest()[:32]


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
    check_outside(objects)
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
        raise kept_for_03(target.location)
    if not (force and (objects.exists(paths.HEAD) or setup.is_half_empty(objects))):
        check_outside(objects)
        if dry_run:
            setup.check_free(objects)
            return InitReport(target, version, list(setup.planned_objects(version)))
        return InitReport(target, version, setup.initialize(objects, version), initialized=True)
    check_alone(objects)
    expected = setup.reset_token(objects)
    if dry_run:
        return InitReport(target, version, list(setup.planned_objects(version)), expected)
    _check_token(target.location, expected, token)
    lease = write_lease(objects, config)
    return InitReport(target, version, setup.reset(objects, version, lease), initialized=True)
