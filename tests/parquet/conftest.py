"""Shops for the tests of this folder: in memory, in a directory, and on a real S3 server for tests marked `s3`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ontologia.objects import Objects, open_objects
from ontologia.testing.s3server import S3Server
from support.parquet_shop import HISTORY, VERSIONS, Shop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a bucket, the older version repeats what it does in a directory and what the newer one does there."""
    for item in items:
        given = getattr(item, "callspec", None)
        if item.path.parent == Path(__file__).parent and given is not None and "s3-v1" in given.id:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty prefix, in a directory and in a bucket."""
    if request.param == "file":
        return (tmp_path / "store").as_uri()
    server: S3Server = request.getfixturevalue("s3")
    return server.uri(f"parquet-tests/{uuid.uuid4().hex}")


@pytest.fixture
def objects(uri: str) -> Objects:
    return open_objects(uri)


@pytest.fixture
def empty(objects: Objects, version: str, tmp_path: Path) -> Iterator[Shop]:
    """An initialized store without commits."""
    shop = Shop.create(objects, version, tmp_path / "cache", filled=False)
    yield shop
    shop.close()


@pytest.fixture
def store(empty: Shop) -> Shop:
    """A store with three commits."""
    for rows in HISTORY:
        empty.commit(rows)
    return empty


@pytest.fixture
def memory(version: str, tmp_path: Path) -> Iterator[Shop]:
    """The same in memory, for what does not depend on the kind of store."""
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/shop"), version, tmp_path / "cache")
    yield shop
    shop.close()
