"""A prefix is made once, whoever tries and dies, and emptied only with its token."""

from __future__ import annotations

import contextlib
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ontologia import OntologiaConfig
from ontologia.engines.initializing import initialize_storage
from ontologia.engines.parquet import paths, setup
from ontologia.errors import LockContentionError, OntologiaError, ValidationError
from ontologia.objects import Location, Objects, open_objects
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.parquet_shop import HISTORY, Product, Shop, latest


@pytest.fixture
def bare(tmp_path: Path) -> Objects:
    return open_objects(f"memory://{uuid.uuid4().hex}/bare")


def test_of_many_initializers_one_succeeds(bare: Objects) -> None:
    barrier = threading.Barrier(6)

    def one(_: int) -> bool:
        barrier.wait()
        try:
            setup.initialize(bare, "v2")
        except ValidationError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(one, range(6))) == 1


@pytest.mark.parametrize("step", range(8, 13))
def test_a_slow_initializer_changes_nothing_of_a_store_that_others_use_already(
    bare: Objects, tmp_path: Path, step: int
) -> None:
    faulty = FaultyObjects(bare)
    seen: dict[str, bytes] = {}

    def meanwhile(_: object) -> None:
        shop = Shop.create(bare, "v2", tmp_path / "cache")
        seen.update({info.key: shop.objects.get(info.key).data for info in shop.objects.list()})

    faulty.call(meanwhile, at=step)
    with pytest.raises(ValidationError):
        setup.initialize(faulty, "v2")
    assert {info.key: bare.get(info.key).data for info in bare.list()} == seen


def test_of_two_initializers_with_different_engines_the_first_stamp_stands(bare: Objects) -> None:
    faulty = FaultyObjects(bare)

    def meanwhile(_: object) -> None:
        with pytest.raises(ValidationError, match=r"engine\.json says v2"):
            setup.initialize(bare, "v1")

    faulty.call(meanwhile, operation="put_if_absent", key=paths.HEAD)
    setup.initialize(faulty, "v2")
    assert setup.read_version(bare) == "v2"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_an_initialization_that_died_at_any_request_can_be_done_again(version: str, when: Any, tmp_path: Path) -> None:
    counted = FaultyObjects(open_objects(f"memory://{uuid.uuid4().hex}/x"))
    steps = len(counted.steps_of(lambda: setup.initialize(counted, version)))
    for step in range(1, steps + 1):
        objects = open_objects(f"memory://{uuid.uuid4().hex}/x")
        faulty = FaultyObjects(objects)
        faulty.crash(at=step, when=when)
        with contextlib.suppress(SimulatedCrash):  # a refused put has no "after": that one goes on
            setup.initialize(faulty, version)
        if not objects.exists(paths.HEAD):
            setup.initialize(objects, version)
        assert Shop(objects, version, tmp_path).commit(HISTORY[0]) == 1


@pytest.mark.parametrize("fault", ["lose_request", "lose_response"])
def test_an_initialization_with_a_lost_message_says_what_is_true(fault: str, tmp_path: Path) -> None:
    counted = FaultyObjects(open_objects(f"memory://{uuid.uuid4().hex}/x"))
    steps = len(counted.steps_of(lambda: setup.initialize(counted, "v2")))
    for step in range(1, steps + 1):
        objects = open_objects(f"memory://{uuid.uuid4().hex}/x")
        faulty = FaultyObjects(objects)
        getattr(faulty, fault)(at=step)
        try:
            setup.initialize(faulty, "v2")
        except OntologiaError:
            assert not objects.exists(paths.HEAD)
            setup.initialize(objects, "v2")
        assert Shop(objects, "v2", tmp_path).commit(HISTORY[0]) == 1


def test_a_reset_needs_its_token_and_empties_the_store(tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    shop = Shop.create(open_objects(uri), "v1", tmp_path / "cache")
    with pytest.raises(ValidationError, match="already"):
        initialize_storage(storage_uri=uri)
    token = initialize_storage(storage_uri=uri, force=True, dry_run=True).token
    shop.commit([Product(sku="p5")])
    with pytest.raises(ValidationError, match="token"):
        initialize_storage(storage_uri=uri, force=True, token=token)
    token = initialize_storage(storage_uri=uri, force=True, dry_run=True).token
    initialize_storage(storage_uri=uri, force=True, token=token, engine_version="v2")
    with Shop(shop.objects, "v2", tmp_path / "cache").using() as repository:
        assert (repository.engine.engine_version, repository.get_head_commit_id(), latest(repository)) == ("v2", 0, {})
    assert {info.key for info in shop.objects.list()} == {*setup.plan_objects("v2"), paths.lock()}


def test_a_reset_waits_for_the_writer_at_work(tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    shop = Shop.create(open_objects(uri), "v2", tmp_path / "cache")
    token = initialize_storage(storage_uri=uri, force=True, dry_run=True).token
    with shop.using() as writer:
        writer.begin_transaction()
        with pytest.raises(LockContentionError):
            initialize_storage(storage_uri=uri, force=True, token=token, config=OntologiaConfig(s3_lock_timeout_ms=100))
        writer.rollback_transaction()
    assert len(shop.state()["commits"]) == 3


@pytest.mark.thorough
def test_a_reset_that_died_at_any_request_can_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/x"), "v1", tmp_path / "cache")

    def reset(objects: Objects, uri: str) -> None:
        monkeypatch.setattr(Location, "open_objects", lambda location: objects)
        settings = OntologiaConfig(s3_lease_ttl_ms=200, s3_lock_timeout_ms=5_000)
        how: dict[str, Any] = {"storage_uri": uri, "force": True, "engine_version": "v2", "config": settings}
        initialize_storage(**how, token=initialize_storage(**how, dry_run=True).token)

    counted = FaultyObjects(base.copy().objects)
    steps = len(counted.steps_of(lambda: reset(counted, "memory://x")))
    for step in range(1, steps + 1):
        twin = base.copy()
        faulty = FaultyObjects(twin.objects)
        faulty.crash(at=step, when="after")
        with contextlib.suppress(SimulatedCrash):
            reset(faulty, "memory://x")
        try:
            seen = latest(twin.repository())
        except OntologiaError:
            seen = {}
        assert seen in ({}, latest(base.repository())), f"step {step}"
        reset(twin.objects, "memory://x")
        assert Shop(twin.objects, "v2", tmp_path / "cache").commit(HISTORY[0]) == 1
