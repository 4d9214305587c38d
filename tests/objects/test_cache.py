"""The file cache: bounded, shared, never wrong, and never pulling a file from under a reader."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ontologia.errors import StorageBackendError
from ontologia.objects import FileCache, ObjectNotFound, Objects, open_objects
from ontologia.objects.cache import CHUNK_BYTES
from ontologia.testing.crash import crash_point, run_and_crash
from ontologia.testing.stores import FaultyObjects


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache", max_bytes=1000)


def fill(objects: Objects, count: int, size: int = 100) -> list[str]:
    keys = [f"cells/{number:03}.parquet" for number in range(count)]
    for number, key in enumerate(keys):
        objects.put(key, bytes([number % 256]) * size)
    return keys


def test_a_file_is_fetched_once_and_then_read_locally(memory: Objects, cache: FileCache) -> None:
    memory.put("cells/a.parquet", b"PAR1")
    with memory.counting() as count:
        paths = {cache.path(memory, "cells/a.parquet") for _ in range(3)}
        paths.add(cache.path(memory, "cells/a.parquet", size=4))
    (path,) = paths
    assert path.read_bytes() == b"PAR1"
    assert path.suffix == ".parquet"
    assert count.total == 1


def test_files_of_two_stores_with_the_same_key_are_two(memory: Objects, cache: FileCache) -> None:
    other = memory.under("elsewhere")
    memory.put("a", b"here")
    other.put("a", b"there")
    assert cache.path(memory, "a").read_bytes() == b"here"
    assert cache.path(other, "a").read_bytes() == b"there"


def test_another_process_finds_what_this_one_fetched(memory: Objects, cache: FileCache) -> None:
    memory.put("a", b"1")
    cache.path(memory, "a")
    with memory.counting() as count:
        FileCache(cache.directory, 1000).path(memory, "a")
    assert count.total == 0


def test_a_directory_needs_no_copies(tmp_path: Path, cache: FileCache) -> None:
    objects = open_objects(f"{tmp_path}/store")
    objects.put("cells/a.parquet", b"PAR1")
    assert cache.path(objects, "cells/a.parquet") == tmp_path / "store/cells/a.parquet"
    with cache.pinned(objects, ["cells/a.parquet"]) as paths:
        assert paths == [tmp_path / "store/cells/a.parquet"]
    with pytest.raises(ObjectNotFound):
        cache.path(objects, "cells/none.parquet")
    assert cache.used_bytes() == 0


def test_a_missing_object_is_missing_and_leaves_nothing(memory: Objects, cache: FileCache) -> None:
    with pytest.raises(ObjectNotFound):
        cache.path(memory, "none")
    assert [path for path in cache.directory.rglob("*") if path.is_file()] == []


def test_the_cache_stays_within_its_bound(memory: Objects, cache: FileCache) -> None:
    for key in fill(memory, 40):
        cache.path(memory, key)
        assert cache.used_bytes() <= 1000


def test_the_least_recently_used_go_first(memory: Objects, cache: FileCache) -> None:
    keys = fill(memory, 12)
    for key in keys[:6]:
        cache.path(memory, key)
    for number, key in enumerate(keys[:6]):  # distinct access times, whatever the clock of the file system
        path = cache.path(memory, key)
        os.utime(path, ns=(number, path.stat().st_mtime_ns))
    cache.path(memory, keys[0])
    for key in keys[6:]:
        cache.path(memory, key)
    assert cache.contains(memory, keys[0])
    assert not cache.contains(memory, keys[1])
    assert cache.contains(memory, keys[-1])


def test_using_a_file_leaves_its_modification_time(memory: Objects, cache: FileCache) -> None:
    memory.put("a", b"1")
    before = cache.path(memory, "a").stat().st_mtime_ns
    assert cache.path(memory, "a").stat().st_mtime_ns == before


def test_a_file_larger_than_the_cache_can_still_be_read(memory: Objects, cache: FileCache) -> None:
    memory.put("large", b"x" * 5000)
    assert cache.path(memory, "large").stat().st_size == 5000


def test_pinned_files_stay_whatever_comes(memory: Objects, cache: FileCache) -> None:
    keys = fill(memory, 40)
    with cache.pinned(memory, keys[:8]) as paths:
        for key in keys[8:]:
            FileCache(cache.directory, 1000).path(memory, key)
        assert [path.read_bytes() for path in paths] == [memory.get(key).data for key in keys[:8]]
    cache.evict()
    assert cache.used_bytes() <= 1000
    cache.evict(down_to=0)
    assert cache.used_bytes() == 0


def test_more_can_be_pinned_than_fits(memory: Objects, cache: FileCache) -> None:
    keys = fill(memory, 30)
    with cache.pinned(memory, keys) as paths:
        assert all(path.exists() for path in paths)
    cache.evict()
    assert cache.used_bytes() <= 1000


@pytest.mark.parametrize("damage", [b"", b"short", b"too long to be what was written"])
def test_a_damaged_copy_is_fetched_again(memory: Objects, cache: FileCache, damage: bytes) -> None:
    memory.put("a", b"eight by")
    cache.path(memory, "a").write_bytes(damage)
    assert not cache.contains(memory, "a")
    assert cache.path(memory, "a").read_bytes() == b"eight by"


def test_an_object_of_another_size_than_promised_is_an_error(memory: Objects, cache: FileCache) -> None:
    memory.put("a", b"12345")
    with pytest.raises(StorageBackendError, match="has 5 bytes and should have 6"):
        cache.path(memory, "a", size=6)


def test_large_files_come_in_ranges(objects: Objects, tmp_path: Path) -> None:
    data = os.urandom(CHUNK_BYTES + 100)
    objects.put("large.bin", data)
    cache = FileCache(tmp_path / "cache", max_bytes=1 << 30)
    assert cache.path(objects, "large.bin").read_bytes() == data
    objects.put("exact.bin", data[:CHUNK_BYTES])
    assert cache.path(objects, "exact.bin").stat().st_size == CHUNK_BYTES
    objects.put("empty.bin", b"")
    assert cache.path(objects, "empty.bin").stat().st_size == 0


def test_threads_that_want_the_same_file_fetch_it_once(memory: Objects, cache: FileCache) -> None:
    memory.put("a", b"1")
    faulty = FaultyObjects(memory, serial=False)
    started = threading.Barrier(4, timeout=30)

    def read(_: int) -> bytes:
        started.wait()
        return cache.path(faulty, "a").read_bytes()

    faulty.delay(0.05, operation="get_range")
    with faulty.counting() as count:
        assert faulty.map(read, range(4)) == [b"1"] * 4
    assert count.total == 1


def test_a_failed_download_is_not_remembered(memory: Objects, cache: FileCache) -> None:
    memory.put("a", b"1")
    faulty = FaultyObjects(memory)
    faulty.lose_request()
    with pytest.raises(StorageBackendError):
        cache.path(faulty, "a")
    assert cache.path(faulty, "a").read_bytes() == b"1"


def read_everything(directory: str, seed: int) -> int:
    """Read the same files as others do, in another order, through a cache that holds a third of them."""
    objects = open_objects("memory://cache-race")
    keys = fill(objects, 30)
    cache = FileCache(directory, max_bytes=1000)
    for turn in range(60):
        chosen = [keys[(turn * 7 + seed * 11 + step) % len(keys)] for step in range(3)]
        with cache.pinned(objects, chosen) as paths:
            for key, path in zip(chosen, paths, strict=True):
                assert path.read_bytes() == objects.get(key).data
    return cache.used_bytes()


def test_processes_share_a_small_cache_and_read_right(tmp_path: Path, memory: Objects) -> None:
    runs = memory.map(lambda seed: run_and_crash(read_everything, str(tmp_path), seed), range(4))
    assert all(run.result is not None for run in runs)
    assert FileCache(tmp_path, 1000).used_bytes() <= 1000 + 4 * 1000 // 8 + 4 * 100


def pin_and_die(directory: str) -> None:
    objects = open_objects("memory://pinned-by-the-dead")
    keys = fill(objects, 5)
    with FileCache(directory, max_bytes=1000).pinned(objects, keys):
        crash_point("pinned")


def test_the_pins_of_a_dead_process_do_not_count(tmp_path: Path) -> None:
    assert run_and_crash(pin_and_die, str(tmp_path), at_step="pinned").killed
    cache = FileCache(tmp_path, max_bytes=1000)
    assert cache.used_bytes() == 500
    cache.evict(down_to=0)
    assert cache.used_bytes() == 0
    assert os.listdir(tmp_path / ".pins") == []


def test_what_was_pinned_above_the_limit_goes_once_it_is_released(memory: Objects, cache: FileCache) -> None:
    with cache.pinned(memory, fill(memory, 30)):
        assert cache.used_bytes() == 3000
    assert cache.used_bytes() <= 1000


def test_an_eviction_during_which_pins_are_released_looks_again(memory: Objects, cache: FileCache) -> None:
    pin = cache.pinned(memory, fill(memory, 30))
    pin.__enter__()
    list_entries, room = cache._entries, cache._make_room

    def released_meanwhile() -> list[Any]:
        cache._entries = list_entries  # type: ignore[method-assign]
        cache._make_room = lambda for_="": None  # type: ignore[method-assign]
        pin.__exit__(None, None, None)
        cache._make_room = room  # type: ignore[method-assign]
        return list_entries()

    cache._entries = released_meanwhile  # type: ignore[method-assign]
    cache.evict()
    assert cache.used_bytes() <= 1000
