"""The embedded default beside bare `sqlite3` on the same tables, and beside plain construction of objects."""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.customers import Customer, append, changed, key, numbered, postcode, table_from, values
from benchmarks.report import Case
from ontologia import OntologiaConfig, Ontology

CONFIG = OntologiaConfig(max_batch_size=10**9)
TABLE = "entity_Customer_v1"
Work = Callable[[], object]


def opened(path: Path) -> Ontology:
    return Ontology(str(path), CONFIG, entity_types=[Customer])


def bare(path: Path) -> sqlite3.Connection:
    """A connection with the settings of ours."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def filled(path: Path, rows: pa.Table, *later: pa.Table) -> Ontology:
    """A store with these rows in one commit each, written by the engine without the detour over objects."""
    onto = opened(path)
    for table in (rows, *later):
        append(onto, table)
    return onto


# --- writing ---


def commit(folder: Path, rows: int) -> Iterator[Case]:
    """New entities committed to a SQLite file, and ensured again unchanged, beside bare `sqlite3`."""
    objects = [Customer(**row) for row in values(rows)]
    paths = (folder / f"{number}.db" for number in itertools.count())

    def write(onto: Ontology) -> None:
        with onto.session() as session:
            session.ensure(objects)

    first = next(paths)
    with opened(first) as onto:
        write(onto)
    with bare(first) as template:
        definitions = [sql for (sql,) in template.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        ready = template.execute(f"SELECT * FROM {TABLE} ORDER BY entity_key").fetchall()
    insert = f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(ready[0]))})"

    def empty() -> Sequence[sqlite3.Connection]:
        connection = bare(next(paths))
        for definition in definitions:
            connection.execute(definition)
        return (connection,)

    def write_bare(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, ready)
        connection.execute("INSERT INTO commits VALUES (1, '2026-01-01', 'bench', '{}')")
        connection.execute("COMMIT")

    yield Case(
        f"commit {rows:,} new entities", "ensure + commit", "sqlite3 executemany of ready rows", 4,
        write, write_bare, lambda: (opened(next(paths)),), empty,
    )  # fmt: skip
    stored = opened(first)
    yield Case(
        f"ensure {rows:,} unchanged entities", "ensure + commit, no change", "the first commit", 1,
        write, write, lambda: (stored,), lambda: (opened(next(paths)),),
    )  # fmt: skip


# --- reading much ---


def collect(folder: Path, rows: int) -> Iterator[Case]:
    """Many entities of a SQLite file as objects and as Arrow, beside their constructors; some by a long list."""
    arguments = list(values(rows))
    path = folder / "collect.db"
    onto = filled(path, table_from([Customer(**row) for row in arguments]))
    query = onto.query().entities(Customer)
    yield Case(
        f"read {rows:,} entities as objects", "collect()", "their constructors", 3,
        query.collect, lambda: [Customer(**row) for row in arguments],
    )  # fmt: skip
    yield Case(
        f"read {rows:,} entities as Arrow", "to_arrow()", "collect()", None,
        query.to_arrow, query.collect,
    )  # fmt: skip
    connection = bare(path)

    def table_by_hand() -> pa.Table:
        cursor = connection.execute(f"SELECT * FROM {TABLE} ORDER BY entity_key")
        names = [name for name, *_ in cursor.description]
        return pa.table([pa.array(column) for column in zip(*cursor.fetchall(), strict=True)], names=names)

    yield Case(
        f"read {rows:,} entities as Arrow", "to_arrow()", "sqlite3 fetchall, then pyarrow.table; times as text", 1,
        query.to_arrow, table_by_hand,
    )  # fmt: skip
    streets = [f"Street {number}" for number in range(2_000)]
    listed = f"SELECT count(*) FROM {TABLE} WHERE address->>'$.street' IN (SELECT value FROM json_each(?))"
    asked = json.dumps(streets)
    yield Case(
        f"2,000 values of a structured field in {rows:,} entities", "where(address.street in …).count()", "sqlite3", 4,
        query.where(Customer.address["street"].in_(streets)).count,
        lambda: connection.execute(listed, (asked,)).fetchone(),
    )  # fmt: skip


# --- reading little ---


def lookup(folder: Path, rows: int) -> Iterator[Case]:
    """One row by key and ten by an indexed field, in a small and a large SQLite file with some history."""
    timed: dict[int, tuple[Work, Work]] = {}
    for count in (1_000, rows):
        path = folder / f"{count}.db"
        table = numbered(count * 9 // 10)
        onto = filled(path, table, changed(table.slice(0, count // 10), 1))
        connection = bare(path)
        by_key, by_key_bare = key_lookup(onto, connection, table.num_rows)
        by_index, by_index_bare = index_lookup(onto, connection, table.num_rows)
        timed[count] = by_key, by_index
        yield Case(
            f"key lookup in {count:,} rows", "where(id == …).first()", "bare SELECT", 10,
            by_key, by_key_bare, repeat=5, runs=501,
        )  # fmt: skip
        yield Case(
            f"indexed filter in {count:,} rows", "where(postcode == …).collect()", "bare SELECT", 10,
            by_index, by_index_bare, repeat=5, runs=501,
        )  # fmt: skip
    for number, name in enumerate(("key lookup", "indexed filter")):
        yield Case(
            f"{name}: growth", f"in {rows:,} rows", "in 1,000 rows", 1.5,
            timed[rows][number], timed[1_000][number], repeat=5, runs=501,
        )  # fmt: skip


def key_lookup(onto: Ontology, connection: sqlite3.Connection, count: int) -> tuple[Work, Work]:
    keys = itertools.cycle([key(number * 7919 % count) for number in range(1_000)])
    select = f"SELECT * FROM {TABLE} WHERE entity_key = ? ORDER BY commit_id DESC LIMIT 1"
    return (
        lambda: onto.query().entities(Customer).where(Customer.id == next(keys)).first(),
        lambda: connection.execute(select, (next(keys),)).fetchone(),
    )


def index_lookup(onto: Ontology, connection: sqlite3.Connection, count: int) -> tuple[Work, Work]:
    codes = itertools.cycle([postcode(number * 7919 % count) for number in range(1_000)])
    select = f"""SELECT * FROM {TABLE} t WHERE postcode = ? AND NOT EXISTS (
        SELECT 1 FROM {TABLE} n WHERE n.entity_key = t.entity_key AND n.commit_id > t.commit_id) ORDER BY entity_key"""
    return (
        lambda: onto.query().entities(Customer).where(Customer.postcode == next(codes)).collect(),
        lambda: connection.execute(select, (next(codes),)).fetchall(),
    )


# --- latest of a long history ---

LATEST_BY_HAND = {
    "bare columns beside max()": "SELECT {columns}, max(commit_id) FROM {table} GROUP BY entity_key",
    "not exists": """SELECT {columns} FROM {table} t WHERE NOT EXISTS (
        SELECT 1 FROM {table} n WHERE n.entity_key = t.entity_key AND n.commit_id > t.commit_id)""",
    "window": """SELECT {columns} FROM (
        SELECT *, row_number() OVER (PARTITION BY entity_key ORDER BY commit_id DESC) AS r FROM {table}) WHERE r = 1""",
    "join": """SELECT {columns} FROM {table}
        JOIN (SELECT entity_key, max(commit_id) AS commit_id FROM {table} GROUP BY entity_key)
        USING (entity_key, commit_id)""",
}


def latest(folder: Path, rows: int) -> Iterator[Case]:
    """The newest version of every key of a SQLite file, where each key has five, beside the best SQL by hand."""
    path = folder / "latest.db"
    table = numbered(rows // 5)
    onto = filled(path, table, *(changed(table, step) for step in range(1, 5)))
    connection = bare(path)
    query = onto.query().entities(Customer)
    name = f"latest of {rows:,} versions of {table.num_rows:,} keys"
    by_hand, select = best(connection, "balance", "SELECT sum(balance) FROM ({select})")
    yield Case(
        f"{name}: a sum", "sum(balance)", f"best SQL by hand ({by_hand})", 2,
        lambda: query.sum(Customer.balance), lambda: connection.execute(select).fetchall(),
    )  # fmt: skip
    by_hand, select = best(connection, "*", "{select} ORDER BY entity_key")
    yield Case(
        f"{name}: all rows", "to_arrow()", f"best SQL by hand ({by_hand})", 2,
        query.to_arrow, lambda: connection.execute(select).fetchall(),
    )  # fmt: skip
    yield Case(
        f"{name}: as objects", "collect()", f"best SQL by hand ({by_hand}), no objects", None,
        query.collect, lambda: connection.execute(select).fetchall(), runs=3,
    )  # fmt: skip


def best(connection: sqlite3.Connection, columns: str, around: str) -> tuple[str, str]:
    """The fastest of several ways to say the same."""
    found = []
    for name, way in LATEST_BY_HAND.items():
        select = around.format(select=way.format(table=TABLE, columns=columns))
        for _ in range(3):
            started = time.perf_counter()
            connection.execute(select).fetchall()
            found.append((time.perf_counter() - started, name, select))
    return min(found)[1:]
