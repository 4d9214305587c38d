"""The ledger: one winner per version, nobody's rows lost, replay at any length, and what it asks of the store."""

import json
import threading
from datetime import datetime

import pyarrow as pa
import pytest

from ontologia.apiary.ledger import Ledger
from ontologia.apiary.names import FrameName
from ontologia.errors import CommitOutcomeUnknownError, CorruptFrameError, UnknownNameError
from ontologia.objects import open_objects
from ontologia.testing.crash import run_and_crash
from ontologia.testing.stores import FaultyObjects
from support.frames import NAME, apiary, append_some, cells_at, ids, readings, sensors

FOLDER = "analytics/sensors/temperature"


def test_of_two_writers_who_read_the_same_version_one_wins_and_the_other_takes_the_next(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as one, apiary(uri, tmp_path / "cache") as other:
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


@pytest.mark.parametrize("writers", [2, 8])
@pytest.mark.thorough
@pytest.mark.slow_on("s3-8", "file-2")
def test_the_rows_of_racing_processes_all_land_at_versions_of_their_own(ap, uri, tmp_path, writers):
    frame = sensors(ap)
    each = 24 // writers
    runs = open_objects(uri).map(
        lambda n: run_and_crash(append_some, uri, str(tmp_path / f"cache-{n}"), n * each, each).result, range(writers)
    )
    assert sorted(version for run in runs for version in run) == list(range(1, 25))
    assert ids(frame.read()) == list(range(24))


@pytest.mark.slow_on("s3")
def test_replay_gives_the_same_frame_at_any_number_of_versions(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for versions in (0, 1, 99, 100, 101, 250):
            for number in range(frame.version, versions):
                frame.write(readings(("north", 1.0, number)))
            with apiary(uri, tmp_path / "cache", read_only=True) as again:
                found = again.frame(NAME)
                assert (found.version, found.stats()["rows"]) == (versions, versions)
        for version in (0, 1, 99, 100, 101, 250):
            assert sorted(cell.stats["id"]["min"] for cell in frame._snapshot(version).cells) == list(range(version))
        assert ids(frame.read(version=101)) == list(range(101))


@pytest.mark.parametrize("versions", [100, 200])
def test_opening_costs_three_requests_whatever_the_history(uri, tmp_path, versions):
    with apiary(uri, tmp_path / "cache") as ap:
        frame = sensors(ap, partition_by=[])
        for number in range(versions):
            frame.overwrite(readings(("north", 1.0, number)))
    objects = open_objects(uri)
    ledger = Ledger(objects.under(FOLDER), FrameName.parse(NAME), "node")
    with ledger.folder.counting() as count:
        assert ledger.snapshot().version == versions
    assert count.total == 3, count.log


def test_a_frame_that_is_opened_is_not_looked_for_twice(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as ap:
        frame = sensors(ap, partition_by=[])
        for number in range(100):
            frame.overwrite(readings(("north", 1.0, number)))
    with apiary(uri, tmp_path / "cache") as ap:
        ap.node.registry.state()
        with ap.node.objects.counting() as count:
            found = ap.frame(NAME)
        assert found.version == 100
        assert [step for step in count.log if step.key.startswith(FOLDER)] == count.log
        assert count.total == 3, count.log


def test_an_entry_that_is_lost_after_a_checkpoint_is_an_error_and_no_shorter_history(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as ap:
        frame = sensors(ap, partition_by=[])
        for number in range(150):
            frame.overwrite(readings(("north", 1.0, number)))
    objects = open_objects(uri)
    for lost in (101, 120, 149):
        key = f"{FOLDER}/_ledger/{lost:06d}.json"
        entry = objects.get(key).data
        objects.delete(key)
        with apiary(uri, tmp_path / "cache") as ap, pytest.raises(CorruptFrameError, match=f"version {lost} is part"):
            ap.frame(NAME).write(readings(("north", 1.0, 1)))
        objects.put(key, entry)


def test_a_warm_append_costs_a_cell_and_an_entry(ap, frame):
    frame.write(readings(("north", 1.0, 1)))
    with ap.node.objects.counting() as count:
        frame.write(readings(("north", 1.0, 2)))
    beats = count.count("put", f"_heartbeats/node_{ap.node.node_id}.json")
    assert count.total - beats == 2, count.log


def test_a_crash_before_the_checkpoint_is_made_good_by_the_next_commit(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for number in range(100):
            frame.write(readings(("north", 1.0, number)))
    objects, folder = open_objects(uri), f"{FOLDER}/_ledger/_checkpoint"
    objects.delete(f"{folder}/checkpoint_000100.json")
    with apiary(uri, tmp_path / "cache") as ap:
        ap.frame(NAME).write(readings(("north", 1.0, 100)))
    assert objects.names(folder) == ["checkpoint_000101.json"]
    with apiary(uri, tmp_path / "cache") as ap:
        assert ids(ap.frame(NAME).read()) == list(range(101))


def test_a_checkpoint_that_a_crashed_node_left_half_written_is_passed_over(uri, tmp_path):
    with apiary(uri, tmp_path / "cache") as ap:
        frame = sensors(ap)
        for number in range(105):
            frame.write(readings(("north", 1.0, number)))
    key = f"{FOLDER}/_ledger/_checkpoint/checkpoint_000104.json"
    for left in ("", '{"version": 200, "sch', '{"version": 7, "schema": {"fields": []}, "active_cells": []}'):
        open_objects(uri).put(key, left.encode())
        with apiary(uri, tmp_path / "cache") as ap:
            assert ids(ap.frame(NAME).read()) == list(range(105))


def test_a_commit_whose_checkpoint_cannot_be_written_stands(uri, tmp_path):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "cache", objects=faulty) as ap:
        frame = sensors(ap)
        for number in range(99):
            frame.write(readings(("north", 1.0, number)))
        faulty.fail(OSError(28, "No space left on device"), key="*checkpoint_000100.json")
        assert frame.write(readings(("north", 1.0, 99))).version == 100
        assert frame.write(readings(("north", 1.0, 100))).version == 101
    assert open_objects(uri).exists(f"{FOLDER}/_ledger/_checkpoint/checkpoint_000101.json")


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


def test_an_append_whose_answer_was_lost_is_committed_once(uri, tmp_path):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "cache", objects=faulty) as ap:
        frame = sensors(ap)
        faulty.lose_response(operation="put_if_absent", key="*_ledger/000001.json")
        assert frame.write(readings(("north", 1.0, 1))).version == 1
        assert ids(frame.read()) == [1]


def test_cells_of_a_commit_with_unknown_outcome_stay(uri, tmp_path, monkeypatch):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "cache", objects=faulty) as ap:
        frame = sensors(ap)

        def unknown(*arguments, **options):
            raise CommitOutcomeUnknownError("nobody knows")

        monkeypatch.setattr("ontologia.apiary.ledger.conditional_put", unknown)
        with pytest.raises(CommitOutcomeUnknownError):
            frame.write(readings(("north", 1.0, 1)))
    assert len(cells_at(uri)) == 1


@pytest.mark.parametrize("version", [2, -1, "1", True, 1.0])
def test_a_version_that_is_not_there_is_refused_with_those_that_are(frame, version):
    frame.write(readings(("north", 1.0, 1)))
    with pytest.raises(UnknownNameError, match="versions 0 to 1"):
        frame.read(version=version)


def test_the_version_of_an_instant_is_the_last_one_before_it(ap, frame):
    for number in range(5):
        frame.write(readings(("north", 1.0, number)))
    ledger = ap.node.ledger(frame.name)
    for change in frame.history():
        assert ledger.version_at(change.timestamp) == change.version
    with pytest.raises(UnknownNameError, match="was created at"):
        ledger.version_at(datetime(2001, 1, 1))


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
