"""The typed face: loads, queries and search, schemas, and the ontology on a branch."""

import json

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Ontology, Relation, count
from ontologia.errors import (
    BranchError,
    GraphValidationError,
    MigrationError,
    MissingUpgraderError,
    SchemaOutdatedError,
    ValidationError,
)
from ontologia.omnigraph import Omnigraph
from support.graph_people import TYPES, Knows, Person, Visit, names, people_graph


@pytest.fixture
def graph(root):
    return people_graph(root)


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
    assert [[end.name for end in path.entities[1:]] for path in paths] == [["b", "c"]]


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


# --- schema ---


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


def test_an_ontology_is_bound_to_a_branch(graph, root):
    graph.create_branch("review")
    with Ontology(storage_uri=root, branch="review", entity_types=[Person]) as onto, onto.session() as session:
        session.ensure(Person(name="a", age=99))
        session.commit()
    assert graph.query().entities(Person).max(Person.age) == 3
    assert graph.query("review").entities(Person).max(Person.age) == 99
    assert graph.merge("review").outcome == "fast_forward"
    assert graph.query().entities(Person).max(Person.age) == 99


def test_an_ontology_on_an_unknown_branch_says_which_there_are(root, graph):
    with pytest.raises(BranchError, match="there are main"):
        Ontology(storage_uri=root, branch="nope")


def test_only_graphs_have_branches(tmp_path):
    with pytest.raises(ValidationError, match="only graphs have branches"):
        Ontology(str(tmp_path / "onto.db"), branch="dev")
