"""Commits as events: every one, in order, once, whatever the engine that made them."""

import pytest

from ontologia import CommitFeed, CommitMade, HandlerError, Ontology, ValidationError, initialize_storage, on_event
from support.events_shop import Product


@pytest.fixture(params=["file", "bucket"])
def source(request, tmp_path):
    """Another store than the one the queue is in."""
    if request.param == "file":
        made = Ontology(str(tmp_path / "erp.db"))
    else:
        uri = (tmp_path / "erp").as_uri()
        initialize_storage(storage_uri=uri)
        made = Ontology(storage_uri=uri)
    with made:
        yield made


def commit(source, *skus):
    for sku in skus:
        with source.session() as session:
            session.ensure(Product(sku=sku, left=1))


@pytest.fixture
def follow(source, seen):
    @on_event(CommitMade)
    def follow(ctx):
        (change,) = source.list_commit_changes(ctx.event.commit_id)
        seen.append((ctx.event.feed, ctx.event.commit_id, change["key"], change["operation"]))

    return follow


def test_every_commit_comes_once_in_order(bench, source, follow, seen):
    commit(source, "tea", "rum")
    feed = CommitFeed("erp", source, since=0)
    session, other = bench.session(), bench.session()
    bench.run(session, [follow], feeds=[feed])
    commit(source, "cocoa")
    bench.run(other, [follow], feeds=[feed])
    bench.run(session, [follow], feeds=[feed])
    assert seen == [
        ("erp", 1, "tea", "insert"),
        ("erp", 2, "rum", "insert"),
        ("erp", 3, "cocoa", "insert"),
    ]


def test_commits_keep_their_order_when_the_clock_jumps_back(bench, source, follow, seen):
    feed, session = CommitFeed("erp", source, since=0), bench.session()
    commit(source, "tea")
    bench.run(session, [], feeds=[feed])
    bench.clock.skew_s = -60
    commit(source, "rum")
    bench.run(session, [follow], feeds=[feed])
    assert [key for _, _, key, _ in seen] == ["tea", "rum"]


def test_a_feed_begins_at_the_head_unless_it_is_told_otherwise(bench, source, follow, seen):
    commit(source, "tea", "rum")
    session = bench.session()
    bench.run(session, [follow], feeds=[CommitFeed("erp", source)])
    commit(source, "cocoa")
    bench.run(session, [follow], feeds=[CommitFeed("erp", source)])
    assert [key for _, _, key, _ in seen] == ["cocoa"]


def test_a_session_can_follow_the_store_its_queue_is_in(bench, seen):
    @on_event(CommitMade)
    def follow(ctx):
        seen.append(ctx.event.commit_id)

    session = bench.session()
    feed = CommitFeed("own", session, since=0)
    for left in (1, 2):
        session.ensure(Product(sku="tea", left=left))
        session.commit()
    bench.run(session, [follow], feeds=[feed])
    assert seen == [1, 2]


def test_feeds_that_make_no_sense_are_refused(bench, source):
    with pytest.raises(ValidationError, match="a feed has a name"):
        CommitFeed(" ", source)
    with pytest.raises(ValidationError, match="cannot begin"):
        CommitFeed("erp", source, since=-1)
    with pytest.raises(HandlerError, match="two feeds"):
        bench.run(bench.session(), [], feeds=[CommitFeed("erp", source), CommitFeed("erp", source)])
    with pytest.raises(TypeError, match="CommitFeed"):
        bench.run(bench.session(), [], feeds=[source])
