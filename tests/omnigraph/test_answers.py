"""What a graph answers and commits is what was asked: in transactions, merges, loads, diffs, searches and histories."""

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Relation
from ontologia.errors import (
    ConcurrentWriteError,
    GraphValidationError,
    HistoryCutWarning,
    HistoryGapError,
    SchemaOutdatedError,
    ValidationError,
)
from ontologia.omnigraph import Omnigraph


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = 0
    bio: Field[str] = Field(default="", index="fts")
    mail: Field[str | None] = Field(default=None, unique=True)


class Knows(Relation[Person, Person]):
    since: Field[int] = 2020


class City(Entity):
    name: Field[str] = Field(primary_key=True)


@pytest.fixture
def graph(local):
    graph = Omnigraph.init(local, types=[Person, Knows])
    with graph.transaction() as tx:
        tx.upsert([Person(name="ann", age=10), Person(name="bob")])
    return graph


def names(root):
    return sorted(person.name for person in root.entities(Person).collect())


# --- transactions ---


def test_rows_that_come_in_bulk_after_a_deletion_are_written(graph):
    with graph.transaction() as tx:
        tx.delete(Person, "ann")
        tx.upsert_arrow(Person, pa.table({"name": ["ann"], "age": [77]}))
        inside = names(tx.query())
    assert names(graph.query()) == inside == ["ann", "bob"]


def test_a_deletion_takes_back_rows_that_came_in_bulk(graph):
    with graph.transaction() as tx:
        tx.upsert_arrow(Person, pa.table({"name": ["zed", "yan"]}))
        tx.delete(Person, "zed")
        inside = names(tx.query())
    assert names(graph.query()) == inside == ["ann", "bob", "yan"]


def commit(graph, work):
    with graph.transaction() as tx:
        work(tx)


def add(tx, years):
    person = tx.get(Person, "ann")
    person.age += years
    tx.upsert(person)


def test_a_row_that_was_read_and_changed_by_another_is_not_overwritten(graph):
    other = Omnigraph.open(graph.uri, types=[Person, Knows])

    def work(tx):
        add(tx, 1)
        with other.transaction() as second:
            add(second, 5)

    with pytest.raises(ConcurrentWriteError, match="node:Person 'ann'"):
        commit(graph, work)
    assert graph.snapshot().get(Person, "ann").age == 15


def test_a_row_that_was_found_by_a_query_and_changed_by_another_is_not_overwritten(graph):
    other = Omnigraph.open(graph.uri, types=[Person, Knows])

    def work(tx):
        found = tx.query().entities(Person).where(Person.age > 5).first()
        with other.transaction() as second:
            add(second, 5)
        tx.upsert(Person(name="ann", age=found.age + 1))

    with pytest.raises(ConcurrentWriteError, match="'ann'"):
        commit(graph, work)


def test_a_deletion_of_a_row_that_was_read_and_changed_by_another_is_refused(graph):
    other = Omnigraph.open(graph.uri, types=[Person, Knows])

    def work(tx):
        assert tx.get(Person, "ann").age == 10
        with other.transaction() as second:
            add(second, 5)
        tx.delete(Person, "ann")

    with pytest.raises(ConcurrentWriteError, match="'ann'"):
        commit(graph, work)


def test_a_key_that_was_free_when_it_was_read_is_not_overwritten(graph):
    other = Omnigraph.open(graph.uri, types=[Person, Knows])

    def work(tx):
        assert tx.get(Person, "new") is None
        with other.transaction() as second:
            second.upsert(Person(name="new", age=1))
        tx.upsert(Person(name="new", age=2))

    with pytest.raises(ConcurrentWriteError, match="'new'"):
        commit(graph, work)


def test_other_rows_may_change_while_a_transaction_reads_and_writes(graph):
    other = Omnigraph.open(graph.uri, types=[Person, Knows])
    with graph.transaction() as tx:
        add(tx, 1)
        with other.transaction() as second:
            second.upsert(Person(name="bob", age=3))
    assert (graph.snapshot().get(Person, "ann").age, graph.snapshot().get(Person, "bob").age) == (11, 3)


def test_a_transaction_reads_one_state(graph):
    other = Omnigraph.open(graph.uri, types=[Person, Knows])
    with graph.transaction() as tx:
        before = names(tx.query())
        with other.transaction() as second:
            second.upsert(Person(name="cy"))
        assert names(tx.query()) == before


# --- merges ---


def test_a_type_that_two_branches_declared_alike_is_merged(graph):
    for branch, city in (("a", "Oslo"), ("b", "Rome")):
        graph.create_branch(branch)
        with graph.transaction(branch) as tx:
            tx.upsert(City(name=city))
    for branch in ("a", "b"):
        graph.merge(branch)
    assert sorted(city.name for city in graph.query().entities(City).collect()) == ["Oslo", "Rome"]


def test_a_node_that_comes_back_for_an_edge_takes_its_unique_value_back(graph):
    with graph.transaction() as tx:
        tx.upsert([Person(name="x", mail="e"), Person(name="y"), Person(name="z")])
    graph.create_branch("source")
    with graph.transaction("source") as tx:
        tx.upsert(Knows(left_key="z", right_key="x"))
    with graph.transaction() as tx:
        tx.delete(Person, "x")
    with graph.transaction() as tx:
        tx.upsert(Person(name="y", mail="e"))
    report = graph.merge("source", strategy="theirs")
    assert [conflict.kind for conflict in report.conflicts] == ["OrphanEdge", "UniqueViolation"]
    found = graph.snapshot()
    assert (found.get(Person, "x").mail, found.get(Person, "y").mail) == ("e", None)


def test_a_node_that_stays_for_an_edge_keeps_its_unique_value(graph):
    with graph.transaction() as tx:
        tx.upsert([Person(name="x", mail="e"), Person(name="y"), Person(name="z")])
    graph.create_branch("source")
    with graph.transaction("source") as tx:
        tx.delete(Person, "x")
    with graph.transaction("source") as tx:
        tx.upsert(Person(name="y", mail="e"))
    with graph.transaction() as tx:
        tx.upsert(Knows(left_key="z", right_key="x"))
    graph.merge("source", strategy="ours")
    found = graph.snapshot()
    assert (found.get(Person, "x").mail, found.get(Person, "y").mail) == ("e", None)


# --- loads ---


def test_a_load_that_leaves_out_a_node_with_edges_is_refused(graph):
    with graph.transaction() as tx:
        tx.upsert(Knows(left_key="ann", right_key="bob"))
    with pytest.raises(GraphValidationError, match="node:Person 'ann' has the edge"):
        graph.load(pa.table({"name": ["bob"]}), mode="overwrite", type=Person)
    assert names(graph.query()) == ["ann", "bob"]


def test_a_load_may_leave_out_nodes_whose_edges_it_replaces_too(graph, tmp_path):
    with graph.transaction() as tx:
        tx.upsert([Person(name="cy"), Knows(left_key="ann", right_key="bob")])
    lines = tmp_path / "graph.jsonl"
    lines.write_text(
        '{"type": "Person", "data": {"name": "bob"}}\n{"type": "Person", "data": {"name": "cy"}}\n'
        '{"edge": "Knows", "from": "bob", "to": "cy", "data": {}}\n'
    )
    graph.load(lines, mode="overwrite")
    assert names(graph.query()) == ["bob", "cy"]


# --- search ---

LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmütze"


@pytest.mark.parametrize("text", ["foo", "bar", "foo_bar", LONG, LONG.upper(), "plain", "eine plain"])
def test_the_same_words_find_the_same_rows_with_and_without_an_index(graph, text):
    with graph.transaction() as tx:
        tx.upsert(
            [
                Person(name="1", bio="see foo_bar in module"),
                Person(name="2", bio=f"trägt eine {LONG}"),
                Person(name="3", bio="plain"),
            ]
        )
    search = lambda: sorted(it.name for it in graph.query().entities(Person).search(Person.bio, text).collect())  # noqa: E731
    before = search()
    graph.ensure_indices()
    assert search() == before != []


# --- diffs ---


class First(Entity, name="P"):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = 0


class Renamed(Entity, name="P"):
    name: Field[str] = Field(primary_key=True)
    years: Field[int] = Field(default=0, renamed_from="age")


class OtherName(Entity, name="Q", renamed_from="P"):
    name: Field[str] = Field(primary_key=True)
    years: Field[int] = 0


class Text(Entity, name="P"):
    name: Field[str] = Field(primary_key=True)
    years: Field[str] = ""


@pytest.fixture
def old(local):
    graph = Omnigraph.init(local, types=[First])
    with graph.transaction() as tx:
        tx.upsert([First(name="a", age=41), First(name="b", age=42)])
    graph.tag("old")
    return graph


def test_a_renamed_field_is_no_change_in_either_direction(old):
    old.apply_schema([Renamed])
    assert [*old.diff("old", "main"), *old.diff("main", "old")] == []


def test_a_renamed_type_is_no_change_in_either_direction(old):
    old.apply_schema([Renamed])
    old.apply_schema([OtherName])
    assert [*old.diff("old", "main"), *old.diff("main", "old")] == []


def test_a_change_after_a_rename_is_the_only_one(old):
    old.apply_schema([Renamed])
    old.apply_schema([OtherName])
    with old.transaction() as tx:
        tx.upsert(OtherName(name="a", years=50))
    found = [(it.op, it.table_key, it.before, it.after) for it in old.diff("old", "main")]
    assert found == [("update", "node:Q", {"id": "a", "age": 41, "name": "a"}, {"id": "a", "name": "a", "years": 50})]


def test_a_field_of_another_type_has_its_value_of_before(old):
    old.apply_schema([Renamed])
    old.tag("ints")
    old.apply_schema([Text], upgraders={("P", 2): lambda row: {"name": row["name"], "years": f"{row['years']} y"}})
    found = [(it.op, it.before["years"], it.after["years"]) for it in old.diff("ints", "main")]
    assert found == [("update", 41, "41 y"), ("update", 42, "42 y")]


def test_an_old_state_is_not_read_with_a_class_of_another_schema(old):
    old.apply_schema([Renamed])
    with pytest.raises(SchemaOutdatedError):
        old.snapshot("old").get(Renamed, "a")


def test_a_range_is_what_the_branch_changed_and_not_what_main_did(graph):
    graph.create_branch("fix")
    with graph.transaction("fix") as tx:
        tx.upsert(Person(name="ann", age=11))
    with graph.transaction() as tx:
        tx.upsert(Person(name="bob", age=5))
    assert [(it.op, it.id) for it in graph.diff("main...fix")] == [("update", "ann")]


def test_a_diff_of_one_state_says_what_a_range_is(graph):
    with pytest.raises(ValidationError, match=r"main\.\.\.review"):
        graph.diff("main")


# --- history ---


def test_history_that_was_cleaned_up_is_not_left_out_in_silence(graph):
    for age in range(12):
        with graph.transaction() as tx:
            tx.upsert(Person(name="ann", age=age))
    graph.cleanup(keep=4, older_than="0s", dry_run=False)
    with pytest.warns(HistoryCutWarning, match="cleaned up"):
        graph.query().entities(Person).with_history().collect()


def test_a_state_that_was_cleaned_up_is_not_a_matter_of_backups(graph):
    for age in range(6):
        with graph.transaction() as tx:
            tx.upsert(Person(name="ann", age=age))
    graph.cleanup(keep=1, older_than="0s", dry_run=False)
    with pytest.raises(HistoryGapError, match="cleaned up"):
        graph.query().entities(Person).as_of(2).collect()
