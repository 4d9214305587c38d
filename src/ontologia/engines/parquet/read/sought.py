"""One entity by its key, without a statement: the index tells which files may have it, their ends where it is.

DuckDB looks at every row group for every column of an answer. That is nothing beside a scan, and most of the time of a
question about one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from ontologia.engines.parquet.read.lookup import Lookup
from ontologia.engines.parquet.read.scan import Scan
from ontologia.engines.parquet.read.shapes import AnsweredStatement
from ontologia.files.arrays import array_of
from ontologia.files.names import encode_name
from ontologia.model import COMMIT_ID, Column, TypeSchema
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    from ontologia.query.plan import Window


class SoughtRows(StoredRows):
    """The rows of a type, of which one is looked for."""

    def __init__(self, lookup: Lookup, schema: TypeSchema, scan: Scan) -> None:
        self.ref = schema.ref
        self.key = ("sought", schema.ref)
        self._lookup = lookup
        self._schema = schema
        self._scan = scan

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        """What a statement would say; none is run."""
        names = [*self.ref.identity, COMMIT_ID, *(column.physical for column in columns)]
        table = exp.to_identifier(f"the row in force of {self.ref.kind} {encode_name(self.ref.name)}", quoted=True)
        return exp.select(*(exp.column(name, quoted=True) for name in names)).from_(exp.Table(this=table))

    def with_key(self, key: str) -> pa.Table:
        """The row in force that has a key, or none: commit, identity and fields."""
        return self._lookup.rows(self._schema, self._scan, self._find_wanted(key))

    def files_with(self, key: str) -> list[str]:
        """The paths of the files that are looked into, in turn."""
        return [file.path for file in self._lookup.files(self._schema, self._scan, self._find_wanted(key))]

    def _find_wanted(self, key: str) -> pa.Table:
        (identity,) = self.ref.identity
        return pa.table({identity: array_of([key], pa.string())})


@dataclass(frozen=True, slots=True)
class SoughtStatement(AnsweredStatement):
    """A statement for the one row with a key."""

    found: SoughtRows
    key: str

    def explained(self) -> str:
        return "\n".join(("looked up, newest first, in", *self.found.files_with(self.key)))

    def table(self) -> pa.Table:
        return self.found.with_key(self.key).select(list(self.names))
