"""SQLite engine v1: one history table per kind, with the fields of a row as JSON in `fields_json`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ontologia.engines.base import output_schema
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.catalog import TypeLayout
from ontologia.engines.changes import VersionRows, changed_rows_sql
from ontologia.engines.documents import documents, split_documents
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.connections import Connection
from ontologia.engines.sqlite.engine import SqliteEngine
from ontologia.engines.sqlite.functions import has_path
from ontologia.engines.sqlite.history import DocumentHistory
from ontologia.engines.sqlite.windows import SqliteRows, Versions, select_window
from ontologia.model import COMMIT_ID, SCHEMA_VERSION_ID, Column, TypeRef, TypeSchema, encode_json, identity_of
from ontologia.query.carried_rows import ColumnSource, Projection
from ontologia.query.compiler import Statement
from ontologia.query.dialects import COMPARISONS, SQLITE, Place, call, case, equal
from ontologia.query.plan import Window
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    import pyarrow as pa

DOCUMENT = "fields_json"


class SqliteEngineV1(SqliteEngine):
    """Rows as JSON documents. Latest reads see rows of every schema version, temporal ones the current version."""

    engine_version = "v1"
    past_of = DocumentHistory
    capabilities = Capabilities(erasure=True)
    data_tables = """
CREATE TABLE entity_history (
    entity_type       TEXT NOT NULL,
    entity_key        TEXT NOT NULL,
    commit_id         INTEGER NOT NULL,
    schema_version_id INTEGER,
    fields_json       TEXT NOT NULL,
    PRIMARY KEY (entity_type, entity_key, commit_id)
) WITHOUT ROWID;
CREATE TABLE relation_history (
    relation_type     TEXT NOT NULL,
    left_key          TEXT NOT NULL,
    right_key         TEXT NOT NULL,
    instance_key      TEXT NOT NULL DEFAULT '',
    commit_id         INTEGER NOT NULL,
    schema_version_id INTEGER,
    fields_json       TEXT NOT NULL,
    PRIMARY KEY (relation_type, left_key, right_key, instance_key, commit_id)
) WITHOUT ROWID;
CREATE INDEX index_relation_history_right_key ON relation_history (relation_type, right_key);
CREATE INDEX index_entity_history_commit_id ON entity_history (commit_id);
CREATE INDEX index_relation_history_commit_id ON relation_history (commit_id)
"""

    def rows_of_layout(self, layout: TypeLayout) -> StoredRows:
        return DocumentRows(layout)

    def layouts(self, connection: sqlite3.Connection) -> Mapping[TypeRef, TypeLayout]:
        return {
            version.ref: TypeLayout(
                version.ref, version.schema, version.schema_version_id, version.activation_commit_id or 0
            )
            for version in control.schema_versions(connection)
            if version.is_current
        }

    def create_partition(self, connection: sqlite3.Connection, layout: TypeLayout) -> TypeLayout:
        return layout  # the history tables hold every type and version

    @contextmanager
    def held(self, name: str, schema: TypeSchema, rows: pa.Table) -> Iterator[StoredRows]:
        columns = (*schema.ref.identity, COMMIT_ID, DOCUMENT)
        keys = [rows.column(column).to_pylist() for column in columns[:-1]]
        with self.temporary(name, columns, zip(*keys, documents(schema, rows), strict=True)) as table:
            yield HeldDocuments(schema.ref, table)

    def ensure_indexes(self, connection: sqlite3.Connection, layout: TypeLayout, schema: TypeSchema) -> None:
        kind = layout.ref.kind
        rows = DocumentRows(layout)
        for column in filter(lambda column: has_path(column.name), schema.indexed):
            name = f"index_{kind}_{layout.ref.name}_{column.physical}"
            value = rows.value(column, table=None).sql(dialect="sqlite")
            where = rows.of_type(table=None).sql(dialect="sqlite")
            control.create_index(connection, name, f"ON {kind}_history ({value}) WHERE {where}")

    def insert(self, connection: sqlite3.Connection, layout: TypeLayout, commit_id: int, rows: pa.Table) -> None:
        ref = layout.ref
        columns = ", ".join((f"{ref.kind}_type", *ref.identity, DOCUMENT, COMMIT_ID, SCHEMA_VERSION_ID))
        marks = ", ".join("?" for _ in (*ref.identity, DOCUMENT))
        identity = [rows.column(name).to_pylist() for name in ref.identity]
        connection.executemany(
            f"INSERT INTO {ref.kind}_history ({columns}) "
            f"VALUES ({_literal(ref.name)}, {marks}, {int(commit_id)}, {int(layout.schema_version_id)})",
            zip(*identity, documents(layout.schema, rows), strict=True),
        )

    def columns_of(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        columns: list[Sequence[Any]] = []
        for output, values in zip(statement.outputs, super().columns_of(statement, rows), strict=True):
            fields = [column for _, column in output.columns]
            columns.extend(split_documents(fields, values) if fields else [values])
        return columns

    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        import pyarrow as pa

        if not any(output.columns for output in statement.outputs):
            return super().run_arrow(statement, parameters, keys)
        schema = output_schema(statement)
        columns = self.run(statement, parameters, keys)
        arrays = [pa.array(values, field.type) for field, values in zip(schema, columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def stored_versions(self, connection: Connection, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        import pyarrow as pa

        schemas = {v.schema_version_id: v.schema for v in control.schema_versions(connection, ref)}
        keys = ", ".join(ref.identity)
        rows = connection.execute(
            f"SELECT {SCHEMA_VERSION_ID}, {keys}, {DOCUMENT}, max({COMMIT_ID}) FROM {ref.kind}_history "
            f"WHERE {ref.kind}_type = ? GROUP BY {keys}",
            (ref.name,),
        )
        by_version: dict[int, list[Any]] = {}
        for version, *rest, _ in rows:
            by_version.setdefault(version, []).append(rest)
        for version, found in sorted(by_version.items()):
            *identity, texts = zip(*found, strict=True)
            schema = schemas[version]
            columns = dict(zip(ref.identity, (pa.array(key, pa.string()) for key in identity), strict=True))
            values = split_documents(schema.columns, texts)
            for column, column_values in zip(schema.columns, values, strict=True):
                columns[column.physical] = pa.array(column_values, column.arrow_type)
            yield version, pa.table(columns)

    def places_of(self, connection: sqlite3.Connection, ref: TypeRef) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        yield f"{ref.kind}_history", f"{ref.kind}_type = ? AND ", (ref.name,)

    def drop_rows(self, connection: sqlite3.Connection, ref: TypeRef, *, purge: bool) -> None:
        if purge:
            connection.execute(f"DELETE FROM {ref.kind}_history WHERE {ref.kind}_type = ?", (ref.name,))

    def changed_rows(
        self, connection: sqlite3.Connection, commit_id: int
    ) -> Iterator[tuple[TypeRef, tuple[str, ...], str]]:
        for kind in ("entity", "relation"):
            names, table = (f"{kind}_type", *identity_of(kind)), VersionRows(f"{kind}_history")
            rows = connection.execute(changed_rows_sql(names, table, [table], ":commit"), {"commit": commit_id})
            for name, *identity, operation in rows:
                yield TypeRef(kind, name), tuple(identity), operation


class DocumentRows(SqliteRows):
    """The rows of a type among the documents of its kind."""

    document = DOCUMENT

    def __init__(self, layout: TypeLayout) -> None:
        self.ref = layout.ref
        self.version = layout.schema_version_id
        self.key = ("v1", layout.ref, layout.schema_version_id)

    def fields(self, columns: Sequence[Column]) -> dict[str, exp.Expression]:
        """What is selected of a document: the fields, and the whole of it."""
        fields: dict[str, exp.Expression] = {}
        for column in columns:
            fields[self.name_of(column)] = self.whole(column)
            if column.scalar == "str":
                fields[self.index_key(column)] = self.value(column)
        return {**fields, DOCUMENT: self.document_of("t")}

    def document_of(self, table: str | None) -> exp.Expression:
        """The document of a row."""
        return exp.column(DOCUMENT, table=table, quoted=True)

    def carried(self, projection: Projection) -> StoredRows:
        return CarriedDocuments(self, projection)

    def versions(self, window: Window, columns: Sequence[Column]) -> Versions:
        # One type may be the whole table: without saying so, SQLite would rather read all of it than use an index.
        rows: Any = call("likelihood", self.of_type(), exp.Literal.number("0.99"))
        if window.mode != "latest":
            version = exp.column(SCHEMA_VERSION_ID, table="t", quoted=True)
            rows = exp.and_(rows, equal(version, self.version))
        return Versions(f"{self.ref.kind}_history", self.fields(columns), rows)

    def of_type(self, table: str | None = "t") -> exp.Expression:
        return equal(exp.column(f"{self.ref.kind}_type", table=table, quoted=True), exp.Literal.string(self.ref.name))

    def index_key(self, column: Column) -> str:
        """What `rows` calls the value as an index has it: a text up to its first zero byte. Not a name of `name_of`."""
        return f"{column.physical}?index"

    def index_test(
        self, column: Column, alias: str, op: str, bound: Sequence[exp.Placeholder]
    ) -> exp.Expression | None:
        if column.scalar != "str":
            return None
        key = exp.column(self.index_key(column), table=alias, quoted=True)
        cut = [call("json_extract", call("json_quote", name), "$") for name in bound]
        if op == "in":
            return key.isin(*cut)
        # The order of texts is that of their beginnings, or these are the same.
        nearest = {"lt": "le", "gt": "ge"}.get(op, op)
        return COMPARISONS[nearest](this=key, expression=cut[0])

    def whole(self, column: Column) -> exp.Expression:
        """A field's value inside the document, as SQL compares it."""
        found = self.value(column)
        if column.scalar != "str" or not has_path(column.name):
            return found
        return SQLITE.whole_text(found, Place.at(self.document_of("t"), (column.name,)))

    def value(self, column: Column, table: str | None = "t") -> exp.Expression:
        """A field's value as SQLite's own functions find it, for which there can be an index."""
        document = self.document_of(table)
        if has_path(column.name):
            place = Place.at(document, (column.name,))
            found: exp.Expression = call("json_extract", document, place.path)
            if column.scalar is None:
                return exp.JSONExtract(this=document, expression=place.path, only_json_types=True)
        else:
            how = "ontologia_member_json" if column.scalar is None else "ontologia_member"
            found = call(how, document, exp.Literal.string(column.name))
        if column.scalar != "float":
            return found
        infinite = exp.Literal.number("9e999")
        return case(
            (equal(found, "Infinity"), infinite),
            (equal(found, "-Infinity"), exp.Neg(this=infinite.copy())),
            default=found,
        )

    def encode(self, column: Column, value: Any) -> Any:
        return value.hex() if isinstance(value, bytes) else value


class CarriedDocuments(DocumentRows):
    """Documents of an earlier schema version, with the fields of a later one."""

    def __init__(self, stored: DocumentRows, projection: Projection) -> None:
        self.ref = stored.ref
        self.version = stored.version
        self.key = ("carried", stored.key, projection.key)
        self._sources = encode_json(
            {
                source.column.name: [None, _plain(source)] if source.before is None else [source.before.name, None]
                for source in projection.sources
            }
        )

    def document_of(self, table: str | None) -> exp.Expression:
        return call("ontologia_carried", super().document_of(table), exp.Literal.string(self._sources))


class HeldDocuments(DocumentRows):
    """Documents in a temporary table, all of which are of the type, its current schema and the window."""

    def __init__(self, ref: TypeRef, table: str) -> None:
        self.ref = ref
        self.table = table
        self.key = ("held", table)

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        return select_window(self.versions(window, columns), self.ref.identity, Window("history"), probe=probe)

    def versions(self, window: Window, columns: Sequence[Column]) -> Versions:
        return Versions(self.table, self.fields(columns))


def _plain(source: ColumnSource) -> Any:
    """The value of a field that was filled in, as a document has it."""
    return json.loads(source.value) if source.column.scalar is None and source.value is not None else source.value


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="sqlite")
