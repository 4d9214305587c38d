"""Ctrl-C in the middle of a load: its jobs are cancelled, the store is as it was, and the console says one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from ontologia.spark import Pipeline
from support.spark_shop import Customer, commit, customers, head, new_store, staged


def endless(batches):
    """A source that never ends."""
    threading.Event().wait()
    yield from batches


@pytest.fixture
def interrupted(spark):
    """Sends this process a Ctrl-C as soon as a job runs."""
    running = spark.sparkContext.statusTracker()
    over = threading.Event()

    def interrupt():
        while not over.wait(0.05):
            if running.getActiveJobsIds():
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    yield running
    over.set()
    watcher.join()


def test_ctrl_c_cancels_the_jobs_of_a_load_and_leaves_the_store_as_it_was(spark, folder, interrupted):
    uri = folder
    commit(uri, Customer(id="a", name="Ann", age=1))
    rows = spark.range(1).mapInArrow(endless, "id string, name string, age bigint")
    pipeline = Pipeline(spark, uri).load(rows, into=Customer)
    with pytest.raises(KeyboardInterrupt):
        pipeline.commit()
    assert interrupted.getActiveJobsIds() == []
    assert (head(uri), customers(uri), staged(uri)) == (1, {"a": ("Ann", 1)}, [])
    good = spark.createDataFrame([("b", "Bob", 2)], "id string, name string, age bigint")
    assert Pipeline(spark, uri).load(good, into=Customer).commit().commit_id == 2


@pytest.mark.slow
def test_the_console_ends_in_one_line(workers_path, tmp_path):
    uri = new_store((tmp_path / "store").as_uri())
    rows = "".join(f"{n},{'N' * 40},{n}\n" for n in range(200_000))  # too many for a brief session, which says nothing
    (tmp_path / "rows.csv").write_text("id,name,age\n" + rows)
    command = ["ingest", "rows.csv", "--into", "Customer", "--models", "support.spark_shop"]
    console = subprocess.Popen(
        [sys.executable, "-m", "ontologia.cli", *command, "--engine", "spark", "--storage-uri", uri],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert console.stdout is not None
    next(line for line in console.stdout if "Spark UI" in line)
    os.killpg(console.pid, signal.SIGINT)  # as a terminal does
    said, _ = console.communicate(timeout=120)
    assert (console.returncode, said.splitlines()[-1]) == (130, "onto: interrupted")
    assert "Traceback" not in said
    assert (head(uri), staged(uri)) == (0, [])
