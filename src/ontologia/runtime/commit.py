"""One commit, top to bottom: lock, check, compare, append, publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine, Transaction
from ontologia.errors import BatchSizeExceededError
from ontologia.model import TypeRef, TypeSchema
from ontologia.runtime.delta import OPERATION, delta

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class WantedState:
    """The state a commit should bring about for one type: each identity once."""

    schema: TypeSchema
    rows: pa.Table


def commit_state(
    engine: Engine,
    wanted: Mapping[TypeRef, WantedState],
    metadata: Mapping[str, Any],
    *,
    removed: Mapping[TypeRef, WantedState] | None = None,
    within: Callable[[], None] | None = None,
) -> int | None:
    """Bring the store to the wanted state. Returns the commit id, or None when it was in that state already.

    `removed` has identities that shall not be there. `within` is called in the transaction, just before the commit
    point; what it raises ends the commit.
    """

    gone = removed or {}

    def work(transaction: Transaction) -> int | None:
        transaction.catalog.check({ref: want.schema for ref, want in [*wanted.items(), *gone.items()]})
        return _publish(transaction, wanted, gone, metadata, engine.config.max_batch_size, within)

    return engine.transact(work)


def _publish(
    transaction: Transaction,
    wanted: Mapping[TypeRef, WantedState],
    removed: Mapping[TypeRef, WantedState],
    metadata: Mapping[str, Any],
    limit: int,
    within: Callable[[], None] | None,
) -> int | None:
    changes = {ref: _changes(transaction, want) for ref, want in wanted.items()}
    gone = {
        ref: transaction.current(want.schema, want.rows)  # what is not there needs no removal
        for ref, want in removed.items()
        if ref in transaction.catalog.layouts
    }
    count = sum(change.num_rows for change in [*changes.values(), *gone.values()])
    if count > limit:
        raise BatchSizeExceededError(count, limit)
    if count == 0:
        return None
    for ref, rows in gone.items():
        if rows.num_rows:
            transaction.remove(transaction.catalog.layouts[ref], rows)
    for ref, change in changes.items():
        if change.num_rows:
            transaction.append(transaction.layout_for(wanted[ref].schema), change.drop_columns([OPERATION]))
    if within is not None:
        within()
    return transaction.publish(metadata)


def _changes(transaction: Transaction, want: WantedState) -> pa.Table:
    ref = want.schema.ref
    current = None
    if ref in transaction.catalog.layouts:
        current = transaction.current(want.schema, want.rows.select(list(ref.identity)))
    return delta(want.rows, current, ref.identity)
