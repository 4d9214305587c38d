"""Row by row into the right table, with the version said and right (RFC 0009 §8)."""

import sqlite3

import pytest

from ontologia import Entity, Field, Ontology, Relation, ValidationError, open_repository


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    age: Field[int] = 0
    tags: Field[list[str]] = Field(default_factory=list)


class Older(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)


class Knows(Relation[Customer, Customer]):
    since: Field[int] = 0


@pytest.fixture
def repository(path):
    """A store where Customer is at schema version 2."""
    with Ontology(path, entity_types=[Older], relation_types=[Knows]) as onto, onto.session() as session:
        session.ensure(Older(id="c0"))
    with Ontology(path, entity_types=[Customer], relation_types=[Knows]) as onto:
        onto.migrate(dry_run=False, force=True)
        with onto.session() as session:
            session.ensure(Knows(left_key="c0", right_key="c0"))
    with open_repository(path) as repository:
        yield repository


def insert(repository, **extra):
    repository.begin_transaction()
    repository.create_commit({"why": "test"})
    repository.insert_entity("Customer", "c9", {"id": "c9", "age": 9, "tags": ["x"]}, **extra)
    return repository.commit_transaction()


def test_insert_entity_writes_to_the_table_of_the_current_version(tmp_path):
    path = str(tmp_path / "v2.db")
    with Ontology(path, entity_types=[Older]) as onto, onto.session() as session:
        session.ensure(Older(id="c0"))
    with Ontology(path, entity_types=[Customer]) as onto:
        onto.migrate(dry_run=False, force=True)
    with open_repository(path) as repository:
        insert(repository, schema_version_id=2)
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT * FROM entity_Customer_v2 WHERE entity_key = 'c9'").fetchone()
    assert row == ("c9", 3, 2, "c9", 9, '["x"]')


def test_an_inserted_entity_can_be_read(repository):
    insert(repository, schema_version_id=2)
    assert repository.get_latest_entity("Customer", "c9") == {"commit_id": 4, "id": "c9", "age": 9, "tags": ["x"]}


def test_an_inserted_relation_can_be_read(repository):
    repository.begin_transaction()
    repository.insert_relation("Knows", "c0", "c1", {"since": 3}, schema_version_id=1)
    repository.commit_transaction()
    assert repository.get_latest_relation("Knows", "c0", "c1")["since"] == 3


@pytest.mark.parametrize("version", [1, 3, 0, -1])
def test_a_mismatched_schema_version_is_refused(repository, version):
    with pytest.raises(ValidationError, match=f"version 2.*{version} was given"):
        insert(repository, schema_version_id=version)
    repository.rollback_transaction()


def test_a_refused_insert_leaves_no_commit(repository):
    with pytest.raises(ValidationError):
        insert(repository, schema_version_id=1)
    repository.rollback_transaction()
    assert repository.get_head_commit_id() == 3


def test_v2_refuses_an_insert_without_a_schema_version(repository, engine_version):
    if engine_version == "v1":
        assert insert(repository) == 4
        return
    with pytest.raises(ValidationError, match="no schema_version_id"):
        insert(repository)
    repository.rollback_transaction()


def test_an_unknown_field_is_refused(repository):
    repository.begin_transaction()
    with pytest.raises(ValidationError, match="nickname"):
        repository.insert_entity("Customer", "c9", {"id": "c9", "nickname": "x"}, schema_version_id=2)
    repository.rollback_transaction()


def test_an_unknown_type_is_refused(repository):
    repository.begin_transaction()
    with pytest.raises(ValidationError, match="Nobody"):
        repository.insert_entity("Nobody", "x", {}, schema_version_id=1)
    repository.rollback_transaction()


@pytest.mark.parametrize(
    "fields", [{"id": "c9", "age": "old", "tags": []}, {"id": "c9", "age": None, "tags": []}, {"id": "c9"}]
)
def test_a_row_that_does_not_fit_is_refused_and_nothing_is_written(repository, fields):
    repository.begin_transaction()
    repository.insert_entity("Customer", "c8", {"id": "c8", "age": 1, "tags": []}, schema_version_id=2)
    repository.insert_entity("Customer", "c9", fields, schema_version_id=2)
    with pytest.raises(ValidationError, match="age"):
        repository.commit_transaction()
    assert (repository.get_head_commit_id(), repository.get_latest_entity("Customer", "c8")) == (3, None)


def test_after_a_failed_commit_the_next_transaction_works(repository):
    repository.begin_transaction()
    repository.insert_entity("Customer", "c9", {"id": "c9"}, schema_version_id=2)
    with pytest.raises(ValidationError):
        repository.commit_transaction()
    assert insert(repository, schema_version_id=2) == 4


def test_a_rolled_back_transaction_leaves_no_trace(repository):
    repository.begin_transaction()
    repository.insert_entity("Customer", "c9", {"id": "c9", "age": 1, "tags": []}, schema_version_id=2)
    repository.rollback_transaction()
    assert repository.get_latest_entity("Customer", "c9") is None


@pytest.mark.parametrize("call", ["commit_transaction", "rollback_transaction", "create_commit"])
def test_calls_outside_a_transaction_are_refused(repository, call):
    with pytest.raises(ValidationError, match="begin_transaction"):
        getattr(repository, call)()


def test_a_second_transaction_in_one_thread_is_refused(repository):
    repository.begin_transaction()
    with pytest.raises(ValidationError, match="open already"):
        repository.begin_transaction()
    repository.rollback_transaction()


def test_a_session_inside_an_open_transaction_is_refused_and_harms_nothing(repository, path):
    with Ontology(path, entity_types=[Customer]) as onto:
        onto.repository.begin_transaction()
        session = onto.session()
        session.ensure(Customer(id="c7"))
        with pytest.raises(ValidationError, match="open already"):
            session.commit()
        onto.repository.rollback_transaction()
        assert session.commit() == 4


def test_a_new_type_gets_its_partition_in_the_commit_that_first_writes_it(tmp_path):
    path = str(tmp_path / "v2.db")
    with Ontology(path, entity_types=[Customer]) as onto:
        with onto.session() as session:
            session.ensure(Customer(id="c1"))
        with onto.session() as session:
            session.ensure(Knows(left_key="c1", right_key="c1"))
        assert onto.storage_info()["type_layouts"]["Knows"]["activation_commit_id"] == 2


def test_a_recorded_version_can_be_activated_and_written(tmp_path):
    with open_repository(tmp_path / "new.db") as repository:
        repository.begin_transaction()
        version = repository.create_schema_version(Customer.__declaration__.schema)
        repository.activate_schema_version("entity", "Customer", version)
        repository.insert_entity("Customer", "c1", {"id": "c1", "age": 1, "tags": []}, schema_version_id=version)
        repository.commit_transaction()
        assert repository.get_current_schema_version("entity", "Customer").schema_version_id == 1
