"""Compaction and vacuum: what they may touch, and that nobody who reads or writes meanwhile notices."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from ontologia.apiary.cells import CellSizing
from ontologia.apiary.compaction import CompactionPolicy, compact, groups
from ontologia.apiary.entries import Cell
from ontologia.errors import CorruptFrameError, ValidationError
from ontologia.objects import open_objects
from ontologia.testing.stores import FaultyObjects
from support.frames import NAME, apiary, cells_at, ids, readings, sensors

FOLDER = "analytics/sensors/temperature"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = CompactionPolicy(small_cell_threshold=100)


def cell(number, size):
    return Cell(f"cell_{number}", f"cell_{number}.parquet", {}, 1, size, {})


def test_more_than_ten_cells_make_a_partition_due():
    small = [cell(number, 10) for number in range(11)]
    assert POLICY.choose(small, None, NOW, force=False) == small
    assert POLICY.choose(small[:10], None, NOW, force=False) == []


def test_small_cells_that_are_an_hour_old_make_a_partition_due():
    small = [cell(number, 10) for number in range(2)]
    assert POLICY.choose(small, NOW - timedelta(minutes=61), NOW, force=False) == small
    assert POLICY.choose(small, NOW - timedelta(minutes=59), NOW, force=False) == []


def test_large_cells_stay_as_they_are():
    mixed = [cell(0, 1000), *(cell(number, 10) for number in range(1, 12))]
    assert POLICY.choose(mixed, None, NOW, force=False) == mixed[1:]


def test_small_means_a_quarter_of_the_target():
    assert CompactionPolicy.for_sizing(CellSizing.for_bee(1 << 30)).small_cell_threshold == 64 << 20


def test_cells_are_merged_up_to_the_target_and_none_alone():
    sizing = CellSizing(100, 200, floor=1)
    cells = [cell(number, 40) for number in range(5)]
    assert [[item.id for item in group] for group in groups(cells, sizing)] == [
        ["cell_0", "cell_1"],
        ["cell_2", "cell_3"],
    ]


def test_a_compaction_changes_no_row_and_no_partition(frame):
    for number in range(12):
        frame.write(readings(("north", float(number), number), ("south", 1.0, 100 + number)))
    before = frame.read().sort_by("id")
    result = frame.compact()
    assert (result.cells_removed, result.cells_written) == (24, 2)
    assert frame.read().sort_by("id") == before
    assert frame.stats()["partitions"] == 2
    assert frame.compact().version == frame.version == 13


def test_a_partition_that_is_not_due_is_left_alone(frame):
    for number in range(5):
        frame.write(readings(("north", 1.0, number)))
    assert frame.compact().cells_removed == 0
    assert frame.compact(force=True).cells_removed == 5


def test_old_small_cells_are_compacted_by_their_age(uri, tmp_path):
    class Later:
        def wall(self):
            return time.time() + 3700

        steady = staticmethod(time.monotonic)
        sleep = staticmethod(time.sleep)

    with apiary(uri, tmp_path / "c") as ap:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1)))
        frame.write(readings(("north", 1.0, 2)))
        assert compact(ap.node, frame.name).cells_removed == 0
        ap.node.clock = Later()
        assert compact(ap.node, frame.name).cells_removed == 2


def test_an_append_during_a_compaction_is_kept_and_the_compaction_stands(uri, tmp_path):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap, apiary(uri, tmp_path / "c") as other:
        frame = sensors(ap)
        for number in range(3):
            frame.write(readings(("north", 1.0, number)))
        rival = other.frame(NAME)
        faulty.call(
            lambda request: rival.write(readings(("north", 1.0, 9))),
            operation="put_if_absent",
            key="*_ledger/000004.json",
        )
        frame.compact(force=True)
        assert ids(frame.read()) == [0, 1, 2, 9]
        assert (frame.version, frame.stats()["cells"]) == (5, 2)


def test_a_compaction_whose_cells_another_took_begins_again(uri, tmp_path):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap, apiary(uri, tmp_path / "c") as other:
        frame = sensors(ap)
        for number in range(3):
            frame.write(readings(("north", 1.0, number)))
        rival = other.frame(NAME)
        faulty.call(lambda request: rival.delete({"id": 1}), operation="put_if_absent", key="*_ledger/000004.json")
        frame.compact(force=True)
        assert ids(frame.read()) == [0, 2]


def test_compactions_and_appends_of_many_threads_lose_nothing(frame):
    def write(first):
        for number in range(first, first + 10):
            frame.write(readings(("north", 1.0, number)))

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        frame.compact(force=True)
    for thread in threads:
        thread.join()
    assert ids(frame.read()) == list(range(30))


# --- vacuum ------------------------------------------------------------------------------------------------------


@pytest.fixture
def rewritten(frame):
    for number in range(3):
        frame.write(readings(("north", 1.0, number)))
    frame.compact(force=True)
    return frame


def test_by_default_a_week_of_versions_stays_readable(rewritten):
    assert rewritten.vacuum().keys == []
    assert [ids(rewritten.read(version=version)) for version in range(5)] == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2]]


def test_a_vacuum_deletes_what_no_retained_version_has(rewritten, uri, tmp_path):
    result = rewritten.vacuum(older_than=0)
    assert (len(result.keys), result.kept_versions) == (3, range(4, 5))
    assert (len(cells_at(uri)), ids(rewritten.read())) == (1, [0, 1, 2])
    with (
        apiary(uri, tmp_path / "another cache") as other,
        pytest.raises(CorruptFrameError, match="If this version was vacuumed, read a newer one"),
    ):
        other.frame(NAME).read(version=2)


def test_a_preview_deletes_nothing(rewritten, uri):
    assert len(rewritten.vacuum(older_than=0, apply=False).keys) == 3
    assert len(cells_at(uri)) == 4


def test_versions_that_are_to_be_kept_are(rewritten):
    assert rewritten.vacuum(older_than=0, keep_versions=2).kept_versions == range(3, 5)
    assert ids(rewritten.read(version=3)) == [0, 1, 2]


def test_no_entry_after_the_latest_checkpoint_names_what_was_deleted(rewritten, uri):
    rewritten.vacuum(older_than=0)
    assert open_objects(uri).names(f"{FOLDER}/_ledger/_checkpoint") == ["checkpoint_000004.json"]


def test_a_frame_opens_and_goes_on_after_a_vacuum(rewritten, uri, tmp_path):
    rewritten.vacuum(older_than=0)
    with apiary(uri, tmp_path / "c") as again:
        again.frame(NAME).write(readings(("north", 1.0, 7)))
        assert ids(again.frame(NAME).read()) == [0, 1, 2, 7]


def test_the_version_a_reader_holds_is_not_vacuumed(ap, rewritten):
    with ap.node.reading(rewritten.name, 2):
        assert rewritten.vacuum(older_than=0).kept_versions == range(2, 5)
        assert ids(rewritten.read(version=2)) == [0, 1]
    assert rewritten.vacuum(older_than=0).kept_versions == range(4, 5)


def test_readers_beside_writers_compactions_and_vacuums_always_read_whole_versions(frame):
    for number in range(4):
        frame.write(readings(("north", 1.0, number)))
    problems, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            found = ids(frame.read())
            if found[:4] != [0, 1, 2, 3] or found != list(range(len(found))):
                problems.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(4, 16):
            frame.write(readings(("north", 1.0, number)))
            frame.compact(force=True)
            frame.vacuum(older_than=0)
    finally:
        stop.set()
        reader.join()
    assert problems == []


def test_cells_that_are_not_committed_yet_are_spared(frame, uri):
    """A writer that has written its cells and not yet its entry."""
    young = f"{FOLDER}/region=north/cell_00000000-0000-4000-8000-000000000000.parquet"
    frame.write(readings(("north", 1.0, 1)))
    open_objects(uri).put(young, b"on its way")
    assert frame.vacuum(older_than=0).keys == []
    assert young in cells_at(uri)


def test_old_orphans_go_and_files_that_are_no_cells_stay(ap, frame, root):
    frame.write(readings(("north", 1.0, 1)))
    folder = root / "analytics/sensors/temperature/region=north"
    orphan = folder / "cell_00000000-0000-4000-8000-000000000000.parquet"
    foreign = folder / "notes.parquet"
    week_ago = time.time() - 8 * 86400
    for path in (orphan, foreign):
        path.write_bytes(b"left")
        import os

        os.utime(path, (week_ago, week_ago))
    assert [key.rpartition("/")[2] for key in frame.vacuum().keys] == [orphan.name]
    assert foreign.exists()


def test_another_node_that_is_alive_forbids_a_short_age(rewritten, uri, tmp_path):
    with apiary(uri, tmp_path / "c") as other:
        with pytest.raises(ValidationError, match=f"node {other.node.node_id} is alive"):
            rewritten.vacuum(older_than=0)
        assert rewritten.vacuum(older_than="1h").keys == []
    assert len(rewritten.vacuum(older_than=0).keys) == 3


@pytest.mark.parametrize("age", ["soon", "7 days", -1, True, "1y"])
def test_an_age_that_is_none_is_refused(rewritten, age):
    with pytest.raises(ValidationError, match="is not an age"):
        rewritten.vacuum(older_than=age)
