"""A schema version is made current once."""

import pytest

from ontologia import Entity, Field, ValidationError, initialize_storage, open_repository


class First(Entity, name="Thing"):
    id: Field[str] = Field(primary_key=True)


class Second(Entity, name="Thing"):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0


@pytest.fixture(params=["sqlite", "bucket"])
def repository(request, tmp_path):
    target = str(tmp_path / "onto.db") if request.param == "sqlite" else (tmp_path / "bucket").as_uri()
    initialize_storage(target)
    with open_repository(target) as found:
        yield found


def commit(repository, version, **fields):
    repository.begin_transaction()
    repository.activate_schema_version("entity", "Thing", version)
    repository.insert_entity("Thing", fields["id"], fields, schema_version_id=version)
    return repository.commit_transaction()


@pytest.fixture
def grown(repository):
    """Two versions, each with a row."""
    repository.begin_transaction()
    for cls in (First, Second):
        repository.create_schema_version(cls.__declaration__.schema)
    repository.commit_transaction()
    commit(repository, 1, id="a")
    return repository


def test_activating_the_current_version_again_changes_nothing(grown):
    assert commit(grown, 1, id="b") == 3
    assert [row["id"] for row in grown.query_entities("Thing")] == ["a", "b"]
    assert [version.activation_commit_id for version in grown.list_schema_versions("entity", "Thing")] == [2, None]


def test_activating_it_twice_in_one_transaction_changes_nothing(grown):
    grown.begin_transaction()
    first, again = (grown.activate_schema_version("entity", "Thing", 2) for _ in range(2))
    grown.insert_entity("Thing", "c", {"id": "c", "size": 1}, schema_version_id=2)
    grown.commit_transaction()
    assert first == again
    assert [row["id"] for row in grown.query_entities("Thing")] == ["c"]


def test_a_version_that_was_left_behind_is_not_made_current_again(grown):
    commit(grown, 2, id="c", size=1)
    grown.begin_transaction()
    with pytest.raises(ValidationError, match=r"entity Thing left schema version 1 behind.*Migrate"):
        grown.activate_schema_version("entity", "Thing", 1)
    grown.rollback_transaction()
    assert [row["id"] for row in grown.query_entities("Thing")] == ["c"]


def test_a_version_that_nobody_recorded_is_refused(grown):
    grown.begin_transaction()
    with pytest.raises(ValidationError, match="has no schema version 9"):
        grown.activate_schema_version("entity", "Thing", 9)
    grown.rollback_transaction()
