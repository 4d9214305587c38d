"""Apiaries for the tests of this folder. A test that looks at files asks for `root` and runs in a directory; every other
one runs in a directory and on a real S3 server. What says nothing about stores runs there with the slow ones."""

import uuid

import pytest

from support.frames import apiary, sensors

FILE = pytest.param("file", id="file")
ON_A_BUCKET = ("test_care", "test_faults", "test_ledger", "test_model", "test_queries", "test_registry", "test_s3")


def pytest_generate_tests(metafunc):
    if "store" not in metafunc.fixturenames:
        return
    repeats = metafunc.module.__name__.rpartition(".")[2] not in ON_A_BUCKET
    s3 = pytest.param("s3", id="s3", marks=[pytest.mark.s3] + [pytest.mark.slow] * repeats)
    metafunc.parametrize("store", [FILE] if "root" in metafunc.fixturenames else [FILE, s3])


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
