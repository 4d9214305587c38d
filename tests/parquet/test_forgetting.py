"""A bucket gives up its early history: what was there then, and all that came after, reads as before, whatever happens
to indices, files and processes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ontologia import HistoryForgottenError
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.check import check
from ontologia.engines.parquet.care.recovery import plan_recovery, recover
from ontologia.engines.repository import Repository
from ontologia.errors import CommitOutcomeUnknownError, OntologiaError
from ontologia.objects import Lease, Objects, open_objects
from ontologia.query.plan import Window
from ontologia.runtime import forgetting
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.parquet_shop import AheadClock, Bought, Customer, Product, Rated, Shop, commit, migrate, rows_of

pytestmark = pytest.mark.thorough

CUSTOMER = Customer.__declaration__.ref
BASE = 5


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Eight commits: changes, a removal in the fourth, a type that is dropped in the seventh, and all rows of another
    gone with the third."""
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), "v2", tmp_path / "cache")
    session = shop.session()
    session.ensure(Customer(id="c1", name="Alice", age=40))
    session.remove(Customer, "c2")
    session.remove(Bought, ("c1", "p1"))
    session.commit()
    shop.commit([Customer(id="c1", name="Alice", age=41), Product(sku="p1", price=2.5)])
    shop.commit([Customer(id="c2", name="Bob again"), Rated(left_key="c1", right_key="p1", year="2024", stars=1)])
    plan: Any = session.drop_types(relations=["Rated"])
    session.drop_types(relations=["Rated"], dry_run=False, token=plan.token)
    shop.commit([Customer(id="c1", name="Alice", age=42), Bought(left_key="c2", right_key="p1")])
    return shop


def forget(repository: Repository, base: int = BASE) -> forgetting.ForgetReport:
    plan = forgetting.preview(repository.engine, base)
    return forgetting.apply(repository.engine, plan, plan.token)


def forgotten(shop: Shop, base: int = BASE) -> Shop:
    with shop.using() as repository:
        forget(repository, base)
        assert repository.engine.warnings == []
    return shop


def from_base_on(repository: Repository, base: int = BASE, head: int = 8) -> dict[str, Any]:
    """What can be asked of the states from the base on."""
    found: dict[str, Any] = {}
    for ref in sorted(repository.engine.catalog().layouts):
        kind = "entities" if ref.kind == "entity" else "relations"
        windows = [Window(mode, at) for mode in ("as_of", "since") for at in range(base, head + 1)]  # type: ignore[arg-type]
        for window in windows:
            rows = rows_of(repository, kind, ref.name, window)
            found[f"{ref} {window}"] = [row for row in rows if int(dict(row)["commit_id"]) <= head]
    found["changes"] = [repository.list_commit_changes(number) for number in range(base + 1, head + 1)]
    found["commits"] = [commit.to_dict() for commit in repository.engine.commits()][-head:]
    return found


def before(repository: Repository) -> list[Any]:
    """What can be asked of the states before the base, of customers."""
    return [rows_of(repository, "entities", "Customer", Window("as_of", at)) for at in range(BASE)]


def seen(shop: Shop, ask: Callable[[Repository], Any] = from_base_on) -> Any:
    with shop.using() as repository:
        return ask(repository)


def vacuum(shop: Shop, older_than_s: float = 0, *, compacted: bool = False) -> list[str]:
    time.sleep(0.002)
    with shop.using() as repository:
        return [item.key for item in repository.vacuum(older_than_s, apply=True, compacted=compacted).objects]


def data_files(shop: Shop) -> set[str]:
    return {info.key for folder in ("commits/", "snapshots/") for info in shop.objects.list(folder)} - {
        info.key for info in shop.objects.list("commits/") if info.key.endswith("manifest.json")
    }


def lose_indices(shop: Shop) -> None:
    for info in list(shop.objects.list("meta/indices/")):
        shop.objects.delete(info.key)


def test_answers_stay_through_vacuum_compaction_and_the_loss_of_indices(shop: Shop) -> None:
    known = seen(shop)
    for prepare in (lambda repository: None, lambda repository: repository.compact(apply=True)):
        store = shop.copy()
        seen(store, prepare)
        forgotten(store)
        assert seen(store) == known
        steps: list[Callable[[], object]] = [
            lambda: lose_indices(store),  # noqa: B023 — called in this turn
            lambda: vacuum(store),  # noqa: B023
            lambda: lose_indices(store),  # noqa: B023
            lambda: seen(store, lambda repository: repository.index_repair(apply=True)),  # noqa: B023
            lambda: seen(store, lambda repository: repository.compact(apply=True)),  # noqa: B023
            lambda: vacuum(store, compacted=True),  # noqa: B023
            lambda: vacuum(store),  # noqa: B023
            lambda: lose_indices(store),  # noqa: B023
        ]
        for step in steps:
            step()
            assert seen(store) == known
            assert check(store.objects).damages == []
        with store.using() as repository, pytest.raises(HistoryForgottenError):
            before(repository)
        customers = [key for key in data_files(store) if "Customer" in key]
        assert len(customers) == 1, customers


def test_files_from_before_go_with_vacuum_once_nobody_can_be_reading_them(shop: Shop) -> None:
    files = data_files(shop)
    forgotten(shop)
    assert vacuum(shop, 3600) == []
    assert data_files(shop) > files
    gone = set(vacuum(shop))
    kept = {key for key in files if int(key.split("/")[1].partition("-")[0]) > BASE}
    # Nothing went of ratings, so that their file is read as it is.
    assert gone == {key for key in files - kept if "Rated" not in key}
    assert data_files(shop) >= kept


def test_files_of_which_nothing_went_are_merged_and_go_like_others(tmp_path: Path) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), "v2", tmp_path / "cache", filled=False)
    for number in range(4):
        shop.commit([Product(sku=str(number))])
    files = data_files(shop)
    forgotten(shop, 4)
    vacuum(shop)
    assert data_files(shop) == files
    known = seen(shop, lambda repository: from_base_on(repository, 4, 4))
    seen(shop, lambda repository: repository.compact(apply=True))
    vacuum(shop, compacted=True)
    assert [key.split("/")[0] for key in data_files(shop)] == ["snapshots"]
    lose_indices(shop)
    assert seen(shop, lambda repository: from_base_on(repository, 4, 4)) == known


def test_a_reader_that_began_before_goes_on_with_the_old_history(shop: Shop) -> None:
    with shop.using() as reader:
        then = before(reader)
        with reader.engine.snapshot():
            reader.engine.catalog()
            forgotten(shop)
            assert before(reader) == then
            shop.commit([Product(sku="p7")])
            vacuum(shop, 3600)
            assert before(reader) == then
        with pytest.raises(HistoryForgottenError):
            before(reader)


def test_an_index_from_before_or_of_a_compaction_that_stalled_does_not_count(shop: Shop) -> None:
    known = seen(shop)
    seen(shop, lambda repository: repository.compact(apply=True))
    old = {info.key: shop.objects.get(info.key).data for info in shop.objects.list("meta/indices/")}
    forgotten(shop)
    for key, data in old.items():
        shop.objects.put(key, data)
    assert seen(shop) == known
    shop.commit([Product(sku="p7")])
    assert seen(shop) == known
    assert shop.read(paths.index(CUSTOMER))["history_begins_at"] == BASE


def test_a_snapshot_of_the_base_that_is_damaged_keeps_files_from_before(shop: Shop) -> None:
    forgotten(shop)
    path = next(info.key for info in shop.objects.list("snapshots/") if "Customer" in info.key)
    shop.objects.put(path, shop.objects.get(path).data[:-1] + b"x")
    files = data_files(shop)
    assert "files of its commits were let go" in check(shop.objects).damages[0].effect
    with shop.using() as repository:
        time.sleep(0.002)
        repository.vacuum(0, apply=True)
        assert "is damaged, so files from before history begins stay" in repository.engine.warnings[0]
    assert data_files(shop) == files


def test_a_second_point_takes_the_base_further(shop: Shop) -> None:
    known = seen(shop, lambda repository: from_base_on(repository, 8))
    forgotten(shop)
    vacuum(shop)
    forgotten(shop, 8)
    vacuum(shop)
    assert seen(shop, lambda repository: from_base_on(repository, 8)) == known
    with shop.using() as repository, pytest.raises(HistoryForgottenError, match="history begins at commit 8"):
        rows_of(repository, "entities", "Customer", Window("as_of", 7))


def test_migrations_erasures_and_drops_go_on(shop: Shop) -> None:
    forgotten(shop)
    vacuum(shop)
    session = shop.session()
    plan: Any = session.erase(Customer, "c1", reason="asked for", cascade=True)
    session.erase(Customer, "c1", reason="asked for", cascade=True, dry_run=False, token=plan.token)
    migrate(shop)
    lose_indices(shop)
    with shop.using() as repository:
        rows = repository.query_entities("Customer")
        assert [(row["id"], row["email"]) for row in rows] == [("c2", "none")]
        repository.compact(apply=True)
    vacuum(shop, compacted=True)
    session = shop.session()
    plan = session.drop_types(relations=["Bought"], purge_history=True)
    session.drop_types(relations=["Bought"], purge_history=True, dry_run=False, token=plan.token)
    assert not [key for key in data_files(shop) if "Bought" in key]
    assert check(shop.objects).damages == []


def test_a_head_that_is_lost_is_made_again_with_its_record(shop: Shop) -> None:
    known = seen(shop)
    forgotten(shop)
    vacuum(shop)
    lose_indices(shop)
    shop.objects.delete(paths.HEAD)
    lease = Lease(shop.objects, paths.lock(), 60.0, owner_id="recovery")
    recover(shop.objects, lease, plan_recovery(shop.objects).token)
    assert seen(shop) == known
    with shop.using() as repository, pytest.raises(HistoryForgottenError):
        before(repository)


# --- cut off ---


def lose_request(faulty: FaultyObjects, step: int) -> None:
    faulty.lose_request(at=step)


def lose_response(faulty: FaultyObjects, step: int) -> None:
    faulty.lose_response(at=step)


def crash(faulty: FaultyObjects, step: int) -> None:
    faulty.crash(at=step, when="before")


def attempt(shop: Shop, objects: Objects, work: Callable[[Repository], object]) -> BaseException | None:
    try:
        with shop.using(objects, keep_alive=False, s3_request_timeout_s=0.2) as repository:
            work(repository)
    except (OntologiaError, SimulatedCrash) as problem:
        return problem
    return None


def ages(repository: Repository, at: int) -> dict[str, Any]:
    return {row["id"]: row["age"] for row in repository.query_entities("Customer", window=Window("as_of", at))}


READS = ("get", "get_if_changed", "get_range", "head", "list")
UNKNOWN = (SimulatedCrash, CommitOutcomeUnknownError)
# What a lost packet leaves, a crash leaves as well, and more of it.
LOST = [pytest.param(fault, marks=pytest.mark.slow) for fault in (lose_request, lose_response)]


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [crash, *LOST], ids=lambda fault: fault.__name__)
def test_after_a_fault_at_any_request_history_is_whole_or_given_up_and_another_run_ends_it(
    shop: Shop, fault: Callable[[FaultyObjects, int], None]
) -> None:
    def from_then_on(repository: Repository) -> Any:
        return [ages(repository, BASE), ages(repository, 8), repository.list_commit_changes(6)]

    known, then = seen(shop, from_then_on), seen(shop, lambda repository: ages(repository, 4))
    first = shop.copy()
    recorder = FaultyObjects(first.objects)
    steps = [
        step.number
        for step in recorder.steps_of(lambda: attempt(first, recorder, forget))
        if fault is not crash or step.request.operation not in READS  # to die before one leaves what is there anyway
    ]
    outcomes = set()
    for step in steps:
        store = shop.copy()
        faulty = FaultyObjects(store.objects)
        fault(faulty, step)
        problem = attempt(store, faulty, forget)
        with store.using(clock=AheadClock(3_600)) as repository:
            is_done = repository.engine.catalog().base == BASE
            assert is_done or problem is not None, step
            assert not is_done or problem is None or isinstance(problem, UNKNOWN), step
            assert from_then_on(repository) == known, step
            if is_done:
                with pytest.raises(HistoryForgottenError):
                    ages(repository, 4)
            else:
                assert ages(repository, 4) == then, step
            forget(repository)
            assert commit(repository, [Product(sku="next")]), step
            time.sleep(0.002)
            repository.vacuum(0, apply=True)
            assert from_then_on(repository) == known, step
            assert repository.index_verify().healthy, step
        outcomes.add(is_done)
        assert len(list(store.objects.list(paths.COMPACTED))) == 1, step
    assert outcomes == {True, False}
