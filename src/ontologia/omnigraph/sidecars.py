"""`__recovery/<ulid>.json`: what a writer is about to do. Written before it touches a table, gone when it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ontologia.errors import CorruptSidecarError
from ontologia.objects import ObjectNotFound, Objects
from ontologia.omnigraph.manifest import Table
from ontologia.omnigraph.names import SIDECARS, branch_name

WriterKind = Literal["Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize"]
STRICT_KINDS = ("Mutation", "Load")  #: their number of commits per table is known beforehand
KINDS = (*STRICT_KINDS, "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize")
SCHEMA_VERSION = 1
PIN_NOTES = "pin_notes"  #: in every sidecar of ours, and in none of the original's


@dataclass(frozen=True)
class TableIntent:
    """One table of a write: the pin it builds on, and the version its last commit will have (or at least have)."""

    table_key: str
    table_path: str
    expected_version: int
    post_commit_pin: int
    table_branch: str | None = None

    def to_json(self) -> dict[str, Any]:
        content = dict(self.__dict__)
        if self.table_branch is None:
            del content["table_branch"]
        return content


@dataclass(frozen=True)
class Sidecar:
    """A write in flight. `operation_id` is also the id of the commit it will publish."""

    operation_id: str
    writer_kind: str
    branch: str
    actor_id: str | None
    tables: Sequence[TableIntent] = ()
    merge_source_commit_id: str | None = None
    registrations: Sequence[Table] = ()
    tombstones: Mapping[str, int] = field(default_factory=dict)
    started_at: str = field(default_factory=lambda: str(time.time_ns() // 1000))
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strict(self) -> bool:
        return self.writer_kind in STRICT_KINDS

    @property
    def foreign(self) -> bool:
        """Whether the original wrote it: its table commits carry no tag, and its commit has another id."""
        return PIN_NOTES not in self.extra

    @property
    def key(self) -> str:
        return f"{SIDECARS}/{self.operation_id}.json"

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "operation_id": self.operation_id,
            "started_at": self.started_at,
            "branch": None if self.branch == "main" else self.branch,
            "actor_id": self.actor_id,
            "writer_kind": self.writer_kind,
            "tables": [table.to_json() for table in self.tables],
        }
        if self.merge_source_commit_id is not None:
            content["merge_source_commit_id"] = self.merge_source_commit_id
        if self.registrations:
            content["additional_registrations"] = [
                {"table_key": table.key, "table_path": table.path, "table_branch": None, "notes": dict(table.notes)}
                for table in self.registrations
            ]
        if self.tombstones:
            content["tombstones"] = [
                {"table_key": key, "tombstone_version": number} for key, number in self.tombstones.items()
            ]
        return {**content, **self.extra}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Sidecar:
        known = {"schema_version", "operation_id", "started_at", "branch", "actor_id", "writer_kind", "tables"}
        known |= {"merge_source_commit_id", "additional_registrations", "tombstones"}
        if content["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {content['schema_version']!r} is not {SCHEMA_VERSION}: upgrade first")
        if content["writer_kind"] not in KINDS:
            raise ValueError(f"writer_kind {content['writer_kind']!r} is unknown: upgrade first")
        return cls(
            content["operation_id"],
            content["writer_kind"],
            branch_name(content["branch"]),
            content["actor_id"],
            [TableIntent(**table) for table in content["tables"]],
            content.get("merge_source_commit_id"),
            [
                Table(item["table_key"], item["table_path"], item.get("notes", {}))
                for item in content.get("additional_registrations", ())
            ],
            {item["table_key"]: item["tombstone_version"] for item in content.get("tombstones", ())},
            content["started_at"],
            {key: value for key, value in content.items() if key not in known},
        )


class Sidecars:
    """The folder of them."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def write(self, sidecar: Sidecar) -> None:
        self.objects.put(sidecar.key, json.dumps(sidecar.to_json(), indent=2, ensure_ascii=False).encode())

    def delete(self, sidecar: Sidecar) -> None:
        self.objects.delete(sidecar.key)

    def names(self) -> list[str]:
        return sorted(info.key for info in self.objects.list(f"{SIDECARS}/") if info.key.endswith(".json"))

    def pending(self) -> list[Sidecar]:
        """All of them, in the order they were begun. One that its writer deletes meanwhile is done."""
        found = []
        for key in self.names():
            try:
                found.append(self._parse(key, self.objects.get(key).data))
            except ObjectNotFound:
                continue
        return found

    def _parse(self, key: str, data: bytes) -> Sidecar:
        try:
            return Sidecar.from_json(json.loads(data))
        except (ValueError, KeyError, TypeError) as problem:
            raise CorruptSidecarError(
                f"the recovery sidecar {self.objects.url(key)} cannot be read ({problem}): the write it stands for can "
                "be neither finished nor undone; restore the file, or remove it and run repair()",
                context={"path": self.objects.url(key)},
            ) from problem
