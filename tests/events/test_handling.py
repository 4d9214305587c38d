"""What becomes of an event: handled, emitted on, failed, tried again, given up."""

import logging

import pytest

from ontologia import (
    Event,
    EventDeadLetter,
    EventLoopLimitError,
    Field,
    HandlerError,
    LeaseExpiredError,
    Session,
    ValidationError,
    on_event,
)
from support.events_shop import OrderPlaced, Product, StockLow


@pytest.fixture
def seen():
    return []


@pytest.fixture
def note(seen):
    """A handler that writes down what it gets."""

    @on_event(StockLow)
    def note(ctx):
        seen.append(ctx.event.sku)

    return note


def send(session, *events):
    session.commit(event=events)


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


def test_a_handler_that_fails_emits_nothing_and_is_tried_again_after_a_pause(bench, seen):
    @on_event(StockLow)
    def moody(ctx):
        ctx.emit(OrderPlaced(sku="tea"))
        ctx.ensure(Product(sku="tea", left=1))
        seen.append(ctx.event.sku)
        if len(seen) < 3:
            raise RuntimeError("not today")
        ctx.commit()

    session = bench.session(event_backoff_base_ms=1000)
    send(session, StockLow(sku="tea"))
    bench.run(session, [moody])
    bench.run(session, [moody])
    assert len(seen) == 1  # it waits
    (state,) = session.events.events()
    assert (state.status, state.claim.attempts, state.claim.last_error) == ("retrying", 1, "not today")
    bench.clock.sleep(1.1)
    bench.run(session, [moody])
    bench.clock.sleep(1.1)
    bench.run(session, [moody])
    assert len(seen) == 2  # the second pause is twice as long
    bench.clock.sleep(1.0)
    bench.run(session, [moody])
    assert len(seen) == 3
    assert sorted((e.event.type, e.status) for e in session.events.events()) == [
        ("order.placed", "pending"),
        ("stock.low", "acked"),
    ]


def test_after_its_attempts_an_event_is_a_dead_letter_and_a_handler_can_be_told(bench, seen):
    @on_event(StockLow)
    def hopeless(ctx):
        raise RuntimeError("no mail server")

    @on_event(EventDeadLetter)
    def tell(ctx):
        seen.append(ctx.event)

    session = bench.session(event_max_attempts=2)
    event = StockLow(sku="tea", left=3)
    send(session, event)
    for _ in range(4):
        bench.run(session, [hopeless, tell])
        bench.clock.sleep(60)
    handler_id = hopeless.__on_event__.id
    assert seen == [EventDeadLetter(event_id=event.id, handler_id=handler_id, attempts=2, last_error="no mail server")]
    (letter,) = session.events.dead_letters()
    assert (letter.event_id, letter.event_type, letter.event_payload) == (
        event.id,
        "stock.low",
        {"sku": "tea", "left": 3},
    )
    assert seen[0].chain_depth == 0 or seen[0].root_event_id == event.id


def test_a_handler_of_dead_letters_that_fails_makes_no_more_of_them(bench):
    @on_event(StockLow)
    def hopeless(ctx):
        raise RuntimeError("no mail server")

    @on_event(EventDeadLetter)
    def tell(ctx):
        raise RuntimeError("neither")

    session = bench.session(event_max_attempts=1)
    send(session, StockLow(sku="tea"))
    bench.run(session, [hopeless, tell], 10)
    assert sorted(letter.event_type for letter in session.events.dead_letters()) == ["event.dead_letter", "stock.low"]
    assert len(session.events.events()) == 2


def test_a_dead_letter_can_be_replayed(bench, seen):
    broken = True

    @on_event(StockLow)
    def mended(ctx):
        if broken:
            raise RuntimeError("no mail server")
        seen.append(ctx.event.sku)

    session = bench.session(event_max_attempts=1)
    event = StockLow(sku="tea")
    send(session, event)
    bench.run(session, [mended])
    broken = False
    bench.run(session, [mended], 2)
    assert seen == []
    assert [claim.event_id for claim in session.events.replay(event.id)] == [event.id]
    bench.run(session, [mended], 2)
    assert seen == ["tea"]
    assert session.events.dead_letters() == []


def test_a_payload_that_no_longer_fits_is_a_failure_that_says_why(bench, note):
    class Renamed(Event):
        __event_type_name__ = "stock.low"
        article: Field[str]

    @on_event(Renamed)
    def strict(ctx):
        raise AssertionError("not reached")

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [strict])
    (state,) = session.events.events()
    assert state.status == "retrying"
    assert "article" in state.claim.last_error


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


def test_committing_after_the_lease_is_refused_and_writes_nothing(bench, seen):
    @on_event(StockLow)
    def slow(ctx):
        ctx.ensure(Product(sku="tea", left=100))
        bench.clock.sleep(31)
        try:
            ctx.commit()
        except LeaseExpiredError as problem:
            seen.append(problem)
            raise

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [slow])
    assert "event_claim_lease_ms" in str(seen[0])
    assert session.query().entities(Product).count() == 0


def test_a_handler_that_outlives_its_lease_is_taken_over_and_what_it_emits_is_dropped(bench, seen, caplog):
    other = bench.session()

    @on_event(StockLow)
    def hanging(ctx):
        seen.append("begun")
        if len(seen) == 1:
            bench.clock.sleep(31)
            assert bench.run(other, [hanging]) == 1
            ctx.ensure(Product(sku="tea", left=0))
            with pytest.raises(LeaseExpiredError):
                ctx.commit()
        ctx.emit(OrderPlaced(sku=f"{len(seen)}"))

    session = bench.session()
    send(session, StockLow(sku="tea"))
    with caplog.at_level(logging.WARNING):
        bench.run(session, [hanging])
    assert seen == ["begun", "begun"]
    placed = [e.event.payload["sku"] for e in session.events.events(type="order.placed")]
    assert placed == ["2"]
    assert "another session has taken it over" in caplog.text


def test_a_lease_counts_by_both_clocks_so_one_that_jumps_back_does_not_prolong_it(bench, seen):
    @on_event(StockLow)
    def slow(ctx):
        bench.clock.skew_s = -3600
        bench.clock.sleep(31)
        ctx.ensure(Product(sku="tea", left=100))
        with pytest.raises(LeaseExpiredError):
            ctx.commit()
        seen.append("refused")

    session = bench.session()
    send(session, StockLow(sku="tea"))
    bench.run(session, [slow])
    assert seen == ["refused"]


def test_a_clock_that_jumps_back_delays_and_loses_nothing(bench, note, seen):
    session = bench.session()
    bench.clock.skew_s = -3600
    send(session, StockLow(sku="tea"))
    bench.run(session, [note], 2)
    assert seen == ["tea"]


def test_an_event_that_kills_its_worker_is_given_up_in_the_end(bench):
    @on_event(StockLow)
    def deadly(ctx):
        raise AssertionError("not reached: its claims are left behind")

    session = bench.session(event_max_attempts=3)
    send(session, StockLow(sku="tea"))
    wanted = [deadly.__on_event__.subscription]
    session.events.subscribe(wanted)
    claimed = []
    for _ in range(4):
        claimed += session.events.claim(wanted, "a worker that dies", 10)
        bench.clock.sleep(31)
    assert len(claimed) == 3
    (letter,) = session.events.dead_letters()
    assert "did not finish before its lease ran out" in letter.last_error


def test_a_batch_waits_behind_a_slow_handler_without_losing_its_leases(bench, seen):
    other = bench.session()

    @on_event(StockLow)
    def slow(ctx):
        seen.append(ctx.event.sku)
        bench.clock.sleep(20)
        session._loop.keep()  # as the keeper's thread does
        assert bench.run(other, [slow]) == 0

    session = bench.session()
    send(session, *(StockLow(sku=str(number)) for number in range(4)))
    bench.run(session, [slow])
    assert seen == ["0", "1", "2", "3"]


def test_a_handler_may_stop_the_session_and_the_rest_is_released(bench, seen):
    @on_event(StockLow)
    def enough(ctx):
        seen.append(ctx.event.sku)
        ctx.session.stop()

    session = bench.session()
    send(session, StockLow(sku="1"), StockLow(sku="2"))
    assert bench.run(session, [enough], 10) == 1
    assert session.events.sessions() == []
    assert bench.run(bench.session(), [enough], 10) == 1
    assert seen == ["1", "2"]


def test_a_second_interrupt_releases_the_event_it_hits(bench, seen):
    @on_event(StockLow)
    def interrupted(ctx):
        seen.append(ctx.event.sku)
        if len(seen) == 1:
            raise KeyboardInterrupt

    session = bench.session()
    send(session, StockLow(sku="1"), StockLow(sku="2"))
    with pytest.raises(KeyboardInterrupt):
        bench.run(session, [interrupted])
    assert bench.run(bench.session(), [interrupted]) == 2
    assert seen == ["1", "1", "2"]
    assert {state.claim.attempts for state in session.events.events()} == {0}


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
