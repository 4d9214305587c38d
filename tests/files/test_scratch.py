"""Scratch folders: their owner's alone, gone with the process, and swept where a process was killed."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ontologia.files import scratch
from ontologia.files.scratch import Scratch

HOLD = """
import os, sys
from ontologia.files.scratch import Scratch
from ontologia.files.duck import Duck
held, duck = Scratch("rows"), Duck("64MB")
duck.table("SELECT 1", {})
open(f"{held.name}/file", "w").close()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_swept", set())
    return tmp_path


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HOLD + code], capture_output=True, text=True, timeout=60)


def test_a_folder_is_its_owners_alone_and_goes_when_it_is_done(place):
    with Scratch("rows") as folder:
        Path(folder, "file").write_text("x")
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert Path(folder).name.startswith(f"ontologia-rows-{os.getpid()}-")
    assert list(place.iterdir()) == []


def test_a_folder_goes_with_its_object(place):
    held = Scratch("rows")
    assert len(list(place.iterdir())) == 1
    del held
    assert list(place.iterdir()) == []


def test_a_process_that_ends_without_closing_anything_leaves_nothing(place):
    assert run("").returncode == 0
    assert list(place.iterdir()) == []


def test_a_child_that_ends_leaves_its_parents_folders_alone(place):
    code = "if os.fork() == 0: sys.exit(0)\nos.wait()\nprint(sorted(os.listdir(os.environ['TMPDIR'])))"
    ended = run(code)
    assert ("ontologia-rows-" in ended.stdout, "ontologia-duckdb-" in ended.stdout) == (True, True), ended.stderr
    assert list(place.iterdir()) == []


def test_what_killed_processes_left_is_swept_by_the_next_and_the_living_keep_theirs(place):
    (place / "ontologia-duckdb-abcd1234").mkdir()  # of an earlier release, which had no locks
    (place / "somebody-elses").mkdir()
    living = Scratch("rows")
    for number in (signal.SIGKILL, signal.SIGTERM):
        assert run(f"os.kill(os.getpid(), {int(number)})").returncode == -number
    assert len(list(place.glob("ontologia-rows-*"))) == 2  # the first was swept by the second
    scratch._swept.clear()
    with Scratch("sort") as mine:
        left = {path.name for path in place.iterdir()}
    assert left == {"ontologia-duckdb-abcd1234", "somebody-elses", Path(living.name).name, Path(mine).name}
    living.cleanup()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(place, monkeypatch):
    locked, seen = scratch._lock, []

    def too_late(path):
        seen.append(path)
        if len(seen) == 1:
            os.rmdir(path)
        return locked(path)

    monkeypatch.setattr(scratch, "_lock", too_late)
    with Scratch("rows") as folder:
        assert (os.path.isdir(folder), len(seen)) == (True, 2)


def test_a_file_system_without_locks_has_folders_all_the_same(place, monkeypatch):
    def refuse(handle, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with Scratch("rows") as folder:
        assert os.path.isdir(folder)
    assert list(place.iterdir()) == []
