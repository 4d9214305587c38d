"""One Spark session for a test run, and the environment that the processes around it need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import ontologia

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = str(Path(__file__).parents[1])


@contextmanager
def workers_environment() -> Iterator[str]:
    """What Python processes that Spark starts need to find: the package and `support`."""
    before = os.environ.get("PYTHONPATH")
    # Executors run in folders of their own: no path may be relative.
    given = [os.path.abspath(path) for path in (before or "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([TESTS, str(Path(ontologia.__file__).parents[1]), *given])
    try:
        yield os.environ["PYTHONPATH"]
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@contextmanager
def small_session() -> Iterator[SparkSession]:
    """A session for small data and short tests: what the JVM would compile for speed is never worth it."""
    from ontologia.spark import spark_session

    config = {"spark.sql.shuffle.partitions": "2"}
    session = spark_session("tests", master="local[2]", config=config, brief=True)
    try:
        yield session
    finally:
        session.stop()
