"""Commits in a few bytes each, equal on all engines where the commits are: what a copy is compared by.

The rows of a type are hashed one by one and the hashes added up, so that neither their order nor their number matters
to what is held.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.history import History, Past, past_commits
from ontologia.model import SUPERSEDED_BY, TypeRef, canonical_json, encode_json

if TYPE_CHECKING:
    import pyarrow as pa

MODULUS = 1 << 256


@dataclass(slots=True)
class RowsDigest:
    """Some rows: how many, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def add(self, version: SchemaVersion, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        total = self.total
        for row in zip(*_columns(version, rows), strict=True):
            total += int.from_bytes(hashlib.sha256(repr(row).encode("utf-8", "surrogatepass")).digest())
        self.total = total % MODULUS


@dataclass(frozen=True, slots=True)
class CommitDigest:
    """A commit, to be compared."""

    commit: Commit
    recorded: Sequence[str]
    dropped: Sequence[TypeRef]
    rows: Mapping[tuple[TypeRef, int], RowsDigest] = field(default_factory=dict)


def digests(history: History, past: Past) -> Iterator[CommitDigest]:
    """Every commit of a past."""
    for found in past_commits(history, past, 0, past.head):
        rows: dict[tuple[TypeRef, int], RowsDigest] = {}
        for version, table in found.rows:
            rows.setdefault((version.ref, version.schema_version_id), RowsDigest()).add(version, table)
        yield CommitDigest(found.commit, sorted(map(_version_text, found.recorded)), sorted(found.dropped), rows)


def differences(wanted: CommitDigest | None, found: CommitDigest | None) -> str | None:
    """How two commits differ, in words; None where they do not."""
    if wanted is None or found is None:
        return "it is missing" if found is None else "it should not be there"
    for name in ("id", "created_at", "runtime_id"):
        if getattr(wanted.commit, name) != getattr(found.commit, name):
            return f"its {name} is {getattr(found.commit, name)!r} and should be {getattr(wanted.commit, name)!r}"
    if canonical_json(dict(wanted.commit.metadata)) != canonical_json(dict(found.commit.metadata)):
        return "its metadata is another"
    if wanted.recorded != found.recorded:
        return "the schema versions that came with it are others"
    if wanted.dropped != found.dropped:
        return "the types that it dropped are others"
    for ref, number in sorted({*wanted.rows, *found.rows}):
        right, wrong = (side.rows.get((ref, number), RowsDigest()) for side in (wanted, found))
        if right.rows != wrong.rows:
            return f"{ref}, version {number}, has {wrong.rows:,} rows and should have {right.rows:,}"
        if right != wrong:
            return f"rows of {ref}, version {number}, have other values"
    return None


def _version_text(version: SchemaVersion) -> str:
    schema = canonical_json(version.schema.to_json())
    return f"{version.ref} {version.schema_version_id} {version.activation_commit_id} {version.created_at} {schema}"


def _columns(version: SchemaVersion, rows: pa.Table) -> Iterator[Sequence[Any]]:
    """Identity and fields as values that are written alike on every engine, and whether a row is a removal."""
    import pyarrow as pa

    for name in version.ref.identity:
        yield rows.column(name).to_pylist()
    for column in version.schema.columns:
        found = rows.column(column.physical)
        if pa.types.is_timestamp(found.type):
            found = found.cast(pa.int64())
        values = found.to_pylist()
        if column.scalar == "float":
            values = [None if value is None else value + 0.0 for value in values]  # zero has one form
        elif column.scalar is None:
            values = [None if value is None else encode_json(json.loads(value)) for value in values]
        yield values
    if SUPERSEDED_BY in rows.column_names:
        yield [value is not None for value in rows.column(SUPERSEDED_BY).to_pylist()]
    else:
        yield [False] * rows.num_rows
