"""Rows that tasks stage for a commit: fragments of the dataset itself, one graph commit, and nothing left behind."""

import pickle

import pyarrow as pa
import pytest

from ontologia import Entity, Field
from ontologia.engines.dispatch import open_engine
from ontologia.errors import GraphValidationError, StorageBackendError
from ontologia.objects import Location
from ontologia.omnigraph import Omnigraph
from support.graph_shop import drift


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0
    code: Field[int | None] = Field(default=None, unique=True)


class Other(Entity):
    id: Field[str] = Field(primary_key=True)


SCHEMA = Item.__declaration__.schema


@pytest.fixture
def graph(root):
    return Omnigraph.init(root, [Other])


def rows(*numbers, size=0):
    names = [f"i{n:02}" for n in numbers]
    columns = {"entity_key": names, "id": names, "size": [n + size for n in numbers], "code": list(numbers)}
    return pa.table(columns)


def staged(engine, *tasks, fail=None):
    """What a driver and its tasks do; the tasks get what they need by pickle. `fail` may spoil it before the end."""
    with engine.write() as transaction:
        layout = transaction.layout_for(SCHEMA)
        staging = pickle.dumps(transaction.staging(layout))
        parts = []
        for task in tasks:
            with pickle.loads(staging).writer() as writer:
                writer.add(task)
                parts += writer.finish()
        transaction.adopt(layout, parts)
        if fail is not None:
            fail(parts)
        return transaction.publish({})


def engine_of(graph, branch="main"):
    return open_engine(Location(graph.uri, graph._graph.config, branch))


def sizes(graph, branch="main"):
    return [it.size for it in graph.query(branch).entities(Item).order_by(Item.id).collect()]


def data_files(graph):
    return sorted(info.key for info in graph._graph.objects.list("nodes/") if info.key.endswith(".lance"))


def leftovers(graph):
    return [info.key for info in graph._graph.objects.list("__staging/")]


def test_what_tasks_staged_is_one_commit_of_the_files_they_wrote(graph):
    engine, seen = engine_of(graph), []
    before = len(graph.commits())
    staged(engine, rows(0, 1), rows(2, 3), fail=lambda parts: seen.extend(data_files(graph)))
    assert (sizes(graph), len(graph.commits())) == ([0, 1, 2, 3], before + 1)
    assert data_files(graph) == seen, "nothing was written again"
    staged(engine, rows(4, 5))
    assert sizes(graph) == [0, 1, 2, 3, 4, 5]
    assert (leftovers(graph), drift(graph._graph)) == ([], {})


def test_rows_that_exist_are_replaced_and_the_staged_files_go(graph):
    engine = engine_of(graph)
    staged(engine, rows(0, 1, 2))
    files = len(data_files(graph))
    staged(engine, rows(1, 2, 3, size=100))
    assert sizes(graph) == [0, 101, 102, 103]
    assert len(data_files(graph)) <= files + 2, "the rows, and no staged copy of them"


def test_a_branch_gets_staged_rows_in_its_own_lineage_also_where_an_older_one_of_its_name_left_files(graph):
    staged(engine_of(graph), rows(0, 1))
    graph.create_branch("dev")
    staged(engine_of(graph, "dev"), rows(2, 3))
    graph.delete_branch("dev")
    graph.create_branch("dev")
    graph._graph.datasets.fork(
        "nodes/" + graph._graph.manifest().tables["node:Item"].path.split("/")[1], "dev", None, 2
    )
    staged(engine_of(graph, "dev"), rows(4, 5))
    staged(engine_of(graph, "dev"), rows(6))
    assert (sizes(graph), sizes(graph, "dev")) == ([0, 1], [0, 1, 4, 5, 6])
    assert graph.merge("dev").outcome == "fast_forward"
    assert sizes(graph) == [0, 1, 4, 5, 6]


def test_staged_rows_are_held_to_unique_fields_and_removed_when_they_are_refused(graph):
    engine = engine_of(graph)
    staged(engine, rows(0, 1))
    before = data_files(graph)
    clash = rows(7).set_column(3, "code", pa.array([1]))
    with pytest.raises(GraphValidationError, match="'i01' has it"):
        staged(engine, clash)
    assert (data_files(graph), leftovers(graph)) == (before, [])


def test_a_commit_whose_staged_files_are_gone_is_refused_and_leaves_the_graph_as_it_was(graph):
    engine = engine_of(graph)
    staged(engine, rows(0, 1))
    before = set(data_files(graph))

    def fail(parts):
        graph._graph.step = lambda name, about: None
        new = sorted(set(data_files(graph)) - before)
        engine.graph.step = lambda name, about: name == "B" and graph._graph.objects.delete_many(new)

    with pytest.raises(StorageBackendError, match=r"staged files of .* are gone"):
        staged(engine, rows(2, 3), fail=fail)
    assert (sizes(graph), drift(graph._graph)) == ([0, 1], {})


def test_a_task_without_rows_stages_nothing(graph):
    engine = engine_of(graph)
    staged(engine, rows(0), rows()[:0].cast(rows(0).schema))
    assert sizes(graph) == [0]
