"""Graphs through Spark: states and branches are read in tasks, and what tasks wrote is one commit on a branch."""

import pytest

from ontologia import Entity, Field
from ontologia.omnigraph import Omnigraph


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = 0


@pytest.fixture
def uri(tmp_path):
    return f"file://{tmp_path}/graph"


@pytest.fixture
def graph(uri):
    graph = Omnigraph.init(uri, [Person])
    with graph.transaction() as tx:
        tx.upsert([Person(name=f"p{number:03}", age=number) for number in range(100)])
    graph.create_branch("dev")
    with graph.transaction("dev") as tx:
        tx.upsert(Person(name="p000", age=1000))
    return graph


def ages(spark, uri, **options):
    frame = spark.read.format("ontologia").option("type", "Person").options(**options).load(uri)
    return frame.agg({"age": "sum"}).collect()[0][0]


def test_states_and_branches_of_a_graph_are_read(spark, graph, uri):
    assert ages(spark, uri) == 4950
    assert ages(spark, uri, branch="dev") == 5950
    assert ages(spark, uri, branch="dev", asOf="2") == 4950


def test_what_tasks_wrote_is_one_commit_on_the_branch(spark, graph, uri):
    before = len(graph.commits("dev"))
    frame = spark.createDataFrame([("new", 1), ("p001", 77)], ["name", "age"]).repartition(2)
    frame.write.format("ontologia").option("type", "Person").option("branch", "dev").mode("append").save(uri)
    assert len(graph.commits("dev")) == before + 1
    assert graph.query("dev").entities(Person).count() == 101
    assert graph.query().entities(Person).count() == 100
    assert not [info.key for info in graph._graph.objects.list("__staging/")]


def test_a_query_of_a_branch_becomes_a_data_frame(spark, graph):
    old = graph.query("dev").entities(Person).where(Person.age > 98)
    assert sorted(row.name for row in old.to_spark(spark).collect()) == ["p000", "p099"]
