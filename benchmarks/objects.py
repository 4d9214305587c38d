"""The Parquet log on a loopback S3 server, beside the same bytes written by hand and DuckDB on one plain file."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.customers import Customer, append, changed, key, numbered
from benchmarks.growth import timed
from benchmarks.report import Case, Measured, against
from ontologia import OntologiaConfig, Ontology
from ontologia.engines.initializing import initialize_storage
from ontologia.testing.s3server import s3_server

CHANGED = 10_000
TAIL = 50
LOOKUP_S = 0.005
BUCKET = "ontologia-bench"


def log(folder: Path, rows: int) -> Iterator[Case | Measured]:
    """A compacted type with a tail of commits on a loopback S3 server, committed to and asked."""
    with ExitStack() as stack:
        server = stack.enter_context(s3_server())
        server.create_bucket(BUCKET)
        uri = server.uri(f"{BUCKET}/log")
        config = OntologiaConfig(max_batch_size=10**9, cache_directory=str(folder / "cache"))
        initialize_storage(storage_uri=uri, config=config)
        onto = stack.enter_context(Ontology(storage_uri=uri, config=config, entity_types=[Customer]))
        table = numbered(rows)
        append(onto, table)
        append(onto, changed(table.slice(0, CHANGED), 1))
        onto.repository.compact(apply=True)
        for number in range(TAIL):
            append(onto, changed(table.slice(number * 200, 200), 2 + number))
        yield committing(onto, table)
        yield from asking(onto, folder, rows)


def committing(onto: Ontology, rows: pa.Table) -> Case:
    """A commit compares the touched rows with the store in one read, writes one file, and moves the head.

    Each commit touches rows that no commit since the snapshot has touched, so that all of them are looked for there.
    """
    from ontologia.runtime.commit import WantedState, commit_state

    schema = Customer.__declaration__.schema
    steps = itertools.count(1010)
    objects = onto.engine.objects

    def wanted() -> list[object]:
        step = next(steps)
        return [changed(rows.slice(step * CHANGED % rows.num_rows, CHANGED), step)]

    def ours(table: object) -> None:
        if commit_state(onto.engine, {schema.ref: WantedState(schema, table)}, {}) is None:
            raise RuntimeError("nothing was committed")

    def by_hand(table: object) -> None:
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        objects.put(f"by-hand/{next(steps)}.parquet", sink.getvalue())
        for number in range(10):
            objects.put(f"by-hand/{number}.json", b"{}" * 200)

    return Case(
        f"commit {CHANGED:,} changed rows into {rows.num_rows:,}", "commit of wanted rows",
        "one Parquet file and 10 objects", 3, ours, by_hand, wanted, wanted,
    )  # fmt: skip


def asking(onto: Ontology, folder: Path, rows: int) -> Iterator[Case | Measured]:
    """Latest state with a selective filter, by key, and again with a cold cache."""
    query = onto.query().entities(Customer)
    plain = folder / "current.parquet"
    current = onto.query().entities(Customer).to_arrow()
    pq.write_table(current, plain, compression="zstd", row_group_size=131_072)
    connection = duckdb.connect(config={"memory_limit": "256MB"})
    postcodes = pc.unique(current.column("postcode"))
    wanted = postcodes[len(postcodes) // 2].as_py()

    def filtered() -> None:
        query.where(Customer.postcode == wanted).to_arrow()

    def filtered_by_hand() -> None:
        connection.execute("SELECT * FROM read_parquet(?) WHERE postcode = ?", [str(plain), wanted]).to_arrow_table()

    yield Case(
        f"latest, selective filter, {rows:,} rows and {TAIL} commits", "query.to_arrow()", "DuckDB on one file of them",
        2, filtered, filtered_by_hand,
    )  # fmt: skip

    sought = key(rows * 2 // 3)

    def lookup() -> None:
        if query.where(Customer.id == sought).first() is None:
            raise RuntimeError("the row is not there")

    def lookup_by_hand() -> None:
        connection.execute("SELECT * FROM read_parquet(?) WHERE id = ?", [str(plain), sought]).fetchall()

    yield against("key lookup on S3, warm", "query.first()", LOOKUP_S, timed(lookup))
    yield Case("the same", "query.first()", "DuckDB on one local file", None, lookup, lookup_by_hand)

    caches = itertools.count()

    def cold() -> list[object]:
        config = OntologiaConfig(cache_directory=str(folder / f"cold-{next(caches)}"))
        return [Ontology(storage_uri=onto.engine.location.uri, config=config, entity_types=[Customer])]

    def filtered_cold(fresh: Ontology) -> None:
        fresh.query().entities(Customer).where(Customer.postcode == wanted).to_arrow()

    def remote_by_hand() -> None:
        data = onto.engine.objects.get("by-hand/current.parquet").data
        place = folder / "fetched.parquet"
        place.write_bytes(data)
        connection.execute("SELECT * FROM read_parquet(?) WHERE postcode = ?", [str(place), wanted]).to_arrow_table()
        os.unlink(place)

    onto.engine.objects.put("by-hand/current.parquet", plain.read_bytes())
    yield Case(
        "the same with a cold cache", "query.to_arrow()", "fetch one file, then DuckDB", None,
        filtered_cold, remote_by_hand, cold, runs=3,
    )  # fmt: skip
