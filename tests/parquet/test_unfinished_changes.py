"""Migrations, drops and purges whose writer died right after the swap: they hold, and the next one finishes them."""

from __future__ import annotations

import pytest

from ontologia.engines.parquet import paths
from ontologia.objects import Objects
from ontologia.runtime.drop import DropPreview
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.parquet_shop import AheadClock, Customer, Product, Rated, Shop, commit, latest, migrate

CUSTOMER = Customer.__declaration__.ref


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
        layouts = [x for x in shop.read(paths.LAYOUTS)["layouts"] if x["type_name"] == "Customer"]
        assert [(x["schema_version_id"], x["is_current"]) for x in layouts] == [(1, False), (2, True)]
        index = shop.read(paths.index(CUSTOMER))
        assert (index["current_schema_version_id"], index["activation_commit_id"]) == (2, 4)
        assert index["historical_versions"] == [
            {"schema_version_id": 1, "activation_commit_id": 1, "superseded_at_commit_id": 4}
        ]


def test_readers_are_right_after_a_migration_that_died_before_its_indices(migrated_and_died: Shop) -> None:
    with migrated_and_died.using() as reader:
        assert {row["email"] for row in latest(reader)["Customer"].values()} == {"none"}
        assert reader.engine.catalog().layouts[CUSTOMER].schema_version_id == 2
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
    assert memory.read(paths.DROPPED)["dropped"] == [{"kind": "relation", "type_name": "Rated"}]
    assert memory.read(paths.TYPES)["relations"] == ["Bought"]


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
        assert len(repository.engine.commits()) == 4


def test_a_drop_keeps_the_files_and_a_purge_deletes_them_with_their_parts(memory: Shop) -> None:
    with memory.using() as repository:
        repository.compact(apply=True)
        commit(repository, [Rated(left_key="c2", right_key="p1", year="2026")])
        repository.compact(apply=True)
    parts = f"{next(iter(memory.objects.list('commits/3-'))).key.split('/')[1]}"
    key = memory.session().engine.data_path(f"commits/{parts}/", Rated.__declaration__.ref, 1)  # type: ignore[attr-defined]
    memory.objects.put(f"{key}/part-1.parquet", b"part")
    twin = memory.copy()
    drop(memory, purge=False)
    drop(twin, purge=True)
    assert any("Rated" in info.key for info in memory.objects.list("commits/"))
    kept = [info.key for info in twin.objects.list() if "Rated" in info.key and info.key.endswith(".parquet")]
    assert kept == []
    assert [info.key for info in twin.objects.list("commits/3-") if info.key.endswith("manifest.json")]
