"""A handler that fails: its event is tried again, given up as a dead letter, and replayed."""

from ontologia import (
    Event,
    EventDeadLetter,
    Field,
    on_event,
)
from support.events_shop import OrderPlaced, Product, StockLow, send


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
