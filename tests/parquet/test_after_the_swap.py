"""After the swap nothing fails: what could not be written then is a warning, and the next writer mends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ontologia.engines.parquet import paths
from ontologia.errors import StorageBackendError
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.parquet_shop import AheadClock, Customer, Product, Shop, commit, latest

CUSTOMER = Customer.__declaration__.ref


def crashed(shop: Shop, rows: list[Any], *, when: str = "after", key: str = paths.HEAD) -> None:
    """A writer that dies before or after its swap."""
    faulty = FaultyObjects(shop.objects)
    faulty.crash(operation="put_if_match", key=key, when=when)  # type: ignore[arg-type]
    with pytest.raises(SimulatedCrash):
        shop.commit(rows, objects=faulty, keep_alive=False)


@pytest.mark.parametrize("problem", [OSError("disk"), RuntimeError("can't start new thread"), KeyError("x")])
def test_whatever_happens_after_the_swap_the_commit_is_reported_as_done(memory: Shop, problem: Exception) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.fail(problem, operation="get", key=paths.TYPES)
    with memory.using(faulty) as repository:
        assert commit(repository, [Product(sku="p5")]) == 4
        assert repository.engine.warnings


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
        assert "types.json" in repository.engine.warnings[0]
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
    old = memory.read(paths.TYPES)
    memory.objects.put(paths.TYPES, json.dumps({**old, "entities": ["Product"], "kept": 1}).encode())
    memory.commit([Customer(id="c5", name="Eve")])
    with memory.using() as repository:
        assert repository.index_verify().healthy
    assert memory.read(paths.TYPES)["entities"] == ["Customer", "Product"]
    assert memory.read(paths.TYPES)["kept"] == 1


def test_a_repair_mends_known_types_that_a_stalled_writer_put_back(memory: Shop) -> None:
    old = memory.read(paths.TYPES)
    memory.objects.put(paths.TYPES, json.dumps({**old, "entities": ["Product"]}).encode())
    memory.objects.delete(paths.index(CUSTOMER))
    with memory.using() as repository:
        assert [item.ref for item in repository.index_verify().types if not item.healthy] == [CUSTOMER]
        assert repository.index_repair(apply=True).repaired == [CUSTOMER]
        assert repository.index_verify().healthy
    assert memory.read(paths.TYPES)["entities"] == ["Customer", "Product"]


def test_a_type_that_was_registered_and_never_committed_is_harmless(memory: Shop) -> None:
    class Shelf(Product, name="Shelf"):
        pass

    crashed(memory, [Shelf(sku="s1")], when="before")
    assert "Shelf" in memory.read(paths.TYPES)["entities"]
    with memory.using(clock=AheadClock(3_600)) as repository:
        assert "Shelf" not in latest(repository)
        commit(repository, [Product(sku="p5")])
        assert repository.index_verify().healthy
        assert commit(repository, [Shelf(sku="s2")]) == 5
        assert set(latest(repository)["Shelf"]) == {"s2"}
