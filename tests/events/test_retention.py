"""What is kept, and for how long: handled events go, what somebody waits for stays."""

import pytest

from ontologia import on_event
from support.events_shop import OrderPlaced, StockLow

DAY = 86_400.0


@pytest.fixture
def handled(bench):
    @on_event(StockLow)
    def reorder(ctx):
        if ctx.event.sku == "bad":
            raise RuntimeError("no such article")

    return reorder


def old(bench, session, *events):
    """Send events and let time pass; their age is that of real time, so the clock goes there first."""
    session.commit(event=events)
    created = max(event.created_at.timestamp() for event in events)
    bench.clock.now = created + 1
    return created


def test_what_was_handled_is_removed_after_the_retention(bench, handled):
    session = bench.session(event_max_attempts=1)
    old(bench, session, StockLow(sku="tea"), StockLow(sku="bad"))
    bench.run(session, [handled])
    bench.clock.sleep(6 * DAY)
    assert session.events.cleanup(apply=True).events == []
    bench.clock.sleep(2 * DAY)
    removed = session.events.cleanup()
    assert (len(removed.events), removed.applied) == (3, False)  # with the notice of the dead letter
    assert len(session.events.events()) == 3
    session.events.cleanup(apply=True)
    assert session.events.events() == session.events.dead_letters() == []


def test_what_a_known_handler_has_not_handled_stays_however_old(bench, handled):
    session = bench.session()
    old(bench, session, OrderPlaced(sku="first"))
    bench.run(session, [handled])
    old(bench, session, StockLow(sku="tea"))
    for _ in range(3):
        bench.clock.sleep(3 * DAY)
        session.events.subscribe([handled.__on_event__.subscription])
        session.events.cleanup(apply=True)
    assert [state.event.type for state in session.events.events()] == ["stock.low"]
    assert bench.run(session, [handled]) == 1


def test_what_waits_to_be_tried_again_stays(bench):
    @on_event(StockLow)
    def moody(ctx):
        raise RuntimeError("not today")

    session = bench.session()
    old(bench, session, StockLow(sku="tea"))
    bench.run(session, [moody])
    bench.clock.sleep(6 * DAY)
    session.events.subscribe([moody.__on_event__.subscription])
    bench.clock.sleep(2 * DAY)
    assert session.events.cleanup(apply=True).events == []


def test_a_handler_that_nobody_runs_any_more_is_not_waited_for(bench, handled):
    @on_event(StockLow)
    def retired(ctx): ...

    session = bench.session()
    bench.clock.now = StockLow(sku="x").created_at.timestamp()
    bench.run(session, [handled, retired])
    old(bench, session, StockLow(sku="tea"))
    bench.run(session, [handled], 2)
    bench.clock.sleep(6 * DAY)
    session.events.subscribe([handled.__on_event__.subscription])
    assert session.events.cleanup(apply=True).events == []
    bench.clock.sleep(2 * DAY)
    assert len(session.events.cleanup(apply=True).events) == 1


def test_sessions_that_died_are_removed(bench, handled):
    session = bench.session()
    loop_record = {}

    @on_event(StockLow)
    def look(ctx):
        loop_record["record"] = ctx.session.events.sessions()[0]

    session.commit(event=StockLow(sku="tea"))
    bench.run(session, [look])
    session.events.heartbeat(loop_record["record"])  # as if it had not said goodbye
    bench.clock.sleep(8 * DAY)
    assert session.events.cleanup(apply=True).sessions == [loop_record["record"].session_id]
    assert session.events.sessions() == []


def test_a_cleanup_of_nothing_lays_out_nothing(bench):
    session = bench.session()
    assert session.events.cleanup().events == []
    assert session.events.events() == session.events.sessions() == session.events.dead_letters() == []
    assert session.events.namespaces() == []


def test_a_running_session_cleans_up_by_itself(bench, handled):
    session = bench.session()
    old(bench, session, StockLow(sku="tea"))
    bench.run(session, [handled])
    bench.clock.sleep(8 * DAY)
    bench.run(session, [handled])
    assert session.events.events() == []
