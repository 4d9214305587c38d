"""Graphs through Spark: states and branches are read in tasks, and what tasks wrote is one commit on a branch."""

import pytest

from ontologia import Entity, Field
from ontologia.objects import Location
from ontologia.omnigraph import Omnigraph
from ontologia.spark import Pipeline


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = 0


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def uri(request, tmp_path):
    return f"file://{tmp_path}/graph" if request.param == "file" else request.getfixturevalue("s3_prefix")


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


@pytest.mark.slow_on("s3")
def test_states_and_branches_of_a_graph_are_read(spark, graph, uri):
    assert ages(spark, uri) == 4950
    assert ages(spark, uri, branch="dev") == 5950
    assert ages(spark, uri, branch="dev", asOf="2") == 4950


@pytest.mark.slow_on("s3")
def test_what_tasks_wrote_is_one_commit_on_the_branch(spark, graph, uri):
    before = len(graph.commits("dev"))
    frame = spark.createDataFrame([("new", 1), ("p001", 77)], ["name", "age"]).repartition(2)
    frame.write.format("ontologia").option("type", "Person").option("branch", "dev").mode("append").save(uri)
    assert len(graph.commits("dev")) == before + 1
    assert graph.query("dev").entities(Person).count() == 101
    assert graph.query().entities(Person).count() == 100
    assert not [info.key for info in graph._graph.objects.list("__staging/")]


def data_files(graph):
    return {info.key for info in graph._graph.objects.list("nodes/") if info.key.endswith(".lance")}


def test_a_pipeline_commits_the_fragments_that_its_tasks_wrote_to_a_branch(spark, graph, uri):
    before, commits = data_files(graph), len(graph.commits("dev"))
    rows = spark.range(1000).selectExpr("concat('n', id) AS name", "id AS age").repartition(3)
    target = Location(uri, graph._graph.config, "dev")
    report = Pipeline(spark, target).load(rows, into=Person).commit()
    assert (report.types["Person"].inserted, len(graph.commits("dev"))) == (1000, commits + 1)
    assert graph.query("dev").entities(Person).count() == 1100
    written = data_files(graph) - before
    assert written, "tasks wrote into the dataset"
    assert all("/tree/dev/" in key for key in written)
    assert graph.merge("dev").outcome == "fast_forward"


@pytest.mark.slow_on("s3")
def test_a_pipeline_replaces_what_a_graph_has_and_adds_the_rest(spark, graph, uri):
    rows = spark.range(95, 105).selectExpr("concat('p', lpad(id, 3, '0')) AS name", "id + 1000 AS age")
    report = Pipeline(spark, uri).load(rows, into=Person).commit().types["Person"]
    assert (report.inserted, report.updated) == (5, 5)
    assert graph.query().entities(Person).where(Person.age > 1000).count() == 10
    assert not [info.key for info in graph._graph.objects.list("__staging/")]


def test_a_query_of_a_branch_becomes_a_data_frame(spark, graph):
    old = graph.query("dev").entities(Person).where(Person.age > 98)
    assert sorted(row.name for row in old.to_spark(spark).collect()) == ["p000", "p099"]
