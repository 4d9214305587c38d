"""What the tests of the embedded engines share: a new store of each engine version."""

import pytest

from ontologia import open_repository


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
