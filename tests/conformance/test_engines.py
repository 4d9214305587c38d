"""Every engine passes the same suite. A new engine is one line in `ENGINES`."""

from __future__ import annotations

import pytest

from ontologia.testing.conformance import AcrossConformance, EngineCase, EngineConformance, sqlite
from support.engine_cases import bucket, directory

ENGINES = [
    pytest.param(sqlite("v1"), marks=pytest.mark.thorough),
    sqlite("v2"),
    pytest.param(directory("v1"), marks=pytest.mark.thorough),
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


class TestEngines(EngineConformance, AcrossConformance):
    """The suite, once per engine."""
