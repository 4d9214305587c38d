"""Whether rows are still as they were when the objects were read that replace or remove them.

An object that was read knows the commit of its row. A commit reads the rows it is about to replace anyway; here the
commits of those are compared, and objects learn what became of their rows. See docs/design/0082.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine
from ontologia.engines.transaction import Transaction
from ontologia.errors import StaleRow
from ontologia.model import COMMIT_ID, Declared, Origin, TypeSchema, parse_texts
from ontologia.query.plan import Plan, Window

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LOOKUPS = 20

Identity = str | tuple[str, ...]
"""The key of an entity, or the ends and the instance key of a relation."""


@dataclass(slots=True)
class ReadObjects:
    """The objects of one type that were read from the store that they go back to, by identity.

    `expected` has the commits at which rows must still be; objects that may overwrite are not in it. Of those in
    `changed`, that holds also where the row has the same values: two that count up by one have the same number.
    """

    objects: dict[Identity, Declared] = field(default_factory=dict)
    expected: dict[Identity, int] = field(default_factory=dict)
    changed: set[Identity] = field(default_factory=set)

    def advance(self, versions: Mapping[Identity, int], address: str) -> None:
        """After a commit: objects are at the version of their rows, as if they had just been read."""
        for identity, commit_id in versions.items():
            obj = self.objects[identity]
            if getattr(obj, "__origin__", None) is not None:  # else it was given another key meanwhile
                obj.__commit_id__, obj.__origin__ = commit_id, Origin(address)
                obj.__removed__ = False

    def detach(self) -> None:
        """After a removal: what is ensured of them from now on is new."""
        for obj in self.objects.values():
            if getattr(obj, "__origin__", None) is not None:
                object.__delattr__(obj, "__origin__")


def identities(rows: pa.Table, schema: TypeSchema) -> list[Identity]:
    """The identity of each row."""
    columns = [rows.column(name).to_pylist() for name in schema.ref.identity]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def stored_commits(current: pa.Table | None, schema: TypeSchema) -> dict[Identity, int]:
    """The commit of each stored row."""
    if current is None:
        return {}
    return dict(zip(identities(current, schema), current.column(COMMIT_ID).to_pylist(), strict=True))


def new_versions(read: ReadObjects, changed: Iterable[Identity], stored: Mapping[Identity, int], commit_id: int) -> Any:
    """The commits of the rows of these objects after a commit, where they are others than the objects know."""
    known = read.objects
    moved = {
        identity: stored[identity]
        for identity, obj in known.items()
        if identity in stored and stored[identity] != getattr(obj, "__commit_id__", None)
    }
    return moved | {identity: commit_id for identity in changed if identity in known}


class StaleRows:
    """Says of stale rows what became of them, in the transaction that found them."""

    def __init__(self, engine: Engine, transaction: Transaction) -> None:
        self._engine = engine
        self._transaction = transaction
        self._commits: dict[int, Mapping[str, Any] | None] = {}
        self._lookups = 0

    def replaced(
        self, schema: TypeSchema, read: ReadObjects, changes: pa.Table, current: pa.Table | None
    ) -> Iterator[StaleRow]:
        """The rows among `changes` whose stored version is not the expected one."""
        stored, places = stored_commits(current, schema), None
        for place, identity in enumerate(identities(changes, schema)):
            expected = read.expected.get(identity)
            if expected is None or stored.get(identity) == expected:
                continue
            yours = _values(schema, changes, place)
            if identity not in stored:
                commit = self._commit(self._removed_by(schema, changes.slice(place, 1), expected))
                yield StaleRow(schema.ref.name, _key(identity), expected, yours, None, commit)
                continue
            assert current is not None
            places = places or _places(stored)
            theirs = _values(schema, current, places[identity])
            differing = [name for name, value in yours.items() if value != theirs[name]]
            yield StaleRow(
                schema.ref.name,
                _key(identity),
                expected,
                {name: yours[name] for name in differing},
                {name: theirs[name] for name in differing},
                self._commit(stored[identity]),
            )

    def repeated(
        self,
        schema: TypeSchema,
        read: ReadObjects,
        equal: Iterable[Identity],
        stored: Mapping[Identity, int],
        current: pa.Table | None,
    ) -> Iterator[StaleRow]:
        """Of changed objects whose rows are `equal` to them, those to which somebody else gave these values."""
        stale = {it for it in equal if it in stored and stored[it] != read.expected[it]}
        if not stale:
            return
        for place, (identity, commit_id) in enumerate(stored.items()):
            if identity in stale and current is not None:
                expected, values = read.expected[identity], _values(schema, current, place)
                commit = self._commit(commit_id)
                yield StaleRow(schema.ref.name, _key(identity), expected, values, values, commit)

    def removed(self, schema: TypeSchema, read: ReadObjects, rows: pa.Table) -> Iterator[StaleRow]:
        """The rows about to be removed whose version is not the expected one."""
        commits = rows.column(COMMIT_ID).to_pylist()
        for place, (identity, commit_id) in enumerate(zip(identities(rows, schema), commits, strict=True)):
            expected = read.expected.get(identity)
            if expected is not None and expected != commit_id:
                values, commit = _values(schema, rows, place), self._commit(commit_id)
                yield StaleRow(schema.ref.name, _key(identity), expected, {}, values, commit)

    def _removed_by(self, schema: TypeSchema, row: pa.Table, since: int) -> int | None:
        """The last commit that had anything to do with a row that is gone; None after an erasure. Of many that are
        gone, the first are looked up: a message names no more."""
        self._lookups += 1
        if self._lookups > MOST_LOOKUPS:
            return None
        plan = Plan.of(schema, Window("since", since), keyed=True, stored=True, unordered=True)
        keys = row.select(list(schema.ref.identity))
        commits = self._engine.table(plan, keys, self._transaction.catalog).column(0).to_pylist()
        return max(commits, default=None)

    def _commit(self, commit_id: int | None) -> Mapping[str, Any] | None:
        if commit_id is None:
            return None
        if commit_id not in self._commits:
            self._commits[commit_id] = self._engine.get_commit(commit_id)
        return self._commits[commit_id]


def _places(stored: Mapping[Identity, int]) -> dict[Identity, int]:
    return {identity: place for place, identity in enumerate(stored)}


def _key(identity: Identity) -> Identity:
    """As it is shown: a relation without an instance key is named by its ends."""
    return identity[:2] if isinstance(identity, tuple) and identity[2] == "" else identity


def _values(schema: TypeSchema, rows: pa.Table, place: int) -> dict[str, Any]:
    row = rows.slice(place, 1)
    return {
        column.name: (parse_texts if column.scalar is None else list)(row.column(column.physical).to_pylist())[0]
        for column in schema.columns
    }
