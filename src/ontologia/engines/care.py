"""Care of a store: what its reports say, and who may do the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ontologia.model import TypeRef, TypeSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.files.data_files import DataFile
    from ontologia.files.key_ranges import KeyRange


@dataclass(frozen=True, slots=True)
class TypeCompaction:
    """One type's part: how many files become one, and which commits it covers."""

    ref: TypeRef
    files: int
    rows: int
    min_commit_id: int
    max_commit_id: int
    path: str


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What was compacted, or would be."""

    applied: bool
    types: list[TypeCompaction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """How one type's index stands against the head. `problem` is set when it cannot be read."""

    ref: TypeRef
    max_indexed_commit: int | None
    lagging: bool = False
    missing_latest: bool = False
    problem: str | None = None

    @property
    def healthy(self) -> bool:
        return not (self.lagging or self.missing_latest or self.problem)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The health of every index at a head."""

    head: int
    types: list[IndexHealth] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return all(item.healthy for item in self.types)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Which indices need to be written, or were."""

    head: int
    repaired: list[TypeRef] = field(default_factory=list)
    applied: bool = False


@dataclass(frozen=True, slots=True)
class VacuumItem:
    """One object that can go, and why."""

    key: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What was deleted, or would be."""

    applied: bool
    objects: list[VacuumItem] = field(default_factory=list)


class SnapshotWork(Protocol):
    """A snapshot to be written, as those see it who write its parts. It can be sent to executors."""

    @property
    def schema(self) -> TypeSchema: ...

    @property
    def files(self) -> Sequence[DataFile]:
        """What is to be merged."""

    @property
    def identity(self) -> tuple[str, ...]: ...

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which rows are sorted."""

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of the files."""

    @property
    def is_wide(self) -> bool:
        """Whether much lies in files that may have keys from everywhere, which every range would have to read."""

    def ranges(self) -> list[KeyRange]:
        """Ranges of keys that can be written side by side."""

    def some_rows(self, number: int, groups: int) -> Iterator[pa.Table]:
        """The rows of one of so many groups of files."""

    def write_range(self, keys: KeyRange) -> list[DataFile]:
        """Write one range of keys, read from all files, as parts."""

    def write_batches(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write rows that come in `order`, as parts."""


class Workers(Protocol):
    """Who writes the parts of a snapshot, where this process does not."""

    def write_snapshot(self, work: Any) -> list[DataFile]:
        """Write all of a `SnapshotWork`."""
