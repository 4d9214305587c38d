"""What 0.3 wrote is read as 0.3 read it, in every form it had."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from ontologia import Entity, Field, Ontology, Relation, StorageBackendError, count, open_repository, right
from ontologia.engines.ontologia_03.engine import Engine03
from support.shop_03 import COUPON, Customer, Order, Product, shop
from support.writer_03 import INT, STR, Store03, append_sqlite, entity, write


@pytest.fixture
def onto(old):
    with Ontology(old, entity_types=[Customer, Product], relation_types=[Order]) as found:
        yield found


def test_a_store_of_03_is_known_for_what_it_is(old, form):
    with open_repository(old) as repository:
        info = repository.storage_info()
    assert type(repository.engine) is Engine03
    version = "v2" if form.endswith("v2") else "v1"
    assert (info["written_by"], info["read_only"], info["engine_version"]) == ("Ontologia 0.3", True, version)


def test_a_store_of_03_that_was_closed_says_so(onto):
    onto.query().entities(Product).count()
    onto.close()
    for ask in (onto.query().entities(Product).count, onto.list_commits, lambda: onto.get_commit(1)):
        with pytest.raises(StorageBackendError, match=r": this store is closed$"):
            ask()


def test_a_store_of_ours_is_not_taken_for_one(tmp_path):
    for version in ("v1", "v2"):
        open_repository(tmp_path / f"{version}.db", engine_version=version).close()
        with open_repository(tmp_path / f"{version}.db") as repository:
            assert type(repository.engine) is not Engine03


def test_the_latest_state_has_the_values_and_the_defaults_of_fields_that_an_upgrader_left_out(onto):
    alice, bob, dora = onto.query().entities(Customer).collect()
    assert (alice.full_name, alice.age, alice.channel, alice.notes) == ("Alice", 41.0, "web", [])
    assert (bob.full_name, bob.former, bob.channel) == ("Bö 🦊", {"city": "Rome", "zip": None}, "web")
    assert (dora.age, dora.channel, dora.notes, dora.meta().commit_id) == (33.5, "shop", ["x"], 5)
    assert type(alice.age) is float


def test_an_instant_with_any_offset_is_that_instant(onto):
    joined = onto.query().entities(Customer).where(Customer.joined == datetime(2024, 2, 29, 22, 59, 59, 500000, UTC))
    assert [found.id for found in joined.collect()] == ["c1"]


def test_structured_and_untyped_values_come_back_whole(onto):
    seven, eight = onto.query().entities(Product).order_by(Product.sku).collect()
    assert (seven.code, seven.about, eight.code, eight.about) == (5, 9007199254740993, "E", None)


def test_every_window_of_time_answers(onto):
    products, customers = onto.query().entities(Product), onto.query().entities(Customer)
    assert [found.price for found in products.as_of(1).collect()] == [4.5, 2.0]
    assert [(found.sku, found.meta().commit_id) for found in products.with_history().collect()] == [
        (7, 1),
        (8, 1),
        (7, 2),
    ]
    assert [found.sku for found in products.history_since(1).collect()] == [7]
    assert [customers.as_of(commit).count() for commit in range(6)] == [0, 0, 0, 0, 2, 3]


def test_before_a_migration_a_type_says_since_when_it_is_readable(onto):
    found = onto.query().entities(Customer).as_of(3).collect()
    assert found.diagnostics == [{"reason": "commit_before_activation", "activation_commit_id": 4}]


def test_relations_have_their_ends_and_paths_are_followed(onto):
    orders = onto.query().relations(Order)
    assert [(order.left.full_name, order.number) for order in orders.where(right(Order).price < 3).collect()] == [
        ("Bö 🦊", "B-1")
    ]
    (path,) = onto.query().entities(Customer).where(Customer.id == "c1").via(Order).collect()
    assert (path.relations[0].quantity, path.end.sku) == (3, 7)


def test_numbers_are_asked_for_as_always(onto):
    tiers = onto.query().entities(Customer).group_by(Customer.tier).agg(n=count())
    assert sorted((row["tier"], row["n"]) for row in tiers) == [("basic", 2), ("gold", 1)]
    assert onto.query().entities(Product).sum(Product.price) == 6.75


def test_the_log_says_what_each_commit_did(onto):
    commits = onto.list_commits()
    assert [(commit["id"], commit["metadata"].get("namespace")) for commit in commits] == [
        (5, "shop"), (4, None), (3, None), (2, None), (1, "shop"),
    ]  # fmt: skip
    assert onto.commit_at(datetime(2026, 1, 2, 12, tzinfo=UTC)) == 2
    assert [(item["type_name"], item["operation"]) for item in onto.list_commit_changes(5)] == [
        ("Customer", "insert"),
        ("Order", "update_version"),
    ]


def test_the_schemas_and_their_versions_are_those_of_the_classes(onto):
    versions = onto.engine.schema_versions()
    assert [(v.ref.name, v.schema_version_id, v.activation_commit_id, v.is_current) for v in versions] == [
        ("Customer", 1, None, False), ("Customer", 2, 4, True), ("Product", 1, 1, True), ("Order", 1, 2, True),
    ]  # fmt: skip
    assert onto.engine.catalog().outdated(onto.schemas) == []


def test_a_dropped_type_reads_as_empty(onto):
    assert [ref.name for ref in onto.engine.catalog().dropped] == ["Coupon"]


def test_commits_made_after_the_store_was_opened_are_seen(tmp_path):
    store = shop()
    path = write(store, tmp_path, "sqlite-v2")
    with Ontology(path, entity_types=[Product]) as onto:
        products = onto.query().entities(Product)
        before = products.count()
        store.commit(store.entity("Product", "9", sku=9, price=1.0, code="N", about=None))
        append_sqlite(store, sqlite3.connect(path), 5)
        assert (before, products.count(), products.as_of(5).count()) == (2, 3, 2)


def test_a_key_that_03_wrote_twice_in_one_commit_is_there_once_as_it_was_last(tmp_path, form):
    store = shop()
    rows = [store.entity("Product", "9", sku=9, price=price, code="N", about=None) for price in (1.0, 2.0)]
    store.commit(*rows)
    with Ontology(write(store, tmp_path, form), entity_types=[Product]) as onto:
        nine = onto.query().entities(Product).where(Product.sku == 9)
        assert ([found.price for found in nine.collect()], nine.with_history().count()) == ([2.0], 1)


def test_rows_from_before_a_version_that_only_says_more_words_are_read(tmp_path, form):
    store = Store03()
    bare = entity("Product", "sku", sku=INT, price=STR)
    for about, name in zip(bare["fields"].values(), ("int", "str"), strict=True):
        del about["type_spec"]
        about["type"] = f"<class '{name}'>"
    store.declare(bare)
    store.commit(store.entity("Product", "1", sku=1, price="x"))
    store.declare(entity("Product", "sku", sku=INT, price=STR), reason="type_spec_upgrade")
    store.commit(store.entity("Product", "2", sku=2, price="y"))
    with open_repository(write(store, tmp_path, form)) as repository:
        assert [row["price"] for row in repository.query_entities("Product")] == ["x", "y"]


def test_a_value_that_does_not_fit_its_field_is_named(tmp_path, form):
    store = shop()
    store.commit(store.entity("Product", "9", sku=9, price="dear", code="N", about=None))
    with Ontology(write(store, tmp_path, form), entity_types=[Product, Customer]) as onto:
        with pytest.raises(StorageBackendError, match=r"entity Product '9' of commit 6 .* \"dear\" in the field price"):
            onto.query().entities(Product).collect()
        assert onto.query().entities(Customer).count() == 3


def test_numbers_that_json_cannot_say_are_read(tmp_path, form):
    store = shop()
    store.commit(store.entity("Product", "9", sku=9, price=float("inf"), code="N", about=[float("nan")]))
    with Ontology(write(store, tmp_path, form), entity_types=[Product]) as onto:
        found = onto.query().entities(Product).where(Product.sku == 9).first()
    assert (found.price, str(found.about[0]).lower()) == (float("inf"), "nan")


def test_a_type_that_was_dropped_and_declared_again_is_read_under_its_new_schema(tmp_path):
    store = shop()
    store.declare({**COUPON, "fields": {**COUPON["fields"], **entity("C", "", percent=INT)["fields"]}})
    store.commit(store.entity("Coupon", "TEN", id="TEN", percent=10))
    with open_repository(write(store, tmp_path, "bucket-v2")) as repository:
        rows = repository.query_entities("Coupon")
        assert ([row["percent"] for row in rows], repository.engine.catalog().dropped) == ([10], frozenset())


def test_a_file_of_a_bucket_that_is_not_what_its_commit_wrote_is_refused(tmp_path):
    address = write(shop(), tmp_path, "bucket-v2")
    (file,) = tmp_path.glob("bucket/commits/2-*/entities/Product/v1.parquet")
    file.write_bytes(file.read_bytes()[:-8] + b"\0" * 8)
    with Ontology(address, entity_types=[Product]) as onto, pytest.raises(StorageBackendError, match="is damaged"):
        onto.query().entities(Product).collect()


def test_a_bucket_whose_chain_is_broken_names_the_object(tmp_path):
    address = write(shop(), tmp_path, "bucket-v1")
    (manifest,) = tmp_path.glob("bucket/commits/2-*/manifest.json")
    manifest.write_text("{")
    with (
        open_repository(address) as repository,
        pytest.raises(StorageBackendError, match=r"2-00000002/manifest.json is malformed"),
    ):
        repository.engine.catalog()


BEFORE_VERSIONS = """
CREATE TABLE commits (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL, metadata_json TEXT);
CREATE TABLE entity_history (id INTEGER PRIMARY KEY AUTOINCREMENT, entity_type TEXT NOT NULL, entity_key TEXT NOT NULL,
  fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL);
CREATE TABLE relation_history (id INTEGER PRIMARY KEY AUTOINCREMENT, relation_type TEXT NOT NULL,
  left_key TEXT NOT NULL, right_key TEXT NOT NULL, fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL);
CREATE TABLE schema_registry (type_kind TEXT NOT NULL, type_name TEXT NOT NULL, schema_json TEXT NOT NULL,
  PRIMARY KEY (type_kind, type_name));
INSERT INTO commits (created_at) VALUES ('2025-01-01T00:00:00+00:00');
INSERT INTO entity_history (entity_type, entity_key, fields_json, commit_id) VALUES ('Thing', 'a', '{"id": "a"}', 1);
INSERT INTO relation_history (relation_type, left_key, right_key, fields_json, commit_id)
  VALUES ('Joins', 'a', 'a', '{}', 1);
INSERT INTO schema_registry VALUES ('entity', 'Thing', '{"entity_name": "Thing", "fields":
  {"id": {"primary_key": true, "index": false, "type": "<class ''str''>"}}}');
INSERT INTO schema_registry VALUES ('relation', 'Joins', '{"relation_name": "Joins", "left_type": "Thing",
  "right_type": "Thing", "instance_key_field": null, "fields": {}}');
"""


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


class Joins(Relation[Thing, Thing]): ...


def test_a_file_from_before_schema_versions_is_read(tmp_path):
    path = str(tmp_path / "old.db")
    with closing(sqlite3.connect(path)) as file:
        file.executescript(BEFORE_VERSIONS)
    with Ontology(path, entity_types=[Thing], relation_types=[Joins]) as onto:
        assert [thing.id for thing in onto.query().entities(Thing).collect()] == ["a"]
        assert [(joins.left_key, joins.right.id) for joins in onto.query().relations(Joins).collect()] == [("a", "a")]
        assert [change["operation"] for change in onto.list_commit_changes(1)] == ["insert", "insert"]


def test_a_file_with_nothing_but_commits_is_of_version_1(tmp_path):
    path = str(tmp_path / "begun.db")
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE commits (id INTEGER PRIMARY KEY, created_at TEXT NOT NULL, metadata_json TEXT)")
    with Ontology(path, entity_types=[Thing]) as onto:
        assert onto.storage_info()["engine_version"] == "v1"
        assert onto.query().entities(Thing).collect() == []


def test_a_table_of_commits_of_somebody_else_is_no_store(tmp_path):
    path = str(tmp_path / "git.db")
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE commits (sha TEXT, author TEXT)")
    with pytest.raises(StorageBackendError, match="holds something else"):
        Ontology(path)
