"""What engines share whose questions DuckDB answers in this process: rows in files, in graphs, or translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine, output_schema
from ontologia.files.duck import Duck, python_values
from ontologia.objects import Location
from ontologia.query.compiler import Statement
from ontologia.query.dialects import DIALECTS
from ontologia.query.sources import KEYS

if TYPE_CHECKING:
    import pyarrow as pa


class DuckEngine(Engine):
    """An engine with a DuckDB of its own."""

    dialect = DIALECTS["duckdb"]
    page_rows = 5_000
    """Up to here DuckDB keeps the first rows it sees and skips what comes later; beyond, it sorts all there is."""

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self.duck = Duck(self.config.s3_duckdb_memory_limit)

    def tables_in_memory(self) -> Mapping[str, pa.Table | None]:
        """The Arrow tables, by the names that the statement at hand knows them by; most engines have none."""
        return {}

    def run(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> list[Sequence[Any]]:
        return [python_values(column) for column in self.run_arrow(statement, parameters, keys).columns]

    def run_arrow(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        found = self.duck.table(statement.sql, parameters, **{KEYS: keys, **self.tables_in_memory()})
        return found.rename_columns([output.name for output in statement.outputs]).cast(output_schema(statement))

    def explain_statement(self, statement: Statement, parameters: Mapping[str, Any]) -> str:
        with self.duck.cursor(**self.tables_in_memory()) as cursor:
            rows = cursor.execute(f"EXPLAIN {statement.sql}", dict(parameters)).fetchall()
        return "\n".join(str(row[-1]) for row in rows)

    def close(self) -> None:
        self.duck.close()
