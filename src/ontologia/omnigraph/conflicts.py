"""What two branches and their base have, and what they disagree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.omnigraph.snapshots import StoredSnapshot

Strategy = Literal["fail", "ours", "theirs"]
STRATEGIES = ("fail", "ours", "theirs")
Row = Mapping[str, Any]
ConflictKind = Literal["DivergentInsert", "DivergentUpdate", "DeleteVsUpdate", "OrphanEdge", "UniqueViolation"]


@dataclass(frozen=True)
class Conflict:
    """One thing that both sides changed. A side that does not have the row is None."""

    table_key: str
    id: str | None
    kind: ConflictKind
    base: Row | None
    source: Row | None
    target: Row | None

    def __str__(self) -> str:
        return (
            f"{self.kind} of {self.table_key} {self.id!r}: base {self.base}, source {self.source}, target {self.target}"
        )


@dataclass(frozen=True)
class Sides:
    """The three states that a merge compares."""

    base: StoredSnapshot
    source: StoredSnapshot
    target: StoredSnapshot

    def pins(self, key: str) -> tuple[Any, Any, Any]:
        return tuple(side.manifest.pins.get(key) for side in (self.base, self.source, self.target))  # type: ignore[return-value]


def rows_by_id(side: StoredSnapshot, key: str, names: Sequence[str]) -> dict[str, Row]:
    """The rows that a state has of these ids."""
    return {row["id"]: row for row in side.rows_of(key, names).to_pylist()} if key in side else {}


def without(rows: pa.Table, ids: set[str]) -> pa.Table:
    """Rows, but for those with these ids."""
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=pa.array(sorted(ids), pa.string()))))


def same_row(left: Row | None, right: Row | None) -> bool:
    """By the text of the values: null is not an empty text, and not-a-number is equal to itself."""
    if left is None or right is None:
        return left is right
    return sorted(map(repr, left.items())) == sorted(map(repr, right.items()))
