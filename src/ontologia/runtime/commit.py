"""One commit, top to bottom: lock, check, compare, remove, append, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine
from ontologia.engines.transaction import Transaction, removals_refused
from ontologia.errors import BatchSizeExceededError
from ontologia.model import TypeRef, TypeSchema
from ontologia.runtime.delta import OPERATION, delta
from ontologia.runtime.removals import Removals, rows_to_remove

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
    removed: Mapping[TypeRef, Removals] | None = None,
    within: Callable[[], None] | None = None,
) -> int | None:
    """Bring the store to the wanted state. Returns the commit id, or None when it was in that state already.

    `removed` has identities that shall not be there. `within` is called in the transaction, just before the commit
    point; what it raises ends the commit.
    """
    unwanted = removed or {}
    if unwanted and not engine.capabilities.removals:
        raise removals_refused(", ".join(map(str, unwanted)))

    def work(transaction: Transaction) -> int | None:
        schemas = {ref: said.schema for ref, said in wanted.items()} | {ref: it.schema for ref, it in unwanted.items()}
        transaction.catalog.check(schemas)
        changes = {ref: _changes(transaction, want) for ref, want in wanted.items()}
        kept = {ref: want.rows for ref, want in wanted.items()}
        gone = rows_to_remove(engine, transaction.catalog, unwanted, transaction, kept)
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

    return engine.transact(work)


def _count(tables: Iterable[pa.Table], limit: int) -> int:
    rows: int = sum(table.num_rows for table in tables)
    if rows > limit:
        raise BatchSizeExceededError(rows, limit)
    return rows


def _changes(transaction: Transaction, want: WantedState) -> pa.Table:
    ref = want.schema.ref
    current = None
    if ref in transaction.catalog.layouts:
        current = transaction.current(want.schema, want.rows.select(list(ref.identity)))
    return delta(want.rows, current, ref.identity)
