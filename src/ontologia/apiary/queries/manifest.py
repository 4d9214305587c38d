"""`_queries/{query_id}/`: the manifest that names the tasks, and the parts of the answer. The one place that reads and
writes both."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ontologia.apiary.entries import decode
from ontologia.apiary.names import QUERIES
from ontologia.errors import CorruptFrameError, OntologiaError
from ontologia.files.json_objects import optional_text, optional_whole, records, rest, text, texts, whole
from ontologia.objects import Objects

TIMEOUT_S = 60
_ERROR = b"apiary.error"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """What one node does: run a fragment over these cells (storage keys), of a frame at a version."""

    task_id: str
    node_id: str
    cells: tuple[str, ...]
    sql_fragment: str
    version: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "task_id": self.task_id,
            "node_id": self.node_id,
            "cells": list(self.cells),
            "sql_fragment": self.sql_fragment,
        }
        if self.version is not None:
            body["version"] = self.version
        return {**body, **self.more}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Task:
        return cls(
            text(body, "task_id"),
            text(body, "node_id"),
            tuple(texts(body, "cells")),
            text(body, "sql_fragment"),
            optional_whole(body, "version"),
            rest(body, "task_id", "node_id", "cells", "sql_fragment", "version"),
        )


@dataclass(frozen=True)
class QueryManifest:
    """A query on its way. `coordinator` is ours: the node that asked, which does its own tasks itself."""

    query_id: str
    original_sql: str
    tasks: tuple[Task, ...]
    merge_sql: str | None
    timeout_secs: int
    created_at: int
    coordinator: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def new(
        cls,
        original_sql: str,
        tasks: Sequence[Task],
        merge_sql: str | None,
        now: float,
        *,
        coordinator: str,
        timeout_s: float = TIMEOUT_S,
        **more: Any,
    ) -> QueryManifest:
        return cls(
            str(uuid.uuid4()),
            original_sql,
            tuple(tasks),
            merge_sql,
            max(1, round(timeout_s)),
            int(now),
            coordinator,
            more,
        )

    @property
    def folder(self) -> str:
        return f"{QUERIES}/{self.query_id}"

    @property
    def key(self) -> str:
        return f"{self.folder}/manifest.json"

    def part_of(self, node_id: str) -> str:
        """The key of a node's part of the answer."""
        return f"{self.folder}/partial_{node_id}.arrow"

    def ends_at(self) -> int:
        """When nobody waits any more, in seconds since 1970."""
        return self.created_at + self.timeout_secs

    def encode(self) -> bytes:
        body: dict[str, Any] = {
            "query_id": self.query_id,
            "original_sql": self.original_sql,
            "tasks": [task.to_json() for task in self.tasks],
            "merge_sql": self.merge_sql,
            "timeout_secs": self.timeout_secs,
            "created_at": self.created_at,
        }
        if self.coordinator is not None:
            body["coordinator"] = self.coordinator
        return json.dumps({**body, **self.more}, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> QueryManifest:
        return cls(
            text(body, "query_id"),
            text(body, "original_sql"),
            tuple(Task.from_json(task) for task in records(body, "tasks")),
            optional_text(body, "merge_sql"),
            whole(body, "timeout_secs"),
            whole(body, "created_at"),
            optional_text(body, "coordinator"),
            rest(body, *_KEYS),
        )

    @classmethod
    def read(cls, objects: Objects, query_id: str) -> QueryManifest:
        key = f"{QUERIES}/{query_id}/manifest.json"
        return decode(objects.get(key).data, objects.url(key), cls.from_json)


_KEYS = ("query_id", "original_sql", "tasks", "merge_sql", "timeout_secs", "created_at", "coordinator")


@contextmanager
def announce(objects: Objects, manifest: QueryManifest) -> Iterator[None]:
    """The manifest is there while in the block; after it, nothing of the query is."""
    objects.put(manifest.key, manifest.encode())
    try:
        yield
    finally:
        forget(objects, manifest.query_id)


def forget(objects: Objects, query_id: str) -> None:
    """Delete what a query left, the manifest first: who is still at work sees that nobody waits."""
    try:
        objects.delete(f"{QUERIES}/{query_id}/manifest.json")
        objects.delete_many([info.key for info in objects.list(f"{QUERIES}/{query_id}/")])
    except OntologiaError as problem:
        _log.warning("files of the query %s stay behind: %s", query_id, problem)


# --- parts of an answer ------------------------------------------------------------------------------------------


def part_bytes(table: pa.Table) -> bytes:
    """Rows as an Arrow file. One without rows is written, too: it says that there are none."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def failure_bytes(problem: BaseException) -> bytes:
    """A part that says why there is none."""
    said = f"{type(problem).__name__}: {problem}".encode()
    return part_bytes(pa.schema([], metadata={_ERROR: said}).empty_table())


def read_part(objects: Objects, key: str) -> pa.Table | str:
    """The rows of a part, or what its node says went wrong."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(objects.get(key).data)).read_all()
    except pa.ArrowException as problem:
        raise CorruptFrameError(
            f"{objects.url(key)} is not an Arrow file: {problem}",
            context={"operation": "read", "url": objects.url(key)},
        ) from problem
    failure = (table.schema.metadata or {}).get(_ERROR)
    return table if failure is None else failure.decode(errors="replace")
