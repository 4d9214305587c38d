"""The typed face: transactions, reads inside them, loads, queries and search, schemas; and what is refused."""

import json

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Ontology, Relation, count
from ontologia.errors import (
    BranchError,
    GraphValidationError,
    HeadMismatchError,
    MigrationError,
    MissingUpgraderError,
    SchemaOutdatedError,
    ValidationError,
)
from ontologia.omnigraph import Omnigraph, OpenMode
from ontologia.omnigraph.manifest import Pin


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = Field(default=0, index="btree")
    bio: Field[str | None] = Field(default=None, index="fts")
    place: Field[list[float] | None] = Field(default=None, index="vector", dimensions=2)


class Knows(Relation[Person, Person]):
    since: Field[int] = 2020


class Visit(Relation[Person, Person]):
    day: Field[str] = Field(instance_key=True)
    note: Field[str] = ""


TYPES = [Person, Knows, Visit]


@pytest.fixture
def uri(root):
    return root


@pytest.fixture
def graph(uri):
    graph = Omnigraph.init(uri, TYPES, actor="ann")
    with graph.transaction(message="first") as tx:
        tx.upsert([Person(name="a", age=1, bio="likes old maps"), Person(name="b", age=2), Person(name="c", age=3)])
        tx.upsert([Knows(left_key="a", right_key="b"), Knows(left_key="b", right_key="c", since=2021)])
    return graph


def names(graph, **where):
    return [person.name for person in graph.query(**where).entities(Person).collect()]


# --- transactions ---


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


def test_a_read_only_graph_writes_nothing(graph, uri):
    reader = Omnigraph.open(uri, TYPES, OpenMode.READ_ONLY)
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


# --- loads and exports ---


def test_an_export_loads_back_to_the_same_graph(graph, tmp_path):
    count_ = graph.export(tmp_path / "all.jsonl")
    other = Omnigraph.init(f"file://{tmp_path}/other", TYPES)
    other.load(tmp_path / "all.jsonl")
    other.export(tmp_path / "again.jsonl")
    assert count_ == 5
    assert (tmp_path / "all.jsonl").read_text() == (tmp_path / "again.jsonl").read_text()


def test_load_modes_differ_in_what_happens_to_rows_that_exist(graph):
    rows = pa.table({"name": ["a", "new"], "age": [7, 8]})
    with pytest.raises(GraphValidationError, match="'a'"):
        graph.load(rows, "append", type=Person)
    graph.load(rows, "merge", type=Person, branch="more", from_="main")
    assert names(graph, branch="more") == ["a", "b", "c", "new"]
    lonely = pa.table({"name": ["a", "b", "c"], "age": [7, 8, 9]})
    graph.load(lonely, "overwrite", type=Person)
    assert graph.query().entities(Person).sum(Person.age) == 24


def test_every_bad_line_of_a_file_is_named(graph, tmp_path):
    lines = [{"type": "Person", "data": {"name": "q"}}, {"type": "Nobody", "data": {}}, {"data": {}}, {"edge": "Knows"}]
    (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{\n[1]\n")
    with pytest.raises(GraphValidationError) as caught:
        graph.load(tmp_path / "bad.jsonl")
    assert [problem.split(":")[0] for problem in caught.value.problems] == [f"line {number}" for number in range(2, 7)]
    assert names(graph) == ["a", "b", "c"]


# --- queries ---


def test_queries_filter_aggregate_and_traverse(graph):
    root = graph.query()
    assert root.entities(Person).where((Person.age >= 2) & (Person.name != "c")).count() == 1
    assert root.entities(Person).group_by(Person.bio).agg(n=count())[0]["n"] in (1, 2)
    paths = root.entities(Person).where(Person.name == "a").via(Knows).via(Knows).collect()
    assert [[end.name for end in path.entities] for path in paths] == [["b", "c"]]


def test_a_commit_of_the_past_is_queried_as_it_was(graph):
    first = graph.commits()[0].graph_commit_id
    with graph.transaction() as tx:
        tx.delete(Person, "a", cascade=True)
    assert names(graph) == ["b", "c"]
    assert names(graph, commit=first) == ["a", "b", "c"]
    assert graph.snapshot(first).count(Person) == 3


@pytest.mark.parametrize("state", ["before", "built", "catching up"])
def test_text_is_found_before_with_and_while_an_index_catches_up(graph, state):
    if state != "before":
        graph.ensure_indices()
    with graph.transaction() as tx:
        tx.upsert([Person(name="d", age=4, bio="Maps, maps and OLD songs"), Person(name="e", bio="nothing")])
    if state == "built":
        graph.optimize()
    found = graph.query().entities(Person).search(Person.bio, "maps songs").collect()
    assert [person.name for person in found] == ["d", "a"]
    young = graph.query().entities(Person).where(Person.age < 4).search(Person.bio, "maps").collect()
    assert [person.name for person in young] == ["a"]


@pytest.mark.parametrize("state", ["before", "built", "catching up"])
def test_neighbours_are_found_before_with_and_while_an_index_catches_up(graph, state):
    with graph.transaction() as tx:
        tx.upsert([Person(name=f"p{n}", age=n, place=[float(n), 0.0]) for n in range(300)])
    if state != "before":
        graph.ensure_indices()
    with graph.transaction() as tx:
        tx.upsert(Person(name="late", age=500, place=[10.4, 0.0]))
    if state == "built":
        graph.optimize()
    near = graph.query().entities(Person).nearest(Person.place, [10.3, 0.0], k=3)
    assert [person.name for person in near.collect()] == ["late", "p10", "p11"]
    assert [it.name for it in near.where(Person.age < 500).collect()] == ["p10", "p11", "p9"]
    assert near.to_arrow().column("name").to_pylist() == ["late", "p10", "p11"]


def test_a_search_needs_a_declared_index_and_a_vector_of_its_length(graph):
    with pytest.raises(ValidationError, match='index="fts"'):
        graph.query().entities(Person).search(Person.name, "a").collect()
    with pytest.raises(ValidationError, match="vectors of 2 numbers, not of 3"):
        graph.query().entities(Person).nearest(Person.place, [1, 2, 3]).collect()


def test_a_key_is_looked_up_by_its_index(graph):
    graph.ensure_indices()
    dataset = graph._graph.datasets.open(graph._graph.manifest().pins["node:Person"].path)
    assert {index.name for index in dataset.describe_indices()} >= {"id_idx", "age_idx", "bio_idx"}
    assert "ScalarIndex" in dataset.scanner(filter="`id` = 'a'").explain_plan()


# --- schema ---


def test_a_query_by_key_says_what_the_same_question_in_other_words_says(local):
    """The first goes by without DuckDB; `in` asks it."""
    graph = Omnigraph.init(local, TYPES)
    with graph.transaction() as tx:
        tx.upsert([Person(name="a", age=1, place=[1.0, 2.0]), Person(name="it's", bio="x")])
    with graph.transaction() as tx:
        tx.upsert(Person(name="a", age=2))

    def both(root, name, ask=lambda query: query):
        found = [
            ask(root.entities(Person).where(words)).collect()
            for words in (Person.name == name, Person.name.in_([name]))
        ]
        plain = [[obj.model_dump() for obj in each] for each in found]
        assert plain[0] == plain[1]
        assert found[0].diagnostics == found[1].diagnostics
        return plain[0]

    assert both(graph.query(), "a")[0]["age"] == 2
    assert both(graph.query(), "a", lambda query: query.as_of(2))[0]["place"] == [1.0, 2.0]
    assert both(graph.query(), "it's")[0]["bio"] == "x"
    assert both(graph.query(), "nobody") == both(graph.query(), "") == []
    assert both(graph.query(), "a", lambda query: query.offset(1)) == []
    assert both(graph.query(), "a", lambda query: query.limit(1).order_by(Person.age)) != []
    with graph.transaction() as tx:
        tx.upsert(Person(name="new", age=7))
        tx.delete(Person, "a")
        assert both(tx.query(), "new")[0]["age"] == 7
        assert both(tx.query(), "a") == []


def test_a_branch_that_went_since_is_said_to_be_gone(local):
    graph = Omnigraph.init(local, TYPES)
    graph.create_branch("review")
    question = graph.query(branch="review").entities(Person)
    graph.delete_branch("review")
    with pytest.raises(BranchError, match="no branch 'review'"):
        question.collect()


def test_a_graph_shows_its_types_and_how_many_rows_they_have(local):
    graph = Omnigraph.init(local, TYPES)
    with graph.transaction() as tx:
        tx.upsert([Person(name="a"), Person(name="b")])
    assert repr(graph) == repr(graph.snapshot())
    assert repr(graph).startswith(f"Graph {local}, branch main, commit {graph.commits()[0].graph_commit_id}\n")
    assert "node:Person: 2 rows" in repr(graph)
    assert "<td>node:Person</td><td>2</td>" in graph._repr_html_()


def test_a_file_that_is_not_there_is_said_to_be_missing(local):
    graph = Omnigraph.init(local, TYPES)
    with pytest.raises(ValidationError, match="no file /nowhere"):
        graph.load("/nowhere/people.jsonl", "append")


def changed():
    class Person(Entity):
        name: Field[str] = Field(primary_key=True)
        age: Field[int] = 0
        email: Field[str | None] = None

    class Knows(Relation[Person, Person]):
        since: Field[int] = 2020

    return Person, Knows


def test_a_plan_says_what_applying_classes_would_do(graph):
    plan = graph.plan_schema(changed())
    assert plan.dropped == ["Visit"]
    assert plan.data_loss == ["relation Visit", "Person.bio", "Person.place"]
    assert graph.plan_schema(TYPES).has_changes is False


def test_data_loss_needs_permission_and_then_happens_in_one_commit(graph):
    person, knows = changed()
    with pytest.raises(MigrationError, match="allow_data_loss"):
        graph.apply_schema([person, knows])
    before = graph.snapshot().version
    graph.apply_schema([person, knows], allow_data_loss=True)
    assert graph.snapshot().version == before + 1
    assert graph.query().entities(person).first().model_dump() == {"name": "a", "age": 1, "email": None}
    assert graph.commits()[0].details["metadata"]["kind"] == "migration"


def test_writing_with_classes_that_differ_from_the_graph_is_refused(graph):
    person, _ = changed()
    with pytest.raises(SchemaOutdatedError), graph.transaction() as tx:
        tx.upsert(person(name="x"))


def test_a_required_field_needs_an_upgrader_which_sees_every_row(graph):
    class Person(Entity):
        name: Field[str] = Field(primary_key=True)
        age: Field[int] = 0
        bio: Field[str | None] = None
        place: Field[list[float] | None] = None
        initial: Field[str]

    class Knows(Relation[Person, Person]):
        since: Field[int] = 2020

    class Visit(Relation[Person, Person]):
        day: Field[str] = Field(instance_key=True)
        note: Field[str] = ""

    types = [Person, Knows, Visit]
    with pytest.raises(MissingUpgraderError):
        graph.apply_schema(types)
    graph.apply_schema(types, upgraders={("Person", 1): lambda row: {**row, "initial": row["name"][0]}})
    assert [it.initial for it in graph.query().entities(Person).collect()] == ["a", "b", "c"]


def test_a_schema_is_not_applied_while_other_branches_exist(graph):
    graph.create_branch("dev")
    with pytest.raises(BranchError, match="merge or delete dev"):
        graph.apply_schema(changed(), allow_data_loss=True)


def test_a_dropped_type_can_come_back_under_its_name(graph):
    graph.apply_schema([Person, Knows], allow_data_loss=True)
    with graph.transaction() as tx:
        tx.upsert(Visit(left_key="a", right_key="b", day="1"))
    assert graph.snapshot().count(Visit) == 1
    assert len(graph.query().relations(Visit).collect()) == 1


# --- the ontology on a branch ---


def test_an_ontology_is_bound_to_a_branch(graph, uri):
    graph.create_branch("review")
    with Ontology(storage_uri=uri, branch="review", entity_types=[Person]) as onto, onto.session() as session:
        session.ensure(Person(name="a", age=99))
        session.commit()
    assert graph.query().entities(Person).max(Person.age) == 3
    assert graph.query("review").entities(Person).max(Person.age) == 99
    assert graph.merge("review").outcome == "fast_forward"
    assert graph.query().entities(Person).max(Person.age) == 99


def test_an_ontology_on_an_unknown_branch_says_which_there_are(uri, graph):
    with pytest.raises(BranchError, match="there are main"):
        Ontology(storage_uri=uri, branch="nope")


def test_only_graphs_have_branches(tmp_path):
    with pytest.raises(ValidationError, match="only graphs have branches"):
        Ontology(str(tmp_path / "onto.db"), branch="dev")
