"""DuckDB in process: one database per repository, a cursor per statement, memory bounded (RFC 0004 §4.5)."""

from __future__ import annotations

import os
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


BATCH_ROWS = 131_072
READ_OPTIONS = {"union_by_name": True, "hive_partitioning": False}
"""How files are read: columns by name, and none from the name of a folder such as `country=DE`."""
AS_STORED = ", ".join(f"{name} = {str(value).lower()}" for name, value in READ_OPTIONS.items())
MEMORY_PER_THREAD = 256_000_000 * 0.9


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
            raise StorageBackendError(_explained(problem), context={"operation": "query"}) from problem
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
                    "preserve_insertion_order": False,  # every statement that cares about order says so
                    "enable_external_file_cache": False,  # files are local copies; memory is for the work
                    # What does not fit into memory goes here, not into the working directory.
                    "temp_directory": str(Path(tempfile.gettempdir(), f"ontologia-duckdb-{uuid.uuid4().hex}")),
                }
                self._connection = duckdb.connect(":memory:", config=settings)
                self._connection.execute("SET TimeZone = 'UTC'")
                self._connection.execute(f"SET threads = {_threads(self._connection)}")
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
            # In batches: a result that DuckDB holds as a whole counts against its memory limit.
            found = cursor.execute(statement.sql, dict(parameters)).to_arrow_reader(BATCH_ROWS).read_all()
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


def _explained(problem: Exception) -> str:
    first = str(problem).partition("\n")[0]
    if "Out of Memory" in first:
        return f"DuckDB needs more memory than it may use ({first}): raise OntologiaConfig.s3_duckdb_memory_limit"
    return f"DuckDB says: {first}"


def _threads(connection: duckdb.DuckDBPyConnection) -> int:
    """As many threads as the memory limit feeds: each holds row groups and runs of a sort of its own."""
    row = connection.execute("SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'").fetchone()
    number, unit = str(row[0] if row else "256 MiB").split()
    size = float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}.get(unit, 1)
    return max(1, min(os.cpu_count() or 1, int(size // MEMORY_PER_THREAD)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _httpfs() -> Path:
    """The extension file inside the package that carries it."""
    import duckdb_extension_httpfs

    root = Path(duckdb_extension_httpfs.__file__).parent
    return next(root.rglob("httpfs.duckdb_extension"))
