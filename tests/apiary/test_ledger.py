"""The ledger: one winner per version, nobody's rows lost, replay at any length, and what it asks of the store."""

import json
import threading

import pyarrow as pa
import pytest

from ontologia.apiary.ledger import Ledger
from ontologia.apiary.names import FrameName
from ontologia.errors import CommitOutcomeUnknownError, UnknownNameError
from ontologia.objects import open_objects
from ontologia.testing.crash import run_and_crash
from ontologia.testing.stores import FaultyObjects
from support.frames import NAME, apiary, append_some, ids, readings, sensors

FOLDER = "analytics/sensors/temperature"


def test_of_two_writers_who_read_the_same_version_one_wins_and_the_other_takes_the_next(root, tmp_path):
    with apiary(root, tmp_path / "cache") as one, apiary(root, tmp_path / "cache") as other:
        first, second = sensors(one), other.frame(NAME)
        assert second.version == 0
        results = [first.write(readings(("north", 1.0, 1))), second.write(readings(("north", 2.0, 2)))]
        assert [result.version for result in results] == [1, 2]
        assert ids(first.read()) == [1, 2]


def test_eight_threads_of_one_node_all_land(frame):
    def write(number):
        for step in range(5):
            frame.write(readings(("north", 1.0, number * 5 + step)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (frame.version, ids(frame.read())) == (40, list(range(40)))


def test_the_rows_of_racing_processes_all_land_at_versions_of_their_own(anywhere, uri, tmp_path):
    frame = sensors(anywhere)
    writers = 4 if uri.startswith("file") else 2
    each = 5
    runs = open_objects(uri).map(
        lambda n: run_and_crash(append_some, uri, str(tmp_path / f"cache-{n}"), n * each, each).result, range(writers)
    )
    assert sorted(version for run in runs for version in run) == list(range(1, writers * each + 1))
    assert ids(frame.read()) == list(range(writers * each))


@pytest.mark.slow
def test_eight_processes_race_and_nothing_is_lost(ap, root, frame, tmp_path):
    open_objects(root.as_uri()).map(
        lambda n: run_and_crash(append_some, root.as_uri(), str(tmp_path / f"cache-{n}"), n * 10, 10), range(8)
    )
    assert (frame.version, ids(frame.read())) == (80, list(range(80)))


@pytest.mark.parametrize("versions", [0, 1, 99, 100, 101, 250])
def test_replay_gives_the_same_frame_at_any_number_of_versions(root, tmp_path, versions):
    with apiary(root, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for number in range(versions):
            frame.write(readings(("north", 1.0, number)))
    with apiary(root, tmp_path / "cache") as ap:
        again = ap.frame(NAME)
        assert (again.version, ids(again.read())) == (versions, list(range(versions)))
        if versions:
            assert ids(again.read(version=versions - 1)) == list(range(versions - 1))


@pytest.mark.parametrize("versions", [200, 300])
def test_opening_costs_three_requests_whatever_the_history(root, tmp_path, versions):
    with apiary(root, tmp_path / "cache") as ap:
        frame = sensors(ap, partition_by=[])
        for number in range(versions):
            frame.overwrite(readings(("north", 1.0, number)))
    objects = open_objects(root.as_uri())
    ledger = Ledger(objects.under(FOLDER), FrameName.parse(NAME), "node")
    with ledger.folder.counting() as count:
        assert ledger.snapshot().version == versions
    assert count.total == 3, count.log


def test_a_warm_append_costs_a_cell_and_an_entry(ap, frame):
    frame.write(readings(("north", 1.0, 1)))
    with ap.node.objects.counting() as count:
        frame.write(readings(("north", 1.0, 2)))
    beats = count.count("put", f"_heartbeats/node_{ap.node.node_id}.json")
    assert count.total - beats == 2, count.log


def test_a_crash_before_the_checkpoint_is_made_good_by_the_next_commit(root, tmp_path):
    with apiary(root, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for number in range(100):
            frame.write(readings(("north", 1.0, number)))
    folder = root / FOLDER / "_ledger/_checkpoint"
    (folder / "checkpoint_000100.json").unlink()
    with apiary(root, tmp_path / "cache") as ap:
        ap.frame(NAME).write(readings(("north", 1.0, 100)))
    assert [path.name for path in folder.iterdir()] == ["checkpoint_000101.json"]
    with apiary(root, tmp_path / "cache") as ap:
        assert ids(ap.frame(NAME).read()) == list(range(101))


@pytest.mark.parametrize(
    "left", ["", '{"version": 200, "sch', '{"version": 7, "schema": {"fields": []}, "active_cells": []}']
)
def test_a_checkpoint_that_a_crashed_node_left_half_written_is_passed_over(root, tmp_path, left):
    with apiary(root, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for number in range(105):
            frame.write(readings(("north", 1.0, number)))
    (root / FOLDER / "_ledger/_checkpoint/checkpoint_000104.json").write_text(left)
    with apiary(root, tmp_path / "cache") as ap:
        assert ids(ap.frame(NAME).read()) == list(range(105))


def test_a_commit_whose_checkpoint_cannot_be_written_stands(root, tmp_path):
    faulty = FaultyObjects(open_objects(root.as_uri()))
    with apiary(root, tmp_path / "cache", objects=faulty) as ap:
        frame = sensors(ap)
        for number in range(99):
            frame.write(readings(("north", 1.0, number)))
        faulty.fail(OSError(28, "No space left on device"), key="*checkpoint_000100.json")
        assert frame.write(readings(("north", 1.0, 99))).version == 100
        assert frame.write(readings(("north", 1.0, 100))).version == 101
    assert (root / FOLDER / "_ledger/_checkpoint/checkpoint_000101.json").exists()


def test_an_entry_that_another_writer_is_still_filling_is_waited_for(ap, root, frame):
    frame.write(readings(("north", 1.0, 1)))
    entry = json.loads((root / FOLDER / "_ledger/000001.json").read_text())
    entry |= {"version": 2, "action": {"AddCells": {"cells": []}}}
    target = root / FOLDER / "_ledger/000002.json"
    target.write_text("")
    filler = threading.Timer(0.05, lambda: target.write_text(json.dumps(entry)))
    filler.start()
    assert frame.version == 2
    filler.join()


def test_an_append_whose_answer_was_lost_is_committed_once(root, tmp_path):
    faulty = FaultyObjects(open_objects(root.as_uri()))
    with apiary(root, tmp_path / "cache", objects=faulty) as ap:
        frame = sensors(ap)
        faulty.lose_response("put_if_absent", "*_ledger/000001.json")
        assert frame.write(readings(("north", 1.0, 1))).version == 1
        assert ids(frame.read()) == [1]


def test_cells_of_a_commit_with_unknown_outcome_stay(root, tmp_path, monkeypatch):
    faulty = FaultyObjects(open_objects(root.as_uri()))
    with apiary(root, tmp_path / "cache", objects=faulty) as ap:
        frame = sensors(ap)

        def unknown(*arguments, **options):
            raise CommitOutcomeUnknownError("nobody knows")

        monkeypatch.setattr("ontologia.apiary.ledger.conditional_put", unknown)
        with pytest.raises(CommitOutcomeUnknownError):
            frame.write(readings(("north", 1.0, 1)))
    assert len(list(root.rglob("cell_*.parquet"))) == 1


@pytest.mark.parametrize("version", [2, -1, "1", True, 1.0])
def test_a_version_that_is_not_there_is_refused_with_those_that_are(frame, version):
    frame.write(readings(("north", 1.0, 1)))
    with pytest.raises(UnknownNameError, match="versions 0 to 1"):
        frame.read(version=version)


def test_every_version_reads_back_as_it_was(frame):
    expected = {0: []}
    for step in range(1, 8):
        if step % 3 == 0:
            frame.overwrite(readings(*[("south", 1.0, step * 10 + n) for n in range(2)]))
        else:
            frame.write(readings(("north", 1.0, step)))
        expected[step] = ids(frame.read())
    assert {version: ids(frame.read(version=version)) for version in expected} == expected


def test_numbers_past_six_digits_sort_as_numbers(ap, root, frame):
    frame.write(readings(("north", 1.0, 1)))
    folder = root / FOLDER / "_ledger"
    entry = json.loads((folder / "000001.json").read_text())
    checkpoint = {
        "version": 999_999,
        "schema": json.loads((folder / "000000.json").read_text())["action"]["CreateFrame"]["schema"],
        "partition_by": ["region"],
        "active_cells": entry["action"]["AddCells"]["cells"],
    }
    (folder / "_checkpoint").mkdir()
    (folder / "_checkpoint/checkpoint_999999.json").write_text(json.dumps(checkpoint))
    late = entry | {"version": 1_000_000, "action": {"AddCells": {"cells": []}}}
    (folder / "1000000.json").write_text(json.dumps(late))
    ledger = Ledger(ap.node.objects.under(FOLDER), FrameName.parse(NAME), "node")
    assert ledger.snapshot().version == 1_000_000
    ledger.commit(lambda state: ledger.entries(1_000_000, 1_000_000)[0].action)
    assert (folder / "1000001.json").exists()


def test_an_empty_write_makes_no_version(frame):
    result = frame.write(pa.table({"region": pa.array([], pa.string()), "id": pa.array([], pa.int64())}))
    assert (result.version, result.cells_written, result.rows_written) == (0, 0, 0)
