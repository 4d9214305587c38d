"""Every engine passes the same suite. A new engine is one line in `ENGINES`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ontologia.engines.dispatch import initialize_storage
from ontologia.testing.conformance import EngineCase, EngineConformance, sqlite


def directory(engine_version: str) -> EngineCase:
    """An object-storage engine in a directory."""

    def create(folder: Path) -> str:
        uri = (folder / "store").as_uri()
        initialize_storage(storage_uri=uri, engine_version=engine_version)
        return uri

    return EngineCase(f"s3/{engine_version} in a directory", create)


def bucket(engine_version: str) -> EngineCase:
    """The same on the S3 server that the tests start."""

    def create(folder: Path) -> str:
        uri = f"s3://conformance/{uuid.uuid4().hex}"
        initialize_storage(storage_uri=uri, engine_version=engine_version)
        return uri

    return EngineCase(f"s3/{engine_version} in a bucket", create)


ENGINES = [
    sqlite("v1"),
    sqlite("v2"),
    directory("v1"),
    directory("v2"),
    pytest.param(bucket("v1"), marks=(pytest.mark.s3, pytest.mark.slow)),
    pytest.param(bucket("v2"), marks=pytest.mark.s3),
]


@pytest.fixture(scope="module", params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> EngineCase:
    case: EngineCase = request.param
    if "bucket" in case.name:
        request.getfixturevalue("s3").create_bucket("conformance")
    return case


class TestEngines(EngineConformance):
    """The suite, once per engine."""
