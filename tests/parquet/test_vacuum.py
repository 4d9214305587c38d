"""The janitor deletes what nobody can reach, and nothing else, whoever is stalled or dead beside it."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ontologia.engines.parquet import paths
from ontologia.errors import ConcurrentWriteError, LeaseExpiredError, OntologiaError, ValidationError
from ontologia.objects import open_objects
from ontologia.testing.stores import FaultyObjects, ManualClock, SimulatedCrash
from support.parquet_shop import (
    VERSIONS,
    AheadClock,
    Bought,
    Customer,
    CustomerWithEmail,
    Product,
    Rated,
    Shop,
    attempts,
    commit,
    committed_attempts,
    latest,
    state,
)

CUSTOMER = Customer.__declaration__.ref


def vacuum(shop: Shop, **how: Any) -> set[str]:
    with shop.using(clock=AheadClock(3_600), **how) as repository:
        return {item.key for item in repository.vacuum(0, apply=True).objects}


def dead_attempt(shop: Shop) -> set[str]:
    """The files of a writer that died before its swap."""
    before = {info.key for info in shop.objects.list("commits/")}
    faulty = FaultyObjects(shop.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD)
    with pytest.raises(SimulatedCrash):
        shop.commit([Customer(id="dead", name="Dead")], objects=faulty, keep_alive=False, clock=AheadClock(3_500))
    return {info.key for info in shop.objects.list("commits/")} - before


def test_dead_attempts_replaced_snapshots_and_old_locks_go_and_nothing_else(store: Shop) -> None:
    with store.using() as repository:
        repository.compact(apply=True)
        replaced = {info.key for info in store.objects.list("snapshots/")}
        commit(repository, [Customer(id="c1", name="Alice", age=50)])
        repository.compact(apply=True)
        assert repository.engine.locks.acquire("nightly", "somebody", 1)
    orphans = dead_attempt(store)
    time.sleep(0.01)
    expected, before = store.state(), {info.key for info in store.objects.list()}
    deleted = vacuum(store)
    assert deleted == {*orphans, *replaced, paths.lock("nightly")}
    assert before - {info.key for info in store.objects.list()} == deleted
    assert store.state() == expected
    assert vacuum(store) == set()


def test_a_preview_deletes_nothing_and_names_the_same(memory: Shop) -> None:
    orphans = dead_attempt(memory)
    before = {info.key for info in memory.objects.list()}
    with memory.using() as repository:
        report = repository.vacuum(0)
        assert not report.applied
        assert {item.key for item in report.objects} == orphans
        assert all("never committed" in item.reason for item in report.objects)
    assert {info.key for info in memory.objects.list()} == before


def test_what_is_young_stays(memory: Shop) -> None:
    dead_attempt(memory)
    with memory.using(clock=AheadClock(3_600)) as repository:
        assert repository.vacuum(3_600, apply=True).objects == []
        with pytest.raises(ValidationError, match="negative"):
            repository.vacuum(-1)


def test_probes_of_writers_that_died_are_cleaned_up(memory: Shop) -> None:
    left = {"_probe/0123.json", "meta/probe-0123.json"}
    for key in left:
        memory.objects.put(key, b"{}")
    assert vacuum(memory) == left


def test_what_a_load_staged_and_never_finished_goes_once_it_is_old(memory: Shop) -> None:
    staged = "staging/0f3a/entity-Customer/part-1.parquet"
    memory.objects.put(staged, b"rows")
    with memory.using() as repository:
        assert repository.vacuum().objects == []
        (item,) = repository.vacuum(0).objects
        assert (item.key, item.size, item.reason) == (staged, 4, "staged by a load that did not finish")
    assert vacuum(memory) == {staged}
    assert not memory.objects.exists(staged)


def test_rows_in_quarantine_stay_whatever_their_age(memory: Shop) -> None:
    memory.objects.put("quarantine/0f3a/entity-Customer/part-1.parquet", b"rows")
    assert vacuum(memory) == set()
    assert memory.objects.exists("quarantine/0f3a/entity-Customer/part-1.parquet")


def test_a_writer_that_stalls_right_before_its_swap_is_fenced_and_then_succeeds(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    deleted: set[str] = set()
    faulty.call(lambda _: deleted.update(vacuum(memory)), operation="put_if_match", key=paths.HEAD)
    assert memory.commit([Customer(id="c7", name="Stalled")], objects=faulty) == 4
    assert any(key.startswith("commits/4-") for key in deleted)
    with memory.using() as reader:
        assert "c7" in latest(reader)["Customer"]
        assert attempts(memory.objects) == committed_attempts(reader)


def test_a_migration_that_stalls_right_before_its_swap_is_fenced_and_then_succeeds(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: vacuum(memory), operation="put_if_match", key=paths.HEAD)
    memory.session(CustomerWithEmail, Product, objects=faulty).migrate(dry_run=False, force=True)
    with memory.using() as reader:
        assert {row["email"] for row in latest(reader)["Customer"].values()} == {"none"}


def test_a_compaction_that_stalls_right_before_its_index_is_fenced(memory: Shop) -> None:
    expected = memory.state()
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: vacuum(memory), operation="put_if_match", key=paths.index(CUSTOMER))
    with memory.using(faulty) as repository, pytest.raises(ConcurrentWriteError):
        repository.compact(apply=True)
    assert memory.state() == expected
    assert not list(memory.objects.list("snapshots/"))


def test_a_compaction_that_stalls_before_its_snapshot_cannot_bring_back_a_name_that_vacuum_took(memory: Shop) -> None:
    expected = memory.state()
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: vacuum(memory), operation="put", key="snapshots/*", when="after")
    with memory.using(faulty) as repository, contextlib.suppress(OntologiaError):
        repository.compact(apply=True)
    assert memory.state() == expected


def test_a_vacuum_that_stalls_right_before_deleting_cannot_hit_a_later_compaction(memory: Shop) -> None:
    """The stalled one found a leftover snapshot; a compaction since wants the very same name."""
    dying = FaultyObjects(memory.objects)
    dying.crash(operation="put_if_match", key=paths.index(CUSTOMER))
    with pytest.raises(SimulatedCrash), memory.using(dying, keep_alive=False) as repository:
        repository.compact(apply=True)
    expected = memory.state()
    faulty = FaultyObjects(memory.objects)

    def compact(_: object) -> None:
        with memory.using(clock=AheadClock(7_200)) as other:
            assert other.compact(apply=True).types

    faulty.call(compact, operation="delete_many")
    vacuum(memory, objects=faulty)
    assert memory.state() == expected
    assert len(list(memory.objects.list("snapshots/"))) == 1


def test_a_vacuum_that_stalls_right_before_deleting_cannot_hit_a_later_commit(memory: Shop) -> None:
    dead_attempt(memory)
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: memory.commit([Product(sku="rival")], clock=AheadClock(7_200)), operation="delete_many")
    vacuum(memory, objects=faulty)
    with memory.using() as reader:
        assert "rival" in latest(reader)["Product"]
        assert state(reader)["head"] == 4


def test_a_vacuum_whose_lease_ran_out_deletes_nothing(memory: Shop) -> None:
    orphans = dead_attempt(memory)
    clock = ManualClock(time.time() + 3_600)
    faulty = FaultyObjects(memory.objects)
    faulty.call(lambda _: setattr(clock, "now", clock.now + 25), operation="put_if_match", key=paths.HEAD)
    with memory.using(faulty, clock=clock) as repository, pytest.raises(LeaseExpiredError):
        repository.vacuum(0, apply=True)
    assert orphans <= {info.key for info in memory.objects.list("commits/")}


def test_an_attempt_whose_outcome_is_unknown_is_kept_until_it_is_settled(memory: Shop) -> None:
    """The swap is still on its way. Vacuum fences it first: arriving late, it is refused."""
    faulty = FaultyObjects(memory.objects)
    late: list[Callable[[], Any]] = []

    def on_its_way(request: object, call: Callable[[], Any]) -> Any:
        late.append(call)
        raise TimeoutError("no answer yet")

    faulty.inject(on_its_way, operation="put_if_match", key=paths.HEAD, times=None)
    with pytest.raises(OntologiaError):
        memory.commit([Customer(id="c7", name="Late")], objects=faulty, s3_request_timeout_s=0.05)
    assert any(key.startswith("commits/4-") for key in {info.key for info in memory.objects.list("commits/")})
    vacuum(memory)
    expected = memory.state()
    for call in late:
        with pytest.raises(OntologiaError):
            call()
    assert memory.state() == expected


# --- any life of a store ---

KEYS = st.sampled_from(["a", "b", "c"])
ACTIONS = st.one_of(
    st.tuples(st.just("commit"), st.lists(st.tuples(st.integers(0, 3), KEYS), min_size=1, max_size=4)),
    st.tuples(st.just("die before"), KEYS),
    st.tuples(st.just("die after"), KEYS),
    st.tuples(st.just("compact"), st.sampled_from(["apply", "die", "all but one"])),
    st.tuples(st.just("vacuum"), st.just(None)),
    st.tuples(st.just("repair"), st.just(None)),
    st.tuples(st.just("lose an index"), st.just(None)),
)
numbers = itertools.count()


def row(kind: int, key: str, number: int) -> Any:
    return [
        lambda: Customer(id=key, name=f"n{number}", age=number),
        lambda: Product(sku=key, price=float(number)),
        lambda: Bought(left_key=key, right_key=key, amount=number),
        lambda: Rated(left_key=key, right_key=key, year="2024", stars=number),
    ][kind]()


class Life:
    """A store beside a twin that only ever commits: both must answer alike."""

    def __init__(self, version: str, folder: Path) -> None:
        self.shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/life"), version, folder, filled=False)
        self.twin = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/twin"), version, folder, filled=False)
        self.ahead = 0.0

    def clock(self) -> AheadClock:
        self.ahead += 100
        return AheadClock(self.ahead)

    def do(self, action: str, what: Any) -> None:
        number = next(numbers)
        if action == "commit":
            rows = {(kind, key): row(kind, key, number) for kind, key in what}
            assert self.commit(self.shop, rows.values()) == self.commit(self.twin, rows.values())
        elif action in ("die before", "die after"):
            rows = {0: Customer(id=what, name=f"dying {number}")}
            faulty = FaultyObjects(self.shop.objects)
            faulty.crash(operation="put_if_match", key=paths.HEAD, when=action.split()[1])  # type: ignore[arg-type]
            with contextlib.suppress(SimulatedCrash):
                self.shop.commit(rows.values(), objects=faulty, keep_alive=False, clock=self.clock())
            if action == "die after":
                self.commit(self.twin, rows.values())
        elif action == "compact":
            faulty = FaultyObjects(self.shop.objects)
            if what == "die":
                faulty.crash(operation="put_if_match", key="meta/indices/*")
            with (
                contextlib.suppress(SimulatedCrash),
                self.shop.using(faulty, keep_alive=False, clock=self.clock()) as repository,
            ):
                known = repository.engine.catalog().layouts
                if what != "all but one" or CUSTOMER not in known:
                    repository.compact(apply=True)
                else:
                    repository.compact("Customer", apply=True)
        elif action == "lose an index":
            self.shop.objects.delete(paths.index(CUSTOMER))
        else:
            with self.shop.using(clock=self.clock()) as repository:
                if action == "vacuum":
                    repository.vacuum(0, apply=True)
                else:
                    repository.index_repair(apply=True)

    def commit(self, shop: Shop, rows: Any) -> int | None:
        return shop.commit(rows, clock=self.clock())


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(actions=st.lists(ACTIONS, min_size=4, max_size=9))
@pytest.mark.thorough
@pytest.mark.slow_on("v1")
def test_whatever_a_store_lived_through_every_window_answers_as_if_it_had_only_committed(
    version: str, actions: list[tuple[str, Any]]
) -> None:
    check_life(version, actions)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=st.lists(ACTIONS, min_size=5, max_size=25))
def test_whatever_a_store_lived_through_for_long_every_window_answers_as_if_it_had_only_committed(
    version: str, actions: list[tuple[str, Any]]
) -> None:
    check_life(version, actions)


def check_life(version: str, actions: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(version, Path(folder))
        for action, what in actions:
            life.do(action, what)
        life.do("vacuum", None)
        assert life.shop.state() == life.twin.state()
