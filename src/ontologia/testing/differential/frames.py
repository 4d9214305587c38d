"""Frames against a plain list of rows: random histories, with vacuums, compactions and checkpoints beside writers.

In one process, a call runs at a random request of another one, or dies there. In several, writers and a caretaker work
on one folder, and writers are killed. The model
replays the operations in the order of their versions; then every version that is retained has the rows that the model
says, every cell that it names is there, and no version is missing.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from ontologia.apiary import Apiary, Frame
from ontologia.apiary.colony.capacity import Capacity
from ontologia.config import OntologiaConfig
from ontologia.errors import CorruptFrameError
from ontologia.objects import Location
from ontologia.testing.differential.checking import Disagreement
from ontologia.testing.stores import FaultyObjects, SimulatedCrash

NAME = "h.b.f"
SCHEMA = {"part": "string", "id": "int64", "note": "string"}
STEPS = 25
CALLS = 15  #: of each writer, in the runs with several processes
KEPT_VERSIONS = 20
Row = tuple[str, int, str]
Rows = Counter[Row]


@dataclass(frozen=True)
class Call:
    """One call on a frame by its name and its argument, both plain, so that a process can note it before it calls."""

    verb: str
    argument: Any = None

    def make(self, frame: Frame) -> Any:
        match self.verb:
            case "write" | "overwrite":
                return getattr(frame, self.verb)(_table(self.argument), backpressure="ignore")
            case "merge":
                return frame.merge(_table(self.argument), on=["id"])
            case "delete":
                return frame.delete([("id", "<", self.argument)])
            case "update":
                limit, note = self.argument
                return frame.update([("id", ">=", limit)], {"note": note})
            case "compact":
                return frame.compact(force=True)
            case "vacuum":
                return frame.vacuum(older_than=0, keep_versions=self.argument)
            case "checkpoint":
                return frame._node.ledger(frame.name).write_checkpoint()
        raise AssertionError(self.verb)

    def rows_after(self, rows: Rows) -> Rows:
        """What the frame has after this call."""
        match self.verb:
            case "write":
                return rows + Counter(map(tuple, self.argument))
            case "overwrite":
                return Counter(map(tuple, self.argument))
            case "merge":
                given = {row[1]: tuple(row) for row in self.argument}
                there = {row[1] for row in rows}
                kept = Counter(given.get(row[1], row) for row in rows.elements())
                return kept + Counter(row for key, row in given.items() if key not in there)
            case "delete":
                return Counter({row: count for row, count in rows.items() if not row[1] < self.argument})
            case "update":
                limit, note = self.argument
                return Counter((p, i, note) if i >= limit else (p, i, n) for p, i, n in rows.elements())
        return rows


def _table(rows: list[Row]) -> pa.Table:
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(SCHEMA)})


def _any_call(rng: random.Random, verbs: str) -> Call:
    verb = rng.choice(verbs.split())
    match verb:
        case "write" | "overwrite":
            return Call(verb, [_row(rng) for _ in range(rng.randint(1, 6))])
        case "merge":
            return Call(verb, list({row[1]: row for row in (_row(rng) for _ in range(rng.randint(1, 5)))}.values()))
        case "delete":
            return Call(verb, rng.randint(0, 25))
        case "update":
            return Call(verb, [rng.randint(0, 40), rng.choice("abc") * rng.choice((1, 300))])
        case "vacuum":
            return Call(verb, rng.randint(1, 6))
    return Call(verb)


def _row(rng: random.Random) -> Row:
    return rng.choice(("north", "south", "a/b", "")), rng.randint(0, 40), rng.choice(("x", "y", "status-ok"))


@dataclass
class History:
    """The calls that made each version, and what can be checked of it."""

    calls: dict[int, Call] = field(default_factory=dict)
    first_retained: int = 0
    checks: int = 0

    def note(self, call: Call, result: Any) -> None:
        if call.verb == "vacuum":
            self.first_retained = max(self.first_retained, result.kept_versions.start)
        elif call.verb != "checkpoint":
            changed = result.cells_written or getattr(result, "cells_removed", 0)
            if changed or call.verb == "overwrite":  # an overwrite without rows is a version, too
                self.claim(result.version, call)

    def claim(self, version: int, call: Call) -> None:
        if version in self.calls:
            raise Disagreement(f"version {version} was made by {self.calls[version]} and by {call}")
        self.calls[version] = call

    def check(self, frame: Frame, versions: Callable[[list[int]], list[int]] = lambda retained: retained) -> None:
        ledger = frame._node.ledger(frame.name)
        newest = ledger.snapshot().version
        unknown = sorted(set(range(1, newest + 1)) ^ self.calls.keys())
        if unknown:
            raise Disagreement(f"the newest version is {newest}; made by nobody, or acknowledged and lost: {unknown}")
        there = {info.key for info in frame._node.objects.under(frame.name.folder).list()}
        states: list[Rows] = [Counter()]
        for version in range(1, newest + 1):
            states.append(self.calls[version].rows_after(states[-1]))
        for version in range(min(self.first_retained, newest), newest + 1):
            missing = {cell.path for cell in ledger.snapshot(version).cells} - there
            if missing:
                raise Disagreement(f"version {version} of 0 to {newest} is retained, and has lost {sorted(missing)}")
            self.checks += 1
        for version in {newest, *versions(list(range(min(self.first_retained, newest), newest + 1)))}:
            found = Counter(tuple(row.values()) for row in frame.read(version=version).to_pylist())
            if found != states[version]:
                raise Disagreement(
                    f"version {version}, made by {self.calls.get(version)}, has {found - states[version]} too many "
                    f"and {states[version] - found} too few"
                )
            self.checks += 1


@contextmanager
def _open(folder: Path, faulty: bool = False) -> Iterator[tuple[Apiary, FaultyObjects | None]]:
    settings = OntologiaConfig(sync_files=False, cache_directory=str(folder / "cache"))
    location = Location((folder / "root").as_uri(), settings)
    objects = FaultyObjects(location.open_objects()) if faulty else None
    with Apiary("soak", location, capacity=Capacity(2, 2 << 30), objects=objects) as ap:
        yield ap, objects


def _create(ap: Apiary) -> Frame:
    ap.create_hive("h")
    ap.create_box("h", "b")
    return ap.create_frame("h", "b", "f", SCHEMA, ["part"])


# --- one process -------------------------------------------------------------------------------------------------

EVERY_VERB = "write write overwrite merge merge delete update compact vacuum checkpoint"


def soak_seed(seed: int) -> int:
    """One history in one process, and every fourth time one with several."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-frames-") as folder:
        checks = check_one_process(Path(folder, "one"), rng)
        if seed % 4 == 0:
            checks += check_processes(Path(folder, "several"), seed)
    return checks


def check_one_process(folder: Path, rng: random.Random, steps: int = STEPS) -> int:
    """Calls one after another, inside each other at a random request, or dying at one."""
    history = History()
    with _open(folder) as (ap, _):
        _create(ap)
    left = steps
    while left > 0:
        with _open(folder, faulty=True) as (ap, faulty), patch("ontologia.apiary.vacuum.others_alive", _nobody):
            assert faulty is not None
            frame = ap.frame(NAME)
            for _ in range(min(left, rng.randint(1, 8))):
                left -= 1
                if not _step(frame, faulty, rng, history):
                    break  # it died: whoever opens the frame next goes on
                history.check(frame, lambda retained: [rng.choice(retained)])
        with _open(folder) as (again, _):
            history.check(again.frame(NAME))
    return history.checks


def _nobody(*arguments: object) -> list[str]:
    return []


def _step(frame: Frame, faulty: FaultyObjects, rng: random.Random, history: History) -> bool:
    """One call, alone or with something at one of its requests. False if it died."""
    outer, inner, kind = _any_call(rng, EVERY_VERB), _any_call(rng, EVERY_VERB), rng.choice(("alone", "beside", "dies"))
    before, at = frame.version, rng.randint(1, 20)
    faulty.heal()
    if kind == "dies":
        faulty.crash(at=at, when=rng.choice(("before", "after")))
    elif kind == "beside":
        lock: Any = frame._node.ledger(frame.name)._lock

        def beside(request: object) -> None:
            if not lock._is_owned():  # else the other thread would wait
                history.note(inner, inner.make(frame))

        faulty.call(beside, at=at)
    try:
        history.note(outer, outer.make(frame))
        return True
    except SimulatedCrash:
        faulty.heal()
        if outer.verb == "vacuum":  # it may have deleted some: what it would have kept is what is left to check
            history.first_retained = max(history.first_retained, before + 1 - outer.argument)
        with suppress(IndexError):
            if frame._node.objects.exists(f"{frame.name.folder}/_ledger/{before + 1:06d}.json"):
                history.claim(before + 1, outer)
        return False
    finally:
        faulty.heal()


# --- several processes -------------------------------------------------------------------------------------------


def check_processes(folder: Path, seed: int) -> int:
    """Two writers and a caretaker on one folder. Writers are killed, and others take their place."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    with _open(folder) as (ap, _):
        _create(ap)
    spawn = multiprocessing.get_context("spawn")
    logs = (folder / f"log{number}" for number in itertools.count())
    caretaker = spawn.Process(target=_care, args=(folder, next(logs)))
    caretaker.start()
    try:
        for _ in range(2):
            writers = [spawn.Process(target=_write, args=(folder, next(logs), rng.random())) for _ in range(2)]
            for writer in writers:
                writer.start()
            victim = rng.choice(writers)
            victim.join(rng.uniform(2, 8))
            victim.kill()
            for writer in writers:
                writer.join()
    finally:
        (folder / "stop").touch()
        caretaker.join(60)
        caretaker.kill()
        caretaker.join()
    if caretaker.exitcode:
        raise Disagreement(f"the caretaker ended with {caretaker.exitcode}: {(folder / 'log0').read_text()[-2000:]}")
    with _open(folder) as (ap, _):
        history = _understand(folder, ap.frame(NAME))
        history.check(ap.frame(NAME))
    return history.checks


def _understand(folder: Path, frame: Frame) -> History:
    """The history that the logs of the processes tell. A call that was begun and not ended made one version or none."""
    history = History()
    begun: dict[str, tuple[int, Call]] = {}
    for path in sorted(folder.glob("log*")):
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):  # killed while it wrote
                node, number, verb, argument, version, first = json.loads(line)
                if verb == "problem":
                    raise Disagreement(f"a process failed: {argument}")
                begun[node] = (number, Call(verb, argument))
                history.first_retained = max(history.first_retained, first or 0)
                if version is not None:
                    begun.pop(node)
                    if version:
                        history.claim(version, Call(verb, argument))
    ledger = frame._node.ledger(frame.name)
    for entry in ledger.entries(1, ledger.snapshot().version):
        if entry.version not in history.calls:
            if entry.node_id not in begun:
                raise Disagreement(f"version {entry.version} of node {entry.node_id} was never begun")
            history.claim(entry.version, begun.pop(entry.node_id)[1])
    return history


def _write(folder: Path, log: Path, seed: float) -> None:
    rng = random.Random(seed)
    with _open(folder) as (ap, _), log.open("w", buffering=1) as lines:
        for number in range(CALLS):
            _logged(ap, _any_call(rng, "write write write overwrite merge delete update"), number, lines)


def _care(folder: Path, log: Path) -> None:
    with (
        patch("ontologia.apiary.vacuum.others_alive", _nobody),
        _open(folder) as (ap, _),
        log.open("w", buffering=1) as lines,
    ):
        for number in itertools.count():
            for call in (Call("compact"), Call("vacuum", KEPT_VERSIONS), Call("checkpoint")):
                _logged(ap, call, number, lines)
            if (folder / "stop").exists():
                return


def _logged(ap: Apiary, call: Call, number: int, lines: Any) -> None:
    """Make a call, noted before and after."""
    frame, node = ap.frame(NAME), ap.node.node_id

    def note(verb: str, argument: Any, version: int | None, first: int | None) -> None:
        lines.write(json.dumps([node, number, verb, argument, version, first]) + "\n")

    note(call.verb, call.argument, None, None)
    before = frame.version
    try:
        result = call.make(frame)
    except CorruptFrameError as problem:
        if frame.version < before + KEPT_VERSIONS:  # else what it read was vacuumed meanwhile, as may be
            note("problem", f"{call}: {problem}", 0, None)
        note(call.verb, call.argument, 0, None)
        return
    except Exception as problem:
        note("problem", f"{call}: {problem!r}", 0, None)
        raise
    told = History()
    told.note(call, result)
    note(call.verb, call.argument, next(iter(told.calls), 0), told.first_retained)
