"""Faults at every request of write, compaction, delete and DDL: nothing acknowledged is lost, nothing partial is seen."""

import pytest

from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.objects import open_objects
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.frames import NAME, apiary, cells_at, ids, readings, sensors

START = readings(("north", 1.0, 1), ("south", 2.0, 2))
ACTS = {
    "write": (lambda ap: ap.frame(NAME).write(readings(("north", 3.0, 3), ("south", 4.0, 4))), [1, 2, 3, 4, 10, 11]),
    "overwrite": (lambda ap: ap.frame(NAME).overwrite(readings(("north", 3.0, 3))), [3]),
    "delete": (lambda ap: ap.frame(NAME).delete("id IN (1, 10)"), [2, 11]),
    "merge": (
        lambda ap: ap.frame(NAME).merge(readings(("north", 9.0, 1), ("east", 9.0, 9)), on=["id"]),
        [1, 2, 9, 10, 11],
    ),
    "compact": (lambda ap: ap.frame(NAME).compact(force=True), [1, 2, 10, 11]),
    "vacuum": (lambda ap: ap.frame(NAME).vacuum(older_than=0), [1, 2, 10, 11]),
}
BEFORE = [1, 2, 10, 11]
FAULTS = [
    "crash after",
    "lost response",
    *(
        pytest.param(f, marks=pytest.mark.slow)
        for f in ("crash before", "lost request", "refused", "disk full", "twice")
    ),
]


def prepared(uri, tmp_path):
    with apiary(uri, tmp_path / "c") as ap:
        frame = sensors(ap)
        frame.write(START)
        frame.write(readings(("north", 1.0, 10), ("south", 2.0, 11)))


def inject(faulty, fault, number):
    if fault.startswith("crash"):
        faulty.crash(at=number, when=fault.split()[1])
    elif fault == "lost request":
        faulty.lose_request(at=number)
    elif fault == "lost response":
        faulty.lose_response(at=number)
    elif fault == "twice":
        faulty.repeat(at=number)
    elif fault == "disk full":
        faulty.fail(OSError(28, "No space left on device"), at=number)
    else:
        faulty.fail(OSError("status code: 403"), at=number)


def quiet(monkeypatch):
    """No heartbeats but the first: requests are numbered, and must be the same in every run."""
    monkeypatch.setattr("ontologia.apiary.colony.heartbeats.INTERVAL_S", 3600.0)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", ACTS)
@pytest.mark.thorough
@pytest.mark.slow_on("s3-vacuum", "s3-compact", "s3-merge")
def test_a_fault_at_any_request_leaves_the_old_state_or_the_new_one(uri, tmp_path, monkeypatch, verb, fault):
    quiet(monkeypatch)
    act, after = ACTS[verb]
    number = 0
    while True:
        number += 1
        where = f"{uri}/{number}"
        prepared(where, tmp_path)
        faulty = FaultyObjects(open_objects(where))
        acknowledged = survived = False
        ap = None
        try:
            with apiary(where, tmp_path / "c", objects=faulty) as ap:
                ap.frame(NAME).read()
                faulty.heal()
                inject(faulty, fault, number)
                with faulty.recording() as steps:
                    act(ap)
                acknowledged = True
                survived = len(steps) < number
        except (SimulatedCrash, OntologiaError):
            pass
        if survived:
            break
        assert number < 60, "the act has no end"
        with apiary(where, tmp_path / "c") as again:
            frame = again.frame(NAME)
            found = ids(frame.read())
            assert found == after if acknowledged else found in (BEFORE, after), (number, fault)
            frame.write(readings(("north", 0.0, 99)))
            assert ids(frame.read()) == sorted([*found, 99])
            assert ids(frame.read(version=2)) == BEFORE or verb == "vacuum"
    assert number > 2


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow_on("s3")
def test_a_fault_at_any_request_of_creation_can_be_made_good_by_creating_again(uri, tmp_path, monkeypatch, fault):
    quiet(monkeypatch)
    number = 0
    while True:
        number += 1
        where = f"{uri}/{number}"
        faulty = FaultyObjects(open_objects(where))
        survived = False
        inject(faulty, fault, number)
        try:
            with faulty.recording() as steps, apiary(where, tmp_path / "c", objects=faulty) as ap:
                sensors(ap)
            survived = len(steps) < number
        except (SimulatedCrash, OntologiaError):
            pass
        if survived:
            break
        assert number < 60
        with apiary(where, tmp_path / "c") as again:
            frame = sensors(again)
            frame.write(START)
            assert (frame.version, ids(frame.read())) == (1, [1, 2])
            assert [field.nullable for field in frame.schema] == [True, True, False]


def test_a_full_disk_is_said_and_leaves_no_cell(uri, tmp_path):
    prepared(uri, tmp_path)
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap:
        frame = ap.frame(NAME)
        cells = cells_at(uri)
        faulty.fail(OSError(28, "No space left on device"), operation="put", key="*region=south/cell_*")
        with pytest.raises(StorageBackendError, match="the disk is full"):
            frame.write(readings(("north", 3.0, 3), ("south", 4.0, 4)))
        assert (frame.version, ids(frame.read()), cells_at(uri)) == (2, BEFORE, cells)
