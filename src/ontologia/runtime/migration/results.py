"""What a migration would do, what it did, and what its upgraders made of the rows."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field

from ontologia.model import TypeRef, TypeSchemaDiff
from ontologia.runtime.migration.effects import FieldEffect


class RowCounts(int):
    """A number of rows, which also says how many of them are of which type: `counts["Customer"]`."""

    by_type: Mapping[str, int]

    def __new__(cls, by_type: Mapping[str, int] | None = None) -> RowCounts:
        counts = super().__new__(cls, sum((by_type or {}).values()))
        counts.by_type = dict(by_type or {})
        return counts

    def __getitem__(self, type_name: str) -> int:
        return self.by_type[type_name]

    def __contains__(self, type_name: object) -> bool:
        return type_name in self.by_type

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_type)

    def __len__(self) -> int:
        return len(self.by_type)

    def get(self, type_name: str, default: int = 0) -> int:
        return self.by_type.get(type_name, default)

    def keys(self) -> KeysView[str]:
        return self.by_type.keys()

    def values(self) -> ValuesView[int]:
        return self.by_type.values()

    def items(self) -> ItemsView[str, int]:
        return self.by_type.items()

    def __eq__(self, other: object) -> bool:
        return self.by_type == other if isinstance(other, Mapping) else super().__eq__(other)

    __hash__ = int.__hash__


def by_type(rows: Mapping[TypeRef, int]) -> RowCounts:
    by_name: dict[str, int] = {}
    for ref, number in rows.items():
        by_name[ref.name] = by_name.get(ref.name, 0) + number
    return RowCounts(by_name)


@dataclass(frozen=True, slots=True)
class MigrationPreview:
    """What a migration would do. The token binds this plan, its classes and its upgraders' code to this head; it is
    empty where there is nothing to do. `missing_upgraders` names types, `missing_steps` also the versions that they
    are upgraded from.

    `effects` says, by type, what becomes of each field. `discarded_values` are those of them that lose data: in how
    many rows a field has a value that the code has no field for. `changes` tells, by type, whether old rows and old
    readers all stay valid (`weakening`) or not (`strengthening`).
    """

    has_changes: bool
    token: str
    diffs: list[TypeSchemaDiff] = field(default_factory=list)
    estimated_rows: RowCounts = field(default_factory=RowCounts)
    types_requiring_upgraders: list[str] = field(default_factory=list)
    types_schema_only: list[str] = field(default_factory=list)
    missing_upgraders: list[str] = field(default_factory=list)
    missing_steps: list[tuple[str, int]] = field(default_factory=list)
    discarded_values: dict[str, dict[str, int]] = field(default_factory=dict)
    effects: dict[str, list[FieldEffect]] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigrationCheck:
    """What the upgraders made of every row, without anything being written."""

    rows: RowCounts = field(default_factory=RowCounts)
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """What a migration did."""

    success: bool
    types_migrated: list[str] = field(default_factory=list)
    rows_migrated: RowCounts = field(default_factory=RowCounts)
    new_schema_versions: dict[str, int] = field(default_factory=dict)
    duration_s: float = 0.0
    commit_id: int | None = None
