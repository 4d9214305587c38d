"""Removals in files: every mix of loads, small commits and snapshots reads as what was committed, and what is stored
says what it is."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.parquet import paths, setup
from ontologia.engines.parquet.read import layers
from ontologia.errors import EngineVersionError, RemovalsUnsupportedError
from ontologia.objects import open_objects
from ontologia.query import count
from ontologia.testing.conformance.answers import make_plain
from ontologia.testing.reference import ReferenceStore
from support.parquet_shop import KEYS, Bought, Customer, Product, Shop, latest, some_keys

CUSTOMER, BOUGHT = Customer.__declaration__.ref, Bought.__declaration__.ref


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), "v2", tmp_path / "cache", filled=False)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))])
@pytest.mark.thorough
def test_loads_removals_and_snapshots_in_any_order_read_as_committed(
    shop: Shop, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LARGE_ROWS", 4)  # a few dozen rows have all the shapes of millions
    monkeypatch.setattr(layers, "MOST_ROWS", 14)
    chance = random.Random(seed)
    repository = shop.repository(compact_after_commits=4)
    session, reference = shop.session(repository=repository), ReferenceStore()
    for number in range(1, 22):
        if chance.random() < 0.1:
            repository.compact(apply=True)
        if chance.random() < 0.3:
            repository.engine.tidy("load")
        keys, gone = some_keys(chance), some_keys(chance) if number > 1 else []
        there = [key for key in keys if key not in gone]
        rows = [
            *(Customer(id=key, name="x", age=number) for key in there),
            *(Bought(left_key=key, right_key="p", amount=number) for key in there),
        ]
        session.ensure(rows)
        if gone:
            session.remove(Customer, *gone)
            session.remove(Bought, *((key, "p") for key in gone))
        identities = [(CUSTOMER, (key,)) for key in gone] + [(BOUGHT, (key, "p", "")) for key in gone]
        assert session.commit() == reference.commit(rows, identities)
        if chance.random() < 0.5:
            compare(session, reference, chance.randrange(1, number + 1))
    for number in range(1, reference.head + 1):
        assert session.list_commit_changes(number) == reference.list_commit_changes(number)
    shop.close()


def compare(session: object, reference: ReferenceStore, earlier: int) -> None:
    """Every way to look, at the engine and at the model."""
    answers = []
    for root in (session.query(), reference.query()):  # type: ignore[attr-defined]
        customers, bought = root.entities(Customer), root.relations(Bought)
        answers.append(
            make_plain(
                [
                    customers.collect(),
                    customers.count(),
                    customers.where(Customer.age > earlier).count(),
                    customers.group_by(Customer.age).agg(rows=count()),
                    customers.as_of(earlier).collect(),
                    customers.with_history().collect(),
                    customers.history_since(earlier).collect(),
                    customers.with_history().count(),
                    bought.collect(),
                    bought.with_history().collect(),
                    bought.to_arrow().to_pylist(),
                ]
            )
        )
    assert answers[0] == answers[1]


def test_a_removal_keeps_the_values_and_is_superseded_by_its_own_commit(shop: Shop) -> None:
    session = shop.session()
    session.ensure([Customer(id="a", name="Ann", age=1), Customer(id="b", name="Ben", age=2)])
    session.commit()
    session.remove(Customer, "a")
    session.ensure(Customer(id="b", name="Ben", age=3))
    session.commit()
    file = next(info.key for info in shop.objects.list("commits/2-") if info.key.endswith(".parquet"))
    columns = ["entity_key", "commit_id", "name", "superseded_by"]
    assert sorted(pq.read_table(_buffer(shop, file), columns=columns).to_pylist(), key=str) == [
        {"entity_key": "a", "commit_id": 2, "name": "Ann", "superseded_by": 2},
        {"entity_key": "b", "commit_id": 2, "name": "Ben", "superseded_by": None},
    ]
    session.repository.compact(apply=True)
    snapshot = next(info.key for info in shop.objects.list("snapshots/") if info.key.endswith(".parquet"))
    found = pq.read_table(_buffer(shop, snapshot), columns=["entity_key", "commit_id", "superseded_by"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [("b", 2, None), ("a", 1, 2), ("a", 2, 2), ("b", 1, 2)]
    entry = shop.read(paths.index(CUSTOMER))["entries"][0]
    assert (entry["row_count"], entry["rows_in_force"], entry["removals"]) == (4, 1, 1)
    shop.close()


def _buffer(shop: Shop, key: str) -> object:
    import io

    return io.BytesIO(shop.objects.get(key).data)


def test_a_store_without_removals_says_nothing_of_them(shop: Shop) -> None:
    session = shop.session()
    session.ensure([Customer(id="a", name="Ann"), Customer(id="b", name="Ben")])
    session.commit()
    session.remove(Customer, "nobody")
    assert session.commit() is None
    session.repository.compact(apply=True)
    assert shop.read(paths.ENGINE)["engine_version"] == "v2"
    texts = [shop.objects.get(info.key).data for info in shop.objects.list() if info.key.endswith(".json")]
    assert not any(b"removals" in text for text in texts)
    shop.close()


def test_a_store_with_removals_is_refused_by_what_does_not_know_them(shop: Shop) -> None:
    session = shop.session()
    session.ensure(Customer(id="a", name="Ann"))
    session.commit()
    session.remove(Customer, "a")
    session.commit()
    stamp = shop.read(paths.ENGINE)
    assert stamp["engine_version"] == "v2+removals"
    shop.close()
    open_objects_engine(shop.objects, engine_version="v2").close()
    shop.objects.put(paths.ENGINE, json.dumps({**stamp, "engine_version": "v2+removals+magic"}).encode())
    with pytest.raises(EngineVersionError, match="this store uses magic, which this release does not know; upgrade"):
        open_objects_engine(shop.objects)


def test_a_store_that_is_laid_out_anew_is_not_stamped(shop: Shop) -> None:
    session = shop.session()
    session.ensure(Customer(id="a", name="Ann"))
    session.commit()
    session.remove(Customer, "a")
    session.commit()
    setup.reset(shop.objects, "v2", session.engine.lease)  # type: ignore[attr-defined]
    assert shop.read(paths.ENGINE)["engine_version"] == "v2"
    shop.close()


def test_engine_v1_refuses_before_anything_is_written(tmp_path: Path) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), "v1", tmp_path / "cache")
    before = {info.key for info in shop.objects.list()}
    session = shop.session()
    with pytest.raises(RemovalsUnsupportedError, match="entity Customer cannot be removed here: engine v1 keeps every"):
        session.remove(Customer, "c1")
    assert (session.commit(), {info.key for info in shop.objects.list()}) == (None, before)
    shop.close()


def test_a_removal_in_a_snapshot_hides_what_an_older_load_has(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small commits are merged with each other, and the load before them is not: who looks for a key in the snapshot
    must not take its silence for an answer."""
    monkeypatch.setattr(layers, "LARGE_ROWS", 4)
    monkeypatch.setattr("ontologia.engines.parquet.care.automatic.QUICK_ROWS", 3)
    repository = shop.repository(compact_after_commits=2)
    session = shop.session(repository=repository)
    session.ensure([Customer(id=key, name="load") for key in KEYS])
    session.commit()
    session.remove(Customer, KEYS[3])
    session.commit()
    session.ensure(Customer(id="other", name="x"))
    session.commit()
    repository.engine.tidy("load")
    entries = [entry["path"].partition("/")[0] for entry in shop.read(paths.index(CUSTOMER))["entries"]]
    assert entries == ["commits", "snapshots"]
    assert KEYS[3] not in latest(repository)["Customer"]
    session.ensure(Customer(id=KEYS[3], name="load"))
    assert session.commit() == 4
    assert [change["operation"] for change in session.list_commit_changes(4)] == ["insert"]
    shop.close()


def test_products_that_nobody_removed_stay(shop: Shop) -> None:
    session = shop.session()
    session.ensure([Product(sku="p", price=1.0), Customer(id="a", name="Ann")])
    session.commit()
    session.remove(Customer, "a")
    session.commit()
    assert ([p.sku for p in session.query().entities(Product).collect()], latest(session.repository)["Customer"]) == (
        ["p"],
        {},
    )
    shop.close()


def test_an_erasure_counts_the_removals_that_are_left(shop: Shop) -> None:
    session = shop.session()
    session.ensure([Customer(id=key, name="x") for key in "abc"])
    session.commit()
    session.remove(Customer, "a", "b")
    session.ensure([Customer(id="c", name="y"), Customer(id="d", name="y")])
    session.commit()
    preview = session.erase(Customer, "a", reason="asked for")
    session.erase(Customer, "a", reason="asked for", dry_run=False, token=preview.token)
    customers = session.query().entities(Customer)
    assert ([c.id for c in customers.collect()], customers.count()) == (["c", "d"], 2)
    removed = [(c.id, c.meta().removed) for c in customers.with_history().collect()]
    assert removed == [("b", False), ("c", False), ("b", True), ("c", False), ("d", False)]
    shop.close()
