"""Writers that stall or lose an answer at the worst moment: none of them may undo what others did since."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ontologia.engines.parquet import paths
from ontologia.errors import CommitOutcomeUnknownError, HeadMismatchError, LeaseExpiredError, LockContentionError
from ontologia.testing.stores import FaultyObjects, ManualClock
from support.parquet_shop import AheadClock, Customer, Product, Shop, commit, latest

CUSTOMER = Customer.__declaration__.ref


def test_a_writer_that_wakes_after_its_swap_does_not_take_an_index_back(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)

    def meanwhile(_: object) -> None:
        with memory.using(clock=AheadClock(3_600)) as other:
            commit(other, [Customer(id="c8", name="Later")])

    faulty.call(meanwhile, operation="put_if_match", key=paths.HEAD, when="after")
    memory.commit([Customer(id="c7", name="Slow")], objects=faulty)
    assert memory.read(paths.index(CUSTOMER))["max_indexed_commit"] == 5
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


@pytest.mark.thorough
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
