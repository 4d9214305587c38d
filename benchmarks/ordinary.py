"""The commonest store of all, a large load and a few small commits after it, asked and written to beside its peers.

Nobody has compacted it; then somebody does, and the same questions are asked again. The peers do the same work on the
same machine: DuckDB on one plain file of the rows in force, bare sqlite3, delta-rs and PyIceberg.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.customers import Customer, append, changed, key, numbered
from benchmarks.embedded import bare, filled
from benchmarks.formats import upserts
from benchmarks.report import Case
from ontologia import OntologiaConfig, Ontology
from ontologia.engines.initializing import initialize_storage
from ontologia.query import count
from ontologia.query import sum as sum_of
from ontologia.runtime.commit import WantedState, commit_state
from ontologia.testing.s3server import s3_server

COMMITS, ROWS_EACH = 20, 50
STEPS = itertools.count(1_000)
"""No commit changes a row to what another has made of it."""
MEMORY = "1GB"


def questions(folder: Path, rows: int) -> Iterator[Case]:
    """A large load and a few small commits, uncompacted and compacted, beside DuckDB on one file."""
    with ExitStack() as stack:
        table = numbered(rows)
        onto = stack.enter_context(loaded(folder / "store", table))
        connection, place = one_file(folder, onto)
        for state in ("uncompacted", "compacted"):
            if state == "compacted":
                onto.repository.compact(apply=True)
            yield from asked(onto, connection, place, f"{rows:,} rows and {COMMITS} commits, {state}", rows)
        for number in range(COMMITS):
            append(onto, changed(table.take(np.arange(number, rows, rows // ROWS_EACH)), number + 100))
        where = f"{rows:,} rows, compacted, and {COMMITS} commits to keys everywhere"
        yield from (case for case in asked(onto, connection, place, where, rows) if case.name.startswith("group-by"))


def loaded(folder: Path, table: pa.Table) -> Ontology:
    """A store in a directory: one load, and some commits that change a few rows each."""
    return loaded_at(folder.as_uri(), table, folder.parent / "cache")


def loaded_at(uri: str, table: pa.Table, cache: Path) -> Ontology:
    config = OntologiaConfig(max_batch_size=10**9, s3_duckdb_memory_limit=MEMORY, cache_directory=str(cache))
    initialize_storage(storage_uri=uri, config=config)
    onto = Ontology(storage_uri=uri, config=config, entity_types=[Customer])
    append(onto, table)
    for number in range(COMMITS):
        append(onto, changed(table.slice(number * 997 % (table.num_rows - ROWS_EACH), ROWS_EACH), number + 1))
    return onto


def one_file(folder: Path, onto: Ontology) -> tuple[duckdb.DuckDBPyConnection, str]:
    """The rows in force in one Parquet file, and a DuckDB with the memory and the threads of ours."""
    place = folder / "current.parquet"
    pq.write_table(onto.query().entities(Customer).to_arrow(), place, compression="zstd", row_group_size=131_072)
    return duckdb.connect(config={"memory_limit": MEMORY}), str(place)


def asked(onto: Ontology, connection: duckdb.DuckDBPyConnection, place: str, where: str, rows: int) -> Iterator[Case]:
    query = onto.query().entities(Customer)
    wanted = key(rows // 2)
    table = f"read_parquet('{place}')"

    def by_hand(sql: str) -> Callable[[], object]:
        return lambda: connection.execute(sql).to_arrow_table()

    works: list[tuple[str, float, Callable[[], object], Callable[[], object], int]] = [
        ("count", 1.5, query.count, by_hand(f"SELECT count(*) FROM {table}"), 20),
        (
            "group-by",
            1.5,
            lambda: query.group_by(Customer.tier).agg(rows=count(), total=sum_of(Customer.balance)),
            by_hand(f"SELECT tier, count(*), sum(balance) FROM {table} GROUP BY tier ORDER BY tier"),
            1,
        ),
        (
            "key lookup",
            2,
            lambda: query.where(Customer.id == wanted).first(),
            by_hand(f"SELECT * FROM {table} WHERE id = '{wanted}'"),
            3,
        ),
        (
            "top 10",
            2,
            lambda: query.order_by(Customer.balance, descending=True).limit(10).to_arrow(),
            by_hand(f"SELECT * FROM {table} ORDER BY balance DESC, id LIMIT 10"),
            1,
        ),
        (
            "selective filter",
            1.5,
            lambda: query.where(Customer.age == 33, Customer.balance > 9_900).to_arrow(),
            by_hand(f"SELECT * FROM {table} WHERE age = 33 AND balance > 9900"),
            1,
        ),
        ("all rows to Arrow", 1.5, query.to_arrow, by_hand(f"SELECT * FROM {table}"), 1),
    ]
    for name, limit, ours, peer, repeat in works:
        yield Case(f"{name}: {where}", "query", "DuckDB on one file", limit, ours, peer, repeat=repeat, runs=7)


def commits(folder: Path, rows: int) -> Iterator[Case]:
    """One changed row and 1,000 into a large type, on disk and in a bucket, beside sqlite3, delta-rs, PyIceberg."""
    with ExitStack() as stack:
        table = numbered(rows)
        small = stack.enter_context(filled(folder / "x.db", table))
        yield Case(
            f"one row into {rows:,}, SQLite", "session.commit()", "sqlite3: look, compare, insert, commit", None,
            one_by_one(small), one_by_hand(folder, table), repeat=20, runs=9,
        )  # fmt: skip
        server = stack.enter_context(s3_server())
        for where, root in (("files", folder.as_uri()), ("bucket", server.uri("ontologia-ordinary/bench"))):
            onto = stack.enter_context(loaded_at(f"{root}/store", table, folder / f"cache-{where}"))
            for peer, upsert in upserts(root, folder / f"{where}.db", table):
                for name, number in (("one row", 1), ("1,000 rows", 1_000)):
                    rows_of = partial(some_rows, table, number)
                    yield Case(
                        f"{name} into {rows:,}, {where}", "session.commit()", peer, 1,
                        partial(commit_rows, onto), upsert, rows_of, rows_of, runs=3,
                    )  # fmt: skip


def one_by_one(onto: Ontology) -> Callable[[], object]:
    session, steps = onto.session(), itertools.count()
    query = onto.query().entities(Customer)
    one = query.where(Customer.id == key(77)).first()
    assert one is not None
    values = one.model_dump()

    def commit() -> None:
        session.ensure(Customer(**{**values, "balance": float(next(steps))}))
        if session.commit() is None:
            raise RuntimeError("nothing was committed")

    return commit


def one_by_hand(folder: Path, table: pa.Table) -> Callable[[], object]:
    connection: sqlite3.Connection = bare(folder / "by-hand.db")
    columns = table.column_names
    connection.execute(f"CREATE TABLE t ({', '.join(columns)}, commit_id, PRIMARY KEY (entity_key, commit_id))")
    texts = [column.cast(pa.string()).to_pylist() for column in table.columns]
    marks = ", ".join("?" for _ in columns)
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO t VALUES ({marks}, 1)", zip(*texts, strict=True))
    connection.execute("COMMIT")
    steps, wanted = itertools.count(2), key(77)

    def commit() -> None:
        step = next(steps)
        connection.execute("BEGIN IMMEDIATE")
        *values, _ = connection.execute(
            "SELECT * FROM t WHERE entity_key = ? ORDER BY commit_id DESC LIMIT 1", (wanted,)
        ).fetchone()
        connection.execute(f"INSERT INTO t VALUES ({marks}, ?)", (*values, step))
        connection.execute("COMMIT")

    return commit


def some_rows(table: pa.Table, number: int) -> list[object]:
    """Rows from another part of the table each time, changed to what no commit has made of them."""
    step = next(STEPS)
    return [changed(table.slice(step * 1_009 % (table.num_rows - number), number), step)]


def commit_rows(onto: Ontology, rows: pa.Table) -> None:
    schema = Customer.__declaration__.schema
    if commit_state(onto.engine, {schema.ref: WantedState(schema, rows)}, {}) is None:
        raise RuntimeError("nothing was committed")
