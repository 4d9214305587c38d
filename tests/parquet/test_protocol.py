"""Writers that stall, die or lose an answer at the worst moment: none of them may undo what others did since."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from parquet_shop import (
    HISTORY,
    AheadClock,
    Customer,
    CustomerWithEmail,
    Product,
    Rated,
    Shop,
    commit,
    latest,
)

from ontologia import OntologiaConfig
from ontologia.engines.dispatch import initialize_storage
from ontologia.engines.parquet import paths, setup
from ontologia.errors import (
    CommitOutcomeUnknownError,
    HeadMismatchError,
    LeaseExpiredError,
    LockContentionError,
    OntologiaError,
    SchemaOutdatedError,
    StorageBackendError,
    ValidationError,
)
from ontologia.objects import Objects, open_objects
from ontologia.query.plan import Plan
from ontologia.runtime.drop import DropPreview
from ontologia.testing.stores import FaultyObjects, ManualClock, SimulatedCrash

CUSTOMER, PRODUCT = Customer.__declaration__.ref, Product.__declaration__.ref


def read(shop: Shop, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shop.objects.get(key).data)
    return found


def crashed(shop: Shop, rows: list[Any], *, when: str = "after", key: str = paths.HEAD) -> None:
    """A writer that dies before or after its swap."""
    faulty = FaultyObjects(shop.objects)
    faulty.crash(operation="put_if_match", key=key, when=when)  # type: ignore[arg-type]
    with pytest.raises(SimulatedCrash):
        shop.commit(rows, objects=faulty, keep_alive=False)


# --- stalled writers ---


def test_a_writer_that_wakes_after_its_swap_does_not_take_an_index_back(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)

    def meanwhile(_: object) -> None:
        with memory.using(clock=AheadClock(3_600)) as other:
            commit(other, [Customer(id="c8", name="Later")])

    faulty.call(meanwhile, operation="put_if_match", key=paths.HEAD, when="after")
    memory.commit([Customer(id="c7", name="Slow")], objects=faulty)
    assert read(memory, paths.index(CUSTOMER))["max_indexed_commit"] == 5
    with memory.using() as reader:
        assert reader.index_verify().healthy
        assert {"c7", "c8"} <= set(latest(reader)["Customer"])


def test_a_writer_that_wakes_after_its_swap_does_not_spoil_an_index_that_was_compacted_since(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)

    def meanwhile(_: object) -> None:
        with memory.using(clock=AheadClock(3_600)) as other:
            commit(other, [Customer(id="c8", name="Later")])
            other.compact(apply=True)

    faulty.call(meanwhile, operation="put_if_match", key=paths.HEAD, when="after")
    memory.commit([Customer(id="c7", name="Slow")], objects=faulty)
    with memory.using() as reader:
        assert {"c7", "c8"} <= set(latest(reader)["Customer"])
        assert reader.index_verify().healthy


def test_a_swap_whose_answer_was_lost_and_that_was_built_upon_counts_as_committed(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)

    def applied_and_built_upon(request: object, call: Callable[[], Any]) -> Any:
        call()
        with memory.using(clock=AheadClock(3_600)) as other:
            commit(other, [Product(sku="rival")])
        raise TimeoutError("the answer was lost")

    faulty.inject(applied_and_built_upon, operation="put_if_match", key=paths.HEAD)
    assert memory.commit([Customer(id="c7", name="Buried")], objects=faulty) == 4
    with memory.using() as reader:
        assert "c7" in latest(reader)["Customer"]
        assert reader.get_head_commit_id() == 5


def test_a_swap_whose_fate_cannot_be_read_is_said_to_be_unknown_and_nothing_is_deleted(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)

    def applied_and_built_upon(request: object, call: Callable[[], Any]) -> Any:
        call()
        with memory.using(clock=AheadClock(3_600)) as other:
            commit(other, [Product(sku="rival")])
        faulty.lose_request(operation="get", key="commits/*", times=None)
        raise TimeoutError("the answer was lost")

    faulty.inject(applied_and_built_upon, operation="put_if_match", key=paths.HEAD)
    with pytest.raises(CommitOutcomeUnknownError, match="Delete nothing"):
        memory.commit([Customer(id="c7", name="Buried")], objects=faulty)
    with memory.using() as reader:
        assert "c7" in latest(reader)["Customer"]


def test_a_commit_that_lost_the_race_starts_again_from_the_new_head(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.call(
        lambda _: memory.commit([Product(sku="rival")], clock=AheadClock(3_600)),
        operation="put_if_match",
        key=paths.HEAD,
    )
    assert memory.commit([Customer(id="c7", name="Second")], objects=faulty) == 5


def test_a_head_that_keeps_moving_ends_in_a_head_mismatch(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    numbers = iter(range(100))
    faulty.call(
        lambda _: memory.commit([Product(sku=f"rival{next(numbers)}")], clock=AheadClock(3_600)),
        operation="put_if_match",
        key=paths.HEAD,
        times=None,
    )
    with pytest.raises(HeadMismatchError, match="gave up"):
        memory.commit([Customer(id="c7", name="Never")], objects=faulty)


def test_a_row_wise_transaction_that_lost_the_race_raises_a_head_mismatch(memory: Shop) -> None:
    with memory.using() as repository:
        repository.begin_transaction()
        repository.insert_entity("Product", "p5", {"sku": "p5", "price": 1.0}, schema_version_id=1)
        memory.commit([Product(sku="rival")], clock=AheadClock(3_600))
        with pytest.raises(HeadMismatchError):
            repository.commit_transaction()


def test_a_lease_that_ran_out_before_the_swap_aborts_the_commit_and_takes_its_files_away(memory: Shop) -> None:
    clock = ManualClock(time.time())
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: setattr(clock, "now", clock.now + 25), operation="put", key="commits/*/manifest.json")
    before = {info.key for info in memory.objects.list("commits/")}
    with pytest.raises(LeaseExpiredError):
        memory.commit([Customer(id="c7", name="Late")], objects=faulty, clock=clock)
    assert {info.key for info in memory.objects.list("commits/")} == before


def test_a_lock_held_by_a_living_writer_is_contention_that_names_the_holder(memory: Shop) -> None:
    with memory.using(runtime_id="writer-a") as holder, memory.using(s3_lock_timeout_ms=100) as other:
        holder.begin_transaction()
        with pytest.raises(LockContentionError, match=r"writer-a.*OntologiaConfig\.s3_lock_timeout_ms"):
            commit(other, [Product(sku="p5")])
        holder.rollback_transaction()
        assert commit(other, [Product(sku="p5")]) == 4


def test_threads_that_share_a_repository_take_turns(memory: Shop) -> None:
    with memory.using(s3_lock_timeout_ms=20_000) as repository, ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda n: commit(repository, [Product(sku=f"t{n}")]), range(8)))
        assert sorted(i for i in ids if i) == list(range(4, 12))


# --- after the swap nothing fails ---


@pytest.mark.parametrize("problem", [OSError("disk"), RuntimeError("can't start new thread"), KeyError("x")])
def test_whatever_happens_after_the_swap_the_commit_is_reported_as_done(memory: Shop, problem: Exception) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.fail(problem, operation="get", key=paths.TYPES)
    with memory.using(faulty) as repository:
        assert commit(repository, [Product(sku="p5")]) == 4
        assert repository.warnings


@pytest.mark.parametrize("damage", ["missing", "malformed"])
def test_a_commit_with_unreadable_known_types_succeeds_with_a_warning_and_leaves_indices_alone(
    memory: Shop, damage: str
) -> None:
    if damage == "missing":
        memory.objects.delete(paths.TYPES)
    else:
        memory.objects.put(paths.TYPES, b"{broken")
    before = {info.key: info.etag for info in memory.objects.list("meta/indices/")}
    with memory.using() as repository:
        with pytest.raises(StorageBackendError, match=r"types\.json"):
            repository.index_verify()
        with pytest.raises(StorageBackendError, match=r"types\.json"):
            repository.index_repair(apply=True)
        assert commit(repository, [Product(sku="p5")]) == 4
        assert "types.json" in repository.warnings[0]
        assert {info.key: info.etag for info in memory.objects.list("meta/indices/")} == before
        assert "p5" in latest(repository)["Product"]


def test_known_types_that_went_missing_are_written_again_and_indices_catch_up(memory: Shop) -> None:
    memory.objects.delete(paths.TYPES)
    memory.commit([Product(sku="p5")])
    memory.commit([Product(sku="p6")])
    with memory.using() as repository:
        assert repository.index_verify().healthy
        assert {item.ref.name for item in repository.index_verify().types} == {"Customer", "Product", "Bought", "Rated"}


def test_a_new_type_is_refused_while_known_types_are_malformed_and_nothing_is_overwritten(memory: Shop) -> None:
    memory.objects.put(paths.TYPES, b"{broken")

    class Shelf(Product, name="Shelf"):
        pass

    with pytest.raises(StorageBackendError, match=r"types\.json is malformed"):
        memory.commit([Shelf(sku="s1")])
    assert memory.objects.get(paths.TYPES).data == b"{broken"
    with memory.using() as repository:
        assert repository.get_head_commit_id() == 3


def test_known_types_that_a_stalled_writer_put_back_are_mended_by_the_next_commit(memory: Shop) -> None:
    old = read(memory, paths.TYPES)
    memory.objects.put(paths.TYPES, json.dumps({**old, "entities": ["Product"], "kept": 1}).encode())
    memory.commit([Customer(id="c5", name="Eve")])
    with memory.using() as repository:
        assert repository.index_verify().healthy
    assert read(memory, paths.TYPES)["entities"] == ["Customer", "Product"]
    assert read(memory, paths.TYPES)["kept"] == 1


def test_a_repair_mends_known_types_that_a_stalled_writer_put_back(memory: Shop) -> None:
    old = read(memory, paths.TYPES)
    memory.objects.put(paths.TYPES, json.dumps({**old, "entities": ["Product"]}).encode())
    memory.objects.delete(paths.index(CUSTOMER))
    with memory.using() as repository:
        assert [item.ref for item in repository.index_verify().types if not item.healthy] == [CUSTOMER]
        assert repository.index_repair(apply=True).repaired == [CUSTOMER]
        assert repository.index_verify().healthy
    assert read(memory, paths.TYPES)["entities"] == ["Customer", "Product"]


def test_a_type_that_was_registered_and_never_committed_is_harmless(memory: Shop) -> None:
    class Shelf(Product, name="Shelf"):
        pass

    crashed(memory, [Shelf(sku="s1")], when="before")
    assert "Shelf" in read(memory, paths.TYPES)["entities"]
    with memory.using(clock=AheadClock(3_600)) as repository:
        assert "Shelf" not in latest(repository)
        commit(repository, [Product(sku="p5")])
        assert repository.index_verify().healthy
        assert commit(repository, [Shelf(sku="s2")]) == 5
        assert set(latest(repository)["Shelf"]) == {"s2"}


# --- migrations and drops that died after their swap ---


def migrate(shop: Shop, objects: Objects | None = None) -> None:
    session = shop.session(CustomerWithEmail, Product, objects=objects, keep_alive=False)
    session.migrate(dry_run=False, force=True)


@pytest.fixture
def migrated_and_died(memory: Shop) -> Shop:
    """A migration whose writer died right after the swap."""
    faulty = FaultyObjects(memory.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD, when="after")
    with pytest.raises(SimulatedCrash):
        migrate(memory, faulty)
    return memory


def check_migrated(shop: Shop) -> None:
    if shop.version == "v2":
        layouts = [x for x in read(shop, paths.LAYOUTS)["layouts"] if x["type_name"] == "Customer"]
        assert [(x["schema_version_id"], x["is_current"]) for x in layouts] == [(1, False), (2, True)]
        index = read(shop, paths.index(CUSTOMER))
        assert (index["current_schema_version_id"], index["activation_commit_id"]) == (2, 4)
        assert index["historical_versions"] == [
            {"schema_version_id": 1, "activation_commit_id": 1, "superseded_at_commit_id": 4}
        ]


def test_readers_are_right_after_a_migration_that_died_before_its_indices(migrated_and_died: Shop) -> None:
    with migrated_and_died.using() as reader:
        assert {row["email"] for row in latest(reader)["Customer"].values()} == {"none"}
        assert reader.catalog().layouts[CUSTOMER].schema_version_id == 2
        assert not reader.index_verify().healthy


def test_the_next_commit_finishes_a_migration_that_died(migrated_and_died: Shop) -> None:
    migrated_and_died.commit([Product(sku="p5")], clock=AheadClock(3_600))
    check_migrated(migrated_and_died)


def test_a_repair_finishes_a_migration_that_died(migrated_and_died: Shop) -> None:
    with migrated_and_died.using(clock=AheadClock(3_600)) as repository:
        head = migrated_and_died.objects.get(paths.HEAD).data
        assert repository.index_repair(apply=True).applied
        assert repository.index_verify().healthy
        assert migrated_and_died.objects.get(paths.HEAD).data == head
        assert not repository.index_repair(apply=True).repaired
    check_migrated(migrated_and_died)


def drop(shop: Shop, objects: Objects | None = None, *, purge: bool) -> None:
    session = shop.session(objects=objects, keep_alive=False)
    plan = session.drop_types(relations=["Rated"], purge_history=purge)
    assert isinstance(plan, DropPreview)
    session.drop_types(relations=["Rated"], purge_history=purge, dry_run=False, token=plan.token)


@pytest.mark.parametrize("purge", [False, True])
def test_the_next_commit_finishes_a_drop_that_died(memory: Shop, purge: bool) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD, when="after")
    with pytest.raises(SimulatedCrash):
        drop(memory, faulty, purge=purge)
    memory.commit([Product(sku="p5")], clock=AheadClock(3_600))
    assert read(memory, paths.DROPPED)["dropped"] == [{"kind": "relation", "type_name": "Rated"}]
    assert read(memory, paths.TYPES)["relations"] == ["Bought"]


def test_a_vacuum_finishes_a_purge_that_died(memory: Shop) -> None:
    def files() -> list[str]:
        return [info.key for info in memory.objects.list("commits/") if "Rated" in info.key]

    faulty = FaultyObjects(memory.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD, when="after")
    with pytest.raises(SimulatedCrash):
        drop(memory, faulty, purge=True)
    assert files()
    with memory.using(clock=AheadClock(3_600)) as repository:
        repository.vacuum(apply=True)
        assert not files()
        assert [change["type_name"] for change in repository.list_commit_changes(3)] == []
        assert len(repository.commits()) == 4


def test_a_drop_keeps_the_files_and_a_purge_deletes_them_with_their_parts(memory: Shop) -> None:
    with memory.using() as repository:
        repository.compact(apply=True)
        commit(repository, [Rated(left_key="c2", right_key="p1", year="2026")])
        repository.compact(apply=True)
    parts = f"{next(iter(memory.objects.list('commits/3-'))).key.split('/')[1]}"
    key = memory.session().repository.data_path(f"commits/{parts}/", Rated.__declaration__.ref, 1)  # type: ignore[attr-defined]
    memory.objects.put(f"{key}/part-1.parquet", b"part")
    twin = memory.copy()
    drop(memory, purge=False)
    drop(twin, purge=True)
    assert any("Rated" in info.key for info in memory.objects.list("commits/"))
    kept = [info.key for info in twin.objects.list() if "Rated" in info.key and info.key.endswith(".parquet")]
    assert kept == []
    assert [info.key for info in twin.objects.list("commits/3-") if info.key.endswith("manifest.json")]


# --- the layout of a prefix ---


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
    assert setup.stored_version(bare) == "v2"


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
        assert (repository.engine_version, repository.get_head_commit_id(), latest(repository)) == ("v2", 0, {})
    assert {info.key for info in shop.objects.list()} == {*setup.planned_objects("v2"), paths.lock()}


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


def test_a_reset_that_died_at_any_request_can_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ontologia.engines import dispatch

    base = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/x"), "v1", tmp_path / "cache")

    def reset(objects: Objects, uri: str) -> None:
        monkeypatch.setattr(dispatch, "_objects", lambda target, config: objects)
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


# --- reading beside writers ---


def test_a_reader_whose_index_is_newer_than_its_head_sees_the_state_of_its_head(memory: Shop) -> None:
    expected = memory.state()
    for compacting in (False, True):
        faulty = FaultyObjects(memory.objects)

        def meanwhile(_: object, compacting: bool = compacting) -> None:
            with memory.using() as other:
                commit(
                    other, [Customer(id="c1", name=f"Changed {compacting}"), Customer(id=f"n{compacting}", name="New")]
                )
                if compacting:
                    other.compact(apply=True)

        faulty.call(meanwhile, operation="get", key=paths.index(CUSTOMER))
        with memory.using(faulty) as reader:
            catalog = reader.catalog()
            plan = Plan(CUSTOMER, {CUSTOMER: catalog.layouts[CUSTOMER].schema})
            rows = reader.table(plan, catalog=catalog).to_pylist()
        names = {dict(row)["name"].strip("'") for row in expected["entity Customer latest None"]}
        if not compacting:
            assert {row["name"] for row in rows} == names
        assert not any(row["name"] == f"Changed {compacting}" for row in rows)


def test_a_reader_that_began_before_a_migration_sees_one_state(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: migrate(memory), operation="get", key=paths.index(CUSTOMER))
    with memory.using(faulty) as reader:
        rows = reader.query_entities("Customer")
    assert {tuple(row) for row in rows} <= {
        ("commit_id", "id", "name", "tier", "age", "tags"),
        ("commit_id", "id", "name", "tier", "age", "tags", "email"),
    }
    assert len(rows) == 2


def test_a_commit_of_an_old_class_after_a_migration_is_refused(memory: Shop) -> None:
    migrate(memory)
    with pytest.raises(SchemaOutdatedError):
        memory.commit([Customer(id="c9", name="Old")])
