"""Stores for the tests of this folder: memory, a directory, and a real S3 server for tests marked `s3`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ontologia.objects import Objects, open_objects
from ontologia.testing.s3server import S3Server


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.s3)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place in every kind of store."""
    unique = uuid.uuid4().hex
    if request.param == "memory":
        return f"memory://{unique}/some/prefix"
    if request.param == "file":
        return (tmp_path / "store").as_uri()
    server: S3Server = request.getfixturevalue("s3")
    return server.uri(f"objects-tests/{unique}")


@pytest.fixture
def objects(uri: str) -> Objects:
    return open_objects(uri)


@pytest.fixture
def memory() -> Objects:
    """For what does not depend on the kind of store."""
    return open_objects(f"memory://{uuid.uuid4().hex}/some/prefix")
