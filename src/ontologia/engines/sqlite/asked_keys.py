"""Identities that a statement asks for: part of it where they are few, and else a temporary table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ontologia.files.quoting import quote_name
from ontologia.query.sources import KEYS

if TYPE_CHECKING:
    import pyarrow as pa


FEW_KEYS = 64


def name_keys(keys: pa.Table) -> tuple[str, dict[str, str]]:
    """A few identities as the beginning of a statement that reads them, and its parameters.

    Their number is rounded up, so that few statements serve all; a parameter that is NULL is nobody's identity.
    """
    room = 1 << (keys.num_rows - 1).bit_length() if keys.num_rows else 1
    values: dict[str, Any] = {}
    for number, column in enumerate(keys.columns):
        found = column.to_pylist()
        values |= {f"key{place}_{number}": found[place] if place < len(found) else None for place in range(room)}
    rows = (", ".join(f":key{place}_{number}" for number in range(keys.num_columns)) for place in range(room))
    columns = ", ".join(map(quote_name, keys.column_names))
    return f"WITH {KEYS} ({columns}) AS (VALUES {', '.join(f'({row})' for row in rows)})", values


@contextmanager
def fill_asked_keys(connection: sqlite3.Connection, keys: pa.Table) -> Iterator[None]:
    """Fill the temporary table of identities, and empty it again."""
    names = keys.column_names
    table = f"temp.{KEYS}"
    columns = ", ".join(f"{name} TEXT NOT NULL" for name in names)
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(f"CREATE TEMP TABLE {KEYS} ({columns}, PRIMARY KEY ({', '.join(names)})) WITHOUT ROWID")
    rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
    marks = ", ".join("?" for _ in names)
    connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # it is dropped before it is made again, too
            connection.execute(f"DROP TABLE IF EXISTS {table}")
