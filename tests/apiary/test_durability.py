"""What a power failure can take: the order in which files, folders and entries of a directory become durable."""

import os

import pytest

from ontologia.apiary import Apiary
from ontologia.config import OntologiaConfig
from ontologia.errors import StorageBackendError
from support.frames import ids, readings, sensors


@pytest.fixture
def order(monkeypatch):
    """What was synced and linked, in the order in which it was done, by path."""
    done = []
    sync, link = os.fsync, os.link

    def watched_sync(handle):
        sync(handle)
        done.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))

    def watched_link(source, target):
        link(source, target)
        done.append(("link", str(target)))

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "link", watched_link)
    return done


@pytest.mark.parametrize(
    "act",
    [
        lambda frame: frame.write(readings(("north", 3.0, 3), ("west", 4.0, 4))),
        lambda frame: frame.overwrite(readings(("north", 3.0, 3))),
        lambda frame: frame.update({"id": 1}, {"temp": 9.0}),
        lambda frame: frame.compact(force=True),
    ],
    ids=["write", "overwrite", "update", "compact"],
)
def test_an_entry_gets_its_name_after_all_it_names_is_durable(root, frame, order, act):
    frame.write(readings(("north", 1.0, 1)))
    frame.write(readings(("north", 2.0, 2)))
    order.clear()
    there = set(root.rglob("cell_*.parquet"))
    version = act(frame).version
    ledger = root / "analytics/sensors/temperature/_ledger"
    named = order.index(("link", str(ledger / f"{version:06d}.json")))
    before = {path for what, path in order[:named] if what == "sync"}
    cells = set(root.rglob("cell_*.parquet")) - there
    assert cells
    assert {str(cell) for cell in cells} | {str(cell.parent) for cell in cells} <= before
    assert any(".aside-" in path for path in before), "the entry itself"
    assert ("sync", str(ledger)) in order[named:], "and its name, before the call returns"


def test_nothing_is_synced_where_the_settings_say_so(tmp_path, order):
    settings = OntologiaConfig(sync_files=False, cache_directory=str(tmp_path / "c"))
    with Apiary("test", str(tmp_path / "scratch"), config=settings) as ap:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1), ("south", 2.0, 2)))
        frame.delete({"id": 1})
        frame.vacuum(older_than=0)
        assert ids(frame.read()) == [2]
    assert [path for what, path in order if what == "sync"] == []


def test_a_new_partition_is_durable_in_the_folder_of_the_frame(root, frame, order):
    order.clear()
    frame.write(readings(("north", 1.0, 1)))
    assert ("sync", str(root / "analytics/sensors/temperature")) in order


def test_a_cell_that_cannot_be_made_durable_is_not_committed(root, frame, monkeypatch):
    frame.write(readings(("north", 1.0, 1)))
    sync = os.fsync

    def full(handle):
        if "cell_" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(28, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageBackendError, match="the disk is full"):
        frame.write(readings(("north", 2.0, 2)))
    monkeypatch.undo()
    assert (frame.version, ids(frame.read()), len(list(root.rglob("cell_*.parquet")))) == (1, [1], 1)
