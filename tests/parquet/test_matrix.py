"""The test matrix of RFC 0004 and the S3 rows of RFC 0009's test plan that no other file here has, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ontologia import Entity, Field, Ontology, open_repository
from ontologia.engines.initializing import initialize_storage
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.versions import ParquetEngineV1, ParquetEngineV2
from ontologia.errors import (
    DropRefusedError,
    MigrationTokenError,
    SchemaOutdatedError,
    ValidationError,
)
from ontologia.query.plan import Window
from ontologia.runtime.migration import MigrationPreview, MigrationResult
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.parquet_shop import (
    HISTORY,
    Bought,
    Customer,
    CustomerWithEmail,
    Product,
    Rated,
    Shop,
    commit,
    latest,
    state,
)

CUSTOMER, PRODUCT = Customer.__declaration__.ref, Product.__declaration__.ref


# --- 1 and 4: parity with SQLite ---


def test_every_window_of_every_type_answers_as_sqlite_does(store: Shop, tmp_path: Path) -> None:
    with open_repository(str(tmp_path / "onto.db"), engine_version=store.version) as sqlite:
        for rows in HISTORY:
            commit(sqlite, rows)  # type: ignore[arg-type]
        assert store.state() == state(sqlite)  # type: ignore[arg-type]


@pytest.mark.slow_on("s3-v1")
def test_after_a_migration_every_window_answers_as_sqlite_does(store: Shop, tmp_path: Path) -> None:
    path = str(tmp_path / "onto.db")
    with open_repository(path, engine_version=store.version) as sqlite:
        for rows in HISTORY:
            commit(sqlite, rows)  # type: ignore[arg-type]
    new = [CustomerWithEmail(id="c1", name="Alice", email="a@example.org")]
    with Ontology(path, entity_types=[CustomerWithEmail, Product]) as onto:
        onto.migrate(dry_run=False, force=True)
        commit(onto.repository, new)  # type: ignore[arg-type]
        expected = state(onto.repository)  # type: ignore[arg-type]
    store.session(CustomerWithEmail, Product).migrate(dry_run=False, force=True)
    store.commit(new)
    assert store.state() == expected
    with store.using() as repository:
        repository.compact(apply=True)
        assert state(repository) == expected


def test_objects_come_back_with_their_metadata(store: Shop) -> None:
    session = store.session()
    alice = session.query().entities(Customer).where(Customer.id == "c1").first()
    assert alice is not None
    assert (alice.meta().commit_id, alice.tier) == (2, "silver")
    rated = session.query().relations(Rated).collect()
    assert [(r.left_key, r.right_key, r.year, r.meta().commit_id) for r in rated] == [
        ("c1", "p1", "2024", 3),
        ("c1", "p1", "2025", 3),
    ]
    [bought] = session.query().relations(Bought).collect()
    assert (bought.amount, bought.left.name, bought.right.price) == (2, "Alice", 1.5)


def test_traversals_go_over_relations_to_the_entities_at_their_ends(store: Shop) -> None:
    ends = store.session().query().entities(Customer).via(Bought).without_relations().collect()
    assert [end.sku for end in ends] == ["p1"]


# --- 4 and RFC 0009 §2.3: temporal reads ---


def test_as_of_before_an_activation_is_empty_with_a_diagnostic(store: Shop) -> None:
    session = store.session(CustomerWithEmail, Product)
    session.migrate(dry_run=False, force=True)
    found = session.query().entities(CustomerWithEmail).as_of(2).collect()
    assert list(found) == []
    assert {
        "reason": "commit_before_activation",
        "activation_commit_id": 4,
    } in session.repository.get_last_query_diagnostics()
    history = session.query().entities(CustomerWithEmail).with_history().collect()
    assert {row.meta().commit_id for row in history} == {4}
    assert len(session.query().entities(CustomerWithEmail).history_since(1).collect()) == 2
    assert session.query().entities(CustomerWithEmail).count() == 2


def test_windows_outside_of_history_are_empty_or_whole(store: Shop) -> None:
    with store.using() as repository:
        whole = repository.query_entities("Customer")
        assert repository.query_entities("Customer", window=Window("as_of", 0)) == []
        assert repository.query_entities("Customer", window=Window("as_of", 99)) == whole
        assert repository.query_entities("Customer", window=Window("since", 99)) == []
        assert len(repository.query_entities("Customer", window=Window("since", 0))) == 3


def test_an_empty_store_answers_every_question_without_looking_for_files(empty: Shop) -> None:
    session = empty.session()
    with empty.objects.counting() as count:
        assert list(session.query().entities(Customer).collect()) == []
        assert list(session.query().entities(Customer).with_history().collect()) == []
        assert session.query().entities(Customer).count() == 0
    assert {request.key for request in count.log} == {paths.HEAD}


# --- 7: migrations ---


def test_a_migration_needs_the_token_of_its_preview_on_this_very_head(store: Shop) -> None:
    session = store.session(CustomerWithEmail, Product)
    with pytest.raises(SchemaOutdatedError):
        session.query().entities(CustomerWithEmail).collect()
    plan = session.migrate()
    assert isinstance(plan, MigrationPreview)
    assert (plan.has_changes, plan.estimated_rows) == (True, 2)
    store.commit([Product(sku="drift")])
    with pytest.raises(MigrationTokenError):
        session.migrate(dry_run=False, token=plan.token)
    plan = session.migrate()
    assert isinstance(plan, MigrationPreview)
    result = session.migrate(dry_run=False, token=plan.token)
    assert isinstance(result, MigrationResult)
    assert (result.rows_migrated, result.new_schema_versions, result.commit_id) == (2, {"Customer": 2}, 5)
    assert {row.email for row in session.query().entities(CustomerWithEmail).collect()} == {"none"}


def test_types_without_rows_and_several_types_are_activated_in_one_commit(store: Shop) -> None:
    class ProductNext(Entity, name="Product"):
        sku: Field[str] = Field(primary_key=True)
        price: Field[float] = Field(default=0.0)
        colour: Field[str] = Field(default="grey")

    class Shelf(Entity):
        id: Field[str] = Field(primary_key=True)

    class ShelfNext(Entity, name="Shelf"):
        id: Field[str] = Field(primary_key=True)
        room: Field[str] = Field(default="hall")

    with store.using() as repository:
        repository.begin_transaction()
        version = repository.create_schema_version(Shelf.__declaration__.schema)
        repository.activate_schema_version("entity", "Shelf", version)
        repository.commit_transaction()
        session = store.session(CustomerWithEmail, ProductNext, ShelfNext, repository=repository)
        result = session.migrate(dry_run=False, force=True)
        assert isinstance(result, MigrationResult)
        assert result.new_schema_versions == {"Customer": 2, "Product": 2, "Shelf": 2}
        assert {layout.activation_commit_id for layout in repository.engine.catalog().layouts.values()} >= {5}
        assert [row.colour for row in session.query().entities(ProductNext).collect()] == ["grey"]
        assert list(session.query().entities(ShelfNext).collect()) == []
        assert repository.index_verify().healthy
    assert not any("Shelf" in info.key for info in store.objects.list("commits/"))


def test_old_files_stay_after_a_migration_and_are_not_read(store: Shop) -> None:
    before = {info.key for info in store.objects.list("commits/")}
    store.session(CustomerWithEmail, Product).migrate(dry_run=False, force=True)
    assert before < {info.key for info in store.objects.list("commits/")}


# --- RFC 0009 §8: the write path ---


def test_row_wise_inserts_need_the_current_schema_version_in_v2(store: Shop) -> None:
    with store.using() as repository:
        repository.begin_transaction()
        row = {"sku": "p7", "price": 1.0}
        with pytest.raises(ValidationError, match="version 1"):
            repository.insert_entity("Product", "p7", row, schema_version_id=9)
        if store.version == "v2":
            with pytest.raises(ValidationError, match="no schema_version_id"):
                repository.insert_entity("Product", "p7", row)
        repository.insert_entity("Product", "p7", row, schema_version_id=1)
        assert repository.create_commit({"note": "by row"}) == 4
        assert repository.commit_transaction() == 4
        assert repository.get_latest_entity("Product", "p7") == {"commit_id": 4, **row}
        assert repository.get_commit(4)["metadata"] == {"note": "by row"}  # type: ignore[index]


def test_a_commit_takes_each_identity_once(store: Shop) -> None:
    with store.using() as repository:
        repository.begin_transaction()
        repository.insert_entity("Product", "p7", {"sku": "p7", "price": 1.0}, schema_version_id=1)
        with pytest.raises(ValidationError, match="'p7' is in this commit already"):
            repository.insert_entity("Product", "p7", {"sku": "p7", "price": 2.0}, schema_version_id=1)
        repository.commit_transaction()
        assert repository.count_entities("Product", where=[repository.field("entity", "Product", "sku") == "p7"]) == 1


def test_a_rollback_leaves_no_trace(store: Shop) -> None:
    before = {info.key for info in store.objects.list("commits/")}
    with store.using() as repository:
        repository.begin_transaction()
        repository.insert_entity("Product", "p7", {"sku": "p7", "price": 1.0}, schema_version_id=1)
        repository.rollback_transaction()
        assert repository.get_head_commit_id() == 3
    assert {info.key for info in store.objects.list("commits/")} == before


# --- RFC 0009 §9: dropped types ---


def test_a_dropped_type_reads_as_empty_takes_no_rows_and_keeps_its_files(store: Shop) -> None:
    session = store.session()
    with pytest.raises(DropRefusedError):
        session.drop_types(entities=["Product"])
    plan: Any = session.drop_types(entities=["Product"], cascade_relations=True)
    store.commit([Customer(id="c9", name="Ida")])
    with pytest.raises(DropRefusedError, match="token"):
        session.drop_types(entities=["Product"], cascade_relations=True, dry_run=False, token=plan.token)
    plan = session.drop_types(entities=["Product"], cascade_relations=True)
    assert session.drop_types(entities=["Product"], cascade_relations=True, dry_run=False, token=plan.token) == 5
    assert list(session.query().entities(Product).collect()) == []
    assert list(session.query().relations(Bought).collect()) == []
    with pytest.raises(ValidationError, match="dropped"):
        store.commit([Product(sku="p9")])
    assert any("Product" in info.key for info in store.objects.list("commits/1-"))


# --- 8: the log ---


def test_the_log_lists_commits_newest_first_with_their_changes(store: Shop) -> None:
    with store.using(runtime_id="me") as repository:
        commit(repository, [Customer(id="c1", name="Alice"), Customer(id="c8", name="New")], note="x")
        assert [entry["id"] for entry in repository.list_commits(limit=2)] == [4, 3]
        assert [entry["id"] for entry in repository.list_commits(since_commit_id=3)] == [4]
        found = repository.get_commit(4)
        assert found is not None
        assert (found["runtime_id"], found["metadata"]) == ("me", {"note": "x"})
        assert repository.get_commit(99) is None
        assert repository.list_commit_changes(4) == [
            {"kind": "entity", "type_name": "Customer", "key": "c1", "operation": "update_version"},
            {"kind": "entity", "type_name": "Customer", "key": "c8", "operation": "insert"},
        ]
        for _ in range(10):
            commit(repository, [Product(sku=str(_))])
        assert repository.get_commit(4) == found, "an old commit is found without walking back to it"
        repository.compact(apply=True)
        assert [c["operation"] for c in repository.list_commit_changes(4)] == ["update_version", "insert"]


def test_an_old_commit_with_several_attempts_is_told_apart_by_the_chain(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD)
    with pytest.raises(SimulatedCrash):
        memory.commit([Customer(id="dead", name="Dead")], objects=faulty, keep_alive=False, s3_lease_ttl_ms=100)
    with memory.using(s3_lock_timeout_ms=10_000) as repository:
        for number in range(10):
            commit(repository, [Product(sku=str(number))], number=str(number))
    with memory.using() as repository:
        assert repository.get_commit(4)["metadata"] == {"number": "0"}  # type: ignore[index]


# --- 12 to 14: index health ---


def lag(shop: Shop, ref: Any) -> None:
    """An index that a commit did not reach."""
    stale = shop.objects.get(paths.index(ref)).data
    shop.commit([Customer(id="c1", name="Newer"), Product(sku="newer")])
    shop.objects.put(paths.index(ref), stale)


def test_an_index_that_lags_is_told_read_around_and_healed_by_the_next_commit(store: Shop) -> None:
    lag(store, CUSTOMER)
    with store.using() as repository:
        report = repository.index_verify()
        assert [item.ref for item in report.types if item.lagging] == [CUSTOMER]
        assert not report.healthy
        assert latest(repository)["Customer"]["c1"]["name"] == "Newer"
        repository.query_entities("Customer")
        reasons = [item["reason"] for item in repository.get_last_query_diagnostics()]
        assert reasons == ["index_lagging"]
        commit(repository, [Product(sku="heal")])
        assert repository.index_verify().healthy
        repository.query_entities("Customer")
        assert repository.get_last_query_diagnostics() == []


def test_an_index_that_names_another_attempt_at_the_head_is_told_and_read_around(store: Shop) -> None:
    lag(store, CUSTOMER)
    index = json.loads(store.objects.get(paths.index(CUSTOMER)).data)
    index["max_indexed_commit"] = 4
    index["entries"].append(
        {"min_commit_id": 4, "max_commit_id": 4, "path": "commits/4-dead/entities/Customer.parquet"}
    )
    store.objects.put(paths.index(CUSTOMER), json.dumps(index).encode())
    with store.using() as repository:
        assert [item.ref for item in repository.index_verify().types if item.missing_latest] == [CUSTOMER]
        assert latest(repository)["Customer"]["c1"]["name"] == "Newer"
        repository.query_entities("Customer")
        assert [item["reason"] for item in repository.get_last_query_diagnostics()] == ["index_latest_entry_missing"]
        assert repository.index_repair(apply=True).repaired == [CUSTOMER]
        assert repository.index_verify().healthy
        assert latest(repository)["Customer"]["c1"]["name"] == "Newer"


def test_an_index_that_covers_the_head_without_an_entry_for_it_is_told_and_read_around(store: Shop) -> None:
    lag(store, PRODUCT)
    index = json.loads(store.objects.get(paths.index(PRODUCT)).data)
    store.objects.put(paths.index(PRODUCT), json.dumps(index | {"max_indexed_commit": 4}).encode())
    with store.using() as repository:
        assert [item.ref for item in repository.index_verify().types if item.missing_latest] == [PRODUCT]
        assert "newer" in latest(repository)["Product"]


def test_a_snapshot_that_covers_the_head_counts_as_coverage(store: Shop) -> None:
    store.commit([Customer(id="c1", name="Newer")])
    with store.using() as repository:
        repository.compact(apply=True)
        assert repository.index_verify().healthy
        assert latest(repository)["Customer"]["c1"]["name"] == "Newer"


def test_a_repair_restores_every_index_without_a_commit_and_once_is_enough(store: Shop) -> None:
    for info in list(store.objects.list("meta/indices/")):
        store.objects.delete(info.key)
    head, expected = store.objects.get(paths.HEAD).data, store.state()
    with store.using() as repository:
        preview = repository.index_repair()
        assert (len(preview.repaired), preview.applied) == (4, False)
        assert not list(store.objects.list("meta/indices/"))
        assert repository.index_repair(apply=True).head == 3
        indices = {info.key: store.objects.get(info.key).data for info in store.objects.list("meta/indices/")}
        assert {json.loads(body)["max_indexed_commit"] for body in indices.values()} == {3}
        assert repository.index_verify().healthy
        assert repository.index_repair(apply=True).repaired == []
        assert {key: store.objects.get(key).data for key in indices} == indices
    assert store.objects.get(paths.HEAD).data == head
    assert store.state() == expected


def test_an_index_that_lags_behind_a_snapshot_range_is_completed_and_not_doubled(store: Shop) -> None:
    with store.using() as repository:
        repository.compact(apply=True)
    lag(store, CUSTOMER)
    expected = store.state()
    with store.using() as repository:
        repository.index_repair(apply=True)
        assert state(repository) == expected
    entries = json.loads(store.objects.get(paths.index(CUSTOMER)).data)["entries"]
    assert [(entry["min_commit_id"], entry["max_commit_id"]) for entry in entries] == [(1, 2), (4, 4)]


# --- RFC 0009: dispatch ---


def test_the_stamp_decides_the_engine(store: Shop) -> None:
    assert type(store.repository().engine) is {"v1": ParquetEngineV1, "v2": ParquetEngineV2}[store.version]


def test_new_stores_get_the_latest_engine(uri: str) -> None:
    assert initialize_storage(storage_uri=uri).engine_version == "v2"
    with open_repository(storage_uri=uri) as repository:
        info = repository.storage_info()
    assert (info["backend"], info["engine_version"], info["storage_uri"]) == ("s3", "v2", uri)


def test_the_store_tells_its_layouts(store: Shop) -> None:
    store.session(CustomerWithEmail, Product).migrate(dry_run=False, force=True)
    with store.using() as repository:
        info = repository.storage_info()
    if store.version == "v2":
        assert info["type_layouts"]["Customer"] == {
            "type_kind": "entity",
            "current_schema_version_id": 2,
            "activation_commit_id": 4,
            "historical_versions": [1],
        }
    assert info["head_commit_id"] == 4


# --- RFC 0009 §6.6: readers beside a migration ---


@pytest.mark.thorough
def test_a_reader_at_any_request_of_a_migration_sees_all_of_it_or_nothing(memory: Shop) -> None:
    faulty = FaultyObjects(memory.objects)
    seen: list[set[bool]] = []

    def look(_: object) -> None:
        with memory.using() as reader:
            seen.append({"email" in row for row in latest(reader)["Customer"].values()})

    faulty.call(look, times=None)
    memory.session(CustomerWithEmail, Product, objects=faulty).migrate(dry_run=False, force=True)
    assert all(len(kinds) == 1 for kinds in seen)
    assert [kinds == {True} for kinds in seen] == sorted(kinds == {True} for kinds in seen)
    assert len(seen) > 10
