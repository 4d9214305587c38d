"""What becomes of an event: committed, handled in turn, emitted on; and handlers that cannot be."""

import fcntl
import resource
import socket

import pytest

from ontologia import (
    EventLoopLimitError,
    HandlerError,
    Session,
    ValidationError,
    on_event,
)
from ontologia.runtime.events.wakeup import Wakeup
from support.events_shop import OrderPlaced, Product, StockLow, send


def test_an_event_goes_with_its_commit_to_a_handler(bench, note, seen):
    session = bench.session()
    session.ensure(Product(sku="tea", left=3))
    assert session.commit(event=StockLow(sku="tea", left=3)) == 1
    assert bench.run(session, [note]) == 1
    assert seen == ["tea"]


def test_an_event_without_a_change_goes_alone(bench, note, seen):
    session = bench.session()
    assert session.commit(event=StockLow(sku="tea")) is None
    bench.run(session, [note])
    assert seen == ["tea"]


def test_a_commit_of_what_is_there_already_sends_its_event_all_the_same(bench, note, seen):
    session = bench.session()
    session.ensure(Product(sku="tea", left=3))
    session.commit()
    session.ensure(Product(sku="tea", left=3))
    assert session.commit(event=StockLow(sku="tea")) is None
    bench.run(session, [note])
    assert seen == ["tea"]


def test_a_commit_that_fails_sends_nothing_and_keeps_what_was_ensured(bench, note, seen):
    session = bench.session(max_batch_size=1)
    session.ensure([Product(sku="tea", left=3), Product(sku="rum", left=1)])
    with pytest.raises(Exception, match="max_batch_size"):
        session.commit(event=StockLow(sku="tea"))
    session.discard()
    bench.run(session, [note], 2)
    assert seen == []


def test_a_commit_that_fails_at_its_very_end_takes_its_events_with_it(bench, note, seen, monkeypatch):
    session = bench.session()
    session.ensure(Product(sku="tea", left=3))

    def broken(*_):
        raise RuntimeError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr("ontologia.engines.sqlite.control.add_commit", broken)
        patched.setattr("ontologia.engines.parquet.write.commit.ParquetTransaction._swap", broken)
        with pytest.raises(RuntimeError, match="the disk is gone"):
            session.commit(event=StockLow(sku="tea"))
    bench.run(session, [note], 2)
    assert seen == []
    assert session.events.events() == []


def test_on_sqlite_an_event_is_there_as_soon_as_its_commit_is(bench, note, seen, monkeypatch):
    session = bench.session()
    if "://" in bench.target:
        pytest.skip("on object storage the relay brings it")
    monkeypatch.setattr(session, "_enqueue", lambda *_: None)  # what follows the commit never happens
    session.ensure(Product(sku="tea", left=3))
    session.commit(event=StockLow(sku="tea"))
    bench.run(session, [note])
    assert seen == ["tea"]


def test_events_are_handled_by_priority_then_by_age(bench, note, seen):
    session = bench.session()
    send(session, StockLow(sku="1"), StockLow(sku="2", priority=5), StockLow(sku="3"), StockLow(sku="4", priority=900))
    bench.run(session, [note])
    assert seen == ["4", "1", "3", "2"]


def test_of_two_handlers_of_an_event_the_more_urgent_runs_first(bench, seen):
    @on_event(StockLow, priority=1)
    def later(ctx):
        seen.append("later")

    @on_event(StockLow, priority=2)
    def sooner(ctx):
        seen.append("sooner")

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [later, sooner])
    assert seen == ["sooner", "later"]


def test_each_handler_gets_each_event_once(bench, note, seen):
    @on_event(StockLow)
    def other(ctx):
        seen.append(f"other {ctx.event.sku}")

    session = bench.session()
    send(session, StockLow(sku="1"), StockLow(sku="2"))
    bench.run(session, [note, other], 3)
    bench.run(session, [note, other], 3)
    assert sorted(seen) == ["1", "2", "other 1", "other 2"]


def test_a_handler_that_comes_later_gets_what_is_kept(bench, note, seen):
    @on_event(StockLow)
    def newcomer(ctx):
        seen.append(f"new {ctx.event.sku}")

    session = bench.session()
    send(session, StockLow(sku="1"))
    bench.run(session, [note], 2)
    send(session, StockLow(sku="2"))
    bench.run(session, [newcomer], 2)
    bench.run(session, [note, newcomer], 2)
    assert seen == ["1", "new 1", "new 2", "2"]


def test_namespaces_are_apart(bench, note, seen):
    session, other = bench.session("shop"), bench.session("shop.test")
    send(session, StockLow(sku="tea"))
    send(other, StockLow(sku="rum"))
    bench.run(other, [note])
    assert seen == ["rum"]
    assert session.events.namespaces() == ["shop", "shop.test"]


def test_only_commit_persists(bench):
    @on_event(StockLow)
    def forgetful(ctx):
        ctx.ensure(Product(sku=ctx.event.sku, left=100))

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [forgetful])
    assert session.query().entities(Product).count() == 0


def test_a_handler_commits_with_notes_and_reads(bench):
    @on_event(StockLow)
    def reorder(ctx):
        ctx.ensure(Product(sku=ctx.event.sku, left=100))
        ctx.add_commit_meta("why", "low")
        assert ctx.commit() == 1
        assert ctx.session.query().entities(Product).first().left == 100

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [reorder])
    assert session.get_commit(1)["metadata"]["why"] == "low"


def test_emitted_events_follow_in_a_chain(bench, seen):
    @on_event(StockLow)
    def reorder(ctx):
        ctx.emit(OrderPlaced(sku=ctx.event.sku))

    @on_event(OrderPlaced)
    def confirm(ctx):
        seen.append((ctx.event.sku, ctx.event.chain_depth, ctx.event.root_event_id))

    session = bench.session()
    first = StockLow(sku="tea")
    send(session, first)
    bench.run(session, [reorder, confirm], 2)
    assert seen == [("tea", 1, first.id)]
    assert [event.type for event in session.events.chain(first.id)] == ["stock.low", "order.placed"]


def test_an_emitted_event_is_what_it_was_when_it_was_emitted(bench, seen):
    @on_event(StockLow)
    def reorder(ctx):
        order = OrderPlaced(sku="tea")
        ctx.emit(order)
        order.sku = "changed"

    @on_event(OrderPlaced)
    def confirm(ctx):
        seen.append(ctx.event.sku)

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [reorder, confirm], 2)
    assert seen == ["tea"]


def test_a_circle_of_handlers_ends_at_the_limit(bench):
    @on_event(StockLow)
    def again(ctx):
        ctx.emit(StockLow(sku=ctx.event.sku))

    session = bench.session(max_event_chain_depth=3, event_max_attempts=1)
    send(session, StockLow(sku="tea"))
    bench.run(session, [again], 10)
    (letter,) = session.events.dead_letters()
    assert letter.chain_depth == 3
    assert "max_event_chain_depth is 3" in letter.last_error


def test_a_handler_can_catch_the_limit(bench, seen):
    @on_event(StockLow)
    def careful(ctx):
        try:
            ctx.emit(StockLow(sku=ctx.event.sku))
        except EventLoopLimitError:
            seen.append(ctx.event.chain_depth)

    session = bench.session(max_event_chain_depth=3)
    send(session, StockLow(sku="tea"))
    bench.run(session, [careful], 10)
    assert seen == [3]


def test_handlers_that_cannot_be_run_are_refused(tmp_path):
    @on_event(StockLow)
    def fine(ctx): ...

    with Session(str(tmp_path / "onto.db")) as session:
        for handlers, word in (
            ([print], "decorate"),
            ([fine, fine], "two handlers"),
            (fine, "takes a list"),
            ([], "nothing to do"),
        ):
            with pytest.raises(HandlerError, match=word):
                session.run(handlers)


def test_a_function_that_cannot_be_a_handler_is_refused():
    with pytest.raises(HandlerError, match="derived from Event"):
        on_event(Product)
    with pytest.raises(HandlerError, match="one argument"):
        on_event(StockLow)(lambda: None)
    with pytest.raises(HandlerError, match="coroutine"):

        @on_event(StockLow)
        async def later(ctx): ...

    with pytest.raises(HandlerError, match="already"):
        on_event(OrderPlaced)(on_event(StockLow)(lambda ctx: None))


def test_a_session_with_pending_state_does_not_run(tmp_path):
    with Session(str(tmp_path / "onto.db")) as session:
        session.ensure(Product(sku="tea", left=1))
        with pytest.raises(ValidationError, match="not committed"):
            session.run([on_event(StockLow)(lambda ctx: None)])
        session.discard()


def test_a_session_is_registered_while_it_runs(bench, seen):
    @on_event(StockLow)
    def look(ctx):
        seen.extend(ctx.session.events.sessions())

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [look])
    (record,) = seen
    assert record.namespace == "shop"
    assert {"hostname", "pid", "namespace"} <= set(record.metadata)
    assert session.events.sessions() == []


def test_a_session_waits_in_a_process_with_many_open_files():
    many = 1_100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= many:
        pytest.skip(f"this system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many + 10), hard))
    wakeup = Wakeup()
    try:
        high = socket.socket(fileno=fcntl.fcntl(wakeup._read, fcntl.F_DUPFD, many))
        wakeup._read.close()
        wakeup._read = high
        wakeup.wait(0.001)
    finally:
        wakeup.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
