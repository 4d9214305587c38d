"""How a store of 0.3 is told from one of ours: nothing in it names the release, and the stamps are the same."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from ontologia.objects import Objects

HISTORIES = {"commits", "entity_history", "relation_history"}
COMMIT = {"id", "created_at", "metadata_json"}
REGISTRY = "meta/schema/registry.json"


def is_sqlite_of_03(connection: sqlite3.Connection, tables: Set[str]) -> bool:
    """Both layouts of 0.3 keep rows where our v1 does; ours notes in every commit who made it. A file with commits and
    no histories is one that it had only begun."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(commits)")}
    if not tables >= HISTORIES:
        return tables == {"commits"} and columns == COMMIT
    return "runtime_id" not in columns


def is_bucket_of_03(objects: Objects, schema_manifest_path: str | None) -> bool:
    """Our head says which manifest has the schemas; 0.3 has them in an object that we do not write."""
    return schema_manifest_path is None and objects.exists(REGISTRY)
