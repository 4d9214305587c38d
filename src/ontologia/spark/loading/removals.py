"""What a run takes away: identities that a source names, and in a sync those that it does not have.

Executors compare identities with those in force. What goes comes to the driver, which hands it to the commit. A source
is read once for it: read again, it might have other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sql

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.shares import first_key
from ontologia.errors import ValidationError
from ontologia.model import Declaration, TypeSchema
from ontologia.query.plan import LATEST, Plan, Window
from ontologia.runtime.intake.syncing import identities_to_remove
from ontologia.spark.failures import explain_failures
from ontologia.spark.loading.mapping import REASON
from ontologia.spark.reading.rows import read_stored_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY_ROWS = 2_000_000
"""So many stored identities are not held at once."""
THERE = "__there"


@dataclass(frozen=True, slots=True)
class Removal:
    """Identities to remove, as `map_identity` has them."""

    declaration: Declaration
    keys: DataFrame


@dataclass(frozen=True, slots=True)
class Removals:
    """How many rows go, and their identities; None where they are more than may go, so that nobody needs them."""

    count: int
    keys: pa.Table | None

    def packed(self) -> bytes | None:
        """The identities as a message has them."""
        if self.keys is None:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.keys.schema) as writer:
            writer.write_table(self.keys)
        return bytes(sink.getvalue())

    @classmethod
    def read(cls, count: int, packed: bytes | None) -> Removals:
        return cls(count, None if packed is None else pa.ipc.open_stream(packed).read_all())

    @classmethod
    def all_of(cls, found: Sequence[Removals], identity: Sequence[str]) -> Removals:
        empty = pa.table({name: pa.array([], pa.string()) for name in identity})
        keys = [one.keys.cast(empty.schema) for one in found if one.keys is not None]
        return cls(sum(one.count for one in found), pa.concat_tables([empty, *keys]))


@dataclass(frozen=True, slots=True)
class SyncTask:
    """How a task finds the stored rows that its range of the source lacks."""

    schema: TypeSchema
    head: int
    limit: int | None
    stored: int | None = None
    """`Engine.count_stored`."""
    cuts: tuple[tuple[str, ...], ...] = ()
    """The identities at which all ranges but the first begin."""

    def find_removals(self, engine: Engine, number: int, source: Sequence[pa.Table]) -> Removals:
        """The identities in force, in the range of this number, that are not among those of the source."""
        identity, window = list(self.schema.ref.identity), Window("as_of", self.head)
        first, end = (None, *self.cuts)[number], (*self.cuts, None)[number]
        key = first_key(self.schema)
        where = [*([] if first is None else [key >= first[0]]), *([] if end is None else [key <= end[0]])]
        plan = Plan.of(self.schema, window, tuple(where), stored=True, only=tuple(identity), unordered=True)
        empty = pa.table({name: pa.array([], pa.string()) for name in identity})
        keys = pa.concat_tables([empty, *(table.select(identity).cast(empty.schema) for table in source)])
        found = []
        for stored in self._read(engine, plan, window):
            rows = stored.select(identity).cast(empty.schema)
            if first is not None:
                rows = rows.filter(pc.invert(_before(rows, identity, first)))
            if end is not None:
                rows = rows.filter(_before(rows, identity, end))
            found.append(identities_to_remove(rows, keys, identity))
        gone = pa.concat_tables([empty, *found])
        return Removals(gone.num_rows, gone if self.limit is None or gone.num_rows <= self.limit else None)

    def _read(self, engine: Engine, plan: Plan, window: Window) -> Any:
        if self.stored is None or self.stored <= MANY_ROWS * (len(self.cuts) + 1):
            yield engine.table(plan)
            return
        for share in engine.shares(self.schema, window, head=self.head):
            yield from engine.read_share(plan, share)


def _before(rows: pa.Table, identity: Sequence[str], cut: Sequence[str]) -> Any:
    """Which identities come before another, part by part."""
    parts = [(rows.column(name), part) for name, part in zip(identity, cut, strict=True)]
    *rest, (last, bound) = parts
    return reduce(
        lambda later, part: pc.or_(pc.less(part[0], part[1]), pc.and_(pc.equal(part[0], part[1]), later)),
        rest[::-1],
        pc.less(last, bound),
    )


def find_named(spark: SparkSession, engine: Engine, catalog: Catalog, removal: Removal) -> pa.Table:
    """Which of the identities that a source names are there."""
    ref = removal.declaration.ref
    identity = list(ref.identity)
    with explain_failures(f"looking for {ref} to remove"):
        stored = _in_force(spark, engine, catalog, removal.declaration.schema).withColumn(THERE, sql.lit(True))
        named = removal.keys.join(stored, identity, "left")
        found = named.where(sql.col(REASON).isNotNull() | sql.col(THERE)).select(*identity, REASON).distinct().toArrow()
    wrong = found.column(REASON).drop_null()
    if len(wrong):
        raise ValidationError(f"{ref}: {wrong[0]}. Nothing was removed")
    return found.select(identity)


def _in_force(spark: SparkSession, engine: Engine, catalog: Catalog, schema: TypeSchema) -> DataFrame:
    identity = schema.ref.identity
    return read_stored_rows(spark, engine, catalog, schema, LATEST, only=frozenset(identity)).select(*identity)
