"""A few rows of many, by an order that is not that of their keys: which ones they are is asked with the columns that
decide it, then they are looked up.

DuckDB does the same by itself for rows that come straight from a file. Where it has to leave out some that a later
commit superseded, it reads every column of every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.engines.parquet.read.file_rows import FileRows, LayeredRows
from ontologia.engines.parquet.read.layers import is_large
from ontologia.engines.parquet.read.lookup import Lookup
from ontologia.engines.parquet.read.scan import Scan
from ontologia.engines.parquet.read.shapes import AnsweredStatement
from ontologia.files.duck import Duck
from ontologia.files.identity import identity_key
from ontologia.model import TypeSchema
from ontologia.query.compiler import Statement
from ontologia.query.plan import Plan
from ontologia.query.stored_rows import StoredRows

MOST_ROWS = 64
"""Each may be in a row group of its own, which is decoded whole."""


def which_rows(plan: Plan, rows: StoredRows) -> Plan | None:
    """The plan that asks for the identities of the rows that a plan asks for; None where that is no shorter way."""
    if plan.limit is None or plan.limit > MOST_ROWS or not plan.window.deduplicated:
        return None
    asked = (plan.aggregates, plan.hops, plan.search, plan.only, plan.keyed, plan.unordered, plan.across)
    if any(item not in (None, (), False) for item in asked) or not _are_compared(rows):
        return None
    return plan.change(stored=True, only=plan.source.identity)


def _are_compared(rows: StoredRows) -> bool:
    """Whether there are many rows, of which some may be superseded by others."""
    if isinstance(rows, LayeredRows):
        return bool(rows.layers.large)
    return isinstance(rows, FileRows) and bool(rows.scan.tail) and any(map(is_large, rows.scan.entries))


@dataclass(frozen=True, slots=True)
class FewRows:
    """Finds the rows whose identities a statement gives."""

    duck: Duck
    lookup: Lookup
    scan: Scan
    which: Statement
    parameters: Mapping[str, Any]

    def table(self, schema: TypeSchema) -> pa.Table:
        """Commit, identity and fields, in the order of the identities."""
        identity = schema.ref.identity
        keys = self.duck.table(self.which.sql, self.parameters).rename_columns(list(identity))
        found = self.lookup.rows(schema, self.scan, keys)
        return found.take(pc.index_in(identity_key(keys, identity), value_set=identity_key(found, identity)))


@dataclass(frozen=True, slots=True)
class FewStatement(AnsweredStatement):
    """A statement for a few rows."""

    rows: FewRows
    schema: TypeSchema

    def table(self) -> pa.Table:
        return self.rows.table(self.schema).select(list(self.names))
