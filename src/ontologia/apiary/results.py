"""What calls on a frame answer with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from ontologia.apiary.entries import Cell


@dataclass(frozen=True)
class WriteResult:
    """A write that is committed, or that had nothing to commit: then `version` is the one it found."""

    version: int
    cells_written: int
    rows_written: int
    bytes_written: int
    duration: float
    temperature: float

    @property
    def duration_ms(self) -> int:
        return round(self.duration * 1000)

    def to_dict(self) -> dict[str, Any]:
        """As the SDK's call style has it."""
        found = asdict(self)
        found["duration_ms"] = self.duration_ms
        del found["duration"]
        return found


@dataclass(frozen=True)
class RewriteResult(WriteResult):
    """A delete, an update, a merge, an overwrite or a compaction: what it took out, and what it did to rows."""

    cells_removed: int = 0
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0


@dataclass(frozen=True)
class VersionChange:
    """One version of a frame's history."""

    version: int
    timestamp: datetime
    node_id: str
    operation: str
    cells_added: int
    cells_removed: int
    rows_added: int
    rows_removed: int
    bytes_added: int
    bytes_removed: int


@dataclass(frozen=True)
class VacuumResult:
    """What a vacuum deleted, or would delete."""

    applied: bool
    keys: list[str] = field(default_factory=list)
    bytes: int = 0
    kept_versions: range = range(0)


@dataclass(frozen=True)
class CellDifference:
    """The cells by which two versions differ."""

    added: list[Cell]
    removed: list[Cell]

    @property
    def rows_added(self) -> int:
        return sum(cell.rows for cell in self.added)

    @property
    def rows_removed(self) -> int:
        return sum(cell.rows for cell in self.removed)
