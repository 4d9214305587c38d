"""A file in which a single bit turned over is refused by every reader, and never becomes part of a snapshot."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ontologia import OntologiaConfig
from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.repository import Repository
from ontologia.errors import StorageBackendError
from ontologia.files import reading
from ontologia.objects import Objects, cache, open_objects
from support.parquet_shop import Customer, Shop, commit, latest


def data_file(objects: Objects, folder: str = "commits/1-") -> str:
    return next(info.key for info in objects.list(folder) if info.key.endswith(".parquet") and "ustomer" in info.key)


def flip(objects: Objects, key: str, place: int, bit: int = 0) -> bytes:
    """Turn one bit over; the bytes as they were."""
    good = objects.get(key).data
    bad = bytearray(good)
    bad[place] ^= 1 << bit
    objects.put(key, bytes(bad))
    return good


@contextmanager
def opened(objects: Objects) -> Iterator[Repository]:
    """The store as a process sees it that has never read a file."""
    with tempfile.TemporaryDirectory(prefix="ontologia-test-cache-") as folder:
        repository = Repository(open_objects_engine(objects, OntologiaConfig(cache_directory=folder)))
        yield repository
        repository.close()


@pytest.mark.thorough
@pytest.mark.slow_on("s3-v1", "s3-v2")
def test_no_flipped_bit_of_a_commit_gives_other_rows(store: Shop) -> None:
    key = data_file(store.objects)
    size = len(store.objects.get(key).data)
    chance = random.Random(7)
    for _ in range(40):
        good = flip(store.objects, key, chance.randrange(size), chance.randrange(8))
        with opened(store.objects) as repository, pytest.raises(StorageBackendError, match="damaged") as refused:
            latest(repository)
        assert key in str(refused.value)
        store.objects.put(key, good)


def test_a_damaged_file_is_not_compacted(store: Shop) -> None:
    key = data_file(store.objects)
    good = flip(store.objects, key, 100)
    with opened(store.objects) as repository, pytest.raises(StorageBackendError, match="damaged"):
        repository.engine.compact(apply=True)
    assert not list(store.objects.list("snapshots/"))
    store.objects.put(key, good)
    with opened(store.objects) as repository:
        assert repository.engine.compact(apply=True).types


def test_a_damaged_snapshot_is_refused(store: Shop) -> None:
    with store.using() as repository:
        repository.engine.compact(apply=True)
    flip(store.objects, data_file(store.objects, "snapshots/"), 100)
    with opened(store.objects) as repository, pytest.raises(StorageBackendError, match="damaged"):
        latest(repository)


def test_a_commit_that_compares_with_a_damaged_file_is_refused(store: Shop) -> None:
    flip(store.objects, data_file(store.objects), 100)
    with opened(store.objects) as repository, pytest.raises(StorageBackendError, match="damaged"):
        commit(repository, [Customer(id="c2", name="another")])


def test_a_large_file_is_compared_before_it_is_compacted(store: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones are read by range, or in place, and not compared when they are opened."""
    monkeypatch.setattr(reading, "WHOLE_FILE_BYTES", 10)
    monkeypatch.setattr(cache, "HASHED_IN_PLACE_BYTES", 10)
    flip(store.objects, data_file(store.objects), 8)
    with opened(store.objects) as repository, pytest.raises(StorageBackendError, match="damaged"):
        repository.engine.compact(apply=True)


def test_a_file_is_hashed_once_by_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create(open_objects((tmp_path / "store").as_uri()), "v2", tmp_path / "cache")
    hashed = []
    check = cache._check_hash
    monkeypatch.setattr(cache, "_check_hash", lambda *given: hashed.append(given[1]) or check(*given))
    with opened(shop.objects) as repository:
        first, again = latest(repository), latest(repository)
    assert first == again
    assert hashed
    assert len(hashed) == len(set(hashed))
    shop.close()
