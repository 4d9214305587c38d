"""The same store on real executors: several processes on this machine, and a standalone master with two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import spark_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXPECTED = {
    "loaded": 40,
    "batches": [40, 10],
    "native": 0,  # the run after the kill set everything back
    "arrow": 10,
    "killed": True,
    "after_the_kill": [40, 10],
    "rows": 40,
    "head": 3,
}


def run(master: str, folder: Path, *uris: str) -> tuple[dict[str, dict[str, object]], str]:
    done = subprocess.run(
        [sys.executable, "-m", spark_cluster.__name__, master, str(folder), *uris],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT")), None)
    assert line is not None, done.stderr[-4000:]
    results, refusal = json.loads(line.removeprefix("RESULT"))
    return results, refusal


def test_a_cluster_of_processes_loads_writes_reads_streams_and_survives_a_killed_executor(workers_path, tmp_path):
    uri = (tmp_path / "store").as_uri()
    results, refusal = run("local-cluster[2,1,1024]", tmp_path, uri)
    assert results == {uri: EXPECTED}
    assert refusal == "accepted"  # all of it runs on this machine


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and two workers on loopback."""
    import pyspark

    launcher = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    port = 20_000 + os.getpid() % 10_000
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [
        "org.apache.spark.deploy.worker.Worker",
        "-c",
        "1",
        "-m",
        "1g",
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
    ]
    commands = [master, *([*worker, "-d", str(tmp_path / f"work{number}"), address] for number in (1, 2))]
    logs = [tmp_path / f"log{number}" for number in range(3)]
    processes = []
    for command, log in zip(commands, logs, strict=True):
        with log.open("wb") as output:
            processes.append(
                subprocess.Popen([launcher, *command], stdout=output, stderr=subprocess.STDOUT, env=environment)
            )
    try:
        deadline = time.monotonic() + 120
        while not all("Successfully registered" in log.read_text() for log in logs[1:]):
            assert time.monotonic() < deadline, "\n".join(log.read_text()[-1000:] for log in logs)
            time.sleep(0.2)
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.s3
def test_a_standalone_cluster_works_on_a_folder_and_on_a_bucket_and_refuses_a_local_file(
    workers_path, s3, standalone, tmp_path
):
    uris = [(tmp_path / "store").as_uri(), s3.uri(f"spark-cluster/{uuid.uuid4().hex}")]
    results, refusal = run(standalone, tmp_path, *uris)
    assert results == dict.fromkeys(uris, EXPECTED)
    assert "cannot reach the file" in refusal
