"""The most memory of a process that asks, commits or imports once, and of a Spark task, beside more and more rows.

With default settings. Every process is a new one, so that what another took does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.customers import Customer, key, values
from benchmarks.embedded import numbered
from benchmarks.growth import Growth, Table
from benchmarks.ordinary import loaded
from ontologia import Ontology
from ontologia.query import count

WORKS = ("opening it", "group-by", "top 10", "commit of one row", "import of 10,000 rows")
IMPORTED = 10_000
COLUMNS = (
    "id string, name string, tier string, postcode string, age bigint, balance double, active boolean, "
    "created timestamp, tags array<string>, address struct<street: string, city: string>"
)


def beside_rows(folder: Path, sizes: Sequence[int], *, spark: bool) -> Iterator[Growth]:
    """Each piece of work on stores of these sizes; those of Spark at the end, in one session."""
    table = Table("rows", takes="MiB", prefix="peak memory: ")
    uris = {size: _store(folder, size) for size in sizes}
    for size, uri in uris.items():
        for work in WORKS:
            table.add(work, size, [float(_child(uri, work))])
    if spark:
        for size, most in _of_spark_tasks(uris).items():
            table.add("Spark task that loads 10,000 rows", size, [most])
    yield from table.growths()


def _store(folder: Path, size: int) -> str:
    """The store that another table has made, or a new one."""
    place = folder / f"store-{size}"
    if not place.exists():
        loaded(place, numbered(size)).close()
    return place.as_uri()


def _child(uri: str, work: str) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", uri, work]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def work_once(uri: str, work: str) -> None:
    """In a process of its own."""
    if work.startswith("import"):
        _import(uri)
    else:
        with Ontology(storage_uri=uri, entity_types=[Customer]) as onto:
            _ask(onto, work)
    # Not ru_maxrss, in which a process begins with what its parent had.
    print(peak_kb() >> 10)


def _ask(onto: Ontology, work: str) -> None:
    query = onto.query().entities(Customer)
    match work:
        case "group-by":
            query.group_by(Customer.tier).agg(rows=count())
        case "top 10":
            query.order_by(Customer.balance, descending=True).limit(10).collect()
        case "commit of one row":
            row = query.where(Customer.id == key(5)).first()
            assert row is not None
            with onto.session() as session:
                session.ensure(Customer(**{**row.model_dump(), "balance": time.time()}))


def _import(uri: str) -> None:
    """What `onto import` does with a file of rows, half of which the store has otherwise."""
    import contextlib
    import io
    import runpy
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for row in values(IMPORTED, seed=int(time.time())):
            fields = {**row, "created": row["created"].isoformat()}
            file.write(json.dumps({"kind": "entity", "type": "Customer", "key": row["id"], "fields": fields}) + "\n")
        file.flush()
        asked = ["--storage-uri", uri, "--input", file.name, "--models", "benchmarks.customers", "--engine", "local"]
        sys.argv = ["onto", "import", *asked, "--on-conflict", "upsert", "--apply"]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                runpy.run_module("ontologia.cli", run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise


def peak_kb() -> int:
    """The most memory that this process had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


# --- Spark ---


def _of_spark_tasks(uris: dict[int, str]) -> dict[int, float]:
    """The most that a Python worker took while 10,000 rows were loaded into each store."""
    from ontologia.spark import Pipeline, spark_session

    spark = spark_session("benchmarks", master="local[2]", config={"spark.ui.enabled": "false"})
    try:
        found = {}
        for size, uri in uris.items():
            rows = [tuple(_plain(value) for value in row.values()) for row in values(IMPORTED, seed=size)]
            _on_workers(spark, _forget_peak)
            Pipeline(spark, uri).load(spark.createDataFrame(rows, COLUMNS), into=Customer).commit()
            found[size] = max(_on_workers(spark, lambda: peak_kb() >> 10))
        return found
    finally:
        spark.stop()


def _plain(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else value


def _forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return 0


def _on_workers(spark: Any, work: Any) -> list[float]:
    def run(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"found": [float(work())] * batch.num_rows})

    return [row.found for row in spark.range(0, 8, 1, 8).mapInArrow(run, "found double").collect()]


if __name__ == "__main__":
    work_once(*sys.argv[1:])
