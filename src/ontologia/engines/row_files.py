"""The rows of one type in one commit as a Parquet file (RFC 0004 §2.5, RFC 0009 §5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.catalog import TypeLayout
from ontologia.engines.documents import documents
from ontologia.engines.transaction import written_twice
from ontologia.files.arrays import array_of, empty_table, scalar_of
from ontologia.files.data_files import KeySpan
from ontologia.files.identity import find_repeated_in_order, sort_by_identity
from ontologia.files.spools import Spool
from ontologia.files.writing import LOOKUP_GROUP_ROWS, lookup_writer, write_rows
from ontologia.model import COMMIT_ID, SCHEMA_VERSION_ID, SUPERSEDED_BY, TypeSchema, arrow_schema


class RowFile:
    """The rows of one type in one commit, as a Parquet file in the making.

    With `removals`, it has the column that marks those; only files that need it do.
    """

    def __init__(
        self, layout: TypeLayout, commit_id: int, *, document: bool, sink: Path | Spool, removals: bool = False
    ) -> None:
        self.layout = layout
        self.count = 0
        self.removals = 0
        self.keys: KeySpan | None = None
        self.is_mixed = False
        """Whether rows were added that do not come after those before, so that an identity may be among both."""
        self._last: tuple[str, ...] | None = None
        self._commit_id = commit_id
        self._document = document
        self._schema = file_schema(layout.schema, document=document, settled=removals)
        self._sink = sink
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table, *, removed: bool = False) -> None:
        """Write rows; those that were `removed` with the values they had."""
        complete = self._complete(rows, removed=removed)
        self._check_once(complete)
        if self._writer is None:
            self._writer = self._begin(complete)
        write_rows(self._writer, complete, LOOKUP_GROUP_ROWS)
        self.count += rows.num_rows
        self.removals += rows.num_rows if removed else 0
        self.keys = span_of(complete, self.layout.ref.identity[0], self.keys)

    def close(self) -> None:
        (self._writer or self._begin(empty_table(self._schema))).close()

    def _check_once(self, rows: pa.Table) -> None:
        """Refuse an identity that sorted rows have twice, and see whether they come after all that came before."""
        ref = self.layout.ref
        repeated = find_repeated_in_order(rows, ref.identity)
        if repeated is not None:
            raise written_twice(ref, repeated)
        if rows.num_rows:
            first, last = (tuple(rows.column(name)[place].as_py() for name in ref.identity) for place in (0, -1))
            self.is_mixed = self.is_mixed or (self._last is not None and first <= self._last)
            self._last = last if self._last is None else max(last, self._last)

    def _begin(self, first: pa.Table) -> pq.ParquetWriter:
        where = pa.PythonFile(self._sink, mode="w") if isinstance(self._sink, Spool) else self._sink
        return lookup_writer(where, self._schema, first)

    def _complete(self, rows: pa.Table, *, removed: bool) -> pa.Table:
        """The rows with commit, version and, in v1, type and document; in the order of their identity."""
        ref = self.layout.ref
        rows = sort_by_identity(rows, ref.identity)
        constant = {COMMIT_ID: self._commit_id, SCHEMA_VERSION_ID: self.layout.schema_version_id}
        columns: dict[str, Any] = {name: _without_negative_zero(rows.column(name)) for name in rows.column_names}
        columns |= {name: pa.repeat(scalar_of(value, pa.int64()), rows.num_rows) for name, value in constant.items()}
        if SUPERSEDED_BY in self._schema.names:
            superseded_by = scalar_of(self._commit_id if removed else None, pa.int64())
            columns[SUPERSEDED_BY] = pa.repeat(superseded_by, rows.num_rows)
        if self._document:
            columns[f"{ref.kind}_type"] = pa.repeat(scalar_of(ref.name, pa.string()), rows.num_rows)
            columns["fields_json"] = array_of(list(documents(self.layout.schema, rows)), pa.string())
        return pa.table({field.name: columns[field.name] for field in self._schema}).cast(self._schema)


def span_of(rows: pa.Table, key: str, before: KeySpan | None) -> KeySpan | None:
    """The keys of rows that come sorted, and of others before them."""
    if not rows.num_rows:
        return before
    keys = rows.column(key)
    return KeySpan(keys[0].as_py(), keys[-1].as_py()).join(before)


def _without_negative_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Zero has one form in files: readers that filter by dictionaries would tell the two apart, though equal."""
    return pc.add(column, scalar_of(0.0, column.type)) if pa.types.is_floating(column.type) else column


def file_schema(schema: TypeSchema, *, document: bool, settled: bool = False) -> pa.Schema:
    """The columns of a data file. v1 carries the type's name and the row as JSON besides (RFC 0004 §2.5). Where it is
    `settled`, rows know the commit that superseded them."""
    plain = arrow_schema(schema.ref.kind, schema.columns)
    if settled:
        return file_schema(schema, document=document).append(pa.field(SUPERSEDED_BY, pa.int64()))
    if not document:
        return plain
    kind = schema.ref.kind
    identity = [plain.field(name) for name in schema.ref.identity]
    fields = [plain.field(column.physical) for column in schema.columns]
    return pa.schema(
        [
            plain.field(COMMIT_ID),
            pa.field(f"{kind}_type", pa.string(), nullable=False),
            *identity,
            plain.field(SCHEMA_VERSION_ID),
            *fields,
            pa.field("fields_json", pa.string(), nullable=False),
        ]
    )
