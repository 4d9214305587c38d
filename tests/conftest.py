"""What the tests of several folders ask for: embedded stores, the S3 server and the Spark session of this run.

`support` says how to use the last two.
"""

from __future__ import annotations

import gc
import os
import signal
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
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell; some tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

ANSWERS = {f"{part}Conformance" for part in ("Across", "Aggregation", "Exactness", "Filter", "Frame", "Relation")}


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
        claim = conformance_class(item)
        if claim == "PropertyConformance" or (claim and item.name.startswith("test_any_")):
            item.add_marker(pytest.mark.thorough)
        if repeats_another_engine(item, claim) or repeats_itself(item):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What was collected stays for good: looking through it again and again takes a tenth of the time."""
    gc.collect()
    gc.freeze()


def conformance_class(item: pytest.Item) -> str | None:
    """The part of the conformance suite that a test belongs to."""
    bases = getattr(getattr(item, "cls", None), "__mro__", ())
    name = getattr(item, "originalname", None)
    return next((base.__name__ for base in bases if "Conformance" in base.__name__ and name in vars(base)), None)


def repeats_another_engine(item: pytest.Item, claim: str | None) -> bool:
    """Whether the same statements run over the same files elsewhere: on a bucket, and on files with JSON beside the
    columns, what a directory shows of answers; and random questions to the older version of an engine. Random lives of
    stores are lived by both versions."""
    if item.name.startswith("test_any_") or claim == "PropertyConformance":
        return "in a bucket" in item.name or ("/v1" in item.name and "life" not in item.name)
    is_answer = claim in ANSWERS or item.name.startswith("test_questions_")
    return is_answer and ("in a bucket" in item.name or "s3/v1" in item.name)


def repeats_itself(item: pytest.Item) -> bool:
    """Whether this is the test with parameters of which it says `slow_on`: others show the same."""
    called = f"-{item.callspec.id}-" if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
    return any(f"-{name}-" in called for mark in item.iter_markers("slow_on") for name in mark.args)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, started when the first test asks for it, shared by all workers."""
    own = tmp_path_factory.getbasetemp()
    with shared_s3_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copies of files that tests read from buckets are not kept among the user's, and no JVM leaves its classes there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SPARK_SUBMIT_OPTS", f"-Xshare:auto {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip())
        yield


@pytest.fixture
def s3_prefix(s3: S3Server) -> str:
    """An empty prefix on the S3 server."""
    return s3.uri(f"tests/{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def workers_path() -> Iterator[str]:
    """The path of Python processes that tests start, set in the environment."""
    with workers_environment() as path:
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
    from ontologia.model import upgraders

    before = dict(upgraders._registered)
    upgraders._registered.clear()
    yield
    upgraders._registered.clear()
    upgraders._registered.update(before)
