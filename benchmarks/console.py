"""The console as an operator meets it: how soon it answers, and how much memory bulk work takes.

Every command is a process of its own. Export and import of a million rows must stay under a bound of memory; a run that
does not is an error, not a slow result.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import Case, Measured, against

MAX_BYTES = 500 * 1_000_000
MODELS = """
from ontologia import Entity, Field


class Reading(Entity):
    id: Field[str] = Field(primary_key=True)
    sensor: Field[str]
    value: Field[float]
    tags: Field[list[str]] = Field(default_factory=list)
"""
FEW = 16
INGEST_S, SPARK_INGEST_S = 2.0, 10.0


def small(folder: Path, spark_runs: int) -> Iterator[Case | Measured]:
    """How soon the console answers, and loads a few rows: in process, and on Spark where one insists."""
    yield Case(
        "onto --help", "onto --help", "python -c pass, and 0.3 s", 1,
        lambda: onto(folder, "--help"),
        lambda: subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3)"], check=True),
    )  # fmt: skip
    (folder / "bench_models.py").write_text(MODELS)
    target = ("--db", str(folder / "onto.db"), "--into", "Reading", "--models", "bench_models")
    steps = itertools.count()

    def ingest(engine: str) -> float:
        lines = [f"r{number},s{number % 7},{next(steps)}.5" for number in range(FEW)]
        (folder / "few.csv").write_text("\n".join(["id,sensor,value", *lines]))
        started = time.perf_counter()
        onto(folder, "ingest", "few.csv", *target, "--engine", engine)
        return time.perf_counter() - started

    onto(folder, "init", *target[:2])
    in_process = [ingest("auto") for _ in range(3)]
    yield against(f"onto ingest of {FEW} rows", "--engine auto: in process", INGEST_S, in_process)
    on_spark = [ingest("spark") - statistics.median(in_process) for _ in range(spark_runs)]
    yield against(
        f"what Spark adds to an ingest of {FEW} rows", "--engine spark, less the above", SPARK_INGEST_S, on_spark
    )


def transfer(folder: Path, rows: int) -> Iterator[Case]:
    """Export and import of many rows in bounded memory, beside parsing them, for a file and for objects."""
    (folder / "bench_models.py").write_text(MODELS)
    source = folder / "rows.jsonl"
    with source.open("w") as file:
        for number in range(rows):
            fields = {"id": f"r{number:09}", "sensor": f"s{number % 97}", "value": number / 7, "tags": ["a", "b"]}
            record = {"kind": "entity", "type": "Reading", "key": fields["id"], "fields": fields}
            file.write(json.dumps(record) + "\n")

    def parse() -> None:
        with source.open("rb") as file:
            for line in file:
                json.loads(line)

    for name, flags in (
        ("SQLite", ("--db", str(folder / "onto.db"))),
        ("objects", ("--storage-uri", (folder / "objects").as_uri())),
    ):

        def load(flags: tuple[str, ...] = flags) -> None:
            for path in (folder / "onto.db", folder / "objects"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            onto(folder, "init", *flags)
            onto(folder, "import", *flags, "--input", str(source), "--models", "bench_models", "--apply")

        def unload(flags: tuple[str, ...] = flags) -> None:
            shutil.rmtree(folder / "data", ignore_errors=True)
            onto(folder, "export", *flags, "--output", str(folder / "data"))

        for verb, work in (("import", load), ("export", unload)):
            yield Case(
                f"{verb} {rows:,} rows, {name}", f"onto {verb}, under {MAX_BYTES // 1_000_000} MB",
                "json.loads of every line", None, work, parse, runs=1,
            )  # fmt: skip


def onto(folder: Path, *arguments: str) -> None:
    """Run the console, and insist on success and on its bound of memory."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ontologia.cli", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = _peak_of(process)
    print(f"  onto {arguments[0]}: peak {peak / 1e6:.0f} MB", file=sys.stderr)
    if process.returncode != 0 or peak > MAX_BYTES:
        raise SystemExit(f"onto {' '.join(arguments)}: exit code {process.returncode}, peak {peak / 1e6:.0f} MB")


def _peak_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; the most memory it had. Not what `wait4` says, which begins with what its parent had."""
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, StopIteration):  # it ends while it is looked at
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
        time.sleep(0.005)
    return peak
