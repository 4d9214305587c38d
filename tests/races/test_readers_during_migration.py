"""Readers beside a migration see the state before it or the one after it, never something in between (RFC 0009 §6.6)."""

import threading

import pytest

from ontologia import Entity, Field, Ontology, Relation, SchemaOutdatedError


class Old(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


class New(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    full_name: Field[str]


class Knows(Relation[Old, Old]):
    pass


def upgrade(row):
    return {"id": row["id"], "full_name": row["name"].upper()}


def migrate(path):
    with Ontology(path, entity_types=[New]) as onto:
        onto.migrate(dry_run=False, force=True, upgraders={("Customer", 1): upgrade})


@pytest.fixture
def onto(path):
    with Ontology(path, entity_types=[Old]) as onto:
        with onto.session() as session:
            session.ensure(Old(id=str(number), name=f"n{number}") for number in range(50))
        yield onto


def in_the_middle(onto, monkeypatch, action):
    """Do something else after a query has looked at the catalog and before it runs."""
    engine = onto.engine
    original = engine._statement

    def statement(*arguments):
        monkeypatch.setattr(engine, "_statement", original)
        other = threading.Thread(target=action)
        other.start()
        other.join()
        return original(*arguments)

    monkeypatch.setattr(engine, "_statement", statement)


def test_a_query_that_began_before_the_migration_gives_the_state_before_it(onto, path, monkeypatch):
    in_the_middle(onto, monkeypatch, lambda: migrate(path))
    assert [customer.name for customer in onto.query().entities(Old).limit(2).collect()] == ["n0", "n1"]


def test_an_arrow_query_that_began_before_the_migration_gives_the_state_before_it(onto, path, monkeypatch):
    in_the_middle(onto, monkeypatch, lambda: migrate(path))
    assert onto.query().entities(Old).limit(2).to_arrow().column("name").to_pylist() == ["n0", "n1"]


def test_the_next_query_says_that_the_code_is_outdated(onto, path, monkeypatch):
    in_the_middle(onto, monkeypatch, lambda: migrate(path))
    onto.query().entities(Old).collect()
    with pytest.raises(SchemaOutdatedError):
        onto.query().entities(Old).collect()


def test_a_query_that_began_before_a_purge_still_gives_its_rows(onto, path, monkeypatch):
    def drop():
        with Ontology(path) as other:
            token = other.drop_types(entities=["Customer"], purge_history=True).token
            other.drop_types(entities=["Customer"], purge_history=True, dry_run=False, token=token)

    in_the_middle(onto, monkeypatch, drop)
    assert len(onto.query().entities(Old).collect()) == 50


def test_endpoints_belong_to_the_same_state_as_their_relations(onto, path, monkeypatch):
    with onto.session() as session:
        session.ensure(Knows(left_key="1", right_key="2"))

    def rename():
        with Ontology(path) as other, other.session() as session:
            session.ensure(Old(id="1", name="renamed"))

    original = onto.engine.run
    calls = []

    def run(*arguments):
        found = original(*arguments)
        if not calls:
            calls.append(1)
            other = threading.Thread(target=rename)
            other.start()
            other.join()
        return found

    monkeypatch.setattr(onto.engine, "run", run)
    (knows,) = onto.query().relations(Knows).collect()
    assert knows.left.name == "n1"


def test_readers_in_a_loop_see_before_or_after_a_migration(onto, path):
    seen, done = [], threading.Event()

    def read():
        with Ontology(path, entity_types=[Old, Knows][:1]) as reader:
            while True:
                last = done.is_set()
                try:
                    seen.append(sorted(customer.name for customer in reader.query().entities(Old).collect()))
                except SchemaOutdatedError:
                    seen.append("after")
                if last:
                    return

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    migrate(path)
    done.set()
    for thread in threads:
        thread.join()
    before = sorted(f"n{number}" for number in range(50))
    assert [state for state in seen if state not in (before, "after")] == []
