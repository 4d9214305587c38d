"""What every store does alike: one suite over memory, a directory and real S3."""

from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime, timedelta

import pytest

from ontologia.errors import StorageBackendError, ValidationError
from ontologia.objects import ConditionFailed, Location, ObjectNotFound, Objects, open_objects, prove_conditions


def keys(objects: Objects, prefix: str = "") -> list[str]:
    return sorted(info.key for info in objects.list(prefix))


def test_what_was_put_is_read_back_with_its_etag(objects: Objects) -> None:
    etag = objects.put("a/b.json", b"hello")
    blob = objects.get("a/b.json")
    assert (blob.data, blob.etag) == (b"hello", etag)


def test_a_put_replaces_what_was_there(objects: Objects) -> None:
    first = objects.put("a", b"1")
    second = objects.put("a", b"2")
    assert objects.get("a").data == b"2"
    assert first != second


def test_an_empty_object_is_an_object(objects: Objects) -> None:
    objects.put("empty", b"")
    assert objects.get("empty").data == b""
    assert objects.get_range("empty", 0, 10) == b""
    info = objects.head("empty")
    assert info is not None
    assert info.size == 0


def test_a_missing_object_is_said_to_be_missing(objects: Objects) -> None:
    with pytest.raises(ObjectNotFound, match="nothing/here"):
        objects.get("nothing/here")
    with pytest.raises(ObjectNotFound):
        objects.get_range("nothing/here", 0, 1)
    assert objects.head("nothing/here") is None
    assert not objects.exists("nothing/here")


def test_a_folder_is_not_an_object(objects: Objects) -> None:
    objects.put("folder/object", b"1")
    assert not objects.exists("folder")
    with pytest.raises(ObjectNotFound):
        objects.get("folder")


def test_ranges_end_where_the_object_ends(objects: Objects) -> None:
    objects.put("digits", b"0123456789")
    assert objects.get_range("digits", 2, 3) == b"234"
    assert objects.get_range("digits", 8, 100) == b"89"
    assert objects.get_range("digits", 10, 5) == b""
    with pytest.raises(ValueError, match="length"):
        objects.get_range("digits", 0, 0)


def test_head_tells_size_etag_and_time(objects: Objects) -> None:
    etag = objects.put("a", b"12345")
    info = objects.head("a")
    assert info is not None
    assert (info.key, info.size, info.etag) == ("a", 5, etag)
    assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_create_is_refused_when_the_object_exists(objects: Objects) -> None:
    objects.put_if_absent("once", b"first")
    with pytest.raises(ConditionFailed, match="once"):
        objects.put_if_absent("once", b"second")
    assert objects.get("once").data == b"first"


def test_a_replace_is_refused_when_the_version_is_another(objects: Objects) -> None:
    first = objects.put_if_absent("head", b"1")
    second = objects.put_if_match("head", b"2", first)
    with pytest.raises(ConditionFailed, match="head"):
        objects.put_if_match("head", b"3", first)
    assert objects.get("head") == objects.get("head")
    assert (objects.get("head").data, objects.get("head").etag) == (b"2", second)


def test_a_replace_of_a_missing_object_is_refused_and_creates_nothing(objects: Objects) -> None:
    etag = objects.put("gone", b"1")
    objects.delete("gone")
    with pytest.raises(ConditionFailed):
        objects.put_if_match("gone", b"2", etag)
    assert not objects.exists("gone")


def test_an_empty_etag_is_no_condition_and_not_accepted(objects: Objects) -> None:
    objects.put("a", b"1")
    with pytest.raises(ValueError, match="etag"):
        objects.put_if_match("a", b"2", "")


def test_deleting_twice_is_deleting_once(objects: Objects) -> None:
    objects.put("a/b/c", b"1")
    objects.delete("a/b/c")
    objects.delete("a/b/c")
    assert keys(objects) == []


def test_deleting_many_passes_over_missing_ones(objects: Objects) -> None:
    for number in range(5):
        objects.put(f"many/{number}", b"x")
    objects.delete_many([f"many/{number}" for number in range(4)] + ["many/none"])
    objects.delete_many([])
    assert keys(objects) == ["many/4"]


def test_a_listing_matches_prefixes_as_strings_at_any_depth(objects: Objects) -> None:
    names = ["commits/1-a/x", "commits/12-b/y", "commits/2-c/z", "commits2/q", "meta/head.json"]
    for name in names:
        objects.put(name, b"x")
    assert keys(objects) == sorted(names)
    assert keys(objects, "commits/1") == ["commits/1-a/x", "commits/12-b/y"]
    assert keys(objects, "commits/") == names[:3]
    assert keys(objects, "commits") == names[:4]
    assert keys(objects, "meta/head.json") == ["meta/head.json"]
    assert keys(objects, "nothing") == []


def test_names_that_sort_around_a_slash_are_all_listed(objects: Objects) -> None:
    names = ["a-b/1", "a.b", "a/1", "a0", "b"]
    for name in reversed(names):
        objects.put(name, b"x")
    assert keys(objects) == names
    assert keys(objects, "a") == names[:4]
    assert keys(objects, "a/") == ["a/1"]


def test_the_tail_of_a_log_is_read_without_the_rest(objects: Objects) -> None:
    names = [f"ledger/{number:06}.json" for number in range(6)]
    for name in [*names, "ledger/_checkpoint/000003.json", "ledger/000004/odd", "zzz"]:
        objects.put(name, b"x")
    assert [info.key for info in objects.tail("ledger", "000003.json")] == names[4:]
    assert [info.key for info in objects.tail("ledger/", "000002")] == names[2:]
    assert list(objects.tail("ledger", "999999")) == []
    assert list(objects.tail("none", "0")) == []


def test_long_listings_come_in_pages_and_are_complete(objects: Objects) -> None:
    names = [f"log/{number:06}" for number in range(1005)]
    objects.map(lambda name: objects.put(name, b"x"), names)
    with objects.counting() as count:
        assert [info.key for info in objects.list("log/")] == names
        assert [info.key for info in objects.tail("log", "000003")] == names[4:]
    assert count.by_operation == {"list": 4}
    objects.delete_many(names)
    assert keys(objects) == []


def test_unusual_but_legal_keys_survive(objects: Objects) -> None:
    names = sorted(["day=2026-01-01/cell 1.parquet", "p/é", "p/a%20b", "p/x+y=z", "p/~#?&'()*", "p/日本"])
    for name in names:
        objects.put(name, name.encode())
    assert keys(objects) == names
    assert [objects.get(name).data.decode() for name in names] == names


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\nb", "a\x00"])
def test_keys_that_mean_different_things_to_different_stores_are_not_keys(memory: Objects, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        memory.put(key, b"x")


def test_a_folder_down_is_the_same_store(objects: Objects) -> None:
    inner = objects.under("frames/sales")
    inner.put("ledger/1", b"x")
    assert objects.get("frames/sales/ledger/1").data == b"x"
    assert keys(inner) == ["ledger/1"]
    assert inner.url("ledger/1") == objects.url("frames/sales/ledger/1")


def test_requests_run_side_by_side_and_answer_in_order(objects: Objects) -> None:
    objects.map(lambda number: objects.put(f"n/{number}", str(number).encode()), range(20))
    assert objects.map(lambda number: int(objects.get(f"n/{number}").data), range(20)) == list(range(20))


def test_the_first_error_is_raised_after_all_requests_have_settled(memory: Objects) -> None:
    done: list[int] = []
    together = threading.Barrier(4, timeout=30)

    def work(number: int) -> None:
        together.wait()
        if number in (1, 2):
            raise LookupError(number)
        done.append(number)

    with pytest.raises(LookupError, match="1"):
        memory.map(work, range(4))
    assert sorted(done) == [0, 3]


def test_requests_are_counted_by_operation_and_key(objects: Objects) -> None:
    with objects.counting() as count:
        objects.put("a", b"1")
        objects.map(objects.get, ["a", "a", "a"])
        objects.under("sub").exists("b")
        list(objects.list())
    objects.get("a")
    assert count.total == 6
    assert count.by_operation == {"put": 1, "get": 3, "head": 1, "list": 1}
    assert count.by_key["a"] == 4
    assert count.count("head", "sub/b") == 1
    assert str(count.log[0]) == "put a"


def test_a_failed_request_counts(memory: Objects) -> None:
    with memory.counting() as count:
        with pytest.raises(ObjectNotFound):
            memory.get("nothing")
        memory.put_if_absent("a", b"1")
        with pytest.raises(ConditionFailed):
            memory.put_if_absent("a", b"1")
    assert count.total == 3


def test_a_store_that_honours_conditions_is_proven_once_and_leaves_nothing(objects: Objects) -> None:
    with objects.counting() as count:
        prove_conditions(objects)
        prove_conditions(objects.under("elsewhere"))
    assert count.total in (0, 5), "five requests, or none if this store was proven before"
    assert keys(objects) == []


def test_an_object_that_did_not_change_is_not_sent_again(objects: Objects) -> None:
    etag = objects.put("a", b"1")
    assert objects.get_if_changed("a", etag) is None
    assert objects.get_if_changed("a", etag) is None
    other = objects.put("a", b"2")
    found = objects.get_if_changed("a", etag)
    assert found is not None
    assert (found.data, found.etag) == (b"2", other)
    assert objects.get_if_changed("a", other) is None
    with pytest.raises(ObjectNotFound):
        objects.get_if_changed("b", etag)


def test_a_store_can_be_sent_to_another_process(objects: Objects) -> None:
    objects.put("a", b"1")
    copy = pickle.loads(pickle.dumps(objects))
    assert copy.get("a").data == b"1"
    assert copy.uri == objects.uri


def test_large_objects_go_up_and_come_down_whole(objects: Objects) -> None:
    data = bytes(range(256)) * (9 << 12)  # nine MiB: more than one part
    etag = objects.put("large.bin", data)
    info = objects.head("large.bin")
    assert objects.get("large.bin").data == data
    assert info is not None
    assert (info.size, info.etag) == (len(data), etag)
    assert objects.get_range("large.bin", 8 << 20, 256) == data[:256]


def test_of_many_creators_exactly_one_wins(objects: Objects) -> None:
    def create(number: int) -> bool:
        try:
            objects.put_if_absent("raced", f"writer {number}".encode())
            return True
        except ConditionFailed:
            return False

    assert objects.map(create, range(6)).count(True) == 1


@pytest.mark.parametrize("bad", ["ftp://x/y", "s3:///prefix", "memory://", "file://host/x", "s3://key:word@host/b", ""])
def test_a_uri_that_names_no_store_is_refused(bad: str) -> None:
    from ontologia.errors import ValidationError

    with pytest.raises(ValidationError):
        open_objects(bad)


def test_opening_makes_nothing(tmp_path: object) -> None:
    objects = open_objects(f"{tmp_path}/not/yet")
    assert keys(objects) == []
    assert not objects.exists("a")
    objects.delete("a")
    with pytest.raises(StorageBackendError):
        open_objects("file:///proc/none").put("a", b"1")
    import os

    assert os.listdir(str(tmp_path)) == []


def test_settings_of_the_environment_are_in_the_text_that_travels(monkeypatch):
    monkeypatch.setenv("ONTOLOGIA_S3_ENDPOINT_URL", "http://here:9000")
    location = Location("s3://bucket/x")
    text = location.settings_text()
    monkeypatch.delenv("ONTOLOGIA_S3_ENDPOINT_URL")
    assert Location.from_text(location.uri, text) == location


@pytest.mark.parametrize(
    ("address", "uri", "inner"),
    [
        ("s3://b@minio:9000/p", "s3://b/p", "s3://b@minio:9000/p/a"),
        ("s3://b/p?endpoint=http://minio:9000", "s3://b/p", "s3://b/p/a?endpoint=http://minio:9000"),
        ("s3://b?region=eu-west-1", "s3://b", "s3://b/a?region=eu-west-1"),
        ("s3://b/p", "s3://b/p", "s3://b/p/a"),
        ("memory://m/p", "memory://m/p", "memory://m/p/a"),
    ],
)
def test_a_store_knows_the_address_that_opens_it_again(address, uri, inner):
    objects = open_objects(address)
    assert (objects.address, objects.uri) == (address, uri)
    assert objects.under("a").address == inner
    assert open_objects(inner).uri == objects.under("a").uri


@pytest.mark.parametrize("address", ["s3://b@host:99999/x", "s3://b@host:abc/x", "s3://b/x?endpoint=http://host:99999"])
def test_a_port_that_cannot_be_is_an_error_of_the_address(address):
    with pytest.raises(ValidationError, match="a port up to 65535"):
        open_objects(address)
