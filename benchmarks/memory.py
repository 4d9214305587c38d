"""The most memory of a process that asks, commits or imports once, and of a Spark task, beside more and more rows.

With default settings. Every process is a new one, so that what another took does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.customers import Customer, key, numbered, values
from benchmarks.embedded import filled
from benchmarks.growth import Growth, Table
from benchmarks.ordinary import loaded
from benchmarks.report import Measured, compared
from ontologia import Ontology
from ontologia.query import count

WORKS = ("opening it", "group-by", "top 10", "commit of one row", "import of 10,000 rows")
IMPORTED = 10_000
COLUMNS = (
    "id string, name string, tier string, postcode string, age bigint, balance double, active boolean, "
    "created timestamp, tags array<string>, address struct<street: string, city: string>"
)


def beside_rows(folder: Path, sizes: Iterable[int], *, spark: bool) -> Iterator[Growth]:
    """The most memory of a question, a commit, an import and, at the end, a Spark task, beside more and more rows."""
    table = Table("rows", takes="MiB", prefix="peak memory: ")
    uris = {}
    for size in sizes:
        with loaded(folder / f"store-{size}", numbered(size)):
            uris[size] = (folder / f"store-{size}").as_uri()
        for work in WORKS:
            table.add(work, size, [_child(uris[size], work)])
    if spark:
        for size, most in _of_spark_tasks(uris).items():
            table.add("Spark task that loads 10,000 rows", size, [most])
    yield from table.growths()


def of_objects(folder: Path, rows: int, runs: int) -> Iterator[Measured]:
    """The memory that `collect()` takes at its peak, beside that of the constructors of the same objects."""
    with loaded(folder / "store", numbered(rows)), filled(folder / "x.db", numbered(rows)):
        pass
    made = [_child(str(rows), "constructors") for _ in range(runs)]
    for kind, where in (("SQLite", str(folder / "x.db")), ("files", (folder / "store").as_uri())):
        collected = [_child(where, "collect") for _ in range(runs)]
        name = f"memory of {rows:,} objects, {kind}"
        yield compared(name, "collect()", "their constructors", 1.2, collected, made, "MiB")


def _child(where: str, work: str) -> float:
    command = [sys.executable, "-m", "benchmarks.memory", where, work]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])


def work_once(where: str, work: str) -> None:
    """In a process of its own: the most memory that it had, or that it had more for objects than before them."""
    before = 0
    if work.startswith("import"):
        _import(where)
    elif work == "constructors":
        before = peak_kb()
        made = [Customer(**row) for row in values(int(where))]
        assert made
    else:
        place = {"storage_uri": where} if "://" in where else {"db_path": where}
        with Ontology(entity_types=[Customer], **place) as onto:
            if work == "collect":
                onto.query().entities(Customer).limit(10).collect()
                before = peak_kb()
            _ask(onto, work)
    # Not ru_maxrss, in which a process begins with what its parent had.
    print((peak_kb() - before) >> 10)


def _ask(onto: Ontology, work: str) -> None:
    query = onto.query().entities(Customer)
    match work:
        case "group-by":
            query.group_by(Customer.tier).agg(rows=count())
        case "top 10":
            query.order_by(Customer.balance, descending=True).limit(10).collect()
        case "collect":
            query.collect()
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
