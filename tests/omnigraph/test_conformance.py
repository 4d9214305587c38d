"""A graph passes the suite of every engine."""

import pytest

from ontologia.engines.dispatch import initialize_storage
from ontologia.testing.conformance import EngineCase, EngineConformance, RemovalConformance

pytestmark = pytest.mark.thorough  # of graphs, `make check` has the tests of their own


def create(folder):
    uri = (folder / "graph").as_uri()
    initialize_storage(storage_uri=uri, engine="omnigraph")
    return uri


@pytest.fixture(scope="module")
def engine():
    return EngineCase("omnigraph in a directory", create)


class TestGraph(RemovalConformance, EngineConformance):
    """The suite, on main of a graph in a directory."""
