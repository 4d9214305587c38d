"""Graphs on a directory, and on a real S3 server."""

import pytest

from support.graph_shop import new_graph


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def root(request, tmp_path):
    """The URI of a place where there is no graph yet."""
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
