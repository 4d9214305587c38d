"""Make the tables, load them, ask the ten queries, and load them again.

    cd examples && python -m tpch [scale] [folder]

Scale 0.1 by default, in a temporary folder. `pip install 'ontologia[spark]' tpchgen-cli` brings all it needs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ontologia import initialize_storage
from ontologia.spark import PipelineReport, spark_session
from tpch.load import pipeline
from tpch.queries import QUERIES, register

console = Console(highlight=False)


def main(scale: str, folder: Path) -> None:
    tables, store = folder / "data", (folder / "store").resolve().as_uri()
    generator = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([generator, "parquet", "-s", scale, "--output-dir", tables, "--quiet"], check=True)
    initialize_storage(storage_uri=store)
    spark = spark_session("tpch")

    console.print(f"\nInto {store}:")
    show(pipeline(spark, tables, store).commit(meta={"source": f"tpchgen, scale {scale}"}))

    register(spark, store)
    answers = Table("query", "rows", "first row", "seconds")
    for name, text in QUERIES.items():
        started = time.monotonic()
        rows = spark.sql(text).collect()
        answers.add_row(name, str(len(rows)), ", ".join(map(str, rows[0][:3])), f"{time.monotonic() - started:.1f}")
    console.print(answers)

    console.print("\nThe same tables again:")
    show(pipeline(spark, tables, store).commit())


def show(report: PipelineReport) -> None:
    table = Table("type", "read", "inserted", "updated", "unchanged")
    for name, counts in report.types.items():
        table.add_row(name, *map(str, (counts.read, counts.inserted, counts.updated, counts.unchanged)))
    console.print(table)
    rows = sum(counts.read for counts in report.types.values())
    made = "no commit" if report.commit_id is None else f"commit {report.commit_id}"
    console.print(f"{made}: {rows:,} rows in {report.seconds:.1f} s")


if __name__ == "__main__":
    scale, *place = sys.argv[1:] or ["0.1"]
    with tempfile.TemporaryDirectory(prefix="tpch-") as temporary:
        main(scale, Path(*place) if place else Path(temporary))
