"""Writers and workers that die between any two requests: an event of a visible commit is handled, others are not.

On SQLite the same is one transaction, which `tests/faults` kills elsewhere; here are the steps on object storage.
"""

import uuid
from contextlib import suppress

import pytest

from ontologia import EventDeadLetter, OntologiaConfig, StorageBackendError, initialize_storage, on_event
from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.repository import Repository
from ontologia.objects import open_objects
from ontologia.runtime.events.loop import EventLoop
from ontologia.runtime.session import Session
from ontologia.testing.stores import FaultyObjects, ManualClock, SimulatedCrash
from support.events_shop import OrderPlaced, Product, StockLow

WHEN = ["before", pytest.param("after", marks=pytest.mark.slow)]


class Place:
    """A store that can fail, a session on it, and another session that comes after the crash."""

    def __init__(self, **settings) -> None:
        self.uri = f"memory://crash-{uuid.uuid4().hex}"
        initialize_storage(storage_uri=self.uri)
        self.clock = ManualClock(1_800_000_000.0)
        self.config = OntologiaConfig(**settings)
        self.faulty = FaultyObjects(open_objects(self.uri))
        self.victim = self.session(self.faulty)
        self.survivor = self.session(open_objects(self.uri))

    def session(self, objects) -> Session:
        session = Session.over(Repository(open_objects_engine(objects, self.config)), {})
        session.events.clock = self.clock
        return session

    def run(self, session: Session, handlers, rounds: int = 1) -> int:
        return EventLoop(session, session.events, handlers, wait=self.clock.sleep, keep_alive=False).run(rounds)

    def recover(self, handlers) -> None:
        """What others do afterwards, when every lease has run out; the one on writing goes by real time."""
        open_objects(self.uri).delete("meta/locks/ontology_write.json")
        for _ in range(3):
            self.clock.sleep(60)
            self.run(self.survivor, handlers, 2)

    def close(self) -> None:
        for session in (self.victim, self.survivor):
            session.repository.close()


def steps_of(work, **settings) -> int:
    """How many requests a piece of work makes."""
    place = Place(**settings)
    prepared = work(place)
    return len(place.faulty.steps_of(prepared))


def crashes(work, when, **settings):
    """The same work in a fresh place, dying at each of its requests in turn."""
    for number in range(1, steps_of(work, **settings) + 1):
        place = Place(**settings)
        prepared = work(place)
        place.faulty.heal()
        place.faulty.crash(at=number, when=when)
        with suppress(SimulatedCrash):
            prepared()
        yield number, place
        place.close()


def commit_with_event(place: Place):
    place.victim.ensure(Product(sku="seed", left=1))
    place.victim.commit()  # so that what is done once per store is done

    def commit() -> None:
        place.victim.ensure(Product(sku="tea", left=3))
        place.victim.commit(event=[StockLow(sku="tea", left=3), OrderPlaced(sku="tea")])

    return commit


@pytest.mark.parametrize("when", WHEN)
def test_a_commit_and_its_events_are_both_there_or_neither(when):
    outcomes = set()
    for number, place in crashes(commit_with_event, when):
        seen = []

        @on_event(StockLow)
        def low(ctx, seen=seen):
            seen.append("low")

        @on_event(OrderPlaced)
        def placed(ctx, seen=seen):
            seen.append("placed")

        place.recover([low, placed])
        is_visible = place.survivor.query().entities(Product).where(Product.sku == "tea").count() == 1
        assert sorted(seen) == (["low", "placed"] if is_visible else []), f"crash {when} request {number}"
        outcomes.add(is_visible)
    assert outcomes == {True, False}


def handle_and_emit(place: Place):
    place.victim.commit(event=StockLow(sku="tea"))
    place.seen = []

    @on_event(StockLow)
    def reorder(ctx):
        place.seen.append("low")
        ctx.ensure(Product(sku="tea", left=100))
        ctx.commit()
        ctx.emit(OrderPlaced(sku="tea"))

    @on_event(OrderPlaced)
    def confirm(ctx):
        place.seen.append("placed")

    place.handlers = [reorder, confirm]
    return lambda: place.run(place.victim, place.handlers, 2)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.thorough
def test_a_worker_that_dies_anywhere_leaves_its_work_to_another(when):
    for number, place in crashes(handle_and_emit, when):
        place.recover(place.handlers)
        states = sorted((state.event.type, state.status) for state in place.survivor.events.events())
        assert states == [("order.placed", "acked"), ("stock.low", "acked")], f"crash {when} request {number}"
        assert set(place.seen) == {"low", "placed"}
        assert len(place.seen) <= 3
        assert left_over(place) == []


def fail_for_good(place: Place):
    place.victim.commit(event=StockLow(sku="tea"))
    place.seen = []

    @on_event(StockLow)
    def hopeless(ctx):
        raise RuntimeError("no mail server")

    @on_event(EventDeadLetter)
    def tell(ctx):
        place.seen.append(ctx.event.event_id)

    place.handlers = [hopeless, tell]
    return lambda: place.run(place.victim, place.handlers, 4)


@pytest.mark.parametrize("when", WHEN)
def test_a_dead_letter_is_written_and_told_of_whoever_dies(when):
    for number, place in crashes(fail_for_good, when, event_max_attempts=2):
        place.recover(place.handlers)
        letters = place.survivor.events.dead_letters()
        assert [letter.event_type for letter in letters] == ["stock.low"], f"crash {when} request {number}"
        assert 1 <= len(place.seen) <= 2
        assert len(set(place.seen)) == 1
        assert left_over(place) == []


def come_later(place: Place):
    """A new handler, where another one of its type is done with the event already."""
    place.victim.commit(event=StockLow(sku="tea"))
    place.seen = []

    @on_event(StockLow)
    def reorder(ctx): ...

    @on_event(StockLow)
    def newcomer(ctx):
        place.seen.append(ctx.event.sku)

    place.run(place.victim, [reorder])
    place.handlers = [newcomer]
    return lambda: place.run(place.victim, place.handlers)


def test_a_new_handler_that_dies_before_it_has_looked_around_looks_again():
    for number, place in crashes(come_later, "after"):
        place.recover(place.handlers)
        assert set(place.seen) == {"tea"}, f"crash after request {number}"
        assert left_over(place) == []


def test_a_new_handler_gets_what_a_worker_is_about_to_put_away_however_long_that_takes():
    for number in range(1, steps_of(handle_one) + 1):
        place = Place()
        work = handle_one(place)
        seen = []

        @on_event(StockLow)
        def newcomer(ctx, seen=seen):
            seen.append(ctx.event.sku)

        def sign_up(_, place=place, newcomer=newcomer):
            """Look around, and be too busy to claim anything for a minute."""
            wanted = [newcomer.__on_event__.subscription]
            place.survivor.events.subscribe(wanted)
            place.clock.sleep(60)
            place.survivor.events.claim(wanted, "newcomer", 0)

        place.faulty.heal()
        place.faulty.call(sign_up, at=number)
        work()
        place.run(place.survivor, [newcomer], 2)
        assert seen == ["tea"], f"signed up before request {number}"
        place.close()


def handle_one(place: Place):
    place.victim.commit(event=StockLow(sku="tea"))

    @on_event(StockLow)
    def reorder(ctx): ...

    return lambda: place.run(place.victim, [reorder])


def left_over(place: Place) -> list[str]:
    """Markers that nobody removed."""
    return [info.key for info in open_objects(place.uri).list("event_queue/")]


@pytest.mark.parametrize("operation", ["put", "put_if_absent", "put_if_match", "get", "list", "delete_many"])
def test_lost_answers_change_nothing(operation):
    for fault in ("lose_response", "lose_request"):
        place = Place()
        work = handle_and_emit(place)
        place.faulty.heal()
        getattr(place.faulty, fault)(operation=operation, key="*event*")
        getattr(place.faulty, fault)(operation=operation, key="claims/*")
        with suppress(StorageBackendError):  # when it begins; afterwards it tries again by itself
            work()
        place.recover(place.handlers)
        assert sorted(set(place.seen)) == ["low", "placed"]
        states = {state.status for state in place.survivor.events.events()}
        assert states == {"acked"}, (fault, operation)
        place.close()


def test_an_event_whose_queueing_fails_after_the_commit_does_not_fail_the_commit(caplog):
    place = Place()
    place.faulty.fail(OSError("the network is gone"), operation="put*", key="event*", times=None)
    place.faulty.fail(OSError("the network is gone"), operation="put", key="events/*", times=None)
    place.victim.events._is_relayed = True
    place.survivor.events.announce([], lambda: 0)  # the mark of the relay is there
    place.victim.ensure(Product(sku="tea", left=3))
    assert place.victim.commit(event=StockLow(sku="tea")) == 1
    assert "commit 1 is done" in caplog.text
    seen = []
    place.recover([on_event(StockLow)(lambda ctx: seen.append(ctx.event.sku))])
    assert seen == ["tea"]


def test_the_relay_reads_each_commit_once():
    place = Place()
    place.victim.ensure(Product(sku="tea", left=0))
    place.victim.commit(event=StockLow(sku="tea"))
    for number in range(20):
        place.victim.ensure(Product(sku="tea", left=number + 1))
        place.victim.commit()
    repository = place.survivor.repository
    place.survivor.events.relay(repository.get_head_commit_id, lambda since: repository.engine.commits(since=since))
    with repository.engine.objects.counting() as count:
        for _ in range(5):
            place.survivor.events.relay(
                repository.get_head_commit_id, lambda since: repository.engine.commits(since=since)
            )
    assert count.total == 5, count.log
