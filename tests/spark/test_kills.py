"""A job killed before its commit leaves no trace but orphans; killed after it, it has lost nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import spark_victim
from support.spark_shop import commits, customers, head, session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(job: str, uri: str, folder: Path, dies: str) -> bool:
    """Run the job in a process group of its own; whether it lived to its end."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(spark_victim.SITECUSTOMIZE)
    done = subprocess.run(
        [sys.executable, "-m", spark_victim.__name__, job, uri, str(folder), dies],
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ['PYTHONPATH']}"},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode == 0


def orphans(uri: str) -> int:
    with session(uri) as opened:
        return len(opened.repository.vacuum(0.0).objects)


@pytest.mark.parametrize("job", ["pipeline", "write"])
def test_a_driver_killed_before_its_commit_leaves_only_what_vacuum_reclaims(workers_path, folder, tmp_path, job):
    assert not run(job, folder, tmp_path, "before")
    assert (head(folder), customers(folder)) == (0, {})
    assert orphans(folder) > 0
    assert run(job, folder, tmp_path, "never")
    assert (head(folder), set(customers(folder))) == (1, {"c1", "c2"})
    with session(folder) as opened:
        assert opened.repository.vacuum(0.0, apply=True).objects
    assert orphans(folder) == 0
    assert set(customers(folder)) == {"c1", "c2"}


def test_a_driver_killed_after_its_commit_has_committed(workers_path, folder, tmp_path):
    assert not run("pipeline", folder, tmp_path, "after")
    assert (head(folder), set(customers(folder))) == (1, {"c1", "c2"})
    assert run("pipeline", folder, tmp_path, "never")
    assert head(folder) == 1


def test_a_killed_stream_neither_loses_nor_doubles_a_batch(workers_path, folder, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number in (1, 2, 3):
        row = {"id": f"c{number}", "name": "N", "age": number, "tags": []}
        (inbox / f"{number}.json").write_text(json.dumps(row))
        os.utime(inbox / f"{number}.json", (number, number))
    assert not run("stream", folder, tmp_path, "before")
    assert head(folder) == 0
    assert not run("stream", folder, tmp_path, "after")
    assert head(folder) == 1
    assert run("stream", folder, tmp_path, "never")
    assert set(customers(folder)) == {"c1", "c2", "c3"}
    assert [one["metadata"]["stream_batch"] for one in reversed(commits(folder))] == ["0", "1", "2"]
