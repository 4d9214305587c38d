"""What the ledger stores (seed, "The Transaction Ledger"): entries, cells, statistics, checkpoints. One place that
reads and writes each.

An action is an object with one key, the name of its kind. Unknown keys are kept. A cell is one line, so that a diff of
two checkpoints is a diff of their cells.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from ontologia.apiary.types import FrameSchema
from ontologia.errors import CorruptFrameError, StorageBackendError
from ontologia.files.json_objects import optional_text, optional_whole, parse, record, records, rest, text, texts, whole
from ontologia.objects import check_key

T = TypeVar("T")
FORMAT = "parquet"


@dataclass(frozen=True, slots=True)
class Cell:
    """One Parquet file of a frame (the seed's CellMetadata).

    `exact` is ours: the file has the declared columns and no others, with their types, in their order. Cells of
    other writers may hold whatever was handed to them. So is `decoded_bytes`: how large the rows are in memory, which
    may be a hundred times the size of the file.
    """

    id: str
    path: str
    partition_values: Mapping[str, str]
    rows: int
    bytes: int
    stats: Mapping[str, Mapping[str, Any]]
    format: str = FORMAT
    exact: bool = False
    decoded_bytes: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self.id,
            "path": self.path,
            "format": self.format,
            "partition_values": dict(self.partition_values),
            "rows": self.rows,
            "bytes": self.bytes,
            "stats": self.stats,
        }
        if self.exact:
            body["exact"] = True
        if self.decoded_bytes is not None:
            body["decoded_bytes"] = self.decoded_bytes
        return {**body, **self.more} if self.more else body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Cell:
        path, values, stats = text(body, "path"), record(body, "partition_values"), record(body, "stats")
        check_key(path)
        for column, said in stats.items():
            _check_statistics(column, said)
        if not all(isinstance(value, str) for value in values.values()):
            raise TypeError("partition_values of a cell must be texts")
        return cls(
            id=text(body, "id"),
            path=path,
            partition_values=values,
            rows=whole(body, "rows"),
            bytes=whole(body, "bytes"),
            stats=stats,
            format=text(body, "format"),
            exact=body.get("exact") is True,
            decoded_bytes=optional_whole(body, "decoded_bytes"),
            more={} if body.keys() <= _CELL_KEYS else rest(body, *_CELL_KEYS),
        )


_CELL_KEYS = {"id", "path", "format", "partition_values", "rows", "bytes", "stats", "exact", "decoded_bytes"}


@dataclass(frozen=True, slots=True)
class CreateFrame:
    """Version 0: what the frame is."""

    schema: FrameSchema
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddCells:
    """An append."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class RewriteCells:
    """Cells out, cells in: an overwrite, a compaction, a delete, an update or a merge."""

    removed: tuple[str, ...]
    added: tuple[Cell, ...]


Action = CreateFrame | AddCells | RewriteCells


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a frame (the seed's LedgerEntry). `operation` is ours: what the writer called it."""

    version: int
    timestamp: datetime
    node_id: str
    action: Action
    operation: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "version": self.version,
            "timestamp": instant_text(self.timestamp),
            "node_id": self.node_id,
            "action": _action_json(self.action),
        }
        if self.operation is not None:
            body["operation"] = self.operation
        return {**body, **self.more}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Entry:
        return cls(
            version=whole(body, "version"),
            timestamp=instant(text(body, "timestamp")),
            node_id=text(body, "node_id"),
            action=_action(body["action"]),
            operation=optional_text(body, "operation"),
            more=rest(body, "version", "timestamp", "node_id", "action", "operation"),
        )


@dataclass(frozen=True)
class Checkpoint:
    """The whole state of a frame at one version. Without `partition_by` it is that of version 0."""

    version: int
    schema: FrameSchema
    partition_by: tuple[str, ...] | None
    active_cells: tuple[Cell, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "schema": self.schema.to_json(),
            "partition_by": list(self.partition_by or ()),
            "active_cells": [cell.to_json() for cell in self.active_cells],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Checkpoint:
        return cls(
            version=whole(body, "version"),
            schema=FrameSchema.from_json(body["schema"]),
            partition_by=None if body.get("partition_by") is None else tuple(texts(body, "partition_by")),
            active_cells=tuple(map(Cell.from_json, records(body, "active_cells"))),
        )


def _action_json(action: Action) -> dict[str, Any]:
    match action:
        case CreateFrame(schema, partition_by):
            return {"CreateFrame": {"schema": schema.to_json(), "partition_by": list(partition_by)}}
        case AddCells(cells):
            return {"AddCells": {"cells": [cell.to_json() for cell in cells]}}
        case RewriteCells(removed, added):
            return {"RewriteCells": {"removed": list(removed), "added": [cell.to_json() for cell in added]}}


def _action(body: object) -> Action:
    if not isinstance(body, Mapping) or len(body) != 1:
        raise TypeError("action must be an object with one key, the kind of action")
    (kind,) = body
    said = record(body, kind)
    if kind == "CreateFrame":
        columns = texts(said, "partition_by") if "partition_by" in said else ()
        return CreateFrame(FrameSchema.from_json(said["schema"]), tuple(columns))
    if kind == "AddCells":
        return AddCells(tuple(map(Cell.from_json, records(said, "cells"))))
    if kind == "RewriteCells":
        return RewriteCells(tuple(texts(said, "removed")), tuple(map(Cell.from_json, records(said, "added"))))
    raise ValueError(f"its action is {kind!r}, which this release does not know: a newer one wrote it, so upgrade")


def _check_statistics(column: str, said: Any) -> None:
    if not isinstance(said, dict):
        raise TypeError(f"the statistics of column {column!r} must be an object, not {said!r:.80}")
    whole(said, "null_count")
    for end in ("min", "max"):
        if isinstance(said.get(end), dict | list):
            raise TypeError(f"the {end} of column {column!r} must be a value, not {said[end]!r:.80}")


# --- bytes -------------------------------------------------------------------------------------------------------


def decode(data: bytes, url: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Read an object of a frame, or say which one is corrupt and how."""
    try:
        return parse(data, url, read)
    except StorageBackendError as problem:
        raise CorruptFrameError(str(problem), context=problem.context) from problem


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON indented by two spaces, but with each innermost list item on one line: fast to write, good to read."""
    return _indent(body, 0).encode()


def _indent(value: Any, depth: int) -> str:
    here, inner = "  " * depth, "  " * (depth + 1)
    if isinstance(value, Mapping) and value and any(isinstance(part, (Mapping, list)) for part in value.values()):
        lines = [f"{inner}{_line(key)}: {_indent(part, depth + 1)}" for key, part in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{here}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{inner}{_line(part)}" for part in value) + f"\n{here}]"
    return _line(value)


def _line(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:  # a number that JSON has not, in what another writer left: unknown, as the format has it
        return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- instants ----------------------------------------------------------------------------------------------------


def instant_text(moment: datetime) -> str:
    """RFC 3339 in UTC, with a Z."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def instant(said: str) -> datetime:
    """An RFC 3339 instant; one without an offset means nothing."""
    head, dot, tail = said.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    if dot and digits > 6:  # nanoseconds, which datetime has not
        said = f"{head}.{tail[:6]}{tail[digits:]}"
    moment = datetime.fromisoformat(said)
    if moment.tzinfo is None:
        raise ValueError(f"{said!r} is a time without an offset from UTC")
    return moment.astimezone(UTC)
