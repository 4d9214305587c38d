"""What the tests of several folders ask for: embedded stores, the S3 server and the Spark session of this run.

`support` says how to use the last two.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ontologia import open_repository
from ontologia.testing.s3server import S3Server
from support.memory_files import keep_files_in_memory
from support.shared_server import shared_s3_server
from support.shared_session import small_session, workers_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

keep_files_in_memory()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups, and before tests are selected by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what a test asks for: the server, the session, whose tests share a worker, and random histories."""
    for item in items:
        asked = getattr(item, "fixturenames", ())
        if "s3" in asked:
            item.add_marker(pytest.mark.s3)
        if "spark" in asked:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
        if is_random(item):
            item.add_marker(pytest.mark.thorough)
            if "in a bucket" in item.name and "life" not in item.name:
                item.add_marker(pytest.mark.slow)  # the engine of the directory again; one of them is enough


def is_random(item: pytest.Item) -> bool:
    """Whether a test is one of the conformance suite's about any model and any history."""
    bases = getattr(getattr(item, "cls", None), "__mro__", ())
    return any(base.__name__ == "PropertyConformance" and item.originalname in vars(base) for base in bases)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, started when the first test asks for it, shared by all workers."""
    own = tmp_path_factory.getbasetemp()
    with shared_s3_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as server:
        yield server


@pytest.fixture
def s3_prefix(s3: S3Server) -> str:
    """An empty prefix on the S3 server."""
    return s3.uri(f"tests/{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def workers_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of Python processes that tests start, set in the environment; they have a cache of their own."""
    with workers_environment(tmp_path_factory.mktemp("cache")) as path:
        yield path


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, workers_path: str) -> Iterator[SparkSession]:
    """The Spark session of this run."""
    if any(item.get_closest_marker("s3") for item in request.session.items):
        request.getfixturevalue("s3")  # Spark's processes get its address from the environment they start with
    with small_session() as session:
        yield session


@pytest.fixture(params=["v1", "v2"])
def engine_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, engine_version: str) -> str:
    """The path of an empty SQLite store, laid out by each engine version in turn."""
    target = str(tmp_path / "onto.db")
    open_repository(target, engine_version=engine_version).close()
    return target


@pytest.fixture(autouse=True)
def own_upgraders() -> Iterator[None]:
    """Upgraders are registered for a whole process; what a test registers is its own."""
    from ontologia.runtime import upgraders

    before = dict(upgraders._registered)
    upgraders._registered.clear()
    yield
    upgraders._registered.clear()
    upgraders._registered.update(before)
