"""Shares for tasks that read side by side: whole fragments of the version that a state pins."""

import pickle

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Relation
from ontologia.engines.dispatch import open_engine
from ontologia.engines.omnigraph import engine as graph_engine
from ontologia.objects import Location
from ontologia.omnigraph import Omnigraph
from ontologia.query.plan import LATEST, Plan, Window


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0


class Fits(Relation[Item, Item]):
    pass


SCHEMA = Item.__declaration__.schema


@pytest.fixture
def graph(root):
    graph = Omnigraph.init(root, [Item, Fits])
    for start in range(0, 40, 10):
        rows = pa.table({"id": [f"i{n:02}" for n in range(start, start + 10)], "size": list(range(start, start + 10))})
        graph.load(rows, "append", type=Item)
    graph.create_branch("dev")
    return graph


def engine_of(graph, branch="main"):
    return open_engine(Location(graph.uri, graph._graph.config, branch))


def sizes(engine, window, head, where=(), only=("entity_key", "size")):
    """What all tasks read of a window; what they are given is sent to them."""
    shares = pickle.loads(pickle.dumps(engine.shares(SCHEMA, window, head=head)))
    plan = Plan(SCHEMA.ref, {SCHEMA.ref: SCHEMA}, window, where, stored=True, only=only, unordered=True)
    tables = [table for share in shares for table in engine.read_share(plan, share)]
    return shares, sorted(value for table in tables for value in table.column("size").to_pylist())


def test_a_state_is_shared_out_by_fragments_and_every_row_is_in_one(graph, monkeypatch):
    monkeypatch.setattr(graph_engine, "ROWS_PER_SHARE", 20)
    engine = engine_of(graph)
    shares, found = sizes(engine, LATEST, engine.catalog().head)
    assert [share.files.fragments for share in shares] == [(0, 1), (2, 3)]
    assert found == list(range(40))


def test_filters_are_tested_in_every_share(graph, monkeypatch):
    monkeypatch.setattr(graph_engine, "ROWS_PER_SHARE", 10)
    engine = engine_of(graph)
    assert sizes(engine, LATEST, engine.catalog().head, (Item.size >= 38,))[1] == [38, 39]


def test_a_share_stays_what_it_was_whatever_is_written_afterwards(graph):
    engine = engine_of(graph)
    shares = engine.shares(SCHEMA, LATEST, head=engine.catalog().head)
    with graph.transaction() as tx:
        tx.upsert(Item(id="i00", size=1000))
        tx.delete(Item, "i01")
    plan = Plan(SCHEMA.ref, {SCHEMA.ref: SCHEMA}, stored=True, only=("entity_key", "size"), unordered=True)
    found = [
        value for share in shares for table in engine.read_share(plan, share) for value in table["size"].to_pylist()
    ]
    assert sorted(found) == list(range(40))


def test_past_states_and_branches_have_shares_of_their_own(graph):
    with graph.transaction("dev") as tx:
        tx.upsert(Item(id="new", size=99))
    main, dev = engine_of(graph), engine_of(graph, "dev")
    assert len(sizes(main, LATEST, main.catalog().head)[1]) == 40
    assert sizes(dev, LATEST, dev.catalog().head)[1][-1] == 99
    assert sizes(main, Window("as_of", 2), main.catalog().head)[1] == list(range(10))


def test_a_type_without_rows_has_nothing_to_read(root):
    graph = Omnigraph.init(root, [Item])
    engine = engine_of(graph)
    assert sizes(engine, LATEST, engine.catalog().head)[1] == []


def test_changes_are_shared_out_by_keys(graph):
    shares = engine_of(graph).shares(SCHEMA, Window("since", 1))
    assert [share.files for share in shares] == [None]
