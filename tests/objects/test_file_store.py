"""What is special about a directory: many processes, crashes, and what lies beside the objects."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from ontologia.errors import StorageBackendError
from ontologia.objects import ConditionFailed, Objects, open_objects
from ontologia.testing.crash import run_and_crash


def increment(uri: str, key: str, times: int) -> int:
    """Count up by compare-and-swap; how many swaps were lost to others."""
    objects = open_objects(uri)
    lost = 0
    for _ in range(times):
        while True:
            blob = objects.get(key)
            body = {"n": json.loads(blob.data)["n"] + 1, "nonce": os.urandom(8).hex()}
            try:
                objects.put_if_match(key, json.dumps(body).encode(), blob.etag)
                break
            except ConditionFailed:
                lost += 1
    return lost


def replace(uri: str, data: bytes) -> None:
    open_objects(uri).put("object", data)


def remove_and_create(uri: str, name: str, times: int) -> int:
    objects = open_objects(uri)
    for number in range(times):
        objects.put(f"deep/er/{name}-{number}", b"x")
        objects.delete(f"deep/er/{name}-{number}")
    objects.put(f"deep/er/{name}", b"x")
    return times


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def objects(directory: Path) -> Objects:
    return open_objects(directory.as_uri())


def test_no_increment_of_many_processes_is_lost(directory: Path, objects: Objects) -> None:
    objects.put("meta/counter.json", b'{"n": 0}')
    # Opened at two depths: the lock belongs to the directory, not to the store that was opened.
    jobs = [
        (directory.as_uri(), "meta/counter.json", 40),
        ((directory / "meta").as_uri(), "counter.json", 40),
    ]
    objects.map(lambda job: run_and_crash(increment, *job), jobs * 2)
    assert json.loads(objects.get("meta/counter.json").data)["n"] == 160


def test_deletes_that_empty_a_directory_do_not_disturb_writers_in_it(directory: Path, objects: Objects) -> None:
    objects.map(lambda name: run_and_crash(remove_and_create, directory.as_uri(), name, 60), "abc")
    assert [info.key for info in objects.list()] == ["deep/er/a", "deep/er/b", "deep/er/c"]


@pytest.mark.parametrize(
    ("point", "when", "survives"),
    [
        ("os:fsync", "before", b"old"),
        ("os:fsync", "after", b"old"),
        ("os:rename", "before", b"old"),
        ("os:rename", "after", b"new"),
    ],
)
def test_a_crash_leaves_the_old_object_or_the_new_one(
    directory: Path, objects: Objects, point: str, when: str, survives: bytes
) -> None:
    objects.put("object", b"old")
    crash = run_and_crash(
        replace, directory.as_uri(), b"new", at_call=point, when="before" if when == "before" else "after"
    )
    assert crash.killed
    assert objects.get("object").data == survives
    assert [info.key for info in objects.list()] == ["object"]
    objects.put("object", b"and the lock is free")


@pytest.mark.parametrize(
    ("point", "when", "survives"),
    [
        ("os:fsync", "before", []),
        ("os:fsync", "after", []),
        ("os:link", "before", []),
        ("os:link", "after", ["object"]),
    ],
)
def test_a_crash_while_an_object_is_created_leaves_all_of_it_or_nothing(
    directory: Path, objects: Objects, point: str, when: str, survives: list[str]
) -> None:
    crash = run_and_crash(
        replace, directory.as_uri(), b"new", at_call=point, when="before" if when == "before" else "after"
    )
    assert crash.killed
    assert [info.key for info in objects.list()] == survives
    assert all(objects.get(key).data == b"new" for key in survives)


def test_a_file_system_without_links_creates_an_object_once_all_the_same(
    directory: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*paths: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    objects.put_if_absent("a", b"1")
    with pytest.raises(ConditionFailed):
        objects.put_if_absent("a", b"2")
    objects.put("b", b"3")
    assert {info.key: objects.get(info.key).data for info in objects.list()} == {"a": b"1", "b": b"3"}


def test_creating_waits_for_no_lock(directory: Path, objects: Objects) -> None:
    import fcntl

    objects.put("a", b"1")
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        objects.put_if_absent("b", b"2")
    finally:
        os.close(handle)
    assert objects.get("b").data == b"2"


def test_what_a_crash_left_aside_is_swept_once_it_is_old(directory: Path, objects: Objects) -> None:
    run_and_crash(replace, directory.as_uri(), b"new", at_call="os:link")
    assert len(os.listdir(directory)) == 1
    assert objects.sweep(older_than_s=3600) == 0
    assert objects.sweep(older_than_s=-1) == 1
    assert os.listdir(directory) == []


def test_a_file_that_is_put_into_place_while_others_are_swept_is_left_alone(
    directory: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_and_crash(replace, directory.as_uri(), b"new", at_call="os:link")
    walked = list(os.walk(directory))
    (aside,) = directory.iterdir()
    aside.unlink()
    monkeypatch.setattr(os, "walk", lambda folder: walked)
    assert objects.sweep(older_than_s=-1) == 0


def test_many_objects_of_a_folder_are_deleted_with_one_sync(
    directory: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        objects.put(f"a/{number}", b"1")
    objects.put("b/kept", b"1")
    syncs: list[int] = []
    monkeypatch.setattr(os, "fsync", syncs.append)
    objects.delete_many([*(f"a/{number}" for number in range(5)), "a/missing", "c/missing", "b/missing"])
    assert [info.key for info in objects.list()] == ["b/kept"]
    assert (len(syncs), os.listdir(directory)) == (2, ["b"])


def test_a_refused_write_leaves_nothing_aside(directory: Path, objects: Objects) -> None:
    objects.put_if_absent("a/b", b"1")
    with pytest.raises(ConditionFailed):
        objects.put_if_absent("a/b", b"2")
    assert os.listdir(directory / "a") == ["b"]


def test_the_last_delete_removes_the_directories(directory: Path, objects: Objects) -> None:
    objects.put("a/b/c", b"1")
    objects.delete("a/b/c")
    assert os.listdir(directory) == []


def test_a_writer_that_hangs_with_the_lock_does_not_hang_the_others(directory: Path) -> None:
    import fcntl

    objects = open_objects(directory.as_uri(), request_timeout_s=0.05)
    objects.put("a", b"1")
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(StorageBackendError, match="stayed locked") as failure:
            objects.put("a", b"2")
    finally:
        os.close(handle)
    assert failure.value.context["may_be_applied"] is False
    assert objects.get("a").data == b"1"


def test_a_file_where_a_folder_is_needed_is_an_error_that_names_both(objects: Objects) -> None:
    objects.put("a", b"1")
    with pytest.raises(StorageBackendError, match=r"put file://.*/a/b failed"):
        objects.put("a/b", b"2")


def test_the_files_are_the_objects(directory: Path, objects: Objects) -> None:
    objects.put("cells/x.parquet", b"PAR1")
    assert objects.local_path("cells/x.parquet") == directory / "cells/x.parquet"
    assert (directory / "cells/x.parquet").read_bytes() == b"PAR1"


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [
        (errno.ENOSPC, "disk_full", "the disk is full"),
        (errno.EROFS, "read_only", "mounted read-only"),
        (errno.EACCES, "file_permission", "the owner and the mode"),
    ],
)
def test_a_file_that_cannot_be_put_says_why(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str, hint: str
) -> None:
    def refuse(file: int, data: object) -> int:
        raise OSError(number, os.strerror(number))

    local = tmp_path / "rows"
    local.write_bytes(b"x" * 100_000)
    monkeypatch.setattr("os.write", refuse)
    with pytest.raises(StorageBackendError, match=hint) as failure:
        objects.put_file("a/b", local)
    assert (failure.value.context["kind"], failure.value.context["may_be_applied"]) == (kind, False)
