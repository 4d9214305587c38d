"""Stores that are missing, forbidden, damaged or somebody else's: an error that names the place, and nothing overwritten."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia import OntologiaConfig, Ontology, open_repository
from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.initializing import initialize_storage
from ontologia.engines.parquet import paths, setup
from ontologia.errors import EngineVersionError, StorageBackendError, UninitializedStorageError, ValidationError
from ontologia.objects import Objects, open_objects
from ontologia.testing.s3server import S3Server
from ontologia.testing.stores import FaultyObjects
from support.parquet_shop import Customer, Product, Shop, latest

CUSTOMER = Customer.__declaration__.ref


def contents(objects: Objects) -> dict[str, bytes]:
    return {info.key: objects.get(info.key).data for info in objects.list() if info.key != paths.lock()}


# --- places ---


def test_a_prefix_that_was_never_initialized_fails_at_once_and_says_what_to_do(uri: str) -> None:
    for opening in (lambda: open_repository(storage_uri=uri), lambda: Ontology(storage_uri=uri)):
        with pytest.raises(UninitializedStorageError, match="onto init") as failed:
            opening()
        assert uri in str(failed.value)
    assert not list(open_objects(uri).list())


def test_a_prefix_in_use_by_something_else_is_refused_and_left_alone(objects: Objects) -> None:
    objects.put("photos/cat.jpg", b"meow")
    with pytest.raises(ValidationError, match=r"photos/cat\.jpg"):
        setup.initialize(objects, "v2")
    assert contents(objects) == {"photos/cat.jpg": b"meow"}


def test_a_prefix_of_another_engine_is_refused_by_name(objects: Objects) -> None:
    stamp = {"backend": "omnigraph", "engine_version": "v1", "created_at": "2026-01-01T00:00:00+00:00"}
    objects.put(paths.ENGINE, json.dumps(stamp).encode())
    before = contents(objects)
    with pytest.raises(ValidationError, match="omnigraph"):
        open_objects_engine(objects)
    with pytest.raises(ValidationError, match="omnigraph"):
        setup.initialize(objects, "v2")
    assert {key: data for key, data in contents(objects).items() if key in before} == before


def test_a_store_of_a_newer_engine_is_refused_with_the_versions_that_are_known(empty: Shop) -> None:
    stamp = {"backend": "s3", "engine_version": "v9", "created_at": "2026-01-01T00:00:00+00:00"}
    empty.objects.put(paths.ENGINE, json.dumps(stamp).encode())
    with pytest.raises(EngineVersionError, match=r"'v9'.*v1, v2"):
        open_objects_engine(empty.objects)


def test_a_store_without_a_stamp_is_v1(empty: Shop) -> None:
    empty.objects.delete(paths.ENGINE)
    assert open_objects_engine(empty.objects).engine_version == "v1"


def test_an_engine_version_that_disagrees_with_the_stamp_is_refused(empty: Shop) -> None:
    other = {"v1": "v2", "v2": "v1"}[empty.version]
    with pytest.raises(EngineVersionError, match=f"{empty.version}, not {other}"):
        open_objects_engine(empty.objects, engine_version=other)


def test_an_initialized_prefix_is_not_initialized_again(store: Shop) -> None:
    before = contents(store.objects)
    with pytest.raises(ValidationError, match="holds an ontology already"):
        setup.initialize(store.objects, store.version)
    assert contents(store.objects) == before


def test_a_dry_run_of_an_initialization_writes_nothing(uri: str) -> None:
    report = initialize_storage(storage_uri=uri, dry_run=True)
    assert "meta/head.json" in report.planned
    assert not report.initialized
    assert not list(open_objects(uri).list())


@pytest.mark.s3
def test_a_bucket_that_does_not_exist_is_named(s3: S3Server) -> None:
    with pytest.raises(StorageBackendError, match=r"no-such-bucket-here.*does not exist") as failed:
        open_repository(storage_uri="s3://no-such-bucket-here/prefix")
    assert failed.value.context["operation"] == "get"
    assert failed.value.context["bucket"] == "no-such-bucket-here"


@pytest.mark.s3
def test_credentials_that_are_refused_are_said_to_be(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = s3.uri(f"parquet-tests/{uuid.uuid4().hex}")
    setup.initialize(open_objects(uri), "v2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageBackendError, match="credentials were refused") as failed:
        open_repository(storage_uri=uri)
    assert failed.value.context["bucket"] == "parquet-tests"
    assert "get" in str(failed.value)


REFUSALS = {
    "access denied": (
        "status code: 403 <Error><Code>AccessDenied</Code></Error>",
        "policy allows GetObject, PutObject, DeleteObject and ListBucket",
    ),
    "wrong region": ("<Error><Code>PermanentRedirect</Code></Error>", "another region"),
    "no bucket": ("<Error><Code>NoSuchBucket</Code></Error>", "bucket does not exist"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_write_that_is_refused_names_operation_object_and_remedy_and_changes_nothing(
    memory: Shop, refusal: str
) -> None:
    answer, remedy = REFUSALS[refusal]
    faulty = FaultyObjects(memory.objects)
    faulty.fail(RuntimeError(answer), operation="put*", times=None)
    before = contents(memory.objects)
    with pytest.raises(StorageBackendError, match=remedy) as failed:
        memory.commit([Product(sku="p5")], objects=faulty)
    assert memory.objects.uri in str(failed.value)
    assert failed.value.context["operation"].startswith("put")
    assert contents(memory.objects) == before


def test_a_swap_that_is_refused_outright_is_a_failure_and_not_an_unknown_outcome(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.fail(RuntimeError(REFUSALS["access denied"][0]), operation="put_if_match", key=paths.HEAD, times=None)
    with pytest.raises(StorageBackendError, match=r"head\.json"):
        memory.commit([Product(sku="p5")], objects=faulty)
    with memory.using() as reader:
        assert reader.get_head_commit_id() == 3


def test_a_gateway_that_ignores_conditions_is_refused_and_nothing_is_written(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.ignore_conditions()
    before = contents(memory.objects)
    with pytest.raises(StorageBackendError, match=r"ignores the If-None-Match condition.*nothing is written"):
        memory.commit([Product(sku="p5")], objects=faulty)
    assert contents(memory.objects) == before
    blank = FaultyObjects(open_objects(f"memory://{uuid.uuid4().hex}/blank"))
    blank.ignore_conditions()
    with pytest.raises(StorageBackendError, match="ignores"):
        setup.initialize(blank, "v2")
    assert not list(blank.list())


@pytest.mark.parametrize("care", ["compact", "index_repair", "vacuum"])
def test_a_gateway_that_ignores_conditions_is_refused_by_maintenance_too(memory: Shop, care: str) -> None:
    memory.objects.delete(paths.index(CUSTOMER))
    faulty = FaultyObjects(memory.objects)
    faulty.ignore_conditions()
    before = contents(memory.objects)
    with memory.using(faulty) as repository, pytest.raises(StorageBackendError, match="ignores"):
        getattr(repository, care)(apply=True)
    assert contents(memory.objects) == before


# --- damaged objects ---

DAMAGE = [b"", b"{broken", b"[]", b"{}", b"null", b"\xff\xfe"]
WRONG: dict[str, list[dict[str, Any]]] = {
    paths.HEAD: [
        {"commit_id": "3"},
        {"commit_id": -1},
        {"commit_id": True},
        {"manifest_path": None},
        {"manifest_path": 5},
        {"updated_at": 7},
    ],
    paths.TYPES: [{"entities": "Customer"}, {"entities": [1]}, {"relations": None}],
    paths.index(CUSTOMER): [
        {"max_indexed_commit": None},
        {"entries": [{"min_commit_id": 1}]},
        {"entries": [{"min_commit_id": 2, "max_commit_id": 1, "path": "x"}]},
        {
            "entries": [
                {"min_commit_id": 1, "max_commit_id": 2, "path": "x"},
                {"min_commit_id": 2, "max_commit_id": 3, "path": "y"},
            ]
        },
    ],
}


def damaged(shop: Shop, key: str) -> list[bytes]:
    body = json.loads(shop.objects.get(key).data)
    return [*DAMAGE, *(json.dumps({**body, **wrong}).encode() for wrong in WRONG.get(key, []))]


def test_a_malformed_head_is_named_and_left_as_it_is(memory: Shop) -> None:
    for body in damaged(memory, paths.HEAD):
        memory.objects.put(paths.HEAD, body)
        before = contents(memory.objects)
        with pytest.raises(StorageBackendError, match=r"meta/head\.json is malformed"):
            memory.repository()
        assert contents(memory.objects) == before


def test_a_head_that_is_damaged_while_a_store_is_open_stops_every_operation(memory: Shop) -> None:
    repository = memory.repository()
    memory.objects.put(paths.HEAD, b"{broken")
    before = contents(memory.objects)
    for operation in (
        lambda: latest(repository),
        lambda: memory.session(repository=repository).query().entities(Customer).collect(),
        lambda: repository.begin_transaction(),
        lambda: repository.compact(apply=True),
        lambda: repository.vacuum(0, apply=True),
        lambda: repository.index_repair(apply=True),
    ):
        with pytest.raises(StorageBackendError, match=r"meta/head\.json is malformed"):
            operation()
    assert contents(memory.objects) == before


def test_a_malformed_manifest_is_named_and_left_as_it_is(memory: Shop, tmp_path: Path) -> None:
    key = json.loads(memory.objects.get(paths.HEAD).data)["manifest_path"]
    for number, body in enumerate(damaged(memory, key)):
        memory.objects.put(key, body)
        before = contents(memory.objects)
        shop = Shop(memory.objects, memory.version, tmp_path / f"cold{number}")
        with pytest.raises(StorageBackendError, match=rf"{key} is malformed"):
            shop.repository().engine.commits()
        assert contents(memory.objects) == before


def test_a_manifest_that_is_gone_is_named(memory: Shop, tmp_path: Path) -> None:
    key = json.loads(memory.objects.get(paths.HEAD).data)["manifest_path"]
    memory.objects.delete(key)
    with pytest.raises(StorageBackendError, match=f"{key} is part of the history, and it is gone"):
        Shop(memory.objects, memory.version, tmp_path / "cold").repository().engine.commits()


@pytest.mark.thorough
def test_a_malformed_index_is_named_by_readers_and_writers_and_mended_by_repair(memory: Shop) -> None:
    key, expected = paths.index(CUSTOMER), memory.state()
    for body in damaged(memory, key):
        memory.objects.put(key, body)
        before = contents(memory.objects)
        with memory.using() as repository:
            with pytest.raises(StorageBackendError, match=rf"{key} is malformed"):
                repository.query_entities("Customer")
            with pytest.raises(StorageBackendError, match=rf"{key} is malformed"):
                memory.commit([Customer(id="c9", name="Ida")])
            assert contents(memory.objects) == before
            assert not repository.index_verify().healthy
            assert repository.index_repair(apply=True).repaired == [CUSTOMER]
            assert repository.index_verify().healthy
        assert memory.state() == expected


def test_malformed_known_types_stop_verification_and_repair(memory: Shop) -> None:
    for body in damaged(memory, paths.TYPES):
        memory.objects.put(paths.TYPES, body)
        before = contents(memory.objects)
        with memory.using() as repository:
            for check in (repository.index_verify, lambda: repository.index_repair(apply=True)):
                with pytest.raises(StorageBackendError, match=r"types\.json is malformed"):
                    check()
        assert contents(memory.objects) == before


def data_file(shop: Shop) -> str:
    return next(info.key for info in shop.objects.list("commits/2-") if "Customer" in info.key)


@pytest.mark.parametrize("damage", ["truncated", "foreign", "gone", "same size"])
def test_a_data_file_that_is_not_what_was_written_is_an_error_that_names_it(
    store: Shop, damage: str, tmp_path: Path
) -> None:
    key = data_file(store)
    body = store.objects.get(key).data
    buffer = io.BytesIO()
    pq.write_table(pa.table({"colour": ["red"]}), buffer)
    replacement = {"truncated": body[:-20], "foreign": buffer.getvalue(), "same size": b"x" * len(body)}
    if damage == "gone":
        store.objects.delete(key)
    else:
        store.objects.put(key, replacement[damage])
    before = contents(store.objects)
    cold = Shop(store.objects, store.version, tmp_path / "cold")
    with cold.using() as repository, pytest.raises(StorageBackendError) as failed:
        repository.query_entities("Customer")
    assert store.objects.url(key) in str(failed.value)
    assert failed.value.context["operation"]
    with pytest.raises(StorageBackendError, match="Customer"):
        cold.commit([Customer(id="c1", name="Changed")])
    assert contents(store.objects) == before


def test_a_lock_object_that_is_not_a_lock_is_waited_for_and_then_taken(memory: Shop) -> None:
    memory.objects.put(paths.lock(), b"not a lock")
    assert memory.commit([Product(sku="p5")], s3_lease_ttl_ms=200) == 4


def test_a_setting_that_makes_no_sense_is_refused() -> None:
    for setting in ("s3_lock_timeout_ms", "s3_lease_ttl_ms", "s3_request_timeout_s"):
        with pytest.raises(ValueError, match=setting):
            OntologiaConfig(**{setting: 0})
