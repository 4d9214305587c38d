"""What a load reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ontologia.model import TypeRef
from ontologia.runtime.intake.comparing import COUNTS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TypeReport:
    """What became of the rows for one type."""

    read: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0
    ties: int = 0
    """Identities of which several rows, with other values, were the last in order."""
    removed: int = 0
    """Rows that the source no longer had, in mode `sync`."""
    files: int = 0

    def plus(self, other: TypeReport) -> TypeReport:
        return TypeReport(*(getattr(self, name) + getattr(other, name) for name in (*COUNTS, "files")))

    def as_metadata(self) -> dict[str, str]:
        """What the commit of a load says of its rows."""
        said = ["read", "inserted", "updated", "rejected", *(["removed"] if self.removed else [])]
        return {f"rows_{name}": str(getattr(self, name)) for name in said}


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The outcome of a run. `commit_id` is None when nothing changed, and for a dry run."""

    commit_id: int | None
    types: dict[str, TypeReport]
    seconds: float
    dry_run: bool = False
    application_id: str = ""
    quarantine: str | None = None
    defaulted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The fields, by type, that no column of a source filled: their rows got the defaults."""
    ignored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns, by type, that filled nothing."""


def by_type_name(facts: Mapping[TypeRef, T]) -> dict[str, T]:
    """Facts by the name of the type, and by its kind as well where a relation is called like an entity."""
    names = [ref.name for ref in facts]
    return {ref.name if names.count(ref.name) == 1 else str(ref): fact for ref, fact in facts.items()}
