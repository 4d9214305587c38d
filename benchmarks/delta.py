"""The pipeline beside Delta Lake on Spark: load, load again, and scan, in one session: `make bench-delta`.

Delta comes from Maven Central and wants its own version of Spark, so this is no part of `make bench`. Both write the
same rows; Delta's reload is the MERGE that updates what differs and inserts the rest, as ours does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Case, measure, show
from benchmarks.spark import WHERE, Order, in_files, load, new_store

ROWS = int(os.environ.get("ONTOLOGIA_BENCH_ROWS", "1_000_000"))
DELTA = os.environ.get("DELTA", "io.delta:delta-spark_2.13:4.4.0")
SETTINGS = {
    "spark.jars.packages": DELTA,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
}
if "IVY_SETTINGS" in os.environ:  # how to reach a mirror of Maven Central, as an ivysettings.xml
    SETTINGS["spark.jars.ivySettings"] = os.environ["IVY_SETTINGS"]
DIFFERS = " OR ".join(
    f"NOT t.{name} <=> s.{name}" for name in ("customer", "product", "status", "quantity", "price", "day", "placed")
)


def beside_delta(folder: Path) -> Iterator[Case]:
    from ontologia.spark import read, spark_session

    spark = spark_session("benchmarks", master="local[2]", config=SETTINGS)
    try:
        source = in_files(spark, folder, "source", ROWS)
        again = in_files(spark, folder, "again", ROWS, changed="number % 100 = 0")
        store, table = folder / "store", folder / "delta"

        def write_delta() -> None:
            shutil.rmtree(table, ignore_errors=True)
            source.write.format("delta").save(str(table))

        def first() -> tuple[str]:
            uri = new_store(store)
            load(spark, source, uri)
            return (uri,)

        def merge() -> None:
            again.createOrReplaceTempView("again")
            spark.sql(
                f"MERGE INTO delta.`{table}` t USING again s ON t.id = s.id "
                f"WHEN MATCHED AND ({DIFFERS}) THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        def fresh_delta() -> tuple[()]:
            write_delta()
            return ()

        name = f"Delta Lake ({DELTA.rpartition(':')[2]}, Spark {spark.version})"
        yield Case(
            f"load {ROWS:,} rows", "Pipeline: checked, compared, committed", f"{name}: write, not checked", None,
            lambda uri: load(spark, source, uri), write_delta, fresh_ours=lambda: (new_store(store),), runs=3,
        )  # fmt: skip
        yield Case(
            "load them again, 1% changed", "Pipeline", f"{name}: MERGE", None,
            lambda uri: load(spark, again, uri), merge, fresh_ours=first, fresh_peer=fresh_delta, runs=3,
        )  # fmt: skip

        def total(rows: Any) -> float:
            found: float = rows.where(WHERE).selectExpr("sum(price * quantity)").first()[0]
            return found

        ours, peer = total(read(spark, store.as_uri(), Order)), total(spark.read.format("delta").load(str(table)))
        if abs(ours - peer) > 1e-6 * peer:
            raise RuntimeError(f"the two do not have the same rows: {ours} and {peer}")
        yield Case(
            "scan the latest state after both", "ontologia.spark.read", f"{name}: read", None,
            lambda: total(read(spark, store.as_uri(), Order)),
            lambda: total(spark.read.format("delta").load(str(table))), runs=5,
        )  # fmt: skip
    finally:
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ontologia-bench-") as place:
        for case in beside_delta(Path(place)):
            show([measure(case)])
