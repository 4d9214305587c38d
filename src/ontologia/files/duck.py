"""DuckDB in process: one database per open store, a cursor per statement, memory bounded (RFC 0004 §4.5)."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.errors import OntologiaError, StorageBackendError, SumOverflowError
from ontologia.files.quoting import exact_path, literal_path, quote_name, quote_text, quote_value
from ontologia.files.scratch import Scratch

BATCH_ROWS = 131_072
SMALL_TABLE_BYTES = 1 << 20
PLAIN = {pa.string(), pa.binary(), pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC")}
"""What Parquet and Arrow have alike."""
READ_OPTIONS = {"union_by_name": True, "hive_partitioning": False}
"""How files are read: columns by name, and none from the name of a folder such as `country=DE`."""
AS_STORED = ", ".join(f"{name} = {str(value).lower()}" for name, value in READ_OPTIONS.items())
MEMORY_PER_THREAD = 128_000_000 * 0.9
"""A thread holds a row group, of 64 MB at most, and what it makes of it."""

_numbers = count()


@dataclass(frozen=True)
class Seal:
    """What a sealed database may open: `allowed` is a setting of DuckDB, and `values` are files or directories."""

    allowed: Literal["allowed_paths", "allowed_directories"]
    values: tuple[str, ...]

    def apply(self, connection: duckdb.DuckDBPyConnection) -> None:
        """From now on, let statements open these and nothing else, load nothing and change no setting."""
        listed = ", ".join(map(quote_text, self.values))
        connection.execute(f"SET {self.allowed} = [{listed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")


class Duck:
    """Runs statements over files. The connection is made on first use, and made again when DuckDB fails inside: from
    then on it refuses every statement, whoever sends it."""

    def __init__(self, memory_limit: str, *, in_order: bool = False, threads: int | None = None) -> None:
        self._memory_limit = memory_limit
        self._in_order = in_order
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()
        self._active: set[duckdb.DuckDBPyConnection] = set()
        self._remote: dict[str, Mapping[str, str]] = {}
        self._seal: Seal | None = None
        self._most_threads = threads
        self._threads = 1
        self._spills: list[Scratch] = []

    @contextmanager
    def cursor(self, **tables: pa.Table | None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor of one's own, with tables under these names; what DuckDB raises becomes an error of ours."""
        connection = self._connect()
        cursor = connection.cursor()
        self._active.add(cursor)
        try:
            for name, table in tables.items():
                if table is not None:
                    self._give(cursor, name, table)
            yield cursor
        except Exception as problem:
            raise_interrupt(problem)
            if not isinstance(problem, duckdb.Error):
                raise
            if isinstance(problem, duckdb.FatalException | duckdb.InternalException):
                self._abandon(connection)
            raise _explain(problem) from problem
        finally:
            self._active.discard(cursor)
            cursor.close()

    def sort_rows(self, schema: pa.Schema, tables: Iterable[pa.Table], by: Iterable[str]) -> Iterator[pa.Table]:
        """Rows that come in any order, in that of some columns; what does not fit into memory is on disk meanwhile."""
        with self.cursor() as cursor:
            cursor.register("incoming", schema.empty_table())
            cursor.execute("CREATE TEMP TABLE gathered AS FROM incoming")  # gone with the cursor, however this ends
            for table in tables:
                cursor.register("incoming", table)
                cursor.execute("INSERT INTO gathered FROM incoming")
            order = ", ".join(map(quote_name, by))
            for batch in cursor.execute(f"FROM gathered ORDER BY {order}").to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch]).cast(schema)

    def _give(self, cursor: duckdb.DuckDBPyConnection, name: str, table: pa.Table | pa.RecordBatchReader) -> None:
        """Give a table to a cursor. To read one of Arrow's, DuckDB imports `pyarrow.dataset`, and that pandas, which
        takes longer than most questions: a small table goes by way of a file, in no more time."""
        small = isinstance(table, pa.Table) and table.nbytes <= SMALL_TABLE_BYTES  # what streams in may be any size
        is_plain = small and PLAIN.issuperset(table.schema.types)
        if self._is_for_one_statement or not is_plain or _is_loaded("pyarrow.dataset"):
            _register(cursor, name, table)
            return
        with tempfile.NamedTemporaryFile(dir=self._spills[-1].name, suffix=".parquet") as file:
            pq.write_table(table, file.name, compression="none", use_dictionary=False, write_statistics=False)
            source = quote_text(exact_path(file.name))
            cursor.execute(f"CREATE TEMP TABLE {quote_name(name)} AS FROM read_parquet({source})")

    def _connect(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._connection is None:
                self._connection = self._open()
            return self._connection

    def _open(self) -> duckdb.DuckDBPyConnection:
        # What does not fit into memory goes where nobody else can read it, not into the working directory.
        self._spills.append(Scratch("duckdb"))
        settings: dict[str, Any] = {
            "memory_limit": self._memory_limit,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,  # a name in a statement is never a variable of this program
            "preserve_insertion_order": self._in_order,  # else statements that care about order say so
            "enable_external_file_cache": False,  # files are local copies; memory is for the work
            "temp_directory": self._spills[-1].name,
        }
        connection = duckdb.connect(":memory:", config=settings)
        # Without GLOBAL, a setting is of this connection, and no cursor has it.
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute("SET GLOBAL parquet_metadata_cache = true")  # a file's end is read once
        self._threads = self._most_threads or _threads(connection)
        connection.execute(f"SET threads = {self._threads}")
        if self._remote:
            connection.execute(f"LOAD {quote_text(str(_httpfs()))}")
        for name, secret in self._remote.items():
            _create_secret(connection, name, secret)
        if self._seal is not None:
            own = (self._spills[-1].name,) if self._seal.allowed == "allowed_directories" else ()
            Seal(self._seal.allowed, self._seal.values + own).apply(connection)
        return connection

    def _abandon(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let the next statement begin with a new database. Statements that run in this one may end there."""
        with self._lock:
            if self._connection is connection:
                self._connection = None

    def allow_s3(self, name: str, secret: Mapping[str, str]) -> None:
        """Let statements read `s3://` with these settings, through httpfs."""
        connection = self._connect()
        with self._lock:
            if self._remote.get(name) == secret:
                return
            is_first = not self._remote
            self._remote[name] = dict(secret)
            if self._seal is not None:  # which can be given nothing more
                self._connection = None
                return
            if is_first:
                connection.execute(f"LOAD {quote_text(str(_httpfs()))}")
            _create_secret(connection, name, secret)

    def seal(self, paths: Iterable[str]) -> None:
        """From now on, let statements open these files and no others, load nothing and change no setting."""
        connection = self._connect()
        self._seal = Seal("allowed_paths", _both_forms(paths))
        self._seal.apply(connection)

    def confine(self, directories: Iterable[str]) -> None:
        """Let statements open files in these directories and no others, load nothing and change no setting. Before the
        first statement."""
        self._seal = Seal("allowed_directories", _both_forms(directories))

    def interrupt(self) -> None:
        """End what runs now."""
        for cursor in tuple(self._active):
            cursor.interrupt()

    def table(self, sql: str, parameters: Mapping[str, Any], **tables: pa.Table | None) -> pa.Table:
        """The result of a statement. In batches: one that DuckDB holds whole counts against its memory limit."""
        try:
            return self._table(sql, parameters, tables)
        except StorageBackendError as problem:
            if _was_invalidated(problem):
                return self._table(sql, parameters, tables)
            if not self._may_need_less(problem, tables.values()):
                raise
        with self._one_thread() as duck:
            return duck._table(sql, parameters, tables)

    def _table(self, sql: str, parameters: Mapping[str, Any], tables: Mapping[str, pa.Table | None]) -> pa.Table:
        with self.cursor(**tables) as cursor:
            return read_all(execute(cursor, sql, parameters).to_arrow_reader(BATCH_ROWS))

    def batches(
        self, sql: str, parameters: Mapping[str, Any], rows: int, **tables: pa.Table | None
    ) -> Iterator[pa.RecordBatch]:
        """The result of a statement, so many rows at a time."""
        began = False

        def ask(duck: Duck) -> Iterator[pa.RecordBatch]:
            nonlocal began
            with duck.cursor(**tables) as cursor:
                for batch in execute(cursor, sql, parameters).to_arrow_reader(rows):
                    began = True
                    yield batch

        try:
            yield from ask(self)
            return
        except StorageBackendError as problem:
            is_invalid = _was_invalidated(problem)
            if began or not (is_invalid or self._may_need_less(problem, tables.values())):
                raise
        if is_invalid:
            yield from ask(self)
            return
        with self._one_thread() as duck:
            yield from ask(duck)

    def _may_need_less(self, problem: StorageBackendError, tables: Iterable[Any]) -> bool:
        """Whether a statement may succeed with one thread: each sorts rows of its own, and not every plan can spill.
        Rows that streamed in are gone, and cannot be asked again."""
        stay = all(table is None or isinstance(table, pa.Table) for table in tables)
        return is_out_of_memory(problem) and stay and not self._is_for_one_statement and self._threads > 1

    @property
    def _is_for_one_statement(self) -> bool:
        """Whether this database may open the files of one statement, and has its views."""
        return self._seal is not None and self._seal.allowed == "allowed_paths"

    @contextmanager
    def _one_thread(self) -> Iterator[Duck]:
        """What others ask meanwhile is slower, and right. A sealed database changes no setting: another one is made."""
        if self._seal is not None:
            duck = Duck(self._memory_limit, in_order=self._in_order, threads=1)
            duck._seal, duck._remote = self._seal, dict(self._remote)
            try:
                yield duck
            finally:
                duck.close()
            return
        connection = self._connect()
        connection.cursor().execute("SET GLOBAL threads = 1")
        try:
            yield self
        finally:
            connection.cursor().execute(f"SET GLOBAL threads = {self._threads}")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                self._remote = {}
            while self._spills:
                self._spills.pop().cleanup()


def _register(cursor: duckdb.DuckDBPyConnection, name: str, table: pa.Table | pa.RecordBatchReader) -> None:
    """Let a cursor read Arrow's rows where they are. DuckDB has Arrow test conditions on columns, to which NaN is not
    the greatest number, nor -0.0 in a list that has 0.0: it must not see that these are columns."""
    floats = {field.name for field in table.schema if _has_floats(field.type)}
    if not floats:
        cursor.register(name, table)
        return
    stored = f"arrow_{next(_numbers)}"
    cursor.register(stored, table)
    hidden = (f"CASE WHEN {column} IS NOT NULL THEN {column} END AS {column}" for column in map(quote_name, floats))
    cursor.execute(f"CREATE TEMP VIEW {quote_name(name)} AS SELECT * REPLACE ({', '.join(hidden)}) FROM {stored}")


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def execute(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """Run a statement. To bind a value, DuckDB imports pandas where that is installed, which takes longer than most
    questions; a value that SQL can say is handed over that way."""
    if parameters and not _is_loaded("pandas"):
        literals = {name: quote_value(value) for name, value in parameters.items()}
        if None not in literals.values():
            cursor.execute(f"PREPARE asked AS {sql}")
            given = ", ".join(f"{quote_name(name)} := {literal}" for name, literal in literals.items())
            return cursor.execute(f"EXECUTE asked({given})")
    return cursor.execute(sql, dict(parameters))


def read_all(batches: pa.RecordBatchReader) -> pa.Table:
    """The rows of a reader as a table. Arrow's own loop hears of no signal before its end."""
    return pa.Table.from_batches(list(batches), batches.schema)


def raise_interrupt(problem: Exception) -> None:
    """Raise what a signal handler raised in the middle of a statement: DuckDB makes a RuntimeError of a Ctrl-C, which
    `except Exception` would take for a failure to get over."""
    cause: BaseException | None = problem
    while cause is not None:
        if not isinstance(cause, Exception):
            raise cause.with_traceback(None) from None
        cause = cause.__cause__


def _is_loaded(module: str) -> bool:
    return module in sys.modules


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values, instants in the same time zone object everywhere."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    bare = column.cast(pa.timestamp("us")).to_pylist()
    return [None if value is None else value.replace(tzinfo=UTC) for value in bare]


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether a statement failed because it may not use more memory."""
    return isinstance(problem.__cause__, duckdb.OutOfMemoryException)


def _was_invalidated(problem: BaseException) -> bool:
    """Whether a statement failed because another one made DuckDB fail inside."""
    return isinstance(problem.__cause__, duckdb.FatalException) and "has been invalidated" in str(problem.__cause__)


def _both_forms(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths as they are, and as patterns that mean them: DuckDB checks both."""
    plain = list(map(literal_path, paths))
    return tuple(dict.fromkeys([*plain, *map(exact_path, plain)]))


def _create_secret(connection: duckdb.DuckDBPyConnection, name: str, secret: Mapping[str, str]) -> None:
    options = ", ".join(f"{key} {quote_text(value)}" for key, value in secret.items())
    connection.execute(f"CREATE OR REPLACE SECRET {quote_name(name)} (TYPE s3, {options})")


def _explain(problem: Exception) -> OntologiaError:
    first = str(problem).partition("\n")[0]
    if "INT128" in first and "out of range" in first:
        return SumOverflowError()
    said = f"DuckDB says: {first}"
    if "Out of Memory" in first:
        said = f"DuckDB needs more memory than it may use ({first}): raise OntologiaConfig.s3_duckdb_memory_limit"
    return StorageBackendError(said, context={"operation": "query"})


def _threads(connection: duckdb.DuckDBPyConnection) -> int:
    """As many threads as the memory limit feeds: each holds row groups and runs of a sort of its own."""
    row = connection.execute("SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'").fetchone()
    number, unit = str(row[0] if row else "256 MiB").split()
    size = float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}.get(unit, 1)
    return max(1, min(os.cpu_count() or 1, int(size // MEMORY_PER_THREAD)))


def _httpfs() -> Path:
    """The extension file inside the package that carries it."""
    import duckdb_extension_httpfs

    root = Path(duckdb_extension_httpfs.__file__).parent
    return next(root.rglob("httpfs.duckdb_extension"))
