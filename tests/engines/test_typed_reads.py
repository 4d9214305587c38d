"""Only rows of the current schema version are read as typed objects (RFC 0009 §2), and none is lost in a migration."""

import pytest

from ontologia import Entity, Field, Ontology


class Before(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


class After(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str] = "basic"


@pytest.fixture
def onto(path):
    """Commits 1 to 3 under version 1, the migration as commit 4, one more change as commit 5."""
    with Ontology(path, entity_types=[Before]) as onto:
        for name in ("Alice", "Alicia", "Ally"):
            with onto.session() as session:
                session.ensure([Before(id="c1", name=name), Before(id="c2", name="Bob")])
    with Ontology(path, entity_types=[After]) as onto:
        onto.migrate(dry_run=False, force=True)
        with onto.session() as session:
            session.ensure(After(id="c1", name="Ally", tier="gold"))
        yield onto


def rows(query):
    return [(customer.meta().commit_id, customer.id, customer.name, customer.tier) for customer in query.collect()]


def test_collect_gives_the_complete_latest_state(onto):
    assert rows(onto.query().entities(After)) == [(5, "c1", "Ally", "gold"), (4, "c2", "Bob", "basic")]


def test_with_history_has_only_rows_of_the_current_version(onto):
    assert rows(onto.query().entities(After).with_history()) == [
        (4, "c1", "Ally", "basic"),
        (4, "c2", "Bob", "basic"),
        (5, "c1", "Ally", "gold"),
    ]


def test_history_since_an_old_commit_starts_at_the_activation(onto):
    since = onto.query().entities(After).history_since(1)
    assert [commit for commit, *_ in rows(since)] == [4, 4, 5]


def test_history_since_the_activation_leaves_it_out(onto):
    assert [commit for commit, *_ in rows(onto.query().entities(After).history_since(4))] == [5]


@pytest.mark.parametrize("commit", [0, 1, 3])
def test_as_of_a_commit_before_the_activation_is_empty(onto, commit):
    assert onto.query().entities(After).as_of(commit).collect() == []


@pytest.mark.parametrize("commit", [0, 1, 3])
def test_as_of_a_commit_before_the_activation_carries_a_diagnostic(onto, commit):
    result = onto.query().entities(After).as_of(commit).collect()
    assert result.diagnostics == [{"reason": "commit_before_activation", "activation_commit_id": 4}]


def test_the_repository_gives_the_last_diagnostics(onto):
    onto.query().entities(After).as_of(1).collect()
    assert onto.repository.get_last_query_diagnostics() == [
        {"reason": "commit_before_activation", "activation_commit_id": 4}
    ]


def test_as_of_the_activation_has_rows_and_no_diagnostic(onto):
    result = onto.query().entities(After).as_of(4).collect()
    assert (len(result), result.diagnostics) == (2, [])


def test_as_of_a_commit_after_the_activation_gives_that_state(onto):
    assert rows(onto.query().entities(After).as_of(4))[0] == (4, "c1", "Ally", "basic")


def test_a_latest_query_has_no_diagnostics(onto):
    assert onto.query().entities(After).collect().diagnostics == []


def test_the_history_of_a_type_that_was_never_migrated_is_whole(path):
    with Ontology(path, entity_types=[Before]) as onto:
        for name in ("a", "b"):
            with onto.session() as session:
                session.ensure(Before(id="c1", name=name))
        history = onto.query().entities(Before).with_history().collect()
    assert [customer.name for customer in history] == ["a", "b"]


def test_the_log_still_lists_changes_from_before_the_migration(onto):
    assert onto.list_commit_changes(2) == [
        {"kind": "entity", "type_name": "Customer", "key": "c1", "operation": "update_version"}
    ]
