"""A graph passes the suite of every engine."""

import pytest

from ontologia.testing.conformance import EngineConformance, RemovalConformance, graph

pytestmark = pytest.mark.thorough  # of graphs, `make check` has the tests of their own


@pytest.fixture(scope="module")
def engine():
    return graph()


class TestGraph(RemovalConformance, EngineConformance):
    """The suite, on main of a graph in a directory."""
