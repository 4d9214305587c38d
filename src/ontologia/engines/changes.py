"""What a commit did to a row, said once: for tables and files in SQL, and for whoever knows what was there before.

A row is a `remove` when it says that something went. It is an `update_version` when its identity was there before the
commit, whatever schema version its row was written under, and else an `insert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, TypeRef
from ontologia.query.in_force import removal_sql

INSERT, UPDATE, REMOVE = "insert", "update_version", "remove"


def operation_of(*, existed: bool, removed: bool = False) -> str:
    """The operation of a row whose identity was there before, or was not."""
    return REMOVE if removed else UPDATE if existed else INSERT


@dataclass(frozen=True, slots=True)
class VersionRows:
    """Versions of rows: what stands behind FROM, and whether removals are among them."""

    source: str
    has_removals: bool = False


def changed_rows_sql(identity: Sequence[str], own: VersionRows, earlier: Sequence[VersionRows], commit: str) -> str:
    """The rows of a commit: their identity, in order, and the operation.

    `commit` is the parameter with the commit's number. SQLite and DuckDB take the same text.
    """
    columns = list(map(quote_name, identity))
    same = " AND ".join(f"o.{column} = t.{column}" for column in columns)
    names = ", ".join(f"t.{column}" for column in columns)
    removed = f"WHEN {removal_sql('t')} THEN '{REMOVE}' " if own.has_removals else ""
    existed = _existed_sql(earlier, same, commit)
    operation = f"CASE {removed}WHEN {existed} THEN '{UPDATE}' ELSE '{INSERT}' END"
    return f"SELECT {names}, {operation} FROM {own.source} t WHERE t.{COMMIT_ID} = {commit} ORDER BY {names}"


def _existed_sql(earlier: Sequence[VersionRows], same: str, commit: str) -> str:
    """Whether an identity was there: it has an earlier row, and one after its last removal."""
    before = f"{same} AND o.{COMMIT_ID} < {commit}"
    gone = [_newest(rows, f"{before} AND {removal_sql('o')}") for rows in earlier if rows.has_removals]
    if not gone:
        tests = [f"EXISTS (SELECT 1 FROM {rows.source} o WHERE {before})" for rows in earlier]
    else:
        tests = [f"({' AND '.join(f'{_newest(rows, before)} > {last}' for last in gone)})" for rows in earlier]
    return " OR ".join(tests) or "false"


def _newest(rows: VersionRows, where: str) -> str:
    return f"coalesce((SELECT max(o.{COMMIT_ID}) FROM {rows.source} o WHERE {where}), 0)"


def change_entry(ref: TypeRef, identity: Sequence[str], operation: str) -> dict[str, Any]:
    """One change of a commit, as callers see it."""
    names = ("key",) if ref.kind == "entity" else ref.identity
    return {
        "kind": ref.kind,
        "type_name": ref.name,
        **dict(zip(names, identity, strict=True)),
        "operation": operation,
    }
