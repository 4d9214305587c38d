"""One commit, top to bottom: lock, check, compare, remove, append, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine
from ontologia.engines.transaction import Transaction, removals_refused
from ontologia.errors import BatchSizeExceededError, HeadMismatchError, StaleObjectError, StaleRow
from ontologia.model import TypeRef, TypeSchema
from ontologia.runtime.delta import OPERATION, delta
from ontologia.runtime.removals import Removals, rows_to_remove
from ontologia.runtime.staleness import (
    Identity,
    ReadObjects,
    StaleRows,
    identities,
    new_versions,
    stored_commits,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class WantedState:
    """The state a commit should bring about for one type: each identity once."""

    schema: TypeSchema
    rows: pa.Table
    read: ReadObjects = field(default_factory=ReadObjects)
    """The objects among them that were read before."""


def commit_state(
    engine: Engine,
    wanted: Mapping[TypeRef, WantedState],
    metadata: Mapping[str, Any],
    *,
    removed: Mapping[TypeRef, Removals] | None = None,
    within: Callable[[], None] | None = None,
    if_head: int | None = None,
    is_repeated: bool = False,
) -> int | None:
    """Bring the store to the wanted state. Returns the commit id, or None when it was in that state already.

    `removed` has identities that shall not be there. `within` is called in the transaction, just before the commit
    point; what it raises ends the commit. Rows that changed since their objects were read are a `StaleObjectError`,
    and with `if_head` any other head is a `HeadMismatchError`. `is_repeated` says that the same may have been committed
    already, by an attempt whose outcome is not known.
    """
    unwanted = removed or {}
    if unwanted and not engine.capabilities.removals:
        raise removals_refused(", ".join(map(str, unwanted)))

    versions: dict[TypeRef, Mapping[Identity, int]] = {}

    def work(transaction: Transaction) -> int | None:
        check_head(transaction.catalog.head, if_head)
        schemas = {ref: said.schema for ref, said in wanted.items()} | {ref: it.schema for ref, it in unwanted.items()}
        transaction.catalog.check(schemas)
        stale = StaleRows(engine, transaction)
        stale_rows: list[StaleRow] = []
        changes: dict[TypeRef, pa.Table] = {}
        for ref, want in wanted.items():
            current = _current(transaction, want)
            changes[ref] = delta(want.rows, current, ref.identity)
            if want.read.objects:
                changed = identities(changes[ref], want.schema)
                stored = stored_commits(current, want.schema)
                stale_rows += stale.replaced(want.schema, want.read, changes[ref], current)
                repeated = set() if is_repeated else want.read.changed.difference(changed)
                if repeated:
                    stale_rows += stale.repeated(want.schema, want.read, repeated, stored, current)
                versions[ref] = new_versions(want.read, changed, stored, transaction.commit_id)
        kept = {ref: want.rows for ref, want in wanted.items()}
        gone = rows_to_remove(engine, transaction.catalog, unwanted, transaction, kept)
        for ref, rows in gone.items():
            if ref in unwanted and unwanted[ref].read.expected:
                stale_rows += stale.removed(unwanted[ref].schema, unwanted[ref].read, rows)
        if stale_rows:
            raise StaleObjectError(stale_rows)
        if not _count([*changes.values(), *gone.values()], engine.config.max_batch_size):
            return None
        for ref, rows in gone.items():
            transaction.remove(transaction.catalog.layouts[ref], rows)
        for ref, change in changes.items():
            if change.num_rows:
                transaction.append(transaction.layout_for(wanted[ref].schema), change.drop_columns([OPERATION]))
        if within is not None:
            within()
        return transaction.publish(metadata)

    commit_id = engine.transact(work)
    for ref, moved in versions.items():
        wanted[ref].read.advance(moved, engine.address)
    for removals in unwanted.values():
        removals.read.detach()
    return commit_id


def check_head(head: int, expected: int | None) -> None:
    """Refuse a commit that was made for another head."""
    if expected is not None and head != expected:
        raise HeadMismatchError(
            f"the head is commit {head}, and if_head says {expected}: somebody committed meanwhile. Nothing was "
            "written: read again and repeat the change"
        )


def _count(tables: Iterable[pa.Table], limit: int) -> int:
    rows: int = sum(table.num_rows for table in tables)
    if rows > limit:
        raise BatchSizeExceededError(rows, limit)
    return rows


def _current(transaction: Transaction, want: WantedState) -> pa.Table | None:
    ref = want.schema.ref
    if ref not in transaction.catalog.layouts:
        return None
    return transaction.current(want.schema, want.rows.select(list(ref.identity)))
