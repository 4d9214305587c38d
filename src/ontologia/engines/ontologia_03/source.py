"""What a store of 0.3 has to tell, whatever it is kept in."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ontologia.engines.catalog import Commit, SchemaVersion, TypeLayout
from ontologia.engines.ontologia_03.rows import StoredRow
from ontologia.engines.ontologia_03.schemas import Catalog03, type_schema
from ontologia.errors import StorageBackendError
from ontologia.model import TypeRef, TypeSchema

Change = tuple[TypeRef, tuple[str, ...], str]
"""A row that a commit wrote: its type, its identity, and the operation."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a schema. `reason` is why 0.3 recorded it."""

    ref: TypeRef
    number: int
    schema: TypeSchema
    created_at: str
    reason: str


class Contents(NamedTuple):
    """The types of a store, every version of their schemas, and the versions of each type whose rows are read."""

    catalog: Catalog03
    versions: list[SchemaVersion]
    readable: dict[TypeRef, list[int]]


class Source(ABC):
    """A store of 0.3, as it lies there."""

    backend: str
    engine_version: str
    where: str

    @abstractmethod
    def event_place(self) -> Any:
        """Where its events lie, as `Engine.event_place` has it."""

    @abstractmethod
    def state(self) -> Any:
        """Changes when the store does. Cheap."""

    @abstractmethod
    def head(self) -> int:
        """The newest commit."""

    @abstractmethod
    def versions(self) -> list[StoredVersion]:
        """Every schema version of the types that are not dropped."""

    @abstractmethod
    def first_commit(self, ref: TypeRef, versions: Sequence[int]) -> int:
        """The first commit with a row of a type under these versions; 0 when it has none."""

    @abstractmethod
    def dropped(self) -> frozenset[TypeRef]:
        """Types that were dropped and not declared again."""

    @abstractmethod
    def rows(self, ref: TypeRef, versions: Sequence[int], after: int, head: int) -> Iterator[StoredRow]:
        """The rows of a type under these versions, of the commits after one and up to another.

        A commit has each identity once: where 0.3 wrote one twice, this is the last.
        """

    @abstractmethod
    def commits(self) -> Iterator[Commit]:
        """The log, newest first."""

    @abstractmethod
    def commit(self, commit_id: int) -> Commit | None: ...

    @abstractmethod
    def changes(self, commit_id: int) -> Iterable[Change]: ...

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `storage_info()` says of the place."""

    @abstractmethod
    def close(self) -> None: ...

    # --- the same for both ---

    def contents(self, known: Mapping[tuple[TypeRef, int], int]) -> Contents:
        """What the store has at its head. `known` has activations that were looked up before."""
        head, stored = self.head(), self.versions()
        migrations = {} if all(version.number == 1 for version in stored) else self.migrations()
        layouts: dict[TypeRef, TypeLayout] = {}
        recorded: list[SchemaVersion] = []
        chosen: dict[TypeRef, list[int]] = {}
        for ref in sorted({version.ref for version in stored}):
            own = sorted((version for version in stored if version.ref == ref), key=lambda version: version.number)
            current, chosen[ref] = own[-1], _readable(own)
            activation = known.get((ref, current.number)) or migrations.get((ref, current.number))
            if activation is None:
                activation = self.first_commit(ref, chosen[ref])
            layouts[ref] = TypeLayout(ref, current.schema, current.number, activation)
            recorded += [
                SchemaVersion(
                    ref,
                    version.number,
                    version.schema,
                    version.created_at,
                    activation if version is current else migrations.get((ref, version.number)),
                    version is current,
                )
                for version in own
            ]
        return Contents(Catalog03(head, layouts, self.dropped()), recorded, chosen)

    def migrations(self) -> dict[tuple[TypeRef, int], int]:
        """The commit that made a schema version current, from what migrations noted."""
        found: dict[tuple[TypeRef, int], int] = {}
        for commit in self.commits():
            for item in commit.metadata.get("migrated_types") or ():
                ref = TypeRef(item["type_kind"], item["type_name"])
                found.setdefault((ref, item["to_schema_version_id"]), commit.id)
        return found


def _readable(versions: Sequence[StoredVersion]) -> list[int]:
    """The versions whose rows are read: the current one, and those it says the same as, only in more words."""
    found = []
    for version in reversed(versions):
        found.append(version.number)
        if version.reason != "type_spec_upgrade":
            break
    return found


def drops_of(commit: Commit) -> Iterator[TypeRef]:
    """The types that a commit dropped."""
    if commit.metadata.get("operation") != "schema_drop":
        return
    affected = commit.metadata.get("affected_types") or "[]"
    for item in json.loads(affected) if isinstance(affected, str) else affected:
        yield TypeRef(item["kind"], item["type_name"])


def read_schema(where: str, text: str) -> TypeSchema:
    """A schema as 0.3 stored it."""
    try:
        return type_schema(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise StorageBackendError(f"{where}: a stored schema is malformed ({problem!r})") from problem
