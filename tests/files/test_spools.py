"""Files of a commit in the making: few bytes stay in memory, many go to disk, and both become the same object."""

import hashlib
import os
import tempfile

import pytest

from ontologia.files import spools
from ontologia.files.spools import Spool
from ontologia.objects import open_objects
from support.parquet_shop import HISTORY, Shop, latest


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files of our own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("size", [0, 99, 100, 101, 1000])
def test_what_was_written_is_put_whatever_its_size(temporary, monkeypatch, size):
    monkeypatch.setattr(spools, "SPOOLED_BYTES", 100)
    objects, content = open_objects("memory://spools"), os.urandom(size)
    spool = Spool()
    for start in range(0, size, 30):
        spool.write(content[start : start + 30])
    digest = spool.complete()
    spool.put(objects, "file")
    spool.discard()
    assert (objects.get("file").data, spool.size) == (content, size)
    assert digest == hashlib.sha256(content).hexdigest()
    assert os.listdir(temporary) == []


def test_only_what_is_large_goes_to_disk(temporary, monkeypatch):
    monkeypatch.setattr(spools, "SPOOLED_BYTES", 100)
    small, large = Spool(), Spool()
    small.write(b"x" * 100)
    large.write(b"x" * 101)
    assert (small.in_memory, large.in_memory) == (b"x" * 100, None)
    large.discard()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_large_commit_is_the_same_as_a_small_one_and_leaves_nothing_on_disk(
    temporary, tmp_path, monkeypatch, version
):
    found = []
    for limit in (1 << 20, 10):
        monkeypatch.setattr(spools, "SPOOLED_BYTES", limit)
        shop = Shop.create(open_objects(f"memory://spools-{limit}-{version}"), version, tmp_path / str(limit))
        with shop.using() as repository:
            found.append(latest(repository))
        shop.close()
    assert found[0] == found[1]
    assert set(found[0]) == {type(row).__name__ for rows in HISTORY for row in rows}
    assert [name for name in os.listdir(temporary) if "commit" in name] == []


def test_a_commit_that_fails_leaves_nothing_on_disk(temporary, tmp_path, monkeypatch):
    monkeypatch.setattr(spools, "SPOOLED_BYTES", 10)
    shop = Shop.create(open_objects("memory://spools-failing"), "v2", tmp_path / "cache", filled=False)
    monkeypatch.setattr(Spool, "put", lambda *_: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError, match="no"):
        shop.commit(HISTORY[0])
    assert [name for name in os.listdir(temporary) if "commit" in name] == []
    shop.close()
