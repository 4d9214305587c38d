"""What a migration leaves in a v2 file (RFC 0009 §6): new tables beside the old ones, a catalog that says which counts."""

import json
import sqlite3

import pytest

from ontologia import Entity, Field, MigrationError, Ontology


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


class Order(Entity):
    id: Field[int] = Field(primary_key=True)


class Empty(Entity):
    id: Field[str] = Field(primary_key=True)


class NewCustomer(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    age: Field[int] = 18


class NewOrder(Entity, name="Order"):
    id: Field[int] = Field(primary_key=True)
    total: Field[float | None] = None


class NewEmpty(Entity, name="Empty"):
    id: Field[str] = Field(primary_key=True)
    required: Field[int]


@pytest.fixture
def path(tmp_path):
    """Two customers with history, one order, and a type whose rows are gone from the start."""
    path = str(tmp_path / "onto.db")
    with Ontology(path, entity_types=[Customer, Order, Empty]) as onto:
        with onto.session() as session:
            session.ensure([Customer(id="c1", name="a"), Customer(id="c2", name="b"), Order(id=1), Empty(id="e")])
        with onto.session() as session:
            session.ensure(Customer(id="c1", name="A"))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM entity_Empty_v1")
    connection.close()
    return path


def migrate(path, *types, **options):
    with Ontology(path, entity_types=types) as onto:
        return onto.migrate(dry_run=False, force=True, **options)


def select(path, statement):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


CATALOG = (
    "SELECT type_name, schema_version_id, table_name, activation_commit_id, is_current "
    "FROM type_layout_catalog ORDER BY 1, 2"
)


def test_a_migrated_type_gets_a_new_table(path):
    migrate(path, NewCustomer)
    assert select(path, "SELECT entity_key, commit_id, schema_version_id, id, name, age FROM entity_Customer_v2") == [
        ("c1", 3, 2, "c1", "A", 18),
        ("c2", 3, 2, "c2", "b", 18),
    ]


def test_the_old_table_stays_as_it_was(path):
    before = select(path, "SELECT * FROM entity_Customer_v1")
    migrate(path, NewCustomer)
    assert select(path, "SELECT * FROM entity_Customer_v1") == before


def test_the_activation_is_in_the_catalog(path):
    migrate(path, NewCustomer)
    assert [row for row in select(path, CATALOG) if row[0] == "Customer"] == [
        ("Customer", 1, "entity_Customer_v1", 1, 0),
        ("Customer", 2, "entity_Customer_v2", 3, 1),
    ]


def test_the_migration_commit_says_what_it_did(path):
    migrate(path, NewCustomer, meta={"by": "me"})
    ((metadata,),) = select(path, "SELECT metadata_json FROM commits WHERE id = 3")
    assert json.loads(metadata) == {
        "by": "me",
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
                "filled": {"age": 18},
            }
        ],
    }


def test_a_type_without_rows_gets_an_empty_table_and_an_activation(path):
    result = migrate(path, NewEmpty)
    catalog = [row for row in select(path, CATALOG) if row[0] == "Empty"]
    assert (result.rows_migrated, select(path, "SELECT * FROM entity_Empty_v2"), catalog[-1]) == (
        0,
        [],
        ("Empty", 2, "entity_Empty_v2", 3, 1),
    )


def test_several_types_are_activated_by_one_commit(path):
    migrate(path, NewCustomer, NewOrder, NewEmpty)
    current = [(name, commit) for name, _, _, commit, is_current in select(path, CATALOG) if is_current]
    assert current == [("Customer", 3), ("Empty", 3), ("Order", 3)]


def test_several_types_are_complete_after_one_commit(path):
    migrate(path, NewCustomer, NewOrder)
    with Ontology(path) as onto:
        counts = [onto.query().entities(cls).count() for cls in (NewCustomer, NewOrder)]
    assert counts == [2, 1]


def test_storage_info_lists_historical_versions(path):
    migrate(path, NewCustomer)
    with Ontology(path) as onto:
        assert onto.storage_info()["type_layouts"]["Customer"] == {
            "type_kind": "entity",
            "current_schema_version_id": 2,
            "activation_commit_id": 3,
            "historical_versions": [1],
        }


def test_a_failing_migration_of_several_types_changes_nothing(path):
    def dump():
        connection = sqlite3.connect(path)
        try:
            return list(connection.iterdump())
        finally:
            connection.close()

    def broken(row):
        raise RuntimeError("no")

    before = dump()
    with pytest.raises(MigrationError):
        migrate(path, NewCustomer, NewOrder, upgraders={("Order", 1): broken})
    assert dump() == before
