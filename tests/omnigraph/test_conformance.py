"""A graph passes the suite of every engine."""

import pytest

from ontologia.engines.dispatch import initialize_storage
from ontologia.testing.conformance import EngineCase, EngineConformance


def create(folder):
    uri = (folder / "graph").as_uri()
    initialize_storage(storage_uri=uri, engine="omnigraph")
    return uri


@pytest.fixture(scope="module")
def engine():
    return EngineCase("omnigraph in a directory", create)


class TestGraph(EngineConformance):
    """The suite, on main of a graph in a directory."""
