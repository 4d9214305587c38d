"""Which rows a removal takes away: those that are there, and with `cascade` the relations that end at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, TypeLayout
from ontologia.engines.transaction import Transaction
from ontologia.files.identity import identity_key
from ontologia.model import FieldExpr, TypeRef, TypeSchema
from ontologia.query.plan import Plan
from ontologia.runtime.staleness import ReadObjects

if TYPE_CHECKING:
    import pyarrow as pa

KEYS_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True)
class Removals:
    """Identities of one type that shall not be there. Of entities, `cascade` has the keys whose relations go too."""

    schema: TypeSchema
    keys: pa.Table
    cascade: Sequence[str] = ()
    read: ReadObjects = field(default_factory=ReadObjects)
    """The objects among them that were read before."""


def rows_to_remove(
    engine: Engine,
    catalog: Catalog,
    removed: Mapping[TypeRef, Removals],
    transaction: Transaction | None = None,
    kept: Mapping[TypeRef, pa.Table] | None = None,
) -> dict[TypeRef, pa.Table]:
    """The rows in force that go, by type: what is not there needs no removal. A preview has no transaction.

    `kept` has rows that the same commit wants to be there: relations among them stay, whatever cascades.
    """
    found: dict[TypeRef, list[pa.Table]] = {}
    for ref, said in removed.items():
        if ref in catalog.layouts:
            found.setdefault(ref, []).append(_current(engine, catalog, said, transaction))
    for ref, said in removed.items():
        for layout, rows in relations_at(engine, catalog, ref, said.cascade):
            found.setdefault(layout.ref, []).append(_without(rows, (kept or {}).get(layout.ref), layout.ref))
    each = {ref: _each_once(tables, ref) for ref, tables in found.items()}
    return {ref: rows for ref, rows in each.items() if rows.num_rows}


def relations_at(
    engine: Engine, catalog: Catalog, entity: TypeRef, keys: Sequence[str]
) -> Iterator[tuple[TypeLayout, pa.Table]]:
    """The relations, of every stored type, that end at entities of these keys, whether those are there or not."""
    for ref, layout in sorted(catalog.layouts.items()):
        for side in ("left", "right"):
            if ref.kind == "relation" and getattr(layout.schema, side) == entity.name:
                end: FieldExpr[Any] = FieldExpr(ref, f"{side}_key", None)
                for start in range(0, len(keys), KEYS_AT_ONCE):
                    some = end.in_(keys[start : start + KEYS_AT_ONCE])
                    plan = Plan.of(layout.schema, where=(some,), stored=True, unordered=True)
                    yield layout, engine.table(plan, None, catalog)


def _current(engine: Engine, catalog: Catalog, said: Removals, transaction: Transaction | None) -> pa.Table:
    if transaction is not None:
        return transaction.current(said.schema, said.keys)
    schema = said.schema
    return engine.table(Plan.of(schema, keyed=True, stored=True), said.keys, catalog)


def _without(rows: pa.Table, others: pa.Table | None, ref: TypeRef) -> pa.Table:
    import pyarrow.compute as pc

    if others is None or not rows.num_rows:
        return rows
    known = pc.is_in(identity_key(rows, ref.identity), value_set=identity_key(others, ref.identity).combine_chunks())
    return rows.filter(pc.invert(known))


def _each_once(tables: Iterable[pa.Table], ref: TypeRef) -> pa.Table:
    """A relation may end at removed entities with both ends, and be named besides."""
    import pyarrow as pa

    first, *more = tables
    if not more:
        return first
    rows = pa.concat_tables([first, *(table.select(first.column_names).cast(first.schema) for table in more)])
    places = {key: place for place, key in enumerate(identity_key(rows, ref.identity).to_pylist())}
    return rows.take(pa.array(sorted(places.values()), pa.int64()))
