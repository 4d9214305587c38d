"""Graphs on a directory, and on a real S3 server; there, what says nothing about stores runs with the slow ones."""

import pytest

from support.graph_shop import new_graph

REPEATED = (
    "test_branches",
    "test_documents",
    "test_loads",
    "test_merges",
    "test_omnigraph",
    "test_schema",
    "test_shares",
    "test_transactions",
    "test_unique",
)


def pytest_collection_modifyitems(items):
    """One writer that is killed on a bucket shows what the others would; each is killed in a directory."""
    for item in items:
        given = getattr(item, "callspec", None)
        if (
            given is not None
            and given.params.get("root") == "s3"
            and given.params.get("kind", "Mutation") != "Mutation"
        ):
            item.add_marker(pytest.mark.slow)


def pytest_generate_tests(metafunc):
    if "root" in metafunc.fixturenames:
        repeats = metafunc.module.__name__.rpartition(".")[2] in REPEATED
        s3 = pytest.param("s3", marks=[pytest.mark.s3] + [pytest.mark.slow] * repeats)
        metafunc.parametrize("root", ["file", s3], indirect=True)


@pytest.fixture
def root(request, tmp_path):
    """The URI of a place where there is not a graph yet."""
    return f"file://{tmp_path}/graph" if request.param == "file" else request.getfixturevalue("s3_prefix")


@pytest.fixture
def local(tmp_path):
    return f"file://{tmp_path}/graph"


@pytest.fixture
def graph(root):
    return new_graph(root)


@pytest.fixture
def local_graph(local):
    return new_graph(local)
