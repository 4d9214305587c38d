"""Which engine opens a file: by its stamp, by its age, or by what was asked for (RFC 0009 §1, §7)."""

import sqlite3

import pyarrow as pa
import pytest

from ontologia import (
    EngineVersionError,
    Entity,
    Field,
    Ontology,
    ValidationError,
    initialize_storage,
    open_repository,
)
from ontologia.engines.sqlite.v1 import SqliteEngineV1
from ontologia.engines.sqlite.v2 import SqliteEngineV2

CLASSES = {"v1": SqliteEngineV1, "v2": SqliteEngineV2}


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


def stamps(path):
    connection = sqlite3.connect(path)
    try:
        return dict(connection.execute("SELECT key, value FROM storage_meta"))
    finally:
        connection.close()


def execute(path, statement, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_an_explicit_engine_version_is_stamped(path, engine_version):
    assert stamps(path).items() >= {"backend": "sqlite", "engine_version": engine_version}.items()


def test_a_new_store_gets_the_latest_engine(tmp_path):
    with open_repository(tmp_path / "new.db") as repository:
        assert (type(repository.engine), repository.engine.engine_version) == (SqliteEngineV2, "v2")


def test_an_empty_file_is_a_new_store(tmp_path):
    (tmp_path / "empty.db").touch()
    with open_repository(tmp_path / "empty.db") as repository:
        assert repository.engine.engine_version == "v2"


def test_an_existing_store_opens_with_the_class_of_its_stamp(path, engine_version):
    with open_repository(path) as repository:
        assert type(repository.engine) is CLASSES[engine_version]


def test_the_version_may_be_repeated_when_it_agrees(path, engine_version):
    with open_repository(path, engine_version=engine_version) as repository:
        assert repository.engine.engine_version == engine_version


def test_asking_for_another_version_than_the_stored_one_is_refused(path, engine_version):
    other = {"v1": "v2", "v2": "v1"}[engine_version]
    with pytest.raises(EngineVersionError, match=f"{engine_version}, not {other}"):
        open_repository(path, engine_version=other)


def test_an_unknown_version_for_a_new_store_is_refused_and_makes_no_file(tmp_path):
    with pytest.raises(EngineVersionError, match=r"v9.*v1, v2"):
        open_repository(tmp_path / "new.db", engine_version="v9")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("stamp", ["v3", "v10", "", "2", "nonsense"])
def test_a_newer_or_unknown_stamp_is_refused_with_what_to_do(path, stamp):
    execute(path, "UPDATE storage_meta SET value = ? WHERE key = 'engine_version'", stamp)
    with pytest.raises(EngineVersionError, match="upgrade"):
        open_repository(path)


def test_a_refused_store_is_left_as_it_was(path):
    execute(path, "UPDATE storage_meta SET value = 'v3' WHERE key = 'engine_version'")
    before = sqlite3.connect(path).execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(EngineVersionError):
        Ontology(path, entity_types=[Customer])
    assert sqlite3.connect(path).execute("SELECT * FROM sqlite_master").fetchall() == before


def test_a_stamp_without_a_version_is_refused(path):
    execute(path, "DELETE FROM storage_meta WHERE key = 'engine_version'")
    with pytest.raises(EngineVersionError, match="engine_version"):
        open_repository(path)


@pytest.fixture
def unstamped(tmp_path):
    """A store from before engine versions: v1 tables, no storage_meta."""
    path = str(tmp_path / "old.db")
    open_repository(path, engine_version="v1").close()
    with Ontology(path, entity_types=[Customer]) as onto, onto.session() as session:
        session.ensure(Customer(id="c1", name="Alice"))
    execute(path, "DROP TABLE storage_meta")
    return path


def test_a_store_older_than_stamps_is_v1(unstamped):
    with open_repository(unstamped) as repository:
        assert type(repository.engine) is SqliteEngineV1


def test_a_store_older_than_stamps_is_read_and_written(unstamped):
    with Ontology(unstamped, entity_types=[Customer]) as onto:
        with onto.session() as session:
            session.ensure(Customer(id="c2", name="Bob"))
        assert [customer.id for customer in onto.query().entities(Customer).collect()] == ["c1", "c2"]


def test_a_store_older_than_stamps_stays_without_one(unstamped):
    open_repository(unstamped).close()
    tables = sqlite3.connect(unstamped).execute("SELECT name FROM sqlite_master WHERE name = 'storage_meta'")
    assert tables.fetchall() == []


def test_the_loser_of_a_race_to_create_opens_what_the_winner_made(tmp_path, monkeypatch):
    target = str(tmp_path / "onto.db")
    monkeypatch.setattr("ontologia.engines.dispatch.stored_sqlite_stamp", _blind_once(target))
    with open_repository(target) as repository:
        assert type(repository.engine) is SqliteEngineV1


def test_the_loser_of_a_race_to_create_is_told_when_it_wanted_another_version(tmp_path, monkeypatch):
    target = str(tmp_path / "onto.db")
    monkeypatch.setattr("ontologia.engines.dispatch.stored_sqlite_stamp", _blind_once(target))
    with pytest.raises(EngineVersionError, match="v1, not v2"):
        open_repository(target, engine_version="v2")


def _blind_once(target):
    """Look before another process lays out a v1 store, and decide after it."""
    from ontologia.engines import dispatch

    original = dispatch.stored_sqlite_stamp
    looked = []

    def look(path):
        if looked:
            return original(path)
        looked.append(path)
        found = original(path)
        SqliteEngineV1.create(target).close()
        return found

    return look


def test_storage_info_of_v1_has_backend_version_and_path(tmp_path):
    path = str(tmp_path / "onto.db")
    with open_repository(path, engine_version="v1") as repository:
        assert repository.storage_info() == {"backend": "sqlite", "engine_version": "v1", "db_path": path}


def test_storage_info_of_an_empty_v2_store_has_no_layouts(tmp_path):
    path = str(tmp_path / "onto.db")
    with open_repository(path) as repository:
        assert repository.storage_info() == {
            "backend": "sqlite",
            "engine_version": "v2",
            "db_path": path,
            "type_layouts": {},
        }


@pytest.mark.parametrize("target", ["onto.db", "file:///{folder}/store"])
def test_an_engine_that_there_is_not_makes_no_store(tmp_path, target):
    place = target.format(folder=tmp_path) if "{" in target else str(tmp_path / target)
    with pytest.raises(ValidationError, match="'omnigraf' is unknown"):
        initialize_storage(place, engine="omnigraf")
    with pytest.raises(EngineVersionError, match="a graph has no engine version"):
        initialize_storage(place, engine="omnigraph", engine_version="v2")
    assert list(tmp_path.iterdir()) == []


def test_rows_staged_for_a_commit_stay_when_the_one_before_it_tidies_up(tmp_path):
    with open_repository(tmp_path / "new.db") as repository:
        engine, schema = repository.engine, Customer.__declaration__.schema
        with engine.write() as earlier:
            earlier.staging(earlier.layout_for(schema))
            earlier.publish({})
            staged = engine.staging_folder / earlier._spool
            assert staged.is_dir()
            with open_repository(tmp_path / "new.db") as other, other.engine.write() as later:
                with later.staging(later.layout_for(schema)).writer() as parts:
                    parts.add(pa.table({"entity_key": ["a"], "id": ["a"], "name": ["Ann"]}))
                    done = parts.finish()
                earlier.clear_spool()
                later.adopt(later.layout_for(schema), done)
                later.publish({})
        assert not engine.staging_folder.exists()
    with Ontology(tmp_path / "new.db", entity_types=[Customer]) as onto:
        assert onto.query().entities(Customer).count() == 1
