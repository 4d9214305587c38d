"""Compaction changes files and never answers (RFC 0004 §6), and gives way when the head or the lease moves."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ontologia.engines.parquet import paths
from ontologia.errors import ConcurrentWriteError, LeaseExpiredError, StorageBackendError, ValidationError
from ontologia.testing.stores import FaultyObjects, ManualClock, SimulatedCrash
from support.parquet_shop import (
    AheadClock,
    Bought,
    Customer,
    CustomerWithEmail,
    Product,
    Rated,
    Shop,
    commit,
    state,
)

CUSTOMER = Customer.__declaration__.ref


def more(shop: Shop, number: int) -> None:
    """Updates of every type, several identities in one commit."""
    shop.commit(
        [
            *(Customer(id=f"c{n}", name=f"round {number}", age=number) for n in (3, 1, 2)),
            Product(sku="p1", price=float(number)),
            *(Bought(left_key=f"c{n}", right_key="p1", amount=number) for n in (2, 1)),
            *(Rated(left_key="c1", right_key="p1", year=str(year), stars=number) for year in (2026, 2024)),
        ]
    )


def compact(shop: Shop, **how: Any) -> None:
    with shop.using() as repository:
        repository.compact(apply=True, **how)


@pytest.mark.thorough
@pytest.mark.slow_on("s3-v1", "file-v1")
def test_every_window_answers_the_same_before_and_after_twice_and_with_commits_between(store: Shop) -> None:
    more(store, 7)
    expected = store.state()
    compact(store)
    assert store.state() == expected
    more(store, 8)
    grown = store.state()
    compact(store)
    assert store.state() == grown
    compact(store)
    assert store.state() == grown
    assert {key: grown[key] for key in grown if "as_of" in key and int(key.split()[-1]) <= 4} == {
        key: expected[key] for key in expected if "as_of" in key
    }


def test_history_is_ordered_by_commit_and_identity_before_and_after(store: Shop) -> None:
    more(store, 7)

    def order() -> list[Any]:
        with store.using() as repository:
            from ontologia.query.plan import Window

            rows = repository.query_relations("Rated", window=Window("history"))
            return [(row["commit_id"], row["left_key"], row["right_key"], row["instance_key"]) for row in rows]

    before = order()
    assert before == sorted(before)
    compact(store)
    assert order() == before


@pytest.mark.slow_on("s3-v1")
def test_after_a_migration_only_the_current_version_is_merged_and_all_answers_stay(store: Shop) -> None:
    compact(store)
    store.session(CustomerWithEmail, Product).migrate(dry_run=False, force=True)
    store.commit([CustomerWithEmail(id="c1", name="Alice", email="a@example.org")])
    store.commit([CustomerWithEmail(id="c4", name="Dan")])
    expected = store.state()
    compact(store)
    assert store.state() == expected
    index = json.loads(store.objects.get(paths.index(CUSTOMER)).data)
    assert [(e["min_commit_id"], e["max_commit_id"]) for e in index["entries"]] == [(1, 2), (4, 6)]
    assert all(e["path"].startswith("snapshots/") for e in index["entries"])


def test_a_preview_tells_the_plan_and_writes_nothing(memory: Shop) -> None:
    before = {info.key: info.etag for info in memory.objects.list()}
    with memory.using() as repository:
        report = repository.compact()
        assert not report.applied
        assert [(t.ref.name, t.files, t.rows, t.min_commit_id, t.max_commit_id) for t in report.types] == [
            ("Customer", 2, 3, 1, 2)
        ]
        assert repository.compact("Customer").types == report.types
        assert repository.compact("Product").types == []
        with pytest.raises(ValidationError, match="Nobody"):
            repository.compact("Nobody")
    assert {info.key: info.etag for info in memory.objects.list()} == before


def test_commits_and_manifests_are_untouched(memory: Shop) -> None:
    before = {info.key: info.etag for info in memory.objects.list("commits/")}
    head = memory.objects.get(paths.HEAD).data
    compact(memory)
    assert {info.key: info.etag for info in memory.objects.list("commits/")} == before
    assert memory.objects.get(paths.HEAD).data == head


def test_a_head_that_moves_before_the_index_is_written_aborts(memory: Shop) -> None:
    index = memory.objects.get(paths.index(CUSTOMER)).data
    faulty = FaultyObjects(memory.objects)
    faulty.call(
        lambda _: memory.commit([Product(sku="rival")], clock=AheadClock(3_600)), operation="put", key="snapshots/*"
    )
    with memory.using(faulty) as repository, pytest.raises(ConcurrentWriteError, match="the head moved"):
        repository.compact(apply=True)
    after = json.loads(memory.objects.get(paths.index(CUSTOMER)).data)
    assert after["entries"] == json.loads(index)["entries"]


def test_an_index_that_changes_after_the_last_look_at_the_head_aborts(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.call(
        lambda _: memory.commit([Customer(id="c1", name="Rival")], clock=AheadClock(3_600)),
        operation="put_if_match",
        key=paths.index(CUSTOMER),
    )
    with memory.using(faulty) as repository, pytest.raises(ConcurrentWriteError, match="index"):
        repository.compact(apply=True)
    with memory.using() as reader:
        assert reader.query_entities("Customer")[0]["name"] == "Rival"
        assert reader.index_verify().healthy


def test_a_lease_that_runs_out_aborts_before_the_index_is_written(memory: Shop) -> None:
    clock = ManualClock(time.time())
    index = memory.objects.get(paths.index(CUSTOMER)).data
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: setattr(clock, "now", clock.now + 25), operation="put", key="snapshots/*")
    with memory.using(faulty, clock=clock) as repository, pytest.raises(LeaseExpiredError):
        repository.compact(apply=True)
    assert memory.objects.get(paths.index(CUSTOMER)).data == index


def test_a_repair_gives_way_to_a_head_that_moves_and_plans_again(memory: Shop) -> None:
    memory.objects.delete(paths.index(CUSTOMER))
    faulty = FaultyObjects(memory.objects)
    heads = iter(range(10))

    def second_look(_: object) -> None:
        if next(heads) == 2:
            memory.commit([Product(sku="rival")], clock=AheadClock(3_600))

    faulty.call(second_look, operation="get", key=paths.HEAD, times=None)
    with memory.using(faulty) as repository:
        report = repository.index_repair(apply=True)
        assert report.head == 4
    with memory.using() as reader:
        assert reader.index_verify().healthy


def test_a_repair_whose_lease_ran_out_writes_nothing(memory: Shop) -> None:
    memory.objects.delete(paths.index(CUSTOMER))
    clock = ManualClock(time.time())
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: setattr(clock, "now", clock.now + 25), operation="get", key=paths.index(CUSTOMER))
    with memory.using(faulty, clock=clock) as repository, pytest.raises(LeaseExpiredError):
        repository.index_repair(apply=True)
    assert not memory.objects.exists(paths.index(CUSTOMER))


def test_a_snapshot_that_a_dead_compaction_left_is_not_written_over(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.crash(operation="put_if_match", key=paths.index(CUSTOMER))
    with pytest.raises(SimulatedCrash), memory.using(faulty, keep_alive=False) as repository:
        repository.compact(apply=True)
    left = {info.key: info.etag for info in memory.objects.list("snapshots/")}
    assert len(left) == 1
    expected = memory.state()
    with memory.using(clock=AheadClock(3_600)) as repository:
        repository.compact(apply=True)
        now = {info.key: info.etag for info in memory.objects.list("snapshots/")}
        assert left.items() <= now.items()
        assert len(now) == 2
        assert state(repository) == expected


def test_a_compacted_type_takes_commits_and_reads_again_as_before(store: Shop) -> None:
    compact(store)
    with store.using() as repository:
        commit(repository, [Customer(id="c1", name="Alice", tier="silver", age=31)])
        assert repository.get_head_commit_id() == 3, "unchanged rows are not written again"
        assert commit(repository, [Customer(id="c1", name="Alice", tier="gold")]) == 4
        assert [change["operation"] for change in repository.list_commit_changes(4)] == ["update_version"]
        assert repository.index_verify().healthy


def test_a_data_file_that_is_damaged_stops_compaction_and_leaves_the_index(memory: Shop) -> None:
    key = next(info.key for info in memory.objects.list("commits/1-") if "Customer" in info.key)
    memory.objects.put(key, b"x" * len(memory.objects.get(key).data))
    cold = Shop(memory.objects, memory.version, memory.cache / "cold")
    index = memory.objects.get(paths.index(CUSTOMER)).data
    with cold.using() as repository, pytest.raises(StorageBackendError, match=key):
        repository.compact(apply=True)
    assert memory.objects.get(paths.index(CUSTOMER)).data == index
