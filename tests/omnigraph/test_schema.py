"""Schema changes beside adding and dropping: renames, indexes, types that come back; on a directory and on a bucket."""

import pytest

from ontologia import Entity, Field, Relation
from ontologia.errors import GraphValidationError, MigrationError, MissingUpgraderError
from ontologia.omnigraph import Omnigraph
from ontologia.omnigraph.maintenance import index_states
from ontologia.omnigraph.snapshots import StoredSnapshot


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = 0


class Knows(Relation[Person, Person]):
    since: Field[int] = 2020


class Human(Entity, renamed_from="Person"):
    title: Field[str] = Field(primary_key=True, renamed_from="name")
    years: Field[int] = Field(default=0, renamed_from="age")


class Meets(Relation[Human, Human], renamed_from="Knows"):
    since: Field[int] = 2020


class Again(Entity, name="Person", renamed_from="Human"):
    name: Field[str] = Field(primary_key=True, renamed_from="title")
    age: Field[int] = Field(default=0, renamed_from="years")


class KnowsAgain(Relation[Again, Again], name="Knows", renamed_from="Meets"):
    since: Field[int] = 2020


@pytest.fixture
def graph(root):
    graph = Omnigraph.init(root, [Person, Knows])
    with graph.transaction() as tx:
        tx.upsert([Person(name="ann", age=31), Person(name="bob", age=42), Knows(left_key="ann", right_key="bob")])
    return graph


def test_types_and_fields_are_renamed_in_one_commit_and_keep_their_rows(graph):
    before = graph.snapshot().version
    graph.apply_schema([Human, Meets])
    assert graph.snapshot().version == before + 1
    assert [(it.title, it.years) for it in graph.query().entities(Human).collect()] == [("ann", 31), ("bob", 42)]
    assert [it.right_key for it in graph.query().relations(Meets).collect()] == ["bob"]
    migrated = graph.commits()[0].details["metadata"]["migrated_types"]
    assert sorted(it["renamed_from"] for it in migrated) == ["Knows", "Person"]


def test_a_rename_is_planned_as_one_and_loses_nothing(graph):
    plan = graph.plan_schema([Human, Meets])
    assert plan.renamed == {"Person": "Human", "Person.name": "title", "Person.age": "years", "Knows": "Meets"}
    assert (plan.data_loss, plan.added, plan.dropped) == ([], [], [])


def test_what_was_before_a_rename_is_read_under_the_old_name(graph):
    before = graph.snapshot()
    graph.apply_schema([Human, Meets])
    assert before.query().entities(Person).count() == 2


def test_a_rename_can_be_taken_back(graph):
    graph.apply_schema([Human, Meets])
    graph.apply_schema([Again, KnowsAgain])
    assert [(it.name, it.age) for it in graph.query().entities(Again).collect()] == [("ann", 31), ("bob", 42)]
    with graph.transaction() as tx:
        tx.upsert([Again(name="cy"), KnowsAgain(left_key="cy", right_key="ann")])
    assert graph.snapshot().count(KnowsAgain) == 2


def test_a_rename_beside_a_new_required_field_needs_an_upgrader(graph):
    class Person(Entity):
        name: Field[str] = Field(primary_key=True)
        years: Field[int] = Field(default=0, renamed_from="age")
        initial: Field[str]

    class Knows(Relation[Person, Person]):
        since: Field[int] = 2020

    with pytest.raises(MissingUpgraderError):
        graph.apply_schema([Person, Knows])
    steps = {("Person", 1): lambda row: {**row, "initial": row["name"][0]}}
    graph.apply_schema([Person, Knows], upgraders=steps)
    assert [(it.years, it.initial) for it in graph.query().entities(Person).collect()] == [(31, "a"), (42, "b")]


def test_every_row_that_cannot_be_upgraded_is_named_and_nothing_changes(root):
    class Item(Entity):
        id: Field[int] = Field(primary_key=True)

    class Wanted(Entity, name="Item"):
        id: Field[int] = Field(primary_key=True)
        size: Field[int]

    graph = Omnigraph.init(root, [Item])
    with graph.transaction() as tx:
        tx.upsert([Item(id=number) for number in range(25)])
    with pytest.raises(MigrationError, match=r"25 rows of entity Item cannot be upgraded.*and 5 more") as caught:
        graph.apply_schema([Wanted], upgraders={("Item", 1): lambda row: {**row, "size": "large"}})
    assert str(caught.value).count("The row is") == 20
    assert graph.query().entities(Item).count() == 25


def test_a_dropped_type_comes_back_by_a_schema_too_and_is_empty(graph):
    graph.apply_schema([Person], allow_data_loss=True)
    graph.apply_schema([Person, Knows])
    assert graph.snapshot().count(Knows) == 0
    with graph.transaction() as tx:
        tx.upsert(Knows(left_key="bob", right_key="ann"))
    assert graph.query().relations(Knows).count() == 1


def test_an_index_that_a_class_asks_for_later_is_noted_and_built(graph):
    class Person(Entity):
        name: Field[str] = Field(primary_key=True, index="fts")
        age: Field[int] = Field(default=0, index="btree")

    class Knows(Relation[Person, Person]):
        since: Field[int] = 2020

    assert graph.plan_schema([Person, Knows]).reindexed == ["Person"]
    graph.apply_schema([Person, Knows])
    graph.ensure_indices()
    manifest = graph._graph.manifest()
    dataset = StoredSnapshot(graph._graph, manifest).dataset("node:Person")
    states = {state.column: state.built for state in index_states(dataset, manifest.tables["node:Person"])}
    assert states == {"id": True, "name": True, "age": True}
    assert graph.query().entities(Person).search(Person.name, "ann").count() == 1


def test_a_vector_gets_another_length_by_a_schema_only(root):
    def spot(size):
        class Spot(Entity):
            id: Field[int] = Field(primary_key=True)
            at: Field[list[float] | None] = Field(default=None, index="vector", dimensions=size)

        return Spot

    two, three = spot(2), spot(3)
    graph = Omnigraph.init(root, [two])
    with graph.transaction() as tx:
        tx.upsert(two(id=1))
    with pytest.raises(GraphValidationError, match="vectors of 2 numbers"), graph.transaction() as tx:
        tx.upsert(three(id=2, at=[1.0, 2.0, 3.0]))
    graph.apply_schema([three])
    with graph.transaction() as tx:
        tx.upsert(three(id=2, at=[1.0, 2.0, 3.0]))
    assert graph.query().entities(three).nearest(three.at, [1.0, 2.0, 3.0], 1).first().id == 2
