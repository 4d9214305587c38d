"""One process in which many live: a seed decides who runs, what gets lost, who dies and what time it is.

Every actor is a thread that runs only while it holds the baton. It hands the baton back at each storage request, sleep,
lock wait and thread start, so that the order of everything is drawn from one random stream. The way in is the two seams
of production code: `objects.system` for time, randomness, threads and locks, and `objects.requests.interceptors` for
storage.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ontologia.objects import Request, System, Thread, using
from ontologia.objects import system as current_system
from ontologia.objects.failures import WRITES
from ontologia.objects.requests import interceptors
from ontologia.objects.system import Event, Lock
from ontologia.testing.stores import SimulatedCrash

T = TypeVar("T")
R = TypeVar("R")

EPOCH = 1_900_000_000.0  #: when every simulation begins
STUCK_AFTER_S = 60.0  #: real seconds that an actor may run without handing the baton back
MOST_STEPS = 20_000
TIMEOUT_S = 10.0  #: how long a caller waits for an answer that never comes
LONGEST_STALL_S = 100.0
LATENCIES_S = (0.01, 0.02, 0.05, 0.05, 0.3, 5.0)  #: a slow request sees a whole operation of others pass by
SLOW_ANSWERS = 0.25  #: how often others can move between the store's answer and who asked

#: What can happen to a request.
FAULTS = ("lose_request", "lose_answer", "late", "repeat", "stall", "crash", "partition", "clock_jump")


@dataclass
class Machine:
    """A process with its own clock. What its threads share dies with it."""

    name: str
    skew_s: float = 0.0
    incarnation: int = 0
    dead: bool = False
    cut_off_until: float = 0.0
    frozen_until: float = 0.0
    handle: Any = None

    def __post_init__(self) -> None:
        self.opening = SimulatedLock()


@dataclass
class Step:
    """One thing that happened, as the trace shows it."""

    number: int
    time: float
    actor: str
    task: str
    what: str
    outcome: str

    def __str__(self) -> str:
        outcome = "" if self.outcome == "ok" else f"  → {self.outcome}"
        return f"{self.number:5}  {self.time - EPOCH:11.3f} s  {self.actor:<14} {self.task:<34} {self.what}{outcome}"


class Violation(Exception):
    """An invariant does not hold."""


@dataclass(eq=False)
class Ticket:
    """One operation of an actor, from its beginning on."""

    operation: tuple[Any, ...]
    machine: Machine
    started: float
    head: int = 0  # of the model, when it began
    faults: int = 0  # that hit it
    commits: list[int] = field(default_factory=list)
    refused: Exception | None = None  # what its caller was told, if that means that nothing was committed


class Actor(threading.Thread):
    """A thread that runs while it has the baton."""

    def __init__(
        self, simulation: Simulation, machine: Machine, name: str, work: Callable[[], object], *, background: bool
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.background = background  # nobody waits for it to end
        self.simulation = simulation
        self.machine = machine
        self.work = work
        self.task = ""
        self.ticket = Ticket((name,), machine, simulation.now)
        self.failure: BaseException | None = None
        self.ended = False
        self.wake_at: float | None = None
        self.until: Callable[[], bool] | None = None
        self._go = threading.Semaphore(0)

    def run(self) -> None:
        self._go.acquire()
        try:
            if not self.machine.dead:
                self.work()
        except SimulatedCrash:
            pass
        except BaseException as problem:
            self.failure = problem
        finally:
            self.ended = True
            self.simulation.baton.release()

    def is_ready(self, now: float) -> bool:
        if self.machine.dead:
            return True
        if self.machine.frozen_until > now:
            return False
        if self.until is not None and self.until():
            return True
        if self.wake_at is not None:
            return now >= self.wake_at
        return self.until is None

    def resume(self) -> None:
        """Called by the scheduler: run until the baton comes back."""
        self._go.release()
        if not self.simulation.baton.acquire(timeout=STUCK_AFTER_S):
            raise RuntimeError(f"{self.name} ran for {STUCK_AFTER_S:g} s without handing the baton back: {self.task}")

    def park(self, wake_at: float | None = None, until: Callable[[], bool] | None = None) -> None:
        """Hand the baton back until a time has come, or a condition holds."""
        if self.machine.dead:
            raise SimulatedCrash(self.machine.name)
        self.wake_at, self.until = wake_at, until
        self.simulation.baton.release()
        self._go.acquire()
        self.wake_at = self.until = None
        if self.machine.dead:
            raise SimulatedCrash(self.machine.name)

    # --- as the code under simulation sees a thread --------------------------------------------------------------

    def join(self, timeout: float | None = None) -> None:
        me = current_actor()
        if me is None:
            super().join(timeout)
        elif not self.ended:
            me.park(None if timeout is None else self.simulation.now + timeout, lambda: self.ended)

    def is_alive(self) -> bool:
        return super().is_alive() if current_actor() is None else not self.ended


def current_actor() -> Actor | None:
    thread = threading.current_thread()
    return thread if isinstance(thread, Actor) and not thread.simulation.unobserved else None


@dataclass
class Simulation:
    """The scheduler. `faults` says how likely each fault is at a request; `applied` is told of every write that
    reached the store, while nothing else moves."""

    seed: int
    faults: dict[str, float] = field(default_factory=dict)
    applied: Callable[[Ticket, Request], None] = lambda ticket, request: None
    now: float = EPOCH
    trace: list[Step] = field(default_factory=list)
    failure: BaseException | None = None
    unobserved: bool = False
    calm: bool = False
    """No faults, while a store is laid out and when all is over."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.baton = threading.Semaphore(0)
        self.actors: list[Actor] = []
        self.late: list[tuple[float, Callable[[], object], Actor, Ticket, Request]] = []
        self.crashed: list[Machine] = []
        self.system = SimulatedSystem(self)

    # --- running -------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """The seams lead here while in the block."""
        with using(self.system):
            interceptors.append(self._intercept)
            try:
                yield
            finally:
                interceptors.remove(self._intercept)
                self._end_all()

    def add(self, machine: Machine, name: str, work: Callable[[], object], *, background: bool = False) -> Actor:
        actor = Actor(self, machine, name, work, background=background)
        self.actors.append(actor)
        actor.start()
        return actor

    def run(self, on_crash: Callable[[Machine], None] = lambda machine: None) -> None:
        """Until nobody has anything to do, or an invariant does not hold."""
        while self.failure is None and any(not actor.background for actor in self.actors):
            if len(self.trace) > MOST_STEPS:
                raise RuntimeError(f"seed {self.seed}: still busy after {MOST_STEPS} steps")
            self._deliver_late()
            self._choose().resume()
            self.actors = [actor for actor in self.actors if not actor.ended or self._note_end(actor)]
            while self.crashed and self.failure is None:
                machine = self.crashed.pop()
                self._unwind(machine)
                on_crash(machine)

    def _choose(self) -> Actor:
        ready = [actor for actor in self.actors if actor.is_ready(self.now)]
        if not ready:
            times = [actor.wake_at for actor in self.actors if actor.wake_at is not None]
            times += [when for when, *_ in self.late]
            times += [actor.machine.frozen_until for actor in self.actors]
            times = [when for when in times if when > self.now]
            if not times:
                raise RuntimeError(f"seed {self.seed}: everybody waits: {[actor.name for actor in self.actors]}")
            self.now = min(times)
            self._deliver_late()
            return self._choose()
        return ready[self.random.randrange(len(ready))]

    def _note_end(self, actor: Actor) -> bool:
        if actor.failure is not None and self.failure is None:
            self.failure = actor.failure
        return False

    def _unwind(self, machine: Machine) -> None:
        """Let the threads of a dead process end, one after the other; each request of theirs ends them again."""
        for actor in [actor for actor in self.actors if actor.machine is machine]:
            while not actor.ended:
                actor.resume()
        self.actors = [actor for actor in self.actors if not actor.ended]

    def _end_all(self) -> None:
        for actor in self.actors:
            actor.machine.dead = True
        for machine in {id(actor.machine): actor.machine for actor in self.actors}.values():
            self._unwind(machine)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Requests and clocks are used by the simulation itself: nothing is scheduled, nothing fails."""
        before, self.unobserved = self.unobserved, True
        try:
            yield
        finally:
            self.unobserved = before

    def fail(self, problem: BaseException) -> None:
        """End the simulation here. The actor that noticed it goes no further."""
        if self.failure is None:
            self.failure = problem
        raise SimulatedCrash(str(problem))

    def note(self, actor: Actor, what: str, outcome: str = "ok") -> None:
        self.trace.append(Step(len(self.trace) + 1, self.now, actor.name, actor.task, what, outcome))

    @property
    def trace_hash(self) -> str:
        return hashlib.sha256("\n".join(map(str, self.trace)).encode()).hexdigest()[:16]

    # --- requests ------------------------------------------------------------------------------------------------

    def _intercept(self, request: Request, call: Callable[[], object]) -> object:
        actor = current_actor()
        if actor is None:
            return call()
        self._travel(actor)
        fault = None if self.calm else self._draw_fault()
        if actor.machine.cut_off_until > self.now and not self.calm:
            fault = "lose_request"
        if fault is None:
            answer = self._apply(actor, request, call, "ok")
            if self.random.random() < SLOW_ANSWERS:
                self._travel(actor)
            return answer
        actor.ticket.faults += 1
        effect: Callable[[Actor, Request, Callable[[], object]], object] = getattr(self, f"_{fault}")
        return effect(actor, request, call)

    def _travel(self, actor: Actor) -> None:
        """A request is on its way to the store, or an answer back."""
        actor.park(self.now + self.random.uniform(0.001, self.random.choice(LATENCIES_S)))

    def _draw_fault(self) -> str | None:
        drawn = self.random.random()
        for kind in FAULTS:
            drawn -= self.faults.get(kind, 0.0)
            if drawn < 0:
                return kind
        return None

    def _apply(self, actor: Actor, request: Request, call: Callable[[], object], outcome: str) -> object:
        step = Step(len(self.trace) + 1, self.now, actor.name, actor.task, str(request), outcome)
        self.trace.append(step)
        try:
            answer = call()
        except Exception as problem:
            step.outcome = f"{type(problem).__name__}, {outcome}".removesuffix(", ok")
            raise
        if request.operation in WRITES:
            with self.looking():
                try:
                    self.applied(actor.ticket, request)
                except Violation as problem:
                    self.failure = self.failure or problem
        if self.failure is not None:
            raise SimulatedCrash(str(self.failure))
        return answer

    def _lose_request(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        self.note(actor, str(request), "the request is lost")
        actor.park(self.now + TIMEOUT_S)
        raise TimeoutError(f"simulated: the request was lost: {request}")

    def _lose_answer(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        with suppress(Exception):  # an answer, too
            self._apply(actor, request, call, "the answer is lost")
        actor.park(self.now + TIMEOUT_S)
        raise TimeoutError(f"simulated: the answer was lost: {request}")

    def _late(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        """The caller gives up, and the request arrives afterwards. Only where a condition guards it: stores make no
        promise about others, and nothing here relies on one."""
        if request.operation not in ("put_if_absent", "put_if_match"):
            return self._lose_request(actor, request, call)
        self.late.append((self.now + self.random.uniform(0.0, 3 * TIMEOUT_S), call, actor, actor.ticket, request))
        self.note(actor, str(request), "the request is late")
        actor.park(self.now + TIMEOUT_S)
        raise TimeoutError(f"simulated: the request is late: {request}")

    def _deliver_late(self) -> None:
        due = [entry for entry in self.late if entry[0] <= self.now]
        self.late = [entry for entry in self.late if entry[0] > self.now]
        for _, call, actor, ticket, request in due:
            try:
                call()
            except Exception as problem:
                self.note(actor, str(request), f"arrives late: {type(problem).__name__}")
                continue
            self.note(actor, str(request), "arrives late")
            with self.looking():
                try:
                    self.applied(ticket, request)
                except Violation as violation:
                    self.failure = self.failure or violation

    def _repeat(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        if request.operation == "list":  # asked again, a listing gives its next page
            return self._apply(actor, request, call, "ok")
        self._apply(actor, request, call, "ok")
        return self._apply(actor, request, call, "repeated")

    def _stall(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        """The machine stands still, and its clocks go on: before the request, or when the answer is there."""
        first = self.random.random() < 0.5
        answer = None if first else self._apply(actor, request, call, "ok")
        self.note(actor, str(request), f"{actor.machine.name} stalls")
        actor.machine.frozen_until = self.now + self.random.uniform(1.0, LONGEST_STALL_S)
        actor.park(actor.machine.frozen_until)
        return self._apply(actor, request, call, "ok") if first else answer

    def _crash(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        if self.random.random() < 0.5:
            self._apply(actor, request, call, "ok")
        self.note(actor, f"{actor.machine.name} crashes at {request}", "crash")
        actor.machine.dead = True
        self.crashed.append(actor.machine)
        raise SimulatedCrash(f"simulated: {actor.machine.name} died at {request}")

    def _partition(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        actor.machine.cut_off_until = self.now + self.random.uniform(1.0, LONGEST_STALL_S)
        return self._lose_request(actor, request, call)

    def _clock_jump(self, actor: Actor, request: Request, call: Callable[[], object]) -> object:
        actor.ticket.faults -= 1  # nothing may fail for it
        actor.machine.skew_s = self.random.uniform(-4.0, 4.0)
        self.note(actor, f"the clock of {actor.machine.name} is set", f"{actor.machine.skew_s:+.1f} s")
        return self._apply(actor, request, call, "ok")


class SimulatedSystem(System):
    """Time, randomness, threads and locks as the scheduler gives them."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.random = random.Random(simulation.seed + 1)

    def wall(self) -> float:
        actor = current_actor()
        return self.simulation.now + (actor.machine.skew_s if actor is not None else 0.0)

    def steady(self) -> float:
        return self.simulation.now

    def sleep(self, seconds: float) -> None:
        actor = current_actor()
        if actor is not None:
            actor.park(self.simulation.now + seconds)

    def lock(self) -> Lock:
        return SimulatedLock()

    def rlock(self) -> AbstractContextManager[Any]:
        return SimulatedLock(reentrant=True)

    def event(self) -> Event:
        return SimulatedEvent()

    def start(self, work: Callable[[], object], name: str, *, daemon: bool = True) -> Thread:
        actor = current_actor()
        if actor is None:
            raise RuntimeError(f"{name}: only actors start threads in a simulation")
        started = self.simulation.add(actor.machine, f"{actor.name}:{name.partition(' ')[0]}", work, background=True)
        started.task = name
        return started

    def run_all(self, function: Callable[[T], R], items: Iterable[T], at_once: int, name: str) -> list[R]:
        """One after the other, in an order that is drawn."""
        work = list(items)
        order = list(range(len(work)))
        self.random.shuffle(order)
        results: dict[int, R] = {}
        problems: dict[int, Exception] = {}
        for number in order:
            try:
                results[number] = function(work[number])
            except Exception as problem:
                problems[number] = problem
        if problems:
            raise problems[min(problems)]
        return [results[number] for number in range(len(work))]


class SimulatedLock:
    """A lock whose waiters hand the baton on."""

    def __init__(self, *, reentrant: bool = False) -> None:
        self.reentrant = reentrant
        self.holder: threading.Thread | None = None
        self.depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me, actor = threading.current_thread(), current_actor()
        if self.holder is me and self.reentrant:
            self.depth += 1
            return True
        if self.holder is not None:
            if not blocking:
                return False
            if actor is None:
                raise RuntimeError("the simulation itself waits for a lock that an actor holds")
            deadline = None if timeout < 0 else actor.simulation.now + timeout
            while self.holder is not None:
                if deadline is not None and actor.simulation.now >= deadline:
                    return False
                actor.park(deadline, lambda: self.holder is None)
        self.holder, self.depth = me, 1
        return True

    def release(self) -> None:
        if self.holder is None:
            raise RuntimeError("release of a lock that nobody holds")
        self.depth -= 1
        if not self.depth:
            self.holder = None

    def locked(self) -> bool:
        return self.holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *problem: object) -> None:
        self.release()


class SimulatedEvent:
    """An event whose waiters hand the baton on."""

    def __init__(self) -> None:
        self.happened = False

    def set(self) -> None:
        self.happened = True

    def is_set(self) -> bool:
        return self.happened

    def wait(self, timeout: float | None = None) -> bool:
        actor = current_actor()
        if actor is not None and not self.happened:
            wake_at = None if timeout is None else actor.simulation.now + timeout
            actor.park(wake_at, self.is_set)
        return self.happened


def simulation_now() -> float:
    """True time, for the clock of a simulated store; the wall of this machine outside of one."""
    here = current_system()
    return here.simulation.now if isinstance(here, SimulatedSystem) else here.wall()
