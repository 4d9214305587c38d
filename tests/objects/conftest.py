"""Stores for the tests of this folder: memory, a directory, a real S3 server for tests marked `s3`, a stand-in for GCS."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ontologia.objects import Objects, open_objects
from ontologia.testing.s3server import S3Server
from support.gcs_server import GcsServer, gcs_server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        yield server


@pytest.fixture(params=["memory", "file", "gcs", pytest.param("s3", marks=pytest.mark.s3)])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place in every kind of store."""
    unique = uuid.uuid4().hex
    if request.param == "gcs":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("gcs").host)
        return f"gs://objects-tests/{unique}"
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
