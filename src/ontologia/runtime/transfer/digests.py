"""Commits in a few bytes each, equal on all engines where the commits are: what a copy is compared by.

The rows of a type are hashed one by one and the hashes added up, so that neither their order nor their number matters
to what is held.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.history import History, Past, PastShare, past_commits
from ontologia.model import SUPERSEDED_BY, TypeRef, canonical_json, encode_json

if TYPE_CHECKING:
    import pyarrow as pa

MODULUS = 1 << 256
SEPARATOR, NULL = "|", "~"


@dataclass(slots=True)
class RowsDigest:
    """Some rows: how many, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def add(self, version: SchemaVersion, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        total, hashed, number = self.total, hashlib.sha256, int.from_bytes
        for row in _row_texts(version, rows):
            total += number(hashed(row).digest())
        self.total = total % MODULUS

    @classmethod
    def of(cls, version: SchemaVersion, share: PastShare) -> Self:
        """The rows of a share."""
        found = cls()
        for table in share.tables():
            found.add(version, table)
        return found

    def join(self, other: RowsDigest) -> None:
        """Add the rows that somebody else has hashed."""
        self.rows += other.rows
        self.total = (self.total + other.total) % MODULUS


@dataclass(frozen=True, slots=True)
class CommitDigest:
    """A commit, to be compared."""

    commit: Commit
    recorded: Sequence[str]
    dropped: Sequence[TypeRef]
    rows: Mapping[tuple[TypeRef, int], RowsDigest] = field(default_factory=dict)


DigestShares = Callable[[SchemaVersion, Sequence[PastShare]], RowsDigest]
"""Has rows hashed by others."""


def digests(
    history: History, past: Past, shared: Collection[int] = (), digest_shares: DigestShares | None = None
) -> Iterator[CommitDigest]:
    """Every commit of a past; rows of those that are `shared` are hashed by others."""
    for found in past_commits(history, past, 0, past.head, shared):
        rows: dict[tuple[TypeRef, int], RowsDigest] = {}
        for version, table in found.rows:
            rows.setdefault((version.ref, version.schema_version_id), RowsDigest()).add(version, table)
        for version, shares in found.shares:
            assert digest_shares is not None
            rows[version.ref, version.schema_version_id] = digest_shares(version, shares)
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


def _row_texts(version: SchemaVersion, rows: pa.Table) -> list[bytes]:
    """Each row as one text that is the same on every engine, and of no other row: identity, fields, and whether it is
    a removal. Made by columns, since a large commit is compared for longer than it is copied."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [_texts(rows.column(name)) for name in version.ref.identity]
    for column in version.schema.columns:
        found = rows.column(column.physical)
        if column.scalar is None:
            known = [None if value is None else encode_json(json.loads(value)) for value in found.to_pylist()]
            found = pa.chunked_array([pa.array(known, pa.string())])
        texts.append(_texts(found))
    if SUPERSEDED_BY in rows.column_names:
        texts.append(_texts(pc.is_valid(rows.column(SUPERSEDED_BY))))
    else:
        texts.append(pa.repeat(pa.scalar("false"), rows.num_rows))
    found_texts: list[bytes] = pc.binary_join_element_wise(*texts, SEPARATOR).cast(pa.binary()).to_pylist()
    return found_texts


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as texts without an ambiguity: what could hold a separator comes with its length, null is like nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # zero has one form
    elif pa.types.is_binary(values.type):
        known = [None if value is None else value.hex() for value in values.to_pylist()]
        values = pa.chunked_array([pa.array(known, pa.string())])
    if pa.types.is_string(values.type):
        texts = pc.binary_join_element_wise(pc.binary_length(values).cast(pa.string()), values, ":")
    else:
        texts = values.cast(pa.string())
    return pc.fill_null(texts, NULL)
