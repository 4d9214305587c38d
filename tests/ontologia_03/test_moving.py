"""Nothing is written into a store of 0.3; its data moves into a new one, from the store or from its own exports."""

import hashlib
import json
from pathlib import Path

import pytest

from ontologia import (
    Ontology,
    ReadOnlyStoreError,
    StorageBackendError,
    ValidationError,
    copy_history,
    export_data,
    import_data,
    initialize_storage,
    open_repository,
)
from ontologia.model import TypeRef
from support.shop_03 import Customer, Order, Product, shop
from support.writer_03 import write


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def onto(old):
    with Ontology(old, entity_types=[Customer, Product], relation_types=[Order]) as found:
        yield found


@pytest.fixture
def new(tmp_path):
    with Ontology(str(tmp_path / "new.db"), entity_types=[Customer, Product], relation_types=[Order]) as found:
        yield found


def test_a_commit_is_refused_with_the_way_to_move(onto, old):
    session = onto.session()
    session.ensure(Product(sku=1, price=1.0, code="x"))
    with pytest.raises(ReadOnlyStoreError, match=r"written by Ontologia 0.3 .* onto export .* onto import") as caught:
        session.commit()
    assert old in str(caught.value)
    assert caught.value.code == "read_only_store"


WRITES = [
    lambda repository: repository.begin_transaction(),
    lambda repository: repository.apply_schema_drop([]),
    lambda repository: repository.acquire_lock("me", 1000),
    lambda repository: repository.renew_lock("me", 1000),
    lambda repository: repository.release_lock("me"),
    lambda repository: repository.compact(),
    lambda repository: repository.vacuum(),
    lambda repository: repository.index_verify(),
    lambda repository: repository.index_repair(apply=True),
]


def test_every_other_way_to_write_is_refused_as_well(onto):
    for write_something in WRITES:
        with pytest.raises(ReadOnlyStoreError, match="read-only here"):
            write_something(onto.repository)


def test_reading_leaves_the_store_as_it_is(old, tmp_path):
    before = contents(tmp_path)
    with Ontology(old, entity_types=[Customer, Product], relation_types=[Order]) as onto:
        onto.query().relations(Order).collect()
        onto.list_commit_changes(2)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_store_of_03_is_not_initialized_over(old, tmp_path, dry_run):
    before = contents(tmp_path)
    with pytest.raises(ValidationError, match=r"Ontologia 0\.3, which is kept"):
        initialize_storage(old, force=True, dry_run=dry_run, token="x")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_what_is_exported_is_imported_whole(onto, new, tmp_path, format):
    export_data(onto, tmp_path / "out", format=format)
    report = import_data(new, tmp_path / "out", dry_run=False)
    assert report.rows == 7
    for ask in (lambda found: found.query().entities(Customer), lambda found: found.query().entities(Product)):
        assert ask(new).collect() == ask(onto).collect()
    assert new.query().relations(Order).collect() == onto.query().relations(Order).collect()


def test_an_earlier_state_is_exported(onto, new, tmp_path):
    export_data(onto, tmp_path / "out", types=["Product"], as_of=1)
    import_data(new, tmp_path / "out", dry_run=False)
    assert [found.price for found in new.query().entities(Product).collect()] == [4.5, 2.0]


# --- with all commits ---


def test_a_store_is_copied_with_its_history(onto, old, tmp_path):
    copy_history(old, tmp_path / "copy.db", types=[Customer, Product, Order])
    with Ontology(str(tmp_path / "copy.db"), entity_types=[Customer, Product], relation_types=[Order]) as copy:
        assert copy.list_commits(None) == onto.list_commits(None)
        for commit in range(2, 6):
            assert copy.list_commit_changes(commit) == onto.list_commit_changes(commit)
        for ask in (
            lambda found: found.query().entities(Customer),
            lambda found: found.query().entities(Product).with_history(),
            lambda found: found.query().entities(Product).as_of(1),
            lambda found: found.query().relations(Order).history_since(2),
        ):
            assert ask(copy).collect() == ask(onto).collect()
        first = copy.engine.schema_versions(TypeRef("entity", "Customer"))[0]
        assert (first.activation_commit_id, first.is_current) == (1, False)


def test_a_copy_without_the_classes_names_the_field_that_rows_lack(old, tmp_path):
    with pytest.raises(StorageBackendError, match=r"entity Customer, version 2, do not have the field channel"):
        copy_history(old, tmp_path / "copy.db")


# --- what `onto export` of 0.3 wrote ---


def exported_by_03(folder: Path, *, versions: str = "latest", metadata: bool = False) -> Path:
    """The shop as 0.3 exported it: a file per type, in no folder and without a header."""
    folder.mkdir()
    rows = [
        (commit, row) for commit, (_, rows) in enumerate(shop().commits, 1) for row in rows if row.type_name != "Coupon"
    ]
    if versions == "latest":
        rows = list({(row.type_name, row.identity): (commit, row) for commit, row in rows}.values())
    for name in ("Customer", "Product", "Order"):
        lines = []
        for commit, row in rows:
            if row.type_name != name:
                continue
            record = {"type_kind": row.kind, "type_name": name}
            if row.kind == "entity":
                record |= {"key": row.identity[0], "fields": row.fields}
            else:
                left, right, instance = row.identity
                record |= {"left_key": left, "right_key": right, "fields": row.fields, "instance_key": instance}
            lines.append(json.dumps(record | ({"commit_id": commit} if metadata else {})))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("metadata", [False, True])
def test_an_export_of_03_is_imported(new, tmp_path, metadata):
    import_data(new, exported_by_03(tmp_path / "out", metadata=metadata), dry_run=False)
    alice, bob, dora = new.query().entities(Customer).collect()
    assert (alice.full_name, alice.channel, bob.former, dora.notes) == (
        "Alice",
        "web",
        {"city": "Rome", "zip": None},
        ["x"],
    )
    assert [(order.number, order.quantity) for order in new.query().relations(Order).collect()] == [
        ("A-1", 3),
        ("B-1", 9),
    ]


def test_of_a_history_the_last_version_of_each_identity_is_imported_whatever_the_earlier_ones_looked_like(
    new, tmp_path
):
    report = import_data(new, exported_by_03(tmp_path / "out", versions="all", metadata=True), dry_run=False)
    assert {item.ref.name: item.inserted for item in report.types} == {"Customer": 3, "Product": 2, "Order": 2}
    assert [found.full_name for found in new.query().entities(Customer).collect()] == ["Alice", "Bö 🦊", "Dora"]


def test_a_record_of_03_that_nothing_replaces_and_that_does_not_fit_is_named_and_nothing_is_imported(new, tmp_path):
    folder = exported_by_03(tmp_path / "out")
    (folder / "Product.jsonl").write_text(
        '{"type_kind": "entity", "type_name": "Product", "key": "7", "fields": {"sku": 7, "code": "T"}}\n'
    )
    with pytest.raises(ValidationError, match=r"Product.jsonl:1: .*price: Field required.*Nothing was imported"):
        import_data(new, folder, dry_run=False)
    assert open_repository(str(tmp_path / "new.db")).get_head_commit_id() == 0


def test_a_record_of_ours_may_still_have_no_unknown_fields(new, tmp_path):
    (tmp_path / "p.jsonl").write_text(
        '{"kind": "entity", "type": "Product", "key": "7", "fields": {"sku": 7, "price": 1, "code": "T", "x": 1}}\n'
    )
    with pytest.raises(ValidationError, match="Extra inputs"):
        import_data(new, tmp_path / "p.jsonl")


def test_a_missing_field_is_left_out_of_an_export_and_told_apart_from_null(tmp_path):
    with (
        open_repository(write(shop(), tmp_path, "sqlite-v2")) as repository,
        Ontology(str(tmp_path / "old.db")) as onto,
    ):
        export_data(onto, tmp_path / "out")
        lines = (tmp_path / "out/entities/Customer.jsonl").read_text().splitlines()
    fields = json.loads(lines[0])["fields"]
    assert "channel" not in fields
    assert fields["former"] is None
    assert repository is not None
