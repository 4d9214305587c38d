"""Apiaries for the tests of this folder. A test that looks at files asks for `root` and runs in a directory; every other
one runs in a directory and on a real S3 server."""

import uuid

import pytest

from support.frames import apiary, sensors

STORES = [pytest.param("file", id="file"), pytest.param("s3", id="s3", marks=pytest.mark.s3)]


def pytest_generate_tests(metafunc):
    if "store" in metafunc.fixturenames:
        metafunc.parametrize("store", STORES[:1] if "root" in metafunc.fixturenames else STORES)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "frames"


@pytest.fixture
def uri(request, store, tmp_path):
    """An empty root, in a directory and in a bucket."""
    if store == "file":
        return (tmp_path / "frames").as_uri()
    return request.getfixturevalue("s3").uri(f"frames-tests/{uuid.uuid4().hex}")


@pytest.fixture
def ap(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as found:
        yield found


@pytest.fixture
def frame(ap):
    return sensors(ap)
