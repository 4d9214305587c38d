"""Readers see one state, whatever is committed, compacted or migrated while they read."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.engines.parquet.read import tails
from ontologia.errors import SchemaOutdatedError
from ontologia.query.plan import LATEST, Plan
from ontologia.testing.stores import FaultyObjects
from support.parquet_shop import Customer, Product, Shop, commit, migrate

CUSTOMER = Customer.__declaration__.ref


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
            catalog = reader.engine.catalog()
            plan = Plan(CUSTOMER, {CUSTOMER: catalog.layouts[CUSTOMER].schema})
            rows = reader.engine.table(plan, catalog=catalog).to_pylist()
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


def test_tails_in_use_are_not_evicted_by_other_types(memory: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "TABLES_KEPT", 1)
    with memory.using() as repository:
        commit(repository, [Customer(id="c1", name="again"), Product(sku="p1", price=9)])
        engine = repository.engine
        assert isinstance(engine, ParquetEngine)
        catalog = engine.catalog()
        refs = [declared.__declaration__.ref for declared in (Customer, Product)]
        with ExitStack() as stack:
            loaded = []
            for ref in refs:
                files = engine.files.at(ref, catalog).in_window(LATEST)
                assert files.layers is not None
                assert files.tail is not None
                loaded.append(stack.enter_context(engine.tails.load(catalog.layouts[ref], files.layers, files.tail)))
            with engine.duck.cursor() as cursor:
                counted = [cursor.execute(f"SELECT count(*) FROM {tail.table}").fetchone() for tail in loaded]
        assert all(row is not None and row[0] > 0 for row in counted)
