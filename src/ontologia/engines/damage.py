"""What is damaged in a store, and a lost head made again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig
from ontologia.engines.dispatch import stored_sqlite_stamp, write_lease
from ontologia.engines.nesting import is_graph
from ontologia.engines.targets import StorageTarget
from ontologia.errors import UnfinishedCopyError, UninitializedStorageError, ValidationError
from ontologia.objects import Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from ontologia.engines.parquet.care.check import CheckReport
    from ontologia.engines.parquet.care.recovery import HeadRecovery
    from ontologia.objects import Objects


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
) -> HeadRecovery:
    """Make a lost or damaged head again from the chain of manifests; a preview with a token unless `apply` is set."""
    from ontologia.engines.parquet.care import recovery

    objects = _checkable(target, config)
    if not apply:
        return recovery.plan_recovery(objects, manifest_path)
    return recovery.recover(objects, write_lease(objects, config), token, manifest_path)


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
