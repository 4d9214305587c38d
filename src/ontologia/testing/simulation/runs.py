"""Plans and runs: what a seed means, how it is replayed, and how a failure is made small.

A plan says which machines there are, which actors on them do which operations, and how likely which faults are; its
seed decides the rest. A failing plan is shrunk by leaving parts out while it still fails.
"""

from __future__ import annotations

import json
import random
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ontologia.errors import CommitOutcomeUnknownError, OntologiaError
from ontologia.objects import Objects, Request
from ontologia.objects.memory import MemoryBackend
from ontologia.testing.simulation.scheduler import (
    FAULTS,
    Machine,
    Simulation,
    Ticket,
    Violation,
    current_actor,
    simulation_now,
)
from ontologia.testing.stores import ManualClock

Operation = tuple[Any, ...]  #: its name and its arguments, as JSON has them
RESCHEDULES = 6  #: schedules that are tried for each smaller plan
LAST_STEPS = 60
PAUSES_S = {"none": (0.1,), "short": (0.1, 5.0), "hours": (0.1, 0.1, 100.0, 9_000.0)}
"""How long actors may wait between two operations. Where they hardly do, their operations overlap."""


@dataclass(frozen=True)
class Plan:
    """Everything a run depends on. `machines` has for each machine its actors, and for each of these its operations."""

    world: str
    seed: int
    machines: tuple[tuple[tuple[Operation, ...], ...], ...]
    faults: dict[str, float] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def draw(cls, world: type[World], seed: int) -> Self:
        drawn = random.Random(f"{world.name} {seed}")
        options = {"pauses": drawn.choice(list(PAUSES_S)), **world.draw_options(drawn)}
        machines = tuple(
            tuple(
                tuple(world.draw_operation(drawn, options) for _ in range(drawn.randint(1, world.most_operations)))
                for _ in range(drawn.choice((1, 2, 2)))
            )
            for _ in range(drawn.choice((1, 1, 2, 3)))
        )
        faults = {}
        if drawn.random() < 0.7:  # a run without any shows what contention alone does
            rates = {"crash": 0.01, "partition": 0.005}
            faults = {kind: rates.get(kind, 0.03) * drawn.random() for kind in FAULTS if drawn.random() < 0.5}
        return cls(world.name, seed, machines, faults, options)

    def to_json(self) -> str:
        body = {"machines": self.machines, "faults": self.faults, "options": self.options}
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, world: str, seed: int, text: str) -> Self:
        body = json.loads(text)
        return cls(world, seed, _frozen(body["machines"]), body["faults"], body["options"])

    def smaller(self) -> Iterator[Self]:
        """Plans with one part less, the largest parts first."""
        for number in range(len(self.machines)):
            if len(self.machines) > 1:
                yield replace(self, machines=_without(self.machines, number))
        for m, machine in enumerate(self.machines):
            for a in range(len(machine)):
                if len(machine) > 1:
                    yield self._with_machine(m, _without(machine, a))
        for kind in self.faults:
            yield replace(self, faults={name: rate for name, rate in self.faults.items() if name != kind})
        for m, machine in enumerate(self.machines):
            for a, actor in enumerate(machine):
                for o in range(len(actor)):
                    if len(actor) > 1:
                        yield self._with_machine(m, (*machine[:a], _without(actor, o), *machine[a + 1 :]))

    def _with_machine(self, number: int, machine: tuple[tuple[Operation, ...], ...]) -> Self:
        return replace(self, machines=(*self.machines[:number], machine, *self.machines[number + 1 :]))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _without(items: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    return items[:number] + items[number + 1 :]


class StoreClock(ManualClock):
    """The clock of the store itself: true time."""

    def wall(self) -> float:
        return simulation_now()


class World(ABC):
    """One system under simulation: what its actors do, what should come of it, and what must always hold."""

    name: ClassVar[str]
    most_operations: ClassVar[int] = 5

    def __init__(self, simulation: Simulation, options: dict[str, Any], folder: Path) -> None:
        self.simulation = simulation
        self.options = options
        self.folder = folder
        self.backend = MemoryBackend(f"simulation-{id(self)}-{folder.name}", StoreClock())

    @property
    def objects(self) -> Objects:
        return Objects(self.backend)

    @classmethod
    @abstractmethod
    def draw_options(cls, drawn: random.Random) -> dict[str, Any]:
        """What is the same for a whole run."""

    @classmethod
    @abstractmethod
    def draw_operation(cls, drawn: random.Random, options: dict[str, Any]) -> Operation: ...

    def knobs(self) -> AbstractContextManager[None]:
        """Constants that are others here, so that seldom things happen often."""
        return nullcontext()

    @abstractmethod
    def lay_out(self, machine: Machine) -> None:
        """Make the store that the actors find."""

    @abstractmethod
    def open(self, machine: Machine) -> Any:
        """What the threads of a machine share."""

    @abstractmethod
    def perform(self, handle: Any, operation: Operation) -> Any:
        """Do it, and return what the caller was told."""

    @property
    @abstractmethod
    def head(self) -> int:
        """The newest commit of the model."""

    @abstractmethod
    def settle(self, ticket: Ticket, answer: Any, problem: OntologiaError | None) -> None:
        """Compare what the caller was told with the model. Raises `Violation`."""

    @abstractmethod
    def applied(self, ticket: Ticket, request: Request) -> None:
        """A write reached the store. Raises `Violation`."""

    @abstractmethod
    def finish(self, machine: Machine) -> None:
        """All is quiet: a machine that starts now sees all that should be there. Raises `Violation`."""


def check_acknowledged(ticket: Ticket, answer: int, *, needs_commit: bool) -> None:
    """A caller was told that its operation is this commit."""
    if ticket.commits and answer != ticket.commits[0]:
        raise Violation(f"{ticket.operation} was told commit {answer} and is commit {ticket.commits[0]}")
    if not ticket.commits and needs_commit:
        raise Violation(f"{ticket.operation} was acknowledged as commit {answer} and is none")


def check_told(ticket: Ticket) -> None:
    """An operation was committed, now or, where its request was late, after its caller was told something."""
    if len(ticket.commits) > 1:
        raise Violation(f"{ticket.operation} was committed {len(ticket.commits)} times: {ticket.commits}")
    if ticket.commits and ticket.refused is not None:
        raise Violation(f"{ticket.operation} is commit {ticket.commits[0]}, and its caller was told: {ticket.refused}")


def note_refusal(ticket: Ticket, problem: OntologiaError, expected: bool) -> None:
    """A caller was told that its operation failed. Only `CommitOutcomeUnknownError` may mean that it was committed."""
    if isinstance(problem, CommitOutcomeUnknownError):
        return
    ticket.refused = problem
    check_told(ticket)
    if not ticket.faults and not expected:
        raise Violation(f"{ticket.operation} failed though nothing went wrong: {type(problem).__name__}: {problem}")


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    plan: Plan
    failure: BaseException | None
    trace: list[str]
    trace_hash: str

    def __str__(self) -> str:
        if self.failure is None:
            return f"{self.plan.world} {self.plan.seed}: fine, {len(self.trace)} steps, trace {self.trace_hash}"
        lines = [
            f"{self.plan.world} {self.plan.seed}: {type(self.failure).__name__}: {self.failure}",
            *(f"  machine {m} actor {a}: {list(actor)}" for m, a, actor in _actors(self.plan)),
            f"  faults: {self.plan.faults or 'none'}, options: {self.plan.options}",
            "the last steps:",
            *self.trace[-LAST_STEPS:],
            "replay with",
            f"  python -m ontologia.testing.simulation {self.plan.world} --seed {self.plan.seed} "
            f"--plan '{self.plan.to_json()}'",
        ]
        return "\n".join(lines)


def _actors(plan: Plan) -> Iterator[tuple[int, int, tuple[Operation, ...]]]:
    for m, machine in enumerate(plan.machines):
        for a, actor in enumerate(machine):
            yield m, a, actor


def run(world: type[World], plan: Plan) -> Outcome:
    """Run a plan to its end, or to the first thing that is wrong."""
    simulation = Simulation(plan.seed, plan.faults)
    with tempfile.TemporaryDirectory(prefix="simulation-", ignore_cleanup_errors=True) as folder:
        here = world(simulation, plan.options, Path(folder))
        try:
            with simulation.running(), here.knobs():
                _run(simulation, here, plan)
        except RuntimeError as problem:
            simulation.failure = simulation.failure or problem
    return Outcome(plan, simulation.failure, [str(step) for step in simulation.trace], simulation.trace_hash)


def _run(simulation: Simulation, here: World, plan: Plan) -> None:
    simulation.calm = True
    _alone(simulation, "layout", here.lay_out)
    simulation.calm = False
    simulation.applied = here.applied
    scripts: dict[str, dict[str, deque[Operation]]] = {}
    for m, machine in enumerate(plan.machines):
        name = f"m{m}"
        scripts[name] = {f"{name}.{a}": deque(actor) for a, actor in enumerate(machine)}
        _boot(simulation, here, Machine(name, simulation.random.uniform(-2.0, 2.0)), scripts[name])
    simulation.run(lambda dead: _boot(simulation, here, _again(dead), scripts[dead.name]))
    if simulation.failure is None:
        simulation.calm = True
        _alone(simulation, "finish", here.finish)


def _again(dead: Machine) -> Machine:
    return Machine(dead.name, dead.skew_s, dead.incarnation + 1)


def _alone(simulation: Simulation, name: str, work: Callable[[Machine], None]) -> None:
    machine = Machine(name)

    def checked() -> None:
        try:
            work(machine)
        except Violation as problem:
            simulation.fail(problem)
        except OntologiaError as problem:
            simulation.fail(Violation(f"{name}, without faults or others: {type(problem).__name__}: {problem}"))

    simulation.add(machine, name, checked).task = name
    simulation.run()


def _boot(simulation: Simulation, here: World, machine: Machine, scripts: dict[str, deque[Operation]]) -> None:
    """Start a machine: its actors go on where their scripts are."""
    for name, script in scripts.items():
        if script:
            simulation.add(machine, name, lambda script=script: _act(simulation, here, machine, script))  # type: ignore[misc]


def _act(simulation: Simulation, here: World, machine: Machine, script: deque[Operation]) -> None:
    actor = current_actor()
    assert actor is not None
    while script:
        actor.task = "waits"
        longest = simulation.random.choice(PAUSES_S[here.options["pauses"]])
        actor.park(simulation.now + simulation.random.uniform(0.0, longest))
        operation = script.popleft()
        actor.task = " ".join(map(str, operation))
        actor.ticket = Ticket(operation, machine, simulation.now, here.head)
        answer, failure = None, None
        try:
            with machine.opening:
                if machine.handle is None:
                    machine.handle = here.open(machine)
            answer = here.perform(machine.handle, operation)
        except OntologiaError as problem:
            failure = problem
        except Exception as problem:
            simulation.fail(problem)
        told = str(failure).replace(here.backend.root, "store:/")[:160]
        simulation.note(actor, "done", "ok" if failure is None else f"{type(failure).__name__}: {told}")
        with simulation.looking():
            try:
                here.settle(actor.ticket, answer, failure)
            except Violation as problem:
                simulation.failure = simulation.failure or problem
        if simulation.failure is not None:
            return


def shrink(world: type[World], outcome: Outcome, budget: int = 150) -> Outcome:
    """The smallest plan that still fails, as far as so many runs find one. Leaving something out changes what the seed
    means, so each smaller plan is tried with several schedules."""
    smallest, left = outcome, budget
    found = True
    while found and left > 0:
        found = False
        for plan in smallest.plan.smaller():
            for number in range(RESCHEDULES):
                left -= 1
                seed = smallest.plan.seed if not number else smallest.plan.seed * RESCHEDULES + number
                tried = run(world, replace(plan, seed=seed))
                if tried.failure is not None and type(tried.failure) is type(outcome.failure):
                    smallest, found = tried, True
                    break
            if found or left <= 0:
                break
    return smallest
