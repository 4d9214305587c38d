"""What engines share whose questions DuckDB answers in this process: rows in files, in graphs, or translated."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ontologia.engines.base import PART_ROWS, Engine, as_outputs
from ontologia.errors import StorageBackendError
from ontologia.files.duck import Duck, python_values
from ontologia.model import SUPERSEDED_BY, TypeRef, TypeSchema
from ontologia.objects import Location
from ontologia.query.carried_rows import HeldRows
from ontologia.query.compiler import Statement
from ontologia.query.dialects import DIALECTS
from ontologia.query.sources import KEYS
from ontologia.query.stored_rows import StoredRows


class DuckEngine(Engine):
    """An engine with a DuckDB of its own."""

    dialect = DIALECTS["duckdb"]
    page_rows = 5_000
    """Up to here DuckDB keeps the first rows it sees and skips what comes later; beyond, it sorts all there is."""

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self.duck = Duck(self.config.s3_duckdb_memory_limit)
        self.is_closed = False

    def check_open(self) -> None:
        """Refuse to read or write in a store that was closed."""
        if self.is_closed:
            raise StorageBackendError.closed(self.location.uri)

    def tables_in_memory(self) -> Mapping[str, pa.Table | None]:
        """The Arrow tables, by the names that the statement at hand knows them by; most engines have none."""
        return {}

    @contextmanager
    def held(self, name: str, schema: TypeSchema, rows: pa.Table) -> Iterator[StoredRows]:
        """In a table of DuckDB's own: not every filter that it makes of a join can be pushed into an Arrow table."""
        table = f"held_{uuid.uuid4().hex}"
        with self.duck.cursor(fresh=rows) as cursor:
            cursor.execute(f"CREATE TABLE {table} AS FROM fresh")
        try:
            yield HeldTable(schema.ref, name, table, has_removals=SUPERSEDED_BY in rows.column_names)
        finally:
            with self.duck.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {table}")  # none if its database failed meanwhile

    def run(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> list[Sequence[Any]]:
        return [python_values(column) for column in self.run_arrow(statement, parameters, keys).columns]

    def run_in_parts(self, statement: Statement, parameters: Mapping[str, Any]) -> Iterator[list[Sequence[Any]]]:
        for batch in self.duck.batches(statement.sql, parameters, PART_ROWS, **self.tables_in_memory()):
            rows = as_outputs(pa.Table.from_batches([batch]), statement)
            yield [python_values(column) for column in rows.columns]

    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        found = self.duck.table(statement.sql, parameters, **{KEYS: keys, **self.tables_in_memory()})
        return as_outputs(found, statement)

    def explain_statement(self, statement: Statement, parameters: Mapping[str, Any]) -> str:
        with self.duck.cursor(**self.tables_in_memory()) as cursor:
            rows = cursor.execute(f"EXPLAIN {statement.sql}", dict(parameters)).fetchall()
        return "\n".join(str(row[-1]) for row in rows)

    def close(self) -> None:
        self.is_closed = True
        self.duck.close()


class HeldTable(HeldRows):
    """Rows in a table whose name is another one each time, while a statement that reads it is kept."""

    def __init__(self, ref: TypeRef, name: str, table: str, *, has_removals: bool) -> None:
        super().__init__(ref, name, has_removals=has_removals)
        self._name_now = table

    def fill_in(self, sql: str) -> str:
        return sql.replace(f'"{self.table}"', self._name_now)
