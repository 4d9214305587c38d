"""An event is leased to one handler at a time: what comes of leases that end, workers that die and sessions that stop."""

import logging

import pytest

from ontologia import (
    LeaseExpiredError,
    on_event,
)
from support.events_shop import OrderPlaced, Product, StockLow, send


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
