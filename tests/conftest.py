"""What the tests of several folders share: a new embedded store of each engine version, and one S3 server."""

import pytest

from ontologia import open_repository
from ontologia.testing.s3server import s3_server


@pytest.fixture(scope="session")
def s3():
    """A real S3 server for tests marked `s3`, started when the first of them asks for it."""
    with s3_server() as server:
        yield server


@pytest.fixture(params=["v1", "v2"])
def engine_version(request):
    return request.param


@pytest.fixture
def path(tmp_path, engine_version):
    """The path of an empty SQLite store, laid out by each engine version in turn."""
    target = str(tmp_path / "onto.db")
    open_repository(target, engine_version=engine_version).close()
    return target


@pytest.fixture(autouse=True)
def own_upgraders():
    """Upgraders are registered for a whole process; what a test registers is its own."""
    from ontologia.runtime import upgraders

    before = dict(upgraders._registered)
    upgraders._registered.clear()
    yield
    upgraders._registered.clear()
    upgraders._registered.update(before)
