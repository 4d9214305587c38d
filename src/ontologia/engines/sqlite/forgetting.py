"""Giving up the early history of a SQLite file of engine v2, in one transaction.

What was in force at the base keeps its commit, so that the state there and all that came after it read as before. Gone
is what was superseded by then: by a later version, by its removal, by a migration, or because its type was dropped.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Commit
from ontologia.engines.features import FORGOTTEN
from ontologia.engines.forgetting import Forgotten, Superseded, head_moved
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.control import BASE
from ontologia.engines.sqlite.windows import Versions, has_newer
from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef, instant_text
from ontologia.query.in_force import removal_sql
from ontologia.query.plan import Window

if TYPE_CHECKING:
    from ontologia.engines.sqlite.v2 import SqliteEngineV2


STILL_READ = (
    "somebody is reading the file, so that it has not become smaller yet; what is written next takes that space"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one table that go. Each condition is true of rows whatever the ones before it took away."""

    ref: TypeRef
    table: str
    conditions: tuple[str, ...]


def find(engine: SqliteEngineV2, base: int) -> list[Superseded]:
    """How many versions of each type would go."""
    counts: Counter[TypeRef] = Counter()
    with engine.snapshot(), engine.reading() as connection:
        for part in _parts(connection, base):
            where = " OR ".join(f"({condition})" for condition in part.conditions)
            (rows,) = connection.execute(
                f"SELECT count(*) FROM {part.table} t WHERE {where}", {"window": base}
            ).fetchone()
            counts[part.ref] += rows
    return [Superseded(ref, rows) for ref, rows in sorted(counts.items())]


def forget(engine: SqliteEngineV2, base: int, head: int, metadata: Mapping[str, Any]) -> Forgotten:
    """Take these rows away, and say where history begins: in the stamp, in the file, and in the log."""
    with engine.change() as connection:
        found = control.head(connection)
        if found != head:
            raise head_moved(found, head)
        for part in list(_parts(connection, base)):
            for condition in part.conditions:
                connection.execute(f"DELETE FROM {part.table} AS t WHERE {condition}", {"window": base})
        begin_history_at(connection, base)
        made = Commit(head + 1, instant_text(control.now()), engine.runtime_id, metadata)
        control.add_commit(connection, made)
    waits_for = None if engine.give_space_back() else STILL_READ
    return Forgotten(made.id, waits_for)


def begin_history_at(connection: sqlite3.Connection, base: int) -> None:
    """Note where history begins. Called inside a transaction."""
    control.use_feature(connection, FORGOTTEN)
    control.note(connection, BASE, str(base))


def _parts(connection: sqlite3.Connection, base: int) -> Iterator[_Part]:
    """Where superseded rows are: all of a version that had ended by then, and some of the one in force."""
    rows = connection.execute(
        "SELECT type_kind, type_name, table_name, activation_commit_id, lead(activation_commit_id) OVER "
        "(PARTITION BY type_kind, type_name ORDER BY activation_commit_id) FROM type_layout_catalog ORDER BY 1, 2, 4"
    ).fetchall()
    drops = control.drops(connection)
    for kind, name, table, start, following in rows:
        ref = TypeRef(kind, name)
        end = drops.get(ref) if following is None else following
        if end is not None and end <= base:
            yield _Part(ref, quote_name(table), ("1",))  # not "true": a field may be called so
        elif start <= base:
            yield _Part(ref, quote_name(table), tuple(_superseded_conditions(connection, ref, table)))


def _superseded_conditions(connection: sqlite3.Connection, ref: TypeRef, table: str) -> Iterator[str]:
    """What is true of rows that a later row of the same table supersedes, and of removals, which nothing needs then."""
    yield has_newer(Versions(table, {}), ref.identity, Window("as_of")).sql("sqlite")
    if any(row[1] == SUPERSEDED_BY for row in connection.execute(f"PRAGMA table_info({quote_name(table)})")):
        yield f"t.{COMMIT_ID} <= :window AND {removal_sql('t')}"
