import pytest

from ontologia.engines.dispatch import initialize_storage
from ontologia.testing.conformance import EngineCase, EngineConformance


def create(folder):
    uri = (folder / "graph").as_uri()
    initialize_storage(storage_uri=uri, engine="omnigraph")
    return uri


@pytest.fixture(scope="module")
def engine():
    return EngineCase("omnigraph", create)


class TestGraph(EngineConformance):
    pass
