"""Loads as large ones are done: spooled to disk, checked by joins, written in several Lance commits of one graph commit."""

import json

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Ontology, Relation
from ontologia.errors import GraphValidationError, ValidationError
from ontologia.files import row_spools
from ontologia.omnigraph import Omnigraph, lookups, mutation
from ontologia.runtime.graphs import loading
from support.graph_shop import drift, killed


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0
    code: Field[int | None] = Field(default=None, unique=True)


class Fits(Relation[Item, Item]):
    pass


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Everything that a load does when it is large, with a handful of rows."""
    monkeypatch.setattr(row_spools, "HELD_BYTES", 64)
    monkeypatch.setattr(row_spools.RowSpool.__init__, "__defaults__", (64,))
    monkeypatch.setattr(lookups, "MANY", 2)
    monkeypatch.setattr(mutation, "UPSERT_ROWS", 4)
    monkeypatch.setattr(loading, "OBJECTS_AT_ONCE", 3)
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 3)


@pytest.fixture
def graph(root):
    return Omnigraph.init(root, [Item, Fits])


def items(*numbers, size=0):
    return pa.table({"id": [f"i{n:02}" for n in numbers], "size": [n + size for n in numbers], "code": list(numbers)})


def sizes(graph):
    return [it.size for it in graph.query().entities(Item).order_by(Item.id).collect()]


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_from_a_stream_of_batches_are_one_commit(graph):
    whole = items(*range(20))
    before = len(graph.commits())
    graph.load(pa.RecordBatchReader.from_batches(whole.schema, whole.to_batches(max_chunksize=4)), "append", type=Item)
    assert (sizes(graph), len(graph.commits())) == (list(range(20)), before + 1)


def test_a_merge_in_several_lance_commits_is_one_graph_commit(graph):
    graph.load(items(*range(10)), type=Item)
    before = graph.snapshot().version
    graph.load(items(*range(5, 15), size=100), "merge", type=Item)
    assert graph.snapshot().version == before + 1
    assert sizes(graph) == [*range(5), *range(105, 115)]


@pytest.mark.parametrize("phase", ["B", "C", "D"])
def test_a_load_in_several_lance_commits_that_dies_is_all_or_nothing(graph, phase):
    graph.load(items(*range(10)), type=Item)
    write = lambda: graph.load(items(*range(10), size=100), "merge", type=Item)  # noqa: E731
    assert killed(graph._graph, phase, None, write)
    opened = Omnigraph.open(graph.uri, [Item, Fits])
    assert sizes(opened) == (list(range(10)) if phase == "B" else list(range(100, 110)))
    assert drift(opened._graph) == {}


def test_a_load_that_stops_between_its_lance_commits_is_undone(graph, monkeypatch):
    graph.load(items(*range(10)), type=Item)
    commit, made = graph._graph.datasets.commit, []

    def second_fails(*given):
        made.append(1)
        if len(made) == 2:
            raise OSError("the disk is gone")
        return commit(*given)

    monkeypatch.setattr(graph._graph.datasets, "commit", second_fails)
    with pytest.raises(OSError, match="the disk is gone"):
        graph.load(items(*range(10), size=100), "merge", type=Item)
    monkeypatch.undo()
    assert (sizes(graph), drift(graph._graph)) == (list(range(10)), {})


def test_append_takes_new_keys_only_and_names_the_others(graph):
    graph.load(items(*range(10)), "append", type=Item)
    with pytest.raises(GraphValidationError, match="node:Item has 'i08' already") as caught:
        graph.load(items(*range(8, 40)), "append", type=Item)
    assert caught.value.total >= 2
    assert len(sizes(graph)) == 10


def test_overwrite_leaves_only_what_was_loaded(graph):
    graph.load(items(*range(10)), type=Item)
    graph.load(items(3, 4), "overwrite", type=Item)
    assert sizes(graph) == [3, 4]


def test_edges_without_ends_are_named_and_those_of_the_same_load_are_not(graph, tmp_path):
    nodes = [{"type": "Item", "data": {"id": f"n{n}"}} for n in range(6)]
    good = [{"edge": "Fits", "from": f"n{n}", "to": f"n{n + 1}", "data": {}} for n in range(5)]
    bad = [{"edge": "Fits", "from": f"n{n}", "to": "nobody", "data": {}} for n in range(5)]
    with pytest.raises(GraphValidationError, match="dst 'nobody'") as caught:
        graph.load(lines(tmp_path / "bad", *nodes, *good, *bad))
    assert caught.value.total == 5
    graph.load(lines(tmp_path / "good", *nodes, *good))
    assert graph.query().relations(Fits).count() == 5
    graph.load(pa.table({"left_key": [f"n{n}" for n in range(4)], "right_key": ["n0"] * 4}), type=Fits)
    assert graph.query().relations(Fits).count() == 9


def test_the_last_line_of_a_key_counts_and_a_table_names_keys_that_come_again(graph, tmp_path):
    rows = [{"type": "Item", "data": {"id": f"n{n % 4}", "size": n}} for n in range(10)]
    graph.load(lines(tmp_path / "twice", *rows))
    assert sizes(graph) == [8, 9, 6, 7]
    with pytest.raises(GraphValidationError, match="'i01' comes 2 times"):
        graph.load(items(1, 1, 2, 3, 4), type=Item)
    with pytest.raises(GraphValidationError, match="comes 2 times"):
        graph.load(lines(tmp_path / "twice", *rows[:5]), "append")


def test_unique_values_are_found_by_a_join(graph):
    graph.load(items(*range(10)), type=Item)
    clash = pa.table({"id": [f"x{n}" for n in range(5)], "code": [100, 101, 3, 4, 102]})
    with pytest.raises(GraphValidationError, match="'x2' has the code 3") as caught:
        graph.load(clash, type=Item)
    assert caught.value.total == 2


def test_a_large_commit_of_a_session_is_spooled(graph, root):
    with Ontology(storage_uri=root, entity_types=[Item]) as onto, onto.session() as session:
        session.ensure([Item(id=f"i{n:02}", size=n) for n in range(20)])
    assert sizes(graph) == list(range(20))


@pytest.mark.parametrize("wrong", [["a"], {"id": [1]}, 5], ids=repr)
def test_what_is_no_source_is_refused(graph, wrong):
    with pytest.raises(ValidationError, match="a load takes"):
        graph.load(wrong, type=Item)


def test_a_table_without_rows_changes_nothing(graph):
    assert graph.load(items()[:0], type=Item) is None
