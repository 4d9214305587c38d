"""The seal: what a text from a user may say to DuckDB. Filters and statements pass through here before they run.

DuckDB's own parser reads the text, so that what is checked is what runs. What passes then runs in a database that can
open the files of its question, or of its store, and nothing else (`Duck.seal`, `Duck.confine`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import duckdb

from ontologia.errors import UnsupportedStatementError, ValidationError
from ontologia.files.quoting import quote_text

EMPTY: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "threads": 1,
}
"""Settings of a database that has no files and no rows."""
GENERATORS = frozenset({"range", "generate_series", "unnest"})
"""Table functions that make rows and read none."""
_EXPRESSIONS = frozenset(
    [
        "CONJUNCTION",
        "COMPARISON",
        "COLUMN_REF",
        "CONSTANT",
        "FUNCTION",
        "OPERATOR",
        "CAST",
        "CASE",
        "BETWEEN",
        "COLLATE",
        "LAMBDA",
    ]
)
"""What an expression over the columns of one row is made of, as DuckDB calls it."""
FORBIDDEN_FUNCTIONS = frozenset(
    [
        "current_setting",
        "getvariable",
        "getenv",
        "which_secret",
        "json_serialize_plan",
        "json_serialize_sql",
        "json_deserialize_sql",
        "json_execute_serialized_sql",
        "parse_duckdb_log_message",
        "write_log",
        "nextval",
        "currval",
        "setseed",
        "sleep_ms",
        "pg_sleep",
        "stats",
        "current_query",
        "current_query_id",
        "current_transaction_id",
        "current_connection_id",
        "txid_current",
        "in_search_path",
        "current_schemas",
        "query",
        "query_table",
        "get_block_size",
        "inet_client_addr",
        "inet_client_port",
        "inet_server_addr",
        "inet_server_port",
        "col_description",
        "obj_description",
        "shobj_description",
    ]
)
"""Functions that tell of the database or the machine, change something, or run text as SQL."""
_HARMLESS_PG = frozenset({"pg_typeof", "pg_size_pretty"})
_ONE_VALUE = {"type", "select_list", "from_table", "aggregate_handling"}


def check_query(sql: str, tables: Collection[str]) -> None:
    """Refuse a query that reads from anything but these tables, names of its own, and generators."""
    _check_query(_parse(sql), tables)


@lru_cache(maxsize=256)
def check_expression(sql: str) -> None:
    """Refuse what is more than one value made of the columns of a row. A program asks with few texts, again and
    again: a text that has passed is remembered, because the check takes a third of the time of a small read."""
    (statement,) = _parse(f"SELECT {sql}")
    node = statement["node"]
    is_value = (
        statement.keys() == {"node"}
        and node["type"] == "SELECT_NODE"
        and node.keys() <= _ONE_VALUE
        and node["from_table"] == {"type": "EMPTY"}
        and len(node["select_list"]) == 1
    )
    kinds = {part["class"] for part in _parts(node) if "class" in part}
    if not is_value or not kinds <= _EXPRESSIONS:
        raise ValidationError(
            f"{sql!r:.200} is not a condition on the columns of a frame, as in \"temp > 40 AND region = 'n'\""
        )
    _check_functions(node)


def _check_query(statements: list[Any], tables: Collection[str]) -> None:
    if len(statements) != 1:
        raise UnsupportedStatementError(f"one statement at a time, not {len(statements)}")
    named = {name.casefold() for name in tables}
    parts = list(_parts(statements[0]))
    named |= {entry["key"].casefold() for part in parts for entry in part.get("cte_map", {}).get("map", ())}
    for part in parts:
        match part.get("type"):
            case "BASE_TABLE":
                is_named = part["table_name"].casefold() in named
                if not is_named or part.get("schema_name") or part.get("catalog_name"):
                    raise _cannot_be_read(part["table_name"])
            case "TABLE_FUNCTION":
                if part["function"].get("function_name", "").casefold() not in GENERATORS:
                    raise _cannot_be_read(f"{part['function'].get('function_name')}()")
            case "SHOW_REF":
                raise _cannot_be_read("DESCRIBE, SHOW or SUMMARIZE inside a query")
            case "COLUMN_DATA" | "BOUND_TABLE_REF" | "DELIM_GET":
                raise _cannot_be_read(part["type"])
    _check_functions(statements[0])


def _cannot_be_read(what: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"{what:.60} cannot be read from: SQL over frames reads frames, by their names hive.box.frame"
    )


def _check_functions(tree: Any) -> None:
    for part in _parts(tree):
        name = str(part.get("function_name", "")).casefold()
        if name in FORBIDDEN_FUNCTIONS or (name.startswith("pg_") and name not in _HARMLESS_PG):
            raise UnsupportedStatementError(
                f"{name}() cannot be called here: it reaches beyond the rows, to settings, to the catalog or to files"
            )


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Every object in a tree. Deep ones, too: no recursion."""
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


# --- DuckDB's parser ---------------------------------------------------------------------------------------------

_lock = threading.Lock()
_parser: duckdb.DuckDBPyConnection | None = None


def open_empty() -> duckdb.DuckDBPyConnection:
    """A database without files or rows. Who needs tables creates them and then seals it with `close_off`."""
    return duckdb.connect(":memory:", config=EMPTY)


def close_off(connection: duckdb.DuckDBPyConnection) -> None:
    """No file from now on, and no setting."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _parse(sql: str) -> list[Any]:
    """The statements of a text as DuckDB reads them. Only queries can be said in this way."""
    try:
        said = json.loads(_serialize(sql))
    except UnicodeEncodeError as problem:
        raise ValidationError(f"this text cannot be sent to DuckDB: {problem.reason}") from problem
    except RecursionError as problem:
        raise ValidationError("this text is nested too deeply: join fewer conditions") from problem
    except duckdb.Error as problem:
        raise ValidationError(f"DuckDB says: {str(problem).partition(chr(10))[0]}") from problem
    if said["error"]:
        if said["error_type"] == "not implemented":
            raise UnsupportedStatementError("only queries are run here, one at a time")
        raise ValidationError(f"DuckDB says: {said['error_message'].partition(chr(10))[0]}")
    return list(said["statements"])


def _serialize(sql: str) -> str:
    global _parser
    asked = f"SELECT json_serialize_sql({quote_text(sql)}, skip_null := true, skip_empty := true, skip_default := true)"
    with _lock:
        if _parser is None:
            _parser = open_empty()
            close_off(_parser)
        try:
            row = _parser.execute(asked).fetchone()
        except (duckdb.FatalException, duckdb.InternalException):
            _parser = None
            raise
    assert row is not None
    return str(row[0])
