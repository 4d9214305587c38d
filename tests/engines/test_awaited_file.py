"""A SQLite file that is not there is read as an empty store, and made by the first write."""

import threading

import pytest

from ontologia import EngineVersionError, Entity, Field, Ontology, Session, StorageBackendError, open_repository


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "typo.db"


@pytest.fixture
def onto(path):
    with Ontology(str(path), entity_types=[Customer]) as found:
        yield found


def commit(onto, *keys):
    with onto.session() as session:
        session.ensure(Customer(id=key) for key in keys)


def test_questions_make_no_file(onto, path):
    customers = onto.query().entities(Customer)
    assert (customers.collect(), customers.count(), customers.as_of(3).collect()) == ([], 0, [])
    assert (onto.list_commits(), onto.get_commit(1), onto.list_commit_changes(1)) == ([], None, [])
    assert onto.storage_info()["type_layouts"] == {}
    assert onto.migrate().diffs == []
    assert list(path.parent.iterdir()) == []


def test_sessions_that_commit_nothing_make_no_file(onto, path):
    with onto.session() as session:
        assert session.query().entities(Customer).collect() == []
    with Session(path, entity_types=[Customer]) as session:
        assert session.query().entities(Customer).count() == 0
    assert list(path.parent.iterdir()) == []


def test_the_first_commit_makes_it_and_a_query_from_before_sees_the_rows(onto, path):
    customers = onto.query().entities(Customer)
    before = customers.count()
    commit(onto, "a", "b")
    assert (before, customers.count(), path.exists()) == (0, 2, True)
    with Ontology(str(path), entity_types=[Customer]) as again:
        assert again.query().entities(Customer).count() == 2


def test_what_another_process_made_meanwhile_is_seen_and_added_to(onto, path):
    assert onto.query().entities(Customer).count() == 0
    with Ontology(str(path), entity_types=[Customer]) as other:
        commit(other, "a")
    seen = onto.query().entities(Customer).count()
    commit(onto, "b")
    assert (seen, onto.query().entities(Customer).count()) == (1, 2)


def test_a_file_that_became_another_kind_of_store_is_not_written_to(onto, path):
    open_repository(path, engine_version="v1").close()
    with pytest.raises(EngineVersionError, match="open it again"):
        commit(onto, "a")
    with pytest.raises(EngineVersionError, match="open it again"):
        onto.query().entities(Customer).count()


def test_a_file_that_is_there_and_empty_is_not_yet_a_store(onto, path):
    path.touch()
    assert onto.query().entities(Customer).count() == 0
    commit(onto, "a")
    assert onto.query().entities(Customer).count() == 1


def test_threads_that_write_first_together_lose_nothing(onto):
    ready = threading.Barrier(6)
    problems = []

    def write(number):
        onto.query().entities(Customer).count()
        ready.wait()
        try:
            commit(onto, f"c{number}")
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert onto.query().entities(Customer).count() == 6


def test_the_file_is_made_where_it_was_meant_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with Ontology("typo.db", entity_types=[Customer]) as onto:
        monkeypatch.chdir(tmp_path / "elsewhere")
        commit(onto, "a")
        assert onto.query().entities(Customer).count() == 1
    assert (tmp_path / "typo.db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error_at_once(tmp_path):
    with pytest.raises(StorageBackendError, match="the folder does not exist"):
        Ontology(str(tmp_path / "nowhere" / "typo.db"))


def test_events_make_the_file(onto, path):
    assert onto.session().events is not None
    assert path.exists()


def test_a_repository_is_still_made_when_it_is_opened(path):
    open_repository(path).close()
    assert path.exists()
