"""Empty stores for the tests of this folder. The Spark session is in the conftest above."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spark_shop import new_store

pytest.importorskip("pyspark")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.spark)
    if config.getoption("markexpr") != "s3a":  # they need jars from Maven, and a session of their own
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("s3a")])
        items[:] = [item for item in items if not item.get_closest_marker("s3a")]


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.slow), "file"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store in a directory and, where tests are not in a hurry, in a file."""
    return new_store(str(tmp_path / "onto.db") if request.param == "sqlite" else (tmp_path / "store").as_uri())


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """An empty store in a directory, for what does not depend on the kind of store."""
    return new_store((tmp_path / "store").as_uri())


@pytest.fixture
def bucket(s3_prefix: str) -> str:
    return new_store(s3_prefix)
