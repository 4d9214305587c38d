"""One Spark session for all tests of this folder, and empty stores for it to work on."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ontologia
from ontologia.testing.s3server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))  # for Spark's workers and the processes that tests start, too
sys.path.append(str(Path(__file__).parents[2] / "examples"))

from spark_shop import new_store

pytest.importorskip("pyspark")
HERE = str(Path(__file__).parent)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(HERE):
            item.add_marker(pytest.mark.spark)
    if config.getoption("markexpr") != "s3a":  # they need jars from Maven, and a session of their own
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("s3a")])
        items[:] = [item for item in items if not item.get_closest_marker("s3a")]


@pytest.fixture(scope="session")
def workers_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What Python processes that Spark starts need to find: this folder, and a cache of their own."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "XDG_CACHE_HOME")}
    # Executors run in folders of their own: no path may be relative.
    given = [os.path.abspath(path) for path in (before["PYTHONPATH"] or "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, str(Path(ontologia.__file__).parents[1]), *given])
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield os.environ["PYTHONPATH"]
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, workers_path: str) -> Iterator[SparkSession]:
    from ontologia.spark import spark_session
    from ontologia.spark.session import LOGGING

    if any(item.get_closest_marker("s3") for item in request.session.items):
        request.getfixturevalue("s3")  # Spark's processes get its address from the environment they start with
    # Tests are short and their data small: what the JVM would compile for speed is never worth it.
    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"{LOGGING} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = spark_session("tests", master="local[2]", config=config)
    yield session
    session.stop()


@pytest.fixture(params=["sqlite", "file"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store in a file, and one in a directory."""
    return new_store(str(tmp_path / "onto.db") if request.param == "sqlite" else (tmp_path / "store").as_uri())


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """An empty store in a directory, for what does not depend on the kind of store."""
    return new_store((tmp_path / "store").as_uri())


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> str:
    server: S3Server = request.getfixturevalue("s3")
    return new_store(server.uri(f"spark-tests/{uuid.uuid4().hex}"))
