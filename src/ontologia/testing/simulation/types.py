"""Typed data in a bucket under simulation: commits, removals, queries, compaction, vacuum, forgetting, erasure, repair.

The model has the state after every commit. Each swap of the head is tied to the operation that sent it. After every
deletion, a reader that knows nothing asks for each state that is left.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from ontologia.config import OntologiaConfig
from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.parquet import paths, setup
from ontologia.engines.parquet.log.records import CommitManifest
from ontologia.engines.repository import Repository
from ontologia.errors import (
    ConcurrentWriteError,
    ErasureIncompleteError,
    ErasureRefusedError,
    ForgetRefusedError,
    HeadMismatchError,
    HistoryForgottenError,
    LeaseExpiredError,
    LockContentionError,
    OntologiaError,
    ValidationError,
)
from ontologia.files.json_objects import parse
from ontologia.model import Entity, Field
from ontologia.objects import Request
from ontologia.query.plan import LATEST, Window
from ontologia.runtime import erasure, forgetting
from ontologia.runtime.session import Session
from ontologia.testing.simulation.runs import Operation, World, check_acknowledged, check_told, note_refusal
from ontologia.testing.simulation.scheduler import Machine, Simulation, Ticket, Violation

State = dict[str, int]
CONTENTION = (LockContentionError, LeaseExpiredError, HeadMismatchError, ConcurrentWriteError)


class Item(Entity):
    """What the store holds."""

    id: Field[str] = Field(primary_key=True)
    value: Field[int]


class TypesWorld(World):
    """One type in one bucket."""

    name = "types"

    def __init__(self, simulation: Simulation, options: dict[str, Any], folder: Path) -> None:
        super().__init__(simulation, options, folder)
        self.states: list[State] = [{}]
        self.base = 0
        self.erased: list[tuple[int, str]] = []  # commits that erased, and what
        self.doubtful: set[str] = set()
        """What an erasure is at, or was when it failed: indices come before the head, so it may be gone or not."""
        self.looks = 0

    @classmethod
    def draw_options(cls, drawn: random.Random) -> dict[str, Any]:
        return {"version": drawn.choice(("v1", "v2", "v2")), "compact_after": drawn.choice((2, 3, 100))}

    @classmethod
    def draw_operation(cls, drawn: random.Random, options: dict[str, Any]) -> Operation:
        kind = drawn.choices(
            ("commit", "remove", "query", "query_at", "compact", "vacuum", "forget", "erase", "repair"),
            (8, 0 if options["version"] == "v1" else 2, 2, 2, 3, 4, 1, 1, 1),  # v1 keeps every row
        )[0]
        key = f"k{drawn.randrange(6)}"
        match kind:
            case "commit":
                return kind, tuple((f"k{n}", drawn.randrange(10**6)) for n in drawn.sample(range(6), 2))
            case "remove" | "erase":
                return kind, key
            case "query_at" | "forget":
                return kind, drawn.randrange(8)
            case "vacuum":
                return kind, drawn.choice((60, 3600, 7200, 86_400)), drawn.random() < 0.5
        return (kind,)

    # --- what actors do ------------------------------------------------------------------------------------------

    def lay_out(self, machine: Machine) -> None:
        setup.initialize(self.objects, self.options["version"])
        repository = self.open(machine)
        self._commit(repository, [("k0", 0)])  # the store is proven to honour conditions, once
        repository.close()
        self.states.append({"k0": 0})

    def open(self, machine: Machine) -> Any:
        config = OntologiaConfig(
            cache_directory=str(self.folder / f"{machine.name}-{machine.incarnation}"),
            runtime_id=f"{machine.name}-{machine.incarnation}",
            compact_after_commits=self.options["compact_after"],
            s3_lock_timeout_ms=60_000,
        )
        return Repository(open_objects_engine(self.objects, config))

    def perform(self, handle: Any, operation: Operation) -> Any:
        engine = handle.engine
        match operation:
            case ("commit", rows):
                return self._commit(handle, rows)
            case ("remove", key):
                session = Session.over(handle, {})
                session.remove(Item, key)
                return session.commit()
            case ("query",):
                return _rows(handle)
            case ("query_at", commit):
                at = min(commit, engine.catalog().head)
                return at, _rows(handle, Window("as_of", at))
            case ("compact",):
                return engine.compact(apply=True)
            case ("vacuum", age, compacted):
                return engine.vacuum(age, apply=True, compacted=compacted)
            case ("forget", before):
                plan = forgetting.preview(engine, before)
                return forgetting.apply(engine, plan, plan.token).commit_id
            case ("erase", key):
                found = erasure.preview(engine, "Item", [key], reason="simulated", cascade=False)
                return erasure.apply(engine, found, found.token).commit_id
            case ("repair",):
                return engine.index_repair(apply=True)
        raise AssertionError(operation)

    def _commit(self, handle: Any, rows: Any) -> int | None:
        session = Session.over(handle, {})
        session.ensure([Item(id=key, value=value) for key, value in rows])
        return session.commit()

    # --- the model -----------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        return len(self.states) - 1

    def _take_in(self, operation: Operation) -> None:
        state = dict(self.states[-1])
        match operation:
            case ("commit", rows):
                state |= dict(rows)
            case ("remove", key):
                state.pop(key, None)
            case ("forget", before):
                self.base = max(self.base, before)
            case ("erase", key):
                self.doubtful.discard(key)
                self.erased.append((len(self.states), key))
                for earlier in (*self.states, state):
                    earlier.pop(key, None)
            case _:
                raise Violation(f"{operation} made commit {len(self.states)}")
        self.states.append(state)

    # --- invariants ----------------------------------------------------------------------------------------------

    def applied(self, ticket: Ticket, request: Request) -> None:
        if ticket.operation[0] == "erase" and not ticket.commits and request.key.startswith("meta/indices/"):
            self.doubtful.add(ticket.operation[1])
        if request.key == paths.HEAD:
            number = json.loads(self.backend.get(paths.HEAD).data)["commit_id"]
            if number == self.head + 1:
                ticket.commits.append(number)
                self._take_in(ticket.operation)
                self._check_files()
                check_told(ticket)
            elif number != self.head:
                raise Violation(f"the head went from commit {self.head} to commit {number}")
        elif request.operation.startswith("delete") and not request.key.startswith(("_probe/", *paths.PROBES)):
            self._look()

    def _check_files(self) -> None:
        """What the commit at the head names is there."""
        head = json.loads(self.backend.get(paths.HEAD).data)
        manifest = parse(self.backend.get(head["manifest_path"]).data, head["manifest_path"], CommitManifest.read)
        for file in manifest.files:
            for path in [part.path for part in file.parts] or [file.path]:
                if self.backend.head(path) is None:
                    raise Violation(f"commit {manifest.commit_id} names {path}, which is not there")

    def _look(self) -> None:
        """Ask for every state that is left, with nothing in any cache."""
        self.looks += 1
        repository = self.open(Machine("look", incarnation=self.looks))
        try:
            self._check_all(repository)
        except OntologiaError as problem:
            raise Violation(f"a reader that starts now fails: {type(problem).__name__}: {problem}") from problem
        finally:
            repository.close()

    def _check_all(self, repository: Any) -> None:
        if repository.engine.catalog().head != self.head:
            raise Violation(f"the head is {repository.engine.catalog().head} and should be {self.head}")
        for number in range(max(self.base, 1), self.head + 1):
            found = _rows(repository, Window("as_of", number))
            if not self._agree(found, self.states[number]):
                raise Violation(f"commit {number} reads {found} and should read {self.states[number]}")
        if not self._agree(found := _rows(repository), self.states[-1]):
            raise Violation(f"the head, {self.head}, reads {found} and should read {self.states[-1]}")

    def _agree(self, found: State, expected: State) -> bool:
        return _without(found, self.doubtful) == _without(expected, self.doubtful)

    def settle(self, ticket: Ticket, answer: Any, problem: OntologiaError | None) -> None:
        kind = ticket.operation[0]
        if isinstance(problem, ErasureIncompleteError) or (kind == "erase" and problem is not None and ticket.faults):
            return  # it is committed before it is finished, and can be finished by erasing again
        if problem is not None:
            note_refusal(ticket, problem, self._is_expected(kind, problem))
        elif kind in ("commit", "remove", "forget", "erase"):
            if answer is not None:
                check_acknowledged(ticket, answer, needs_commit=True)
            elif kind == "commit":
                raise Violation(f"{ticket.operation} was not committed, and nobody was told")
        elif kind == "query":
            self._check_read(ticket, answer, range(ticket.head, self.head + 1))
        elif kind == "query_at" and answer[0] >= self.base:
            self._check_read(ticket, answer[1], [answer[0]])

    def _check_read(self, ticket: Ticket, answer: State, commits: Any) -> None:
        """What was erased meanwhile may be there or not."""
        meanwhile = {key for number, key in self.erased if number > ticket.head} | self.doubtful
        expected = [_without(self.states[number], meanwhile) for number in commits]
        if _without(answer, meanwhile) not in expected:
            raise Violation(f"{ticket.operation} read {answer}, and commits {list(commits)} have {expected}")

    def _is_expected(self, kind: str, problem: OntologiaError) -> bool:
        if isinstance(problem, CONTENTION):
            return True
        allowed: dict[str, tuple[type[OntologiaError], ...]] = {
            "forget": (ForgetRefusedError, ValidationError),
            "erase": (ErasureRefusedError,),
            "query_at": (HistoryForgottenError,),
        }
        return isinstance(problem, allowed.get(kind, ()))

    def finish(self, machine: Machine) -> None:
        repository = self.open(machine)
        self._check_all(repository)
        repository.engine.index_repair(apply=True)
        repository.engine.compact(apply=True)
        self._check_all(repository)
        repository.close()


def _rows(repository: Any, window: Window = LATEST) -> State:
    return {row["id"]: row["value"] for row in repository.query_entities("Item", window=window)}


def _without(state: State, keys: set[str]) -> State:
    return {key: value for key, value in state.items() if key not in keys}
