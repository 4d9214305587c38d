"""What operations cost in requests: they must not grow with history (RFC 0004 §3 Read Scalability)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from ontologia.engines.parquet import paths
from ontologia.engines.repository import Repository
from ontologia.errors import StorageBackendError
from ontologia.objects import Objects, RequestCount, open_objects
from ontologia.objects.proof import _proven
from ontologia.query.plan import LATEST
from ontologia.testing.stores import FaultyObjects
from support.parquet_shop import Bought, Customer, Product, Rated, Shop, commit


def counted(objects: Objects, operation: Callable[[], object]) -> RequestCount:
    with objects.counting() as count:
        operation()
    return count


def many_commits(shop: Shop, number: int) -> None:
    """Commits one row each, quickly: one writer that stays."""
    with shop.using() as repository:
        for n in range(number):
            repository.begin_transaction()
            repository.insert_entity(
                "Customer",
                f"c{n % 50}",
                {"id": f"c{n % 50}", "name": f"n{n}", "tier": None, "age": n, "tags": []},
                schema_version_id=1,
            )
            repository.commit_transaction()


def grown(version: str, number: int, folder: Path) -> Shop:
    """A store of so many commits, compacted."""
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/grown"), version, folder / "w", filled=False)
    shop.commit([Customer(id="c0", name="first"), Product(sku="p1")])
    for part in range(1, number, 250):
        many_commits(shop, min(250, number - part))
        with shop.using() as repository:
            repository.compact(apply=True)
    with shop.using() as repository:
        assert repository.get_head_commit_id() == number
    return shop


def costs(shop: Shop, folder: Path) -> dict[str, list[str]]:
    """The requests of each operation, from a process that starts with nothing."""

    def names(count: RequestCount) -> list[str]:
        return [f"{r.operation} {r.key.partition('/')[0]}" for r in count.log]

    cold = Shop(shop.objects, shop.version, folder / "open")
    found = {"open": names(counted(shop.objects, cold.repository))}
    session = cold.session(Customer)
    found["latest"] = names(counted(shop.objects, lambda: session.query().entities(Customer).collect()))
    repository = Shop(shop.objects, shop.version, folder / "key").repository()
    found["key"] = names(counted(shop.objects, lambda: repository.get_latest_entity("Customer", "c7")))
    commit(repository, [Customer(id="c3", name="warm")])
    found["commit"] = names(counted(shop.objects, lambda: commit(repository, [Customer(id="c3", name="measured")])))
    repository.close()
    cold.close()
    return found


@pytest.mark.thorough
@pytest.mark.slow_on("v1")
def test_open_query_lookup_and_commit_cost_the_same_at_ten_and_at_a_thousand_commits(
    version: str, tmp_path: Path
) -> None:
    few = costs(grown(version, 10, tmp_path / "few"), tmp_path / "few")
    many = costs(grown(version, 1_000, tmp_path / "many"), tmp_path / "many")
    assert few == many
    assert len(many["open"]) == 2
    assert len(many["latest"]) <= 5
    assert len(many["key"]) <= 6
    assert len(many["commit"]) <= 8 + 2 * 1 + 1 * 2


@pytest.mark.parametrize("touched", [1, 2, 4])
def test_a_commit_costs_at_most_eight_requests_and_two_per_touched_and_one_per_known_type(
    memory: Shop, touched: int
) -> None:
    repository = memory.repository()

    def rows(number: int) -> list[object]:
        return [
            Customer(id="c1", name=f"n{number}"),
            Product(sku="p1", price=float(number)),
            Bought(left_key="c1", right_key="p1", amount=number),
            Rated(left_key="c1", right_key="p1", year="2024", stars=number),
        ][:touched]

    commit(repository, rows(10))  # type: ignore[arg-type]
    count = counted(memory.objects, lambda: commit(repository, rows(11)))  # type: ignore[arg-type]
    assert count.total <= 8 + 2 * touched + 4, count.log


def test_a_process_that_has_not_proven_the_store_does_so_on_the_lock_with_two_requests_more(memory: Shop) -> None:
    costs = []
    for is_proven in (True, False):
        memory.commit([Customer(id="c1", name="before")])
        if not is_proven:
            _proven.discard(memory.objects.identity)
        repository = memory.repository()
        count = counted(memory.objects, lambda r=repository: commit(r, [Customer(id="c1", name="x")]))  # type: ignore[misc]
        costs.append([request.key for request in count.log])

    proven, unproven = costs
    assert unproven[2:4] == [paths.lock()] * 2
    assert len(unproven) == len(proven) + 2
    assert not any(key.startswith("_probe/") for key in unproven)


@pytest.mark.parametrize("ignored", ["put_if_absent", "put_if_match"])
def test_a_gateway_that_ignores_a_condition_takes_no_commit(memory: Shop, ignored: str) -> None:
    memory.commit([Customer(id="c1", name="before")])
    _proven.discard(memory.objects.identity)
    gateway = FaultyObjects(memory.objects)
    gateway.inject(lambda request, call: memory.objects.put(request.key, b"{}"), operation=ignored, times=None)
    before = {info.key: info.etag for info in memory.objects.list() if info.key != paths.lock()}

    with memory.using(gateway) as repository, pytest.raises(StorageBackendError, match=r"ignores the If-.*Match cond"):
        commit(repository, [Customer(id="c1", name="lost")])

    assert {info.key: info.etag for info in memory.objects.list() if info.key != paths.lock()} == before
    assert memory.objects.identity not in _proven


def test_a_commit_that_changes_nothing_writes_nothing_but_the_lock(memory: Shop) -> None:
    repository = memory.repository()
    commit(repository, [Customer(id="c1", name="same")])
    count = counted(memory.objects, lambda: commit(repository, [Customer(id="c1", name="same")]))
    assert {r.key for r in count.log if r.operation.startswith("put")} == {paths.lock()}


def test_changed_rows_are_compared_in_one_read_of_the_touched_keys(memory: Shop) -> None:
    rows = [Customer(id=f"k{n}", name="first") for n in range(500)]
    repository = memory.repository()
    commit(repository, rows)
    changed = [Customer(id=f"k{n}", name="second") for n in range(500)]
    count = counted(memory.objects, lambda: commit(repository, changed))
    assert count.total <= 8 + 2 + 4, count.log


def test_a_second_run_with_a_warm_cache_reads_nothing_but_head_and_index(memory: Shop) -> None:
    def run(repository: Repository) -> None:
        repository.query_entities("Customer", window=LATEST)
        memory.session(repository=repository).query().relations(Rated).where(Rated.stars > 1).collect()

    with memory.using() as first:
        run(first)
    with memory.using() as second:
        count = counted(memory.objects, lambda: run(second))
    allowed = {paths.HEAD, *(paths.index(t.__declaration__.ref) for t in (Customer, Rated, Product))}
    assert {request.key for request in count.log} <= allowed, count.log


def test_an_index_that_covers_the_head_spares_the_walk_even_for_types_untouched_for_long(memory: Shop) -> None:
    for n in range(20):
        memory.commit([Product(sku=f"s{n}")])
    with memory.using() as repository:
        repository.engine.catalog()
        count = counted(memory.objects, lambda: repository.query_relations("Bought"))
        manifests = [r for r in count.log if r.key.endswith("manifest.json")]
        assert len(manifests) <= 1, count.log
        assert repository.index_verify().healthy


def test_the_requests_of_a_commit_are_sent_side_by_side_where_order_allows(memory: Shop) -> None:
    """Files, manifest and indices: all of a kind are under way before any of it is answered."""
    import threading

    from ontologia.testing.stores import FaultyObjects

    faulty = FaultyObjects(memory.objects, serial=False)
    together = threading.Barrier(3, timeout=20)
    faulty.call(lambda _: together.wait(), operation="put", key="commits/*", times=3)
    with memory.using(faulty) as repository:
        commit(repository, [Customer(id="c5", name="Eve"), Product(sku="p5")])
    indices = threading.Barrier(4, timeout=20)
    faulty.heal()
    faulty.call(lambda _: indices.wait(), operation="put_if_match", key="meta/indices/*", times=4)
    with memory.using(faulty) as repository:
        commit(repository, [Customer(id="c6", name="Fay")])
        assert repository.engine.warnings == []
