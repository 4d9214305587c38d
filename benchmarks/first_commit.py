"""The first commit of a process on a loopback S3 server, beside those after it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.customers import Customer, key, values
from benchmarks.report import Measured, compared
from ontologia import OntologiaConfig, Ontology
from ontologia.engines.initializing import initialize_storage
from ontologia.testing.s3server import s3_server

COMMITS, ROWS = 8, 20_000
GOAL = 3.0


def beside_the_next(folder: Path, processes: int) -> Iterator[Measured]:
    """The first commit of a process on a loopback S3 server, beside those after it."""
    with s3_server() as server:
        uri = server.uri("ontologia-first/store")
        initialize_storage(storage_uri=uri, config=_config(folder))
        with (
            Ontology(storage_uri=uri, config=_config(folder), entity_types=[Customer]) as onto,
            onto.session() as session,
        ):
            session.ensure(Customer(**row) for row in values(ROWS))
        command = [sys.executable, "-m", "benchmarks.first_commit", uri, str(folder)]
        taken = []
        for _ in range(processes):
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            taken.append(json.loads(ran.stdout))
        yield compared(
            "one row on S3: the first commit of a process",
            "the first",
            "those after it",
            GOAL,
            [times[0] for times in taken],
            [statistics.median(times[1:]) for times in taken],
        )


def _config(folder: Path) -> OntologiaConfig:
    return OntologiaConfig(max_batch_size=ROWS, cache_directory=str(folder / "cache"))


def _times(uri: str, folder: str) -> list[float]:
    row, found = next(iter(values(1))), []
    with Ontology(storage_uri=uri, config=_config(Path(folder)), entity_types=[Customer]) as onto:
        for number in range(COMMITS):
            started = time.perf_counter()
            with onto.session() as session:
                session.ensure(Customer(**row | {"id": key(number * 997), "balance": time.time()}))
            found.append(time.perf_counter() - started)
    return found


if __name__ == "__main__":
    print(json.dumps(_times(*sys.argv[1:])))
