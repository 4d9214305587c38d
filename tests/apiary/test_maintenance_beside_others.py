"""Every call on a frame against every other one that runs beside it, at each of its requests to the store, in both
orders; and failures after the commit point."""

import itertools
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from ontologia.apiary import frame as frames
from ontologia.apiary import ledger as ledgers
from ontologia.apiary import registry as registries
from ontologia.apiary import writing
from ontologia.apiary.sql import planning
from ontologia.apiary.sql.session import SqlSession
from ontologia.config import OntologiaConfig
from ontologia.errors import CommitOutcomeUnknownError, OntologiaError, TaskAbandonedError
from ontologia.objects import Location, open_objects
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.frames import NAME, apiary, cells_at, ids, readings, sensors

START = [1, 2, 3]


@dataclass(frozen=True)
class Call:
    """One call, and which ids a frame with some ids has after it."""

    act: object
    changes: object


def sql(frame):
    return SqlSession(frame._node).run(f"SELECT count(*) FROM {NAME}")


def crashed_write(frame):
    """A writer that died after its cells, before its entry."""
    folder = open_objects(frame._node.objects.uri).under(frame.name.folder)
    folder.put("region=north/cell_00000000-0000-4000-8000-00000000dead.parquet", b"half a write")


CALLS = {
    "write": Call(lambda f: f.write(readings(("north", 9.0, 9))), lambda ids: [*ids, 9]),
    "overwrite": Call(lambda f: f.overwrite(readings(("south", 7.0, 7))), lambda ids: [7]),
    "delete": Call(lambda f: f.delete({"id": 2}), lambda ids: [i for i in ids if i != 2]),
    "update": Call(lambda f: f.update({"id": 3}, {"id": 30}), lambda ids: [30 if i == 3 else i for i in ids]),
    "merge": Call(
        lambda f: f.merge(readings(("north", 5.0, 1), ("east", 5.0, 5)), on=["id"]), lambda ids: sorted({*ids, 1, 5})
    ),
    "compact": Call(lambda f: f.compact(force=True), lambda ids: ids),
    "vacuum": Call(lambda f: f.vacuum(older_than=0), lambda ids: ids),
    "tidy": Call(lambda f: (f.compact(force=True), f.vacuum(older_than=0)), lambda ids: ids),
    "read": Call(lambda f: f.read(), lambda ids: ids),
    "query": Call(sql, lambda ids: ids),
    "checkpoint": Call(lambda f: f._node.ledger(f.name).write_checkpoint(), lambda ids: ids),
    "crash": Call(crashed_write, lambda ids: ids),
}


def expected(first, second):
    """The ids after both, in either order."""
    return [sorted(b.changes(a.changes(START))) for a, b in itertools.permutations((CALLS[first], CALLS[second]))]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Opens copies of a prepared root: requests are numbered, and nobody but the calls makes any."""
    monkeypatch.setattr("ontologia.apiary.colony.heartbeats.INTERVAL_S", 3600.0)
    monkeypatch.setattr("ontologia.apiary.vacuum.others_alive", lambda *nodes: [])
    settings = OntologiaConfig(sync_files=False, cache_directory=str(tmp_path / "c"))
    with apiary(Location((tmp_path / "start").as_uri(), settings), tmp_path / "c") as ap:
        frame = sensors(ap)
        for number in START:
            frame.write(readings(("north", 1.0, number)))
    numbers = itertools.count()

    def copy():
        place = tmp_path / f"copy{next(numbers)}"
        shutil.copytree(tmp_path / "start", place)
        return Location(place.as_uri(), settings)

    return copy


def check(location, cache, first, second, versions):
    """What was acknowledged is there, to whoever opens the frame next."""
    with apiary(location, cache) as again:
        frame = again.frame(NAME)
        assert ids(frame.read()) in expected(first, second)
        assert [change.version for change in frame.history()] == list(range(frame.version, -1, -1))
        assert {version: ids(frame.read(version=version)) for version in versions} == versions
        frame.write(readings(("west", 0.0, 99)))
        assert 99 in ids(frame.read())


def retained_versions(frame):
    """The versions whose cells all are there, with their ids."""
    ledger, folder = frame._node.ledger(frame.name), frame._node.objects.under(frame.name.folder)
    there = {info.key for info in folder.list()}
    versions = [ledger.snapshot(version) for version in range(ledger.snapshot().version + 1)]
    whole = [state.version for state in versions if {cell.path for cell in state.cells} <= there]
    assert versions[-1].version in whole, "a cell of the newest version is gone"
    return {version: ids(frame.read(version=version)) for version in whole}


@pytest.mark.thorough
@pytest.mark.parametrize("inner", CALLS)
@pytest.mark.parametrize("outer", [name for name in CALLS if name != "crash"])
def test_a_call_of_a_thread_at_any_request_of_another_loses_nothing(quick, tmp_path, outer, inner):
    """Where the outer call holds the ledger's lock, the other thread would wait, and is not started."""
    for number in itertools.count(1):
        location = quick()
        faulty = FaultyObjects(location.open_objects())
        with apiary(location, tmp_path / "c", objects=faulty) as ap:
            frame = ap.frame(NAME)
            lock = ap.node.ledger(frame.name)._lock
            faulty.heal()
            waits = []

            def run_inner(request, frame=frame, lock=lock, waits=waits):
                waits.append(lock._is_owned())
                if not waits[0]:
                    CALLS[inner].act(frame)

            rule = faulty.call(run_inner, at=number)
            CALLS[outer].act(frame)
            if not rule.used:
                break
            versions = retained_versions(frame)
        if not waits[0]:
            check(location, tmp_path / "c", outer, inner, versions)
    assert number > 1


@pytest.mark.thorough
@pytest.mark.parametrize("inner", [name for name in CALLS if name not in ("read", "query", "tidy")])
@pytest.mark.parametrize("outer", [name for name in CALLS if name not in ("crash", "read", "query", "tidy")])
def test_a_call_of_another_node_at_any_request_of_ours_loses_nothing(quick, tmp_path, outer, inner):
    for number in itertools.count(1):
        location = quick()
        faulty = FaultyObjects(location.open_objects())
        with apiary(location, tmp_path / "c", objects=faulty) as ap, apiary(location, tmp_path / "c") as other:
            frame, theirs = ap.frame(NAME), other.frame(NAME)
            faulty.heal()
            rule = faulty.call(lambda _, f=theirs: CALLS[inner].act(f), at=number)
            CALLS[outer].act(frame)
            if not rule.used:
                break
            versions = retained_versions(frame)
        check(location, tmp_path / "c", outer, inner, versions)
    assert number > 1


# --- calls that are half done ------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("half", ["write", "overwrite", "update", "compact"])
@pytest.mark.parametrize("outer", ["vacuum"])
def test_a_half_done_call_that_ends_at_any_request_of_another_loses_nothing(quick, tmp_path, outer, half):
    """A thread has written its first cell when the other call begins, and commits at one of that call's requests."""
    for number in itertools.count(1):
        location = quick()
        faulty = FaultyObjects(location.open_objects())
        with apiary(location, tmp_path / "c", objects=faulty) as ap, ThreadPoolExecutor(1) as threads:
            frame = ap.frame(NAME)
            lock = ap.node.ledger(frame.name)._lock
            written, go_on = threading.Event(), threading.Event()

            def pause(request, written=written, go_on=go_on):
                written.set()
                go_on.wait(60)

            faulty.heal()
            faulty.call(pause, operation="put", key="*/cell_*", when="after")
            other = threads.submit(CALLS[half].act, frame)
            assert written.wait(60)
            faulty.faults.requests = 0
            finish = partial(end_of, other, go_on)
            rule = faulty.call(lambda _, finish=finish, lock=lock: lock._is_owned() or finish(), at=number)
            CALLS[outer].act(frame)
            finish()
            if not rule.used:
                break
            versions = retained_versions(frame)
        check(location, tmp_path / "c", outer, half, versions)
    assert number > 1


def end_of(other, go_on):
    """Let a thread that waits go on, and wait for its end. What it was told while it made nothing is no error."""
    go_on.set()
    other.result(60)


def test_a_version_is_pinned_from_before_it_is_looked_up(root, frame, monkeypatch):
    """All that can happen between the look and the read: a compaction, and a vacuum of what it replaced."""
    frame.write(readings(("north", 1.0, 1)))
    frame.write(readings(("north", 1.0, 2)))

    def tidy_first(*arguments):
        monkeypatch.undo()
        CALLS["tidy"].act(frame)
        return frames.condition(*arguments)

    monkeypatch.setattr(frames, "condition", tidy_first)
    assert ids(frame.read(filter="id > 0")) == [1, 2]


def test_a_statement_pins_its_versions_from_before_it_is_planned(root, ap, frame, monkeypatch):
    frame.write(readings(("north", 1.0, 1)))
    frame.write(readings(("north", 1.0, 2)))
    prune = planning.prune_cells

    def tidy_first(*arguments):
        monkeypatch.undo()
        CALLS["tidy"].act(frame)
        return prune(*arguments)

    monkeypatch.setattr(planning, "prune_cells", tidy_first)
    assert ap.query(f"SELECT count(*) AS n FROM {NAME}").to_pylist() == [{"n": 2}]


def test_spark_takes_no_cells_back_once_a_commit_was_tried(root, frame):
    """After a commit that failed, Spark aborts with a message of every task; before one, at least one is missing."""
    source = pytest.importorskip("ontologia.spark.frames.source")
    frame.write(readings(("north", 1.0, 1)))
    writer = source.FrameWriter({"path": root.as_uri(), "frame": NAME}, overwrite=False)
    message = source.CellsWritten(source.cells_text(frame._node.ledger(frame.name).snapshot().cells))
    writer.abort([message])
    assert ids(frame.read()) == [1]


# --- after the commit point --------------------------------------------------------------------------------------


@pytest.fixture
def ninety_nine(frame):
    """The next version of this frame has a checkpoint."""
    for number in range(99):
        frame.write(readings(("north", 1.0, number)))
    return frame


@pytest.mark.parametrize(
    "problem", [MemoryError("no room"), ValueError("odd"), OntologiaError("ours"), RecursionError()]
)
def test_a_commit_stands_whatever_its_checkpoint_fails_with(root, ninety_nine, monkeypatch, problem):
    def fail(self, state):
        raise problem

    monkeypatch.setattr(ledgers.Ledger, "_put_checkpoint", fail)
    assert ninety_nine.write(readings(("north", 1.0, 99))).version == 100
    assert ids(ninety_nine.read()) == list(range(100))


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, SimulatedCrash])
def test_an_interrupt_after_the_commit_leaves_what_was_committed(root, ninety_nine, monkeypatch, problem):
    def fail(self, state):
        raise problem

    monkeypatch.setattr(ledgers.Ledger, "_put_checkpoint", fail)
    with pytest.raises(problem):
        ninety_nine.write(readings(("north", 1.0, 99)))
    assert ids(ninety_nine.read()) == list(range(100))


def test_a_state_that_was_left_half_way_is_read_anew(root, frame, monkeypatch):
    monkeypatch.setattr("ontologia.apiary.state.FrameState._count", lambda *_: (_ for _ in ()).throw(MemoryError()))
    assert frame.write(readings(("north", 1.0, 1), ("south", 1.0, 2))).version == 1
    monkeypatch.undo()
    frame.write(readings(("north", 1.0, 3)))
    assert (ids(frame.read()), frame.stats()["partitions"]) == ([1, 2, 3], 2)


@pytest.mark.parametrize("when", ["before", "after"])
def test_cells_stay_when_a_commit_is_cut_short_by_any_error(root, tmp_path, when):
    faulty = FaultyObjects(open_objects(root.as_uri()))
    with apiary(root.as_uri(), tmp_path / "c", objects=faulty) as ap:
        frame = sensors(ap)

        def out_of_memory(request):
            raise Unnamed

        monkey = pytest.MonkeyPatch()
        monkey.setattr(faulty, "_with_name", lambda operation, key, call: call())
        faulty.call(out_of_memory, operation="put_if_absent", key="*000001.json", when=when)
        monkey.setattr(ledgers, "conditional_put", raising_memory_error(ledgers.conditional_put, Unnamed))
        with pytest.raises(CommitOutcomeUnknownError, match="it is not known whether"):
            frame.write(readings(("north", 1.0, 1)))
        monkey.undo()
        assert len(cells_at(root.as_uri())) == 1
        assert ids(frame.read()) == ([1] if when == "after" else [])


class Unnamed(BaseException):
    """What passes every handler of the object store."""


def raising_memory_error(put, raised):
    def wrapped(*arguments, **options):
        try:
            return put(*arguments, **options)
        except raised:
            raise MemoryError("while the answer was read") from None

    return wrapped


def test_a_registry_state_stands_when_its_checkpoint_fails(ap, monkeypatch):
    monkeypatch.setattr(registries, "CHECKPOINT_EVERY", 1)
    put = ap.node.objects.put

    def fail(key, data):
        if "checkpoint_" in key:
            raise MemoryError
        return put(key, data)

    monkeypatch.setattr(ap.node.objects, "put", fail)
    ap.create_hive("another")
    assert "another" in ap.list_hives()


def test_a_write_that_took_longer_than_a_vacuum_spares_its_cells_is_refused(root, frame, monkeypatch):
    monkeypatch.setattr(writing, "WRITE_LIMIT_S", -1.0)
    with pytest.raises(TaskAbandonedError, match="Nothing was committed: write fewer rows at a time"):
        frame.write(readings(("north", 1.0, 1)))
    assert (frame.version, cells_at(root.as_uri())) == (0, [])


def test_numbers_that_json_has_not_are_unknown_in_a_checkpoint(root, frame):
    frame.write(readings(("north", 1.0, 1)))
    entry = root / "analytics/sensors/temperature/_ledger/000001.json"
    entry.write_text(entry.read_text().replace('"max": 1.0', '"max": NaN'))
    with apiary(root.as_uri(), root / "c") as again:
        again.node.ledger(frame.name).write_checkpoint()
        again.frame(NAME).write(readings(("north", 2.0, 2)))
    with apiary(root.as_uri(), root / "c") as reopened:
        assert ids(reopened.frame(NAME).read(filter="temp >= 1")) == [1, 2]
