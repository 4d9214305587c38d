"""A graph passes the suite of every engine."""

import uuid
from pathlib import Path

import pytest

from ontologia.engines.initializing import initialize_storage
from ontologia.testing.conformance import EngineCase, EngineConformance, graph

pytestmark = pytest.mark.thorough  # of graphs, `make check` has the tests of their own
BUCKET = "graph-conformance"


def on_a_bucket() -> EngineCase:
    def create(folder: Path) -> str:
        uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        initialize_storage(storage_uri=uri, engine="omnigraph")
        return uri

    return EngineCase("a graph in a bucket", create)


@pytest.fixture(
    scope="module",
    params=[graph(), pytest.param(on_a_bucket(), marks=(pytest.mark.s3, pytest.mark.slow))],
    ids=str,
)
def engine(request: pytest.FixtureRequest) -> EngineCase:
    case: EngineCase = request.param
    if "bucket" in case.name:
        request.getfixturevalue("s3").create_bucket(BUCKET)
    return case


class TestGraph(EngineConformance):
    """The suite, on main of a graph in a directory and of one in a bucket."""
