"""The schema registry is written before the swap: after a crash it speaks of versions that never came into force."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from ontologia.engines.parquet import paths
from ontologia.errors import LeaseExpiredError
from ontologia.objects import Objects
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.parquet_shop import AheadClock, Customer, CustomerWithEmail, Product, Shop, commit, latest, migrate

CUSTOMER = Customer.__declaration__.ref


def crashed_migration(shop: Shop) -> None:
    """A migration that died just before its swap."""
    faulty = FaultyObjects(shop.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD, when="before")
    with suppress(SimulatedCrash):
        migrate(shop, faulty)
    shop.opened.clear()
    assert [item["is_current"] for item in registry(shop)] == [False, True]
    shop.objects.delete(paths.lock())


def registry(shop: Shop) -> list[dict]:
    return shop.read(paths.versions(CUSTOMER))["versions"]


def write_as_the_rfc_does(objects: Objects) -> None:
    """A head without what we add to it, over manifests without catalogs."""
    head = json.loads(objects.get(paths.HEAD).data)
    del head["schema_manifest_path"]
    head.pop("commit_sha256", None)
    objects.put(paths.HEAD, json.dumps(head).encode())
    for info in list(objects.list(paths.COMMITS)):
        if info.key.endswith("manifest.json"):
            body = json.loads(objects.get(info.key).data)
            body.pop("schemas", None)
            objects.put(info.key, json.dumps(body).encode())


def test_a_version_that_never_came_into_force_hides_no_rows(memory: Shop) -> None:
    before = memory.state()
    crashed_migration(memory)
    write_as_the_rfc_does(memory.objects)
    with memory.using() as repository:
        assert set(latest(repository)["Customer"]) == {"c1", "c2"}
    assert memory.state() == before


def test_it_does_not_come_into_force_with_the_commit_of_another(memory: Shop) -> None:
    crashed_migration(memory)
    write_as_the_rfc_does(memory.objects)
    with memory.using() as repository:
        assert commit(repository, [Product(sku="p9")]) == 4  # the number that the migration would have had
        assert set(latest(repository)["Customer"]) == {"c1", "c2"}
        assert commit(repository, [Customer(id="c3", name="Carol")]) == 5
        assert set(latest(repository)["Customer"]) == {"c1", "c2", "c3"}


def test_a_version_in_force_is_known_without_the_head_naming_it(memory: Shop) -> None:
    migrate(memory)
    memory.opened.clear()
    before = memory.state()
    write_as_the_rfc_does(memory.objects)
    assert memory.state() == before
    with memory.using() as repository:
        assert latest(repository)["Customer"]["c1"]["email"] == "none"


def test_the_next_commit_puts_the_registry_right_however_long_ago_types_last_changed(memory: Shop) -> None:
    with memory.using() as repository:
        for number in range(20):
            commit(repository, [Product(sku="p8", price=float(number))])
    before = registry(memory)
    crashed_migration(memory)
    memory.commit([Product(sku="p9")], clock=AheadClock(3_600))
    assert registry(memory) == before


def test_a_type_that_was_never_committed_leaves_the_registry_with_the_next_commit(memory: Shop) -> None:
    class Shelf(Product, name="Shelf"):
        pass

    faulty = FaultyObjects(memory.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD, when="before")
    with suppress(SimulatedCrash):
        memory.commit([Shelf(sku="s1")], objects=faulty, keep_alive=False)
    key = paths.versions(Shelf.__declaration__.ref)
    assert memory.objects.exists(key)
    memory.objects.delete(paths.lock())
    memory.commit([Product(sku="p9")])
    assert not memory.objects.exists(key)


def test_a_writer_that_lost_its_lease_puts_the_registry_right_with_its_next_commit(
    memory: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same process goes on, and had looked at the registry before."""
    before = registry(memory)
    with memory.using() as repository:
        commit(repository, [Product(sku="p8")])
        with monkeypatch.context() as patch:
            patch.setattr(repository.engine.lease, "guard", lose_lease)
            session = memory.session(CustomerWithEmail, Product, repository=repository)
            with pytest.raises(LeaseExpiredError):
                session.migrate(dry_run=False, force=True)
        assert registry(memory) != before
        commit(repository, [Product(sku="p9")])
        assert registry(memory) == before


def lose_lease() -> None:
    raise LeaseExpiredError("it ran out")
