"""Transactions on a typed graph: what one commit holds, reads inside it, and what is refused."""

from typing import Any

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Ontology
from ontologia.errors import (
    GraphValidationError,
    HeadMismatchError,
    ValidationError,
)
from ontologia.omnigraph import Omnigraph, OpenMode
from ontologia.omnigraph.manifest import Pin
from support.graph_people import TYPES, Knows, Person, Visit, names, people_graph


@pytest.fixture
def graph(root):
    return people_graph(root)


def test_a_transaction_over_several_types_is_one_commit_with_actor_and_message(graph):
    newest = graph.commits()[0]
    assert (newest.actor_id, newest.message, newest.branch) == ("ann", "first", "main")
    assert newest.parents == (graph.commits()[1].graph_commit_id,)
    assert newest.created_at > graph.commits()[1].created_at
    assert graph.snapshot().count(Knows) == 2


def test_a_transaction_reads_its_own_writes_and_others_do_not(graph):
    with graph.transaction() as tx:
        tx.upsert(Person(name="z", age=9))
        tx.delete(Knows, [("a", "b")])
        tx.delete(Person, "a", cascade=True)
        assert [it.name for it in tx.query().entities(Person).where(Person.age > 1).collect()] == ["b", "c", "z"]
        assert tx.get(Person, "z").age == 9
        assert tx.get(Person, "a") is None
        assert tx.get(Knows, ("b", "c")).since == 2021
        assert names(graph) == ["a", "b", "c"]
    assert names(graph) == ["b", "c", "z"]


def test_a_transaction_takes_objects_as_they_are_when_they_are_written(root):
    class Note(Entity, name="Note"):
        id: Field[str] = Field(primary_key=True)
        text: Field[str] = ""
        tags: Field[list[str]] = Field(default_factory=list)
        data: Field[dict[str, Any]] = Field(default_factory=dict)

    graph = Omnigraph.init(root, types=[Note])
    with graph.transaction() as tx:
        note = Note(id="1", text="first", tags=["a"], data={"n": [1]})
        tx.upsert(note)
        for one in (note, tx.get(Note, "1")):
            one.text = "later"
            one.tags.append("b")
            one.data["n"].append(2)
        note.id = "2"
        assert tx.get(Note, "1") == Note(id="1", text="first", tags=["a"], data={"n": [1]})
        note.tags.append(5)
        with pytest.raises(ValidationError, match=r"Note.tags.2: Input should be a valid string, and it is 5"):
            tx.upsert(note)
    assert graph.query().entities(Note).collect() == [Note(id="1", text="first", tags=["a"], data={"n": [1]})]


def test_a_transaction_left_with_an_exception_writes_nothing(graph):
    before = graph.snapshot().version
    with pytest.raises(TypeError), graph.transaction() as tx:
        tx.upsert([Person(name="z"), "no object"])
    assert graph.snapshot().version == before


def test_an_empty_transaction_makes_no_commit(graph):
    with graph.transaction() as tx:
        pass
    assert tx.commit is None


def test_inserting_keys_that_exist_names_them_all(graph):
    with pytest.raises(GraphValidationError) as caught, graph.transaction() as tx:
        tx.insert([Person(name="a"), Person(name="b"), Person(name="new")])
    assert caught.value.total == 2
    assert "'a'" in str(caught.value)
    assert names(graph) == ["a", "b", "c"]


def test_up_to_twenty_offending_rows_are_named_and_the_rest_counted(graph):
    with pytest.raises(GraphValidationError, match="and 5 more") as caught, graph.transaction() as tx:
        tx.upsert([Knows(left_key=f"nobody{n}", right_key="a") for n in range(25)])
    assert (len(caught.value.problems), caught.value.total) == (20, 25)


def test_an_edge_without_an_endpoint_is_refused_and_one_with_a_node_of_the_same_transaction_is_not(graph):
    with pytest.raises(GraphValidationError, match="no such node:Person"), graph.transaction() as tx:
        tx.upsert(Knows(left_key="a", right_key="x"))
    with graph.transaction() as tx:
        tx.upsert([Person(name="x"), Knows(left_key="a", right_key="x")])
    assert graph.snapshot().count(Knows) == 3


def test_an_edge_to_a_node_that_the_same_transaction_deletes_is_refused(graph):
    transaction = graph.transaction()
    transaction.delete(Person, "c")
    transaction.upsert(Knows(left_key="a", right_key="c"))
    with pytest.raises(GraphValidationError, match="no such node"), transaction:
        pass


def test_deleting_a_node_with_edges_is_refused_unless_it_cascades(graph):
    with pytest.raises(GraphValidationError, match="cascade=True"), graph.transaction() as tx:
        tx.delete(Person, ["b"])
    with graph.transaction() as tx:
        tx.delete(Person, ["b"], cascade=True)
    assert (names(graph), graph.snapshot().count(Knows)) == (["a", "c"], 0)


def test_edges_that_a_cascade_leaves_are_read_and_written_as_before(graph):
    with graph.transaction() as tx:
        tx.delete(Person, "a", cascade=True)  # takes an edge along whose type nothing else was said of
    opened = Omnigraph.open(graph.uri, TYPES)
    with opened.transaction() as tx:
        tx.upsert(Knows(left_key="c", right_key="b"))
    assert [(k.left_key, k.right_key) for k in opened.query().relations(Knows).collect()] == [("b", "c"), ("c", "b")]


def test_a_graph_whose_version_lost_its_note_is_read_and_written(graph, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Pin, "notes", {})  # as releases left them after a cascade
        with graph.transaction() as tx:
            tx.delete(Person, "a", cascade=True)
    opened = Omnigraph.open(graph.uri, TYPES)
    assert [(k.left_key, k.right_key) for k in opened.query().relations(Knows).collect()] == [("b", "c")]
    with Ontology(graph.uri) as onto:
        said = [
            (change["type_name"], change["operation"])
            for change in onto.list_commit_changes(onto.list_commits()[0]["id"])
        ]
    assert said == [("Person", "remove"), ("Knows", "remove")]
    with opened.transaction() as tx:
        tx.upsert(Knows(left_key="c", right_key="b"))
    assert opened.snapshot().count(Knows) == 2


def test_a_merge_that_settles_an_orphan_leaves_both_types_readable(graph):
    graph.create_branch("edges")
    graph.create_branch("nodes")
    with graph.transaction("edges") as tx:
        tx.upsert(Knows(left_key="a", right_key="c"))
    with graph.transaction("nodes") as tx:
        tx.delete(Person, "c", cascade=True)
    for source, into in (("edges", "nodes"), ("nodes", "edges")):
        graph.create_branch(f"{into}-merged", from_=into)
        graph.merge(source, into=f"{into}-merged", strategy="theirs")
        opened = Omnigraph.open(graph.uri, TYPES)
        with opened.transaction(f"{into}-merged") as tx:
            tx.upsert([Person(name="d"), Knows(left_key="a", right_key="d")])
        found = opened.query(branch=f"{into}-merged").relations(Knows).collect()
        people = ["a", "b", "c", "d"] if source == "edges" else ["a", "b", "d"]
        edges = [("a", "b"), ("a", "c"), ("a", "d")] if source == "edges" else [("a", "b"), ("a", "d")]
        assert (names(opened, branch=f"{into}-merged"), [(k.left_key, k.right_key) for k in found]) == (people, edges)


def test_a_deleted_key_can_be_inserted_again_in_the_same_transaction(graph):
    with graph.transaction() as tx:
        tx.delete(Person, "c")
        tx.insert(Person(name="c", age=30))
    assert graph.query().entities(Person).where(Person.name == "c").first().age == 30


def test_a_vector_of_the_wrong_length_is_refused_by_name(graph):
    with pytest.raises(GraphValidationError, match="'v' has one of 3"), graph.transaction() as tx:
        tx.upsert(Person(name="v", place=[1.0, 2.0, 3.0]))


def test_a_commit_on_a_moved_head_is_refused(graph):
    head = graph.commits()[0].graph_commit_id
    with graph.transaction() as tx:
        tx.upsert(Person(name="z"))
    with pytest.raises(HeadMismatchError), graph.transaction(if_commit=head) as tx:
        tx.upsert(Person(name="y"))
    assert names(graph) == ["a", "b", "c", "z"]


def test_parallel_edges_are_told_apart_by_their_instance_key(graph):
    with graph.transaction() as tx:
        tx.upsert([Visit(left_key="a", right_key="b", day="1"), Visit(left_key="a", right_key="b", day="2")])
    with graph.transaction() as tx:
        tx.upsert(Visit(left_key="a", right_key="b", day="2", note="again"))
    found = graph.query().relations(Visit).collect()
    assert [(it.day, it.note, it.left.name) for it in found] == [("1", "", "a"), ("2", "again", "a")]


def test_rows_in_bulk_come_from_arrow(graph):
    with graph.transaction() as tx:
        tx.upsert_arrow(Person, pa.table({"name": ["a", "d"], "age": [10, 40]}))
        tx.upsert_arrow(Knows, pa.table({"left_key": ["d"], "right_key": ["a"]}))
    assert graph.query().entities(Person).sum(Person.age) == 55


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"age": [1]}, "lacks name"),
        ({"name": ["x"], "size": [1]}, "unknown columns size"),
        ({"name": ["x"], "age": ["old"]}, "Person.age is int"),
        ({"name": ["x", "x"], "age": [1, 2]}, "'x' comes 2 times"),
        ({"name": ["x"], "age": pa.array([None], pa.int64())}, "may not be null"),
    ],
)
def test_a_table_that_does_not_fit_says_why(graph, table, said):
    with pytest.raises(ValidationError, match=said), graph.transaction() as tx:
        tx.upsert_arrow(Person, pa.table(table))


@pytest.mark.parametrize("wrong", ["a", 3, None, {"name": "x"}, ["a"]])
def test_only_objects_are_written(graph, wrong):
    with pytest.raises(TypeError, match="takes entities and relations"), graph.transaction() as tx:
        tx.upsert(wrong)


def test_a_read_only_graph_writes_nothing(graph, root):
    reader = Omnigraph.open(root, TYPES, OpenMode.READ_ONLY)
    assert names(reader) == ["a", "b", "c"]
    for write in (
        lambda: reader.transaction(),
        lambda: reader.create_branch("x"),
        lambda: reader.optimize(),
        lambda: reader.cleanup(dry_run=False),
        lambda: reader.repair(confirm=True),
        lambda: reader.tag("x"),
        lambda: reader.delete_branch("x"),
        lambda: reader.apply_schema([Person]),
    ):
        with pytest.raises(ValidationError, match="read-only"):
            write()
