"""Fields of which no two rows of a table have the same value. Null does not count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.omnigraph.lookups import rows_with
from ontologia.omnigraph.manifest import Table
from ontologia.omnigraph.snapshots import StoredSnapshot


@dataclass(frozen=True)
class Clash:
    """Two rows with one value: one that is written, and another that is written too, or stays as it is."""

    column: str
    value: Any
    id: str
    other: str
    stored: bool  #: whether the other is in the table already

    def describe(self, key: str) -> str:
        has = "has" if self.stored else "is to have"
        return f"{key} {self.id!r} has the {self.column} {self.value!r}, which is unique, and {self.other!r} {has} it"


def unique_columns(table: Table) -> Sequence[str]:
    """The columns that a table's type declares unique."""
    return tuple(table.notes.get("unique", ()))


def clashes(
    snapshot: StoredSnapshot,
    key: str,
    columns: Sequence[str],
    rows: pa.Table,
    gone: Sequence[str],
    *,
    replace_all: bool,
) -> Iterator[Clash]:
    """Rows to be written that share a unique value with each other, or with a row that is neither written nor gone."""
    written = set(rows.column("id").to_pylist()) if columns else set()
    settled = written | set(gone)
    for column in columns:
        given = rows.select(["id", column]).filter(pc.is_valid(rows.column(column)))
        holders: dict[Any, str] = {}
        for name, value in zip(given.column("id").to_pylist(), given.column(column).to_pylist(), strict=True):
            if holders.setdefault(value, name) != name:
                yield Clash(column, value, name, holders[value], stored=False)
        if replace_all or key not in snapshot or not holders:
            continue
        found = rows_with(snapshot.dataset(key), column, given.column(column), ["id", column])
        for other, value in zip(found.column("id").to_pylist(), found.column(column).to_pylist(), strict=True):
            if other not in settled:
                yield Clash(column, value, holders[value], other, stored=True)
