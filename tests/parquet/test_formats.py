"""The objects under a prefix, to the letter of RFC 0004 §2, §5 and RFC 0009 §4."""

from __future__ import annotations

import hashlib
import io
import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.records import CommitManifest, Head, TypeIndex
from ontologia.engines.parquet.log.schemas import KnownTypes
from support.parquet_shop import Customer, CustomerWithEmail, Product, Rated, Shop, commit

CUSTOMER = Customer.__declaration__.ref


def change(shop: Shop, key: str, **more: Any) -> None:
    shop.objects.put(key, json.dumps(shop.read(key) | more).encode())


def parquet(shop: Shop, key: str) -> pa.Table:
    return pq.read_table(io.BytesIO(shop.objects.get(key).data))


def is_utc(text: str) -> bool:
    offset = datetime.fromisoformat(text).utcoffset()
    return offset is not None and not offset


def test_an_initialized_prefix_has_exactly_the_planned_objects(empty: Shop) -> None:
    expected = {"meta/head.json", "meta/engine.json", "meta/schema/types.json"}
    if empty.version == "v2":
        expected.add("meta/type_layout_catalog.json")
        assert empty.read("meta/type_layout_catalog.json") == {"layouts": []}
    assert {info.key for info in empty.objects.list()} == expected
    head = empty.read("meta/head.json")
    assert (head["commit_id"], head["manifest_path"], head["runtime_id"]) == (0, None, "onto-init")
    assert is_utc(head["updated_at"])
    engine = empty.read("meta/engine.json")
    assert {"backend": engine["backend"], "engine_version": engine["engine_version"]} == {
        "backend": "s3",
        "engine_version": empty.version,
    }
    assert is_utc(engine["created_at"])
    types = empty.read("meta/schema/types.json")
    assert (types["entities"], types["relations"]) == ([], [])


def test_the_head_names_the_manifest_of_the_last_commit_and_its_hash(store: Shop) -> None:
    head = store.read("meta/head.json")
    assert head["commit_id"] == 3
    assert head["manifest_path"].startswith("commits/3-")
    assert head["manifest_path"].endswith("/manifest.json")
    assert is_utc(head["updated_at"])
    assert head["runtime_id"]
    assert head["commit_sha256"] == hashlib.sha256(store.objects.get(head["manifest_path"]).data).hexdigest()


def test_a_manifest_lists_its_files_and_its_parent(store: Shop) -> None:
    with store.using(runtime_id="writer-a") as repository:
        commit(repository, [Product(sku="p2"), Customer(id="c3", name="Carol")], note="hello")
    head = store.read("meta/head.json")
    manifest = store.read(head["manifest_path"])
    folder = head["manifest_path"].removesuffix("manifest.json")
    assert {key: manifest[key] for key in ("commit_id", "parent_commit_id", "runtime_id", "metadata")} == {
        "commit_id": 4,
        "parent_commit_id": 3,
        "runtime_id": "writer-a",
        "metadata": {"note": "hello"},
    }
    assert is_utc(manifest["created_at"])
    assert store.read(manifest["parent_manifest_path"])["commit_id"] == 3
    names = {"v1": "{}entities/{}.parquet", "v2": "{}entities/{}/v1.parquet"}
    files = {file["type_name"]: file for file in manifest["files"]}
    assert set(files) == {"Customer", "Product"}
    for name, file in files.items():
        body = store.objects.get(file["path"]).data
        assert file["path"] == names[store.version].format(folder, name)
        assert (file["kind"], file["row_count"], file["schema_version_id"]) == ("entity", 1, 1)
        assert file["content_sha256"] == hashlib.sha256(body).hexdigest()


def test_the_first_manifest_has_no_parent(store: Shop) -> None:
    first = next(info.key for info in store.objects.list("commits/1-") if info.key.endswith("manifest.json"))
    manifest = store.read(first)
    assert manifest["parent_commit_id"] is None
    assert manifest["parent_manifest_path"] is None


def test_entity_files_have_the_columns_of_their_engine(store: Shop) -> None:
    key = next(info.key for info in store.objects.list("commits/2-") if "Customer" in info.key)
    table = parquet(store, key)
    fields = {"id": pa.string(), "name": pa.string(), "tier": pa.string(), "age": pa.int64(), "tags": pa.string()}
    system = {"entity_key": pa.string(), "commit_id": pa.int64(), "schema_version_id": pa.int64()}
    if store.version == "v1":
        expected = ["commit_id", "entity_type", "entity_key", "schema_version_id", *fields, "fields_json"]
        assert table.schema.names == expected
        assert table.to_pylist()[0]["entity_type"] == "Customer"
        row = {"id": "c1", "name": "Alice", "tier": "silver", "age": 31, "tags": []}
        assert json.loads(table.to_pylist()[0]["fields_json"]) == row
    else:
        assert set(table.schema.names) == {*fields, *system}
    assert {name: table.schema.field(name).type for name in (fields | system)} == fields | system
    assert table.select(["entity_key", "commit_id", "schema_version_id"]).to_pylist() == [
        {"entity_key": "c1", "commit_id": 2, "schema_version_id": 1}
    ]


def test_relation_files_have_endpoints_and_instance_keys(store: Shop) -> None:
    def rows(commit_id: int, name: str) -> pa.Table:
        return parquet(store, next(i.key for i in store.objects.list(f"commits/{commit_id}-") if name in i.key))

    unkeyed, keyed = rows(2, "Bought"), rows(3, "Rated")
    identity = ["left_key", "right_key", "instance_key"]
    assert unkeyed.select(identity).to_pylist() == [{"left_key": "c1", "right_key": "p1", "instance_key": ""}]
    assert [row["instance_key"] for row in keyed.select(identity).to_pylist()] == ["2024", "2025"]
    assert keyed.schema.field("stars").type == pa.int64()
    if store.version == "v1":
        assert keyed.schema.names[:6] == ["commit_id", "relation_type", *identity, "schema_version_id"]
        assert keyed.schema.names[-1] == "fields_json"
    else:
        assert not {"relation_type", "fields_json"} & set(keyed.schema.names)


def test_scalars_have_their_parquet_types_and_the_rest_is_json(empty: Shop) -> None:
    from ontologia.testing.conformance.shop import Customer as Rich
    from ontologia.testing.conformance.shop import history

    empty.commit([row for row in history()[0] if isinstance(row, Rich)])
    key = next(info.key for info in empty.objects.list("commits/1-") if "Customer" in info.key)
    schema = parquet(empty, key).schema
    expected = {
        "age": pa.int64(),
        "balance": pa.float64(),
        "active": pa.bool_(),
        "joined": pa.timestamp("us", tz="UTC"),
        "born": pa.date32(),
        "token": pa.binary(),
        "tier": pa.string(),
        "address": pa.string(),
        "labels": pa.string(),
        "extra": pa.string(),
    }
    assert {name: schema.field(name).type for name in expected} == expected


def test_indices_cover_every_known_type_up_to_the_head(store: Shop) -> None:
    customers = store.read("meta/indices/entities/Customer.json")
    assert (customers["type_name"], customers["max_indexed_commit"]) == ("Customer", 3)
    assert [(entry["min_commit_id"], entry["max_commit_id"]) for entry in customers["entries"]] == [(1, 1), (2, 2)]
    assert all(store.objects.exists(entry["path"]) for entry in customers["entries"])
    for kind, name in (("entities", "Product"), ("relations", "Bought"), ("relations", "Rated")):
        assert store.read(f"meta/indices/{kind}/{name}.json")["max_indexed_commit"] == 3
    v2_only = {"current_schema_version_id", "activation_commit_id", "historical_versions"}
    if store.version == "v1":
        assert not v2_only & set(customers)
    else:
        assert {key: customers[key] for key in v2_only} == {
            "current_schema_version_id": 1,
            "activation_commit_id": 1,
            "historical_versions": [],
        }
        assert {entry["schema_version_id"] for entry in customers["entries"]} == {1}


def test_known_types_list_both_kinds(store: Shop) -> None:
    types = store.read("meta/schema/types.json")
    assert (types["entities"], types["relations"]) == (["Customer", "Product"], ["Bought", "Rated"])
    assert is_utc(types["updated_at"])


def test_a_migration_is_told_in_the_manifest_the_index_and_the_layout_catalog(store: Shop) -> None:
    store.session(CustomerWithEmail, Product).migrate(dry_run=False, force=True)
    manifest = store.read(store.read("meta/head.json")["manifest_path"])
    assert manifest["metadata"] == {
        "kind": "migration",
        "migrated_types": [
            {
                "type_kind": "entity",
                "type_name": "Customer",
                "from_schema_version_id": 1,
                "to_schema_version_id": 2,
                "rows_rewritten": 2,
                "change": "weakening",
                "renamed_fields": {},
                "filled": {"email": "none"},
            }
        ],
    }
    versions = store.read("meta/schema/versions/entities/Customer.json")["versions"]
    assert [version["schema_version_id"] for version in versions] == [1, 2]
    if store.version == "v2":
        assert manifest["files"][0]["path"].endswith("/entities/Customer/v2.parquet")
        index = store.read("meta/indices/entities/Customer.json")
        assert (index["current_schema_version_id"], index["activation_commit_id"]) == (2, 4)
        assert index["historical_versions"] == [
            {"schema_version_id": 1, "activation_commit_id": 1, "superseded_at_commit_id": 4}
        ]
        layouts = store.read("meta/type_layout_catalog.json")["layouts"]
        assert {
            "type_kind": "entity",
            "type_name": "Customer",
            "schema_version_id": 2,
            "activation_commit_id": 4,
            "is_current": True,
        } in layouts


def test_a_snapshot_has_its_range_in_its_name_and_every_row_with_its_commit(store: Shop) -> None:
    with store.using() as repository:
        repository.compact(apply=True)
    entry = store.read("meta/indices/entities/Customer.json")["entries"]
    expected = {"v1": "snapshots/entities/Customer-1-2.parquet", "v2": "snapshots/entities/Customer/v1-1-2.parquet"}
    assert [(e["min_commit_id"], e["max_commit_id"], e["path"]) for e in entry] == [(1, 2, expected[store.version])]
    table = parquet(store, entry[0]["path"]).select(["entity_key", "commit_id", "superseded_by"]).to_pylist()
    assert table == [
        {"entity_key": "c1", "commit_id": 2, "superseded_by": None},
        {"entity_key": "c2", "commit_id": 1, "superseded_by": None},
        {"entity_key": "c1", "commit_id": 1, "superseded_by": 2},
    ]


def test_the_lock_says_who_holds_it_and_until_when(store: Shop) -> None:
    with store.using(runtime_id="writer-a", s3_lease_ttl_ms=5_000) as repository:
        repository.begin_transaction()
        lock = store.read("meta/locks/ontology_write.json")
        repository.rollback_transaction()
    assert (lock["owner_id"], lock["lease_ttl_ms"]) == ("writer-a", 5_000)
    held = datetime.fromisoformat(lock["expires_at"]) - datetime.fromisoformat(lock["acquired_at"])
    assert held.total_seconds() == pytest.approx(5, abs=0.01)


def test_dropped_types_are_listed(store: Shop) -> None:
    session = store.session()
    plan: Any = session.drop_types(relations=["Rated"])
    session.drop_types(relations=["Rated"], dry_run=False, token=plan.token)
    assert store.read("meta/schema/dropped.json")["dropped"] == [{"kind": "relation", "type_name": "Rated"}]
    assert store.read("meta/schema/types.json")["relations"] == ["Bought"]
    if store.version == "v2":
        layouts = store.read("meta/type_layout_catalog.json")["layouts"]
        assert [x["is_current"] for x in layouts if x["type_name"] == "Rated"] == [False]
    assert any("Rated" in info.key for info in store.objects.list("commits/3-"))
    assert not store.session(Rated).query().relations(Rated).collect()


def test_keys_that_a_newer_release_added_are_kept_on_rewrite(memory: Shop) -> None:
    change(memory, paths.HEAD, later="kept")
    change(memory, paths.index(CUSTOMER), later="kept")
    change(memory, paths.TYPES, later="kept")
    index = memory.read(paths.index(CUSTOMER))
    index["entries"][0]["later"] = "kept"
    change(memory, paths.index(CUSTOMER), **index)
    if memory.version == "v2":
        change(memory, paths.LAYOUTS, later="kept")

    class Shelf(Product, name="Shelf"):
        pass

    memory.commit([Customer(id="c9", name="Ida"), Shelf(sku="s1")])
    rewritten = [paths.HEAD, paths.index(CUSTOMER), paths.TYPES]
    rewritten += [paths.LAYOUTS] if memory.version == "v2" else []
    assert {key: memory.read(key)["later"] for key in rewritten} == dict.fromkeys(rewritten, "kept")
    assert memory.read(paths.index(CUSTOMER))["entries"][0]["later"] == "kept"


def test_the_documents_of_the_rfc_are_read() -> None:
    """As other implementations write them, without what we add."""
    head = Head.read({"commit_id": 0, "manifest_path": None, "updated_at": "2026-02-10T00:00:00Z", "runtime_id": "a"})
    assert (head.commit_id, head.schema_manifest_path) == (0, None)
    index = TypeIndex.read(
        {
            "type_name": "Customer",
            "max_indexed_commit": 123,
            "entries": [
                {"min_commit_id": 1, "max_commit_id": 100, "path": "snapshots/entities/Customer-1-100.parquet"},
                {"min_commit_id": 105, "max_commit_id": 105, "path": "commits/105-cd34/entities/Customer.parquet"},
            ],
        }
    )
    assert [entry.is_snapshot for entry in index.entries] == [True, False]
    file = {
        "kind": "entity",
        "type_name": "Customer",
        "path": "commits/1-a/entities/Customer.parquet",
        "row_count": 1,
        "schema_version_id": 1,
        "content_sha256": "ab",
    }
    manifest = CommitManifest.read(
        {
            "commit_id": 1,
            "parent_commit_id": None,
            "parent_manifest_path": None,
            "created_at": "2026-02-10T00:00:00Z",
            "runtime_id": "a",
            "metadata": {},
            "files": [file],
        }
    )
    assert manifest.files[0].ref == CUSTOMER
    types = KnownTypes.read({"entities": ["Customer"], "relations": [], "updated_at": "2026-02-10T00:00:00Z"})
    assert types.refs == [CUSTOMER]
