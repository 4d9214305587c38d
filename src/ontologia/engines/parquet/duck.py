"""DuckDB in process: one database per repository, a cursor per statement, memory bounded (RFC 0004 §4.5)."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import output_schema
from ontologia.errors import StorageBackendError
from ontologia.query.compiler import KEYS, Statement

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Duck:
    """Runs statements over files. The connection is made on first use."""

    def __init__(self, memory_limit: str) -> None:
        self._memory_limit = memory_limit
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()
        self._remote: dict[str, Mapping[str, str]] = {}

    @contextmanager
    def cursor(self, keys: pa.Table | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor of one's own; what DuckDB raises becomes an error of ours."""
        import duckdb

        cursor = self._connected().cursor()
        try:
            if keys is not None:
                cursor.register(KEYS, keys)
            yield cursor
        except duckdb.Error as problem:
            raise StorageBackendError(f"DuckDB says: {problem}", context={"operation": "query"}) from problem
        finally:
            cursor.close()

    def _connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        with self._lock:
            if self._connection is None:
                settings: dict[str, Any] = {
                    "memory_limit": self._memory_limit,
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                    # What does not fit into memory goes here, not into the working directory.
                    "temp_directory": str(Path(tempfile.gettempdir(), f"ontologia-duckdb-{uuid.uuid4().hex}")),
                }
                self._connection = duckdb.connect(":memory:", config=settings)
                self._connection.execute("SET TimeZone = 'UTC'")
            return self._connection

    def allow_s3(self, name: str, secret: Mapping[str, str]) -> None:
        """Let statements read `s3://` with these settings, through httpfs."""
        connection = self._connected()
        with self._lock:
            if self._remote.get(name) == secret:
                return
            if not self._remote:
                connection.execute(f"LOAD {_quoted(str(_httpfs()))}")
            options = ", ".join(f"{key} {_quoted(value)}" for key, value in secret.items())
            connection.execute(f'CREATE OR REPLACE SECRET "{name}" (TYPE s3, {options})')
            self._remote[name] = dict(secret)

    def columns(
        self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None
    ) -> list[Sequence[Any]]:
        return [python_values(column) for column in self.table(statement, parameters, keys).columns]

    def table(self, statement: Statement, parameters: Mapping[str, Any], keys: pa.Table | None) -> pa.Table:
        with self.cursor(keys) as cursor:
            found = cursor.execute(statement.sql, dict(parameters)).to_arrow_table()
        return found.rename_columns([output.name for output in statement.outputs]).cast(output_schema(statement))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values, instants in the same time zone object everywhere."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    bare = column.cast(pa.timestamp("us")).to_pylist()
    return [None if value is None else value.replace(tzinfo=UTC) for value in bare]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _httpfs() -> Path:
    """The extension file inside the package that carries it."""
    import duckdb_extension_httpfs

    root = Path(duckdb_extension_httpfs.__file__).parent
    return next(root.rglob("httpfs.duckdb_extension"))
