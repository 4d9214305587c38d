"""A graph keeps its events on object storage, beside itself, and heals what its writers leave undone."""

import pytest

from ontologia import Ontology, Session, initialize_storage, on_event
from ontologia.objects import open_objects
from ontologia.omnigraph.branches import create_branch
from ontologia.omnigraph.graph import Graph
from ontologia.runtime.events.object_store import OUTBOX
from support.events_shop import OrderPlaced, Product, StockLow


@pytest.fixture
def graph(tmp_path):
    uri = (tmp_path / "graph").as_uri()
    initialize_storage(storage_uri=uri, engine="omnigraph")
    return uri


def test_events_of_a_graph_are_handled_and_its_handlers_commit(graph):
    seen = []

    @on_event(StockLow)
    def reorder(ctx):
        ctx.ensure(Product(sku="tea", left=100))
        ctx.commit()
        ctx.emit(OrderPlaced(sku=ctx.event.sku))

    @on_event(OrderPlaced)
    def confirm(ctx):
        seen.append((ctx.event.sku, ctx.event.chain_depth))

    with Session(graph, "shop", entity_types=[Product]) as session:
        session.ensure(Product(sku="tea", left=3))
        session.commit(event=StockLow(sku="tea", left=3))
        session.run([reorder, confirm], max_iterations=2)
        assert session.query().entities(Product).first().left == 100
    assert seen == [("tea", 1)]


def test_an_event_that_was_not_queued_after_its_commit_is_found_in_the_graph(graph, monkeypatch):
    seen = []
    with Session(graph, "shop", entity_types=[Product]) as session:
        monkeypatch.setattr(session.events, "enqueue_after", lambda events: None)  # the writer dies here
        session.ensure(Product(sku="tea", left=3))
        session.commit(event=StockLow(sku="tea", left=3))
        assert OUTBOX in session.list_commits()[0]["metadata"]
        assert session.events.events() == []
        session.run([on_event(StockLow)(lambda ctx: seen.append(ctx.event.sku))], max_iterations=1)
    assert seen == ["tea"]


def test_each_branch_is_relayed_for_itself(graph, monkeypatch):
    """Branches count their commits apart: one that is behind must not be taken for relayed."""
    with Session(graph, "shop", entity_types=[Product]) as session:
        session.ensure(Product(sku="seed", left=1))
        session.commit()
    create_branch(Graph.open(open_objects(graph)), "review")
    with Session(graph, entity_types=[Product]) as session:
        for left in range(3):
            session.ensure(Product(sku="tea", left=left))
            session.commit(event=OrderPlaced(sku="tea"))
    seen = []
    with Ontology(storage_uri=graph, branch="review", entity_types=[Product]) as onto:
        session = onto.session()
        monkeypatch.setattr(session.events, "enqueue_after", lambda events: None)
        session.ensure(Product(sku="rum", left=0))
        session.commit(event=StockLow(sku="rum"))
        handler = on_event(StockLow)(lambda ctx: seen.append(ctx.event.sku))
        session.run([handler], max_iterations=1)
    assert seen == ["rum"]
