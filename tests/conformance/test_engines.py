"""Every engine passes the same suite. A new engine is one line in `ENGINES`."""

from __future__ import annotations

import pytest

from ontologia.testing.conformance import EngineCase, EngineConformance, sqlite

ENGINES = [
    sqlite("v1"),
    sqlite("v2"),
]


@pytest.fixture(scope="module", params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> EngineCase:
    return request.param


class TestEngines(EngineConformance):
    """The suite, once per engine."""
