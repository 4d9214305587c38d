"""What a commit did to a row, said once for all engines that keep rows in tables or files.

A row is an `update_version` when its identity has a row of an earlier commit, whatever schema version that was written
under, else an `insert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, TypeRef


def changed_rows_sql(identity: Sequence[str], own: str, earlier: Sequence[str], commit: str) -> str:
    """The rows of a commit: their identity, in order, and whether it was there before.

    `own` and `earlier` are what stands behind FROM, `commit` is the parameter with the commit's number. SQLite and
    DuckDB take the same text.
    """
    columns = list(map(quote_name, identity))
    same = " AND ".join(f"o.{column} = t.{column}" for column in columns)
    existed = " OR ".join(
        f"EXISTS (SELECT 1 FROM {source} o WHERE {same} AND o.{COMMIT_ID} < {commit})" for source in earlier
    )
    names = ", ".join(f"t.{column}" for column in columns)
    return f"SELECT {names}, ({existed or 'false'}) FROM {own} t WHERE t.{COMMIT_ID} = {commit} ORDER BY {names}"


def change_entry(ref: TypeRef, identity: Sequence[str], existed: bool) -> dict[str, Any]:
    """One change of a commit, as callers see it."""
    names = ("key",) if ref.kind == "entity" else ref.identity
    return {
        "kind": ref.kind,
        "type_name": ref.name,
        **dict(zip(names, identity, strict=True)),
        "operation": "update_version" if existed else "insert",
    }
