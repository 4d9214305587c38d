"""A shop whose stock falls, on every kind of storage, and a clock that moves when it is told to."""

import uuid

import pytest

from ontologia import OntologiaConfig, Session, initialize_storage, on_event
from ontologia.runtime.events import open_event_store
from ontologia.runtime.events.loop import EventLoop
from ontologia.testing.stores import ManualClock
from support.events_shop import StockLow

START = 1_800_000_000.0


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture(params=["sqlite", "objects", pytest.param("s3", marks=pytest.mark.s3)])
def target(request, tmp_path, monkeypatch):
    """An empty store, in a file and on object storage, in memory and on a server."""
    if request.param == "sqlite":
        return str(tmp_path / "onto.db")
    uri = f"memory://events-{uuid.uuid4().hex}"
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        for key, value in server.environment.items():
            monkeypatch.setenv(key, value)
        uri = server.uri(f"events-tests/{uuid.uuid4().hex}")
    initialize_storage(storage_uri=uri)
    return uri


@pytest.fixture
def here(target):
    """The same, but for tests that make too many requests for a server."""
    if target.startswith("s3://"):
        pytest.skip("the memory store stands for it")
    return target


class Bench:
    """Sessions on one target, under one clock."""

    def __init__(self, target: str, clock: ManualClock) -> None:
        self.target = target
        self.clock = clock
        self.opened: list[Session] = []

    def session(self, namespace: str = "shop", **settings) -> Session:
        session = Session(self.target, namespace, config=OntologiaConfig(**settings))
        session.__dict__["events"] = store = open_event_store(session.engine, namespace)
        store.clock = self.clock
        self.opened.append(session)
        return session

    def run(self, session: Session, handlers, rounds: int = 1, **more) -> int:
        """Rounds of the loop, with the clock for time and without a thread of its own."""
        session._loop = EventLoop(session, session.events, handlers, wait=self.clock.sleep, keep_alive=False, **more)
        try:
            return session._loop.run(rounds)
        finally:
            session._loop = None


@pytest.fixture
def bench(target, clock):
    made = Bench(target, clock)
    yield made
    for session in made.opened:
        session.close()


@pytest.fixture
def seen():
    """What handlers have written down."""
    return []


@pytest.fixture
def note(seen):
    """A handler that writes down what it gets."""

    @on_event(StockLow)
    def note(ctx):
        seen.append(ctx.event.sku)

    return note
