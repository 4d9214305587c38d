"""Rows that somebody else committed after a task had compared its own with them.

Of rows that were as stored a task tells the identity alone. What they were the store knows: it has the state at the
head at which the task looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.files.identity import identity_key
from ontologia.model import COMMIT_ID, SCHEMA_VERSION_ID, arrow_schema
from ontologia.query.plan import Plan, Window
from ontologia.runtime.delta import OPERATION
from ontologia.spark.writing.plan import WritePlan
from ontologia.spark.writing.shares import StagedShare
from ontologia.spark.writing.staged import StagedFiles


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Whether rows have to be compared again; files with those that were as stored and perhaps are no more."""

    is_needed: bool = False
    files: list[Path] = field(default_factory=list)
    revived: int = 0


def overtaken(
    engine: Engine, catalog: Catalog, plan: WritePlan, shares: Sequence[StagedShare], staged: StagedFiles
) -> Overtaken:
    """What has to be compared again, because a commit after a task's look touched the type."""
    since = min((share.head for share in shares), default=catalog.head)
    touched = _find_touched(engine, catalog, plan, since)
    if touched is None:
        return Overtaken()
    files, rows = [], 0
    for number, (share, seen) in enumerate(zip(shares, staged.seen, strict=True)):
        for place, file in enumerate(seen):
            again = _as_it_was(engine, plan, share.head, _among(pq.read_table(file, partitioning=None), touched, plan))
            if again is not None:
                files.append(staged.scratch / f"again-{number}-{place}.parquet")
                pq.write_table(again, files[-1])
                rows += again.num_rows
    return Overtaken(True, files, rows)


def _find_touched(engine: Engine, catalog: Catalog, plan: WritePlan, since: int) -> pa.Table | None:
    """The identities of the type that commits after one wrote or removed; None where there are none."""
    schema = plan.schema
    if catalog.head <= since or schema.ref not in catalog.layouts:
        return None
    window, only = Window("since", since), (*schema.ref.identity, COMMIT_ID)
    asked = Plan.of(schema, window, stored=True, only=only, unordered=True)
    found = engine.table(asked, None, catalog)
    return found.select(list(schema.ref.identity)) if found.num_rows else None


def _among(seen: pa.Table, touched: pa.Table, plan: WritePlan) -> pa.Table:
    identity = plan.schema.ref.identity
    return seen.filter(pc.is_in(identity_key(seen, identity), value_set=identity_key(touched, identity)))


def _as_it_was(engine: Engine, plan: WritePlan, head: int, keys: pa.Table) -> pa.Table | None:
    """Rows as a task found them, in the form of a staged part; whoever compares them says what is to be done."""
    if not keys.num_rows:
        return None
    schema = plan.schema
    asked = Plan.of(schema, Window("as_of", head), keyed=True, stored=True, unordered=True)
    kinds = arrow_schema(schema.ref.kind, schema.columns)
    names = [name for name in kinds.names if name not in (COMMIT_ID, SCHEMA_VERSION_ID)]
    rows = engine.table(asked, keys).select(names)
    return rows.append_column(OPERATION, pa.nulls(rows.num_rows, pa.string()))
