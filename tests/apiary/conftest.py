"""Apiaries for the tests of this folder: in a directory, and on a real S3 server for tests marked `s3`."""

import uuid

import pytest

from support.frames import apiary, sensors


@pytest.fixture
def root(tmp_path):
    return tmp_path / "frames"


@pytest.fixture
def ap(root, tmp_path):
    with apiary(root, tmp_path / "cache") as found:
        yield found


@pytest.fixture
def frame(ap):
    return sensors(ap)


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def uri(request, root):
    """An empty root, in a directory and in a bucket."""
    if request.param == "file":
        return root.as_uri()
    return request.getfixturevalue("s3").uri(f"frames-tests/{uuid.uuid4().hex}")


@pytest.fixture
def anywhere(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as found:
        yield found
