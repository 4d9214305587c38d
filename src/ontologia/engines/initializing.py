"""Laying out an empty store, or emptying one (RFC 0004 §7)."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig
from ontologia.engines.dispatch import (
    LATEST_VERSION,
    check_version,
    kept_for_03_error,
    open_engine,
    open_repository,
    sqlite_classes,
    stored_sqlite_stamp,
    write_lease,
)
from ontologia.engines.nesting import check_alone, check_outside, is_graph
from ontologia.engines.targets import StorageTarget, parse_storage_target, resolve_path
from ontologia.errors import EngineVersionError, ValidationError
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
    asked = _Initialization(target, config, engine_version or LATEST_VERSION, dry_run, force, token)
    if engine not in (None, "omnigraph", target.backend):
        raise ValidationError(
            f"engine {engine!r} is unknown here: {target.location} becomes an ontology, or with omnigraph a graph"
        )
    if engine == "omnigraph":
        if engine_version is not None:
            raise EngineVersionError("a graph has no engine version to choose: leave it out")
        return _initialize_graph(asked)
    return _initialize_sqlite(asked) if target.backend == "sqlite" else _initialize_objects(asked)


@dataclass(frozen=True, slots=True)
class _Initialization:
    """What was asked for: a store of this version, at this place."""

    target: StorageTarget
    config: OntologiaConfig | None
    version: str
    dry_run: bool
    force: bool
    token: str | None

    def check_token(self, expected: str) -> None:
        if self.token != expected:
            raise ValidationError(
                f"{self.target.location}: re-initializing needs the token of a forced dry run on this very state"
            )

    def report_plan(self, what: Iterable[str], token: str | None = None) -> InitReport:
        return InitReport(self.target, self.version, list(what), token)

    def report_done(self, what: Iterable[str]) -> InitReport:
        return InitReport(self.target, self.version, list(what), initialized=True)


def _initialize_sqlite(asked: _Initialization) -> InitReport:
    path = asked.target.location
    stamp = stored_sqlite_stamp(path)
    if stamp is None:
        if asked.dry_run:
            return asked.report_plan([path])
        open_repository(path, config=asked.config, engine_version=asked.version).close()
        return asked.report_done([path])
    if stamp.written_by_03:
        raise kept_for_03_error(path)
    if not asked.force:
        raise ValidationError(f"{path} holds an ontology already; re-initialize it with force=True, which empties it")
    if asked.dry_run:
        with open_engine(path) as engine:
            return asked.report_plan([path], _reset_token(path, engine.commits(limit=1)))
    from ontologia.engines.sqlite import control

    def check(found: sqlite3.Connection) -> None:
        asked.check_token(_reset_token(path, control.list_commits(found, 1, None)))

    sqlite_classes()[asked.version].reset(path, asked.config, check)
    return asked.report_done([path])


def _reset_token(path: str, newest: Sequence[Commit]) -> str:
    """Binds a reset to the last commit of a file."""
    head, made = (newest[0].id, newest[0].created_at) if newest else (0, "")
    return hashlib.sha256(f"reset {resolve_path(path)} {head} {made}".encode()).hexdigest()[:32]


def _initialize_graph(asked: _Initialization) -> InitReport:
    from ontologia.omnigraph.datasets import storage_options
    from ontologia.omnigraph.graph import Graph
    from ontologia.omnigraph.names import ACTORS, COMMITS, MANIFEST

    if asked.target.backend == "sqlite":
        raise ValidationError(f"a graph lives in a directory or a bucket: write file:///folder, not {asked.target}")
    if asked.force:
        raise ValidationError("a graph is not emptied by force: delete its folder or prefix, or choose another one")
    objects = Location.of(asked.target.location, asked.config).open_objects()
    storage_options(objects)  # where graphs cannot be is said before anything is asked of the place
    found = next(iter(objects.list()), None)
    if found is not None:
        held = "a graph" if is_graph(objects) else found.key
        raise ValidationError(f"{objects.uri} holds {held} already; a graph is made in an empty place")
    check_outside(objects)
    if not asked.dry_run:
        Graph.init(objects, asked.config)
    return InitReport(asked.target, "v1", [MANIFEST, COMMITS, ACTORS], initialized=not asked.dry_run)


def _initialize_objects(asked: _Initialization) -> InitReport:
    from ontologia.engines.ontologia_03.detection import REGISTRY
    from ontologia.engines.parquet import paths, setup

    objects = Location.of(asked.target.location, asked.config).open_objects()
    if objects.exists(REGISTRY):
        raise kept_for_03_error(asked.target.location)
    if not (asked.force and (objects.exists(paths.HEAD) or setup.is_half_empty(objects))):
        check_outside(objects)
        if asked.dry_run:
            setup.check_free(objects)
            return asked.report_plan(setup.plan_objects(asked.version))
        return asked.report_done(setup.initialize(objects, asked.version))
    check_alone(objects)
    expected = setup.reset_token(objects)
    if asked.dry_run:
        return asked.report_plan(setup.plan_objects(asked.version), expected)
    asked.check_token(expected)
    return asked.report_done(setup.reset(objects, asked.version, write_lease(objects, asked.config)))
