"""Real processes on one prefix: racing, killed and restarted, with a clock that is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ontologia import HistoryForgottenError
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.check import check
from ontologia.objects import open_objects
from ontologia.query.plan import Window
from ontologia.runtime import forgetting
from ontologia.testing.crash import run_and_crash
from ontologia.testing.s3server import S3Server
from support import parquet_writers as writers
from support.parquet_shop import HISTORY, Customer, Product, Shop, commit, latest

pytestmark = pytest.mark.thorough


class Race:
    """Writers on one prefix, and the journals of what they were told."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.uri = uri
        self.folder = folder
        self.shop = Shop(open_objects(uri), "v2", folder / "cache")
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, seconds: float, clock_off_s: float = 0.0) -> None:
        journal = str(self.folder / f"{name}.jsonl")
        arguments = [self.uri, journal, str(seconds), str(clock_off_s), str(self.folder / "cache")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", writers.__name__, *arguments], env=environment, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def finish(self, timeout_s: float) -> None:
        for name, process in self.running.items():
            assert process.wait(timeout_s) == 0, (self.folder / f"{name}.log").read_text()[-2_000:]

    def acknowledged(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for journal in self.folder.glob("*.jsonl"):
            lines = journal.read_text().split("\n")[:-1]  # a line that was cut short was not acknowledged
            found |= dict(map(json.loads, lines))
        return found

    def run(self, processes: int, seconds: float) -> None:
        """All start; two are killed in the middle of their work and come back."""
        end = time.monotonic() + seconds
        for number in range(processes):
            self.start(f"w{number}", seconds, clock_off_s=20.0 if number == 0 else 0.0)
        for part, name in ((3, "w1"), (2, "w2")):
            time.sleep(max(0.0, (end - time.monotonic()) / part))
            self.kill(name)
            self.start(name, max(1.0, end - time.monotonic()))
        self.finish(seconds + 90)

    def check(self) -> int:
        acknowledged = self.acknowledged()
        with self.shop.using(s3_lock_timeout_ms=20_000) as repository:
            commits = repository.engine.commits()
            assert [entry.id for entry in commits] == list(range(len(commits), 0, -1)), "ids are unique and gapless"
            by_writer = {entry.metadata["who"]: entry.id for entry in commits if "who" in entry.metadata}
            assert len(by_writer) == sum("who" in entry.metadata for entry in commits), "nothing was committed twice"
            for key, commit_id in acknowledged.items():
                if commit_id is not None:
                    assert by_writer.get(key) == commit_id, f"{key} was told {commit_id}"
            rows = latest(repository)["Customer"]
            assert set(by_writer) == set(rows) - {"c1", "c2"}, "a row for every commit, a commit for every row"
            assert commit(repository, [Product(sku="after")]) == len(commits) + 1, "no lock is held for ever"
            assert repository.index_verify().healthy
            repository.compact(apply=True)
            repository.vacuum(0, apply=True)
            assert latest(repository)["Customer"] == rows
        return len(acknowledged)


def race(uri: str, folder: Path, processes: int, seconds: float) -> None:
    Shop.create(open_objects(uri), "v2", folder / "cache", filled=False).commit(HISTORY[0])
    running = Race(uri, folder)
    running.run(processes, seconds)
    assert running.check() >= processes // 2


def test_eight_processes_with_two_killed_and_one_clock_wrong_commit_without_gaps_or_losses(tmp_path: Path) -> None:
    race((tmp_path / "store").as_uri(), tmp_path, 8, 7)


@pytest.mark.slow
def test_eight_processes_commit_for_a_minute_without_gaps_or_losses(tmp_path: Path) -> None:
    race((tmp_path / "store").as_uri(), tmp_path, 8, 60)


@pytest.mark.slow
@pytest.mark.s3
def test_eight_processes_commit_for_a_minute_on_a_bucket_without_gaps_or_losses(s3: S3Server, tmp_path: Path) -> None:
    race(s3.uri(f"parquet-tests/{uuid.uuid4().hex}"), tmp_path, 8, 60)


@pytest.mark.s3
def test_three_processes_with_two_killed_commit_on_a_bucket_without_gaps_or_losses(
    s3: S3Server, tmp_path: Path
) -> None:
    race(s3.uri(f"parquet-tests/{uuid.uuid4().hex}"), tmp_path, 3, 6)


# --- killed at a request ---


INDEX = "meta/indices/entities/Customer.json"
POINTS = [
    "after put_if_absent meta/locks/ontology_write.json",
    "before put_if_match meta/head.json",
    "after put_if_match meta/head.json",
    f"before put_if_match {INDEX}",
    f"after put_if_match {INDEX}",
    "after put commits/4/entities/Customer/v{}.parquet",
    "before put commits/4/manifest.json",
]
AFTER_THE_SWAP = {POINTS[2], POINTS[3], POINTS[4]}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(writers.commit_one, id="commit"),
        pytest.param(writers.migrate_one, id="migration", marks=pytest.mark.slow),
    ],
)
def test_a_writer_that_is_killed_leaves_the_old_state_or_the_new_one(
    work: Callable[..., Any], point: str, tmp_path: Path
) -> None:
    shop = Shop.create(open_objects((tmp_path / "store").as_uri()), "v2", tmp_path / "cache")
    shop.objects.delete(paths.lock())
    step = point.format(1 if work is writers.commit_one else 2)
    crash = run_and_crash(work, shop.objects.uri, str(tmp_path / "cache"), at_step=step)
    assert crash.killed
    swapped = point in AFTER_THE_SWAP
    with shop.using(s3_lock_timeout_ms=10_000) as repository:
        assert repository.get_head_commit_id() == 3 + swapped
        rows = latest(repository)
        if work is writers.commit_one:
            assert ("killed" in rows["Customer"], "killed" in rows["Product"]) == (swapped, swapped)
        else:
            assert all(("email" in row) == swapped for row in rows["Customer"].values())
        assert commit(repository, [Product(sku="next")]) == 4 + swapped
        assert repository.index_verify().healthy
        repository.vacuum(0, apply=True)
        assert set(latest(repository)["Product"]) == {*rows["Product"], "next"}


def test_a_compaction_that_is_killed_changes_no_answer(tmp_path: Path) -> None:
    shop = Shop.create(open_objects((tmp_path / "store").as_uri()), "v2", tmp_path / "cache")
    expected = shop.state()
    step = f"before put_if_match {INDEX}"
    assert run_and_crash(writers.compact_one, shop.objects.uri, str(tmp_path / "cache"), at_step=step).killed
    assert shop.state() == expected
    with shop.using(s3_lock_timeout_ms=10_000) as repository:
        assert repository.compact(apply=True).types
        repository.vacuum(0, apply=True)
    assert shop.state() == expected
    assert shop.objects.exists(paths.index(Customer.__declaration__.ref))


STAMP, HEAD = "put_if_match meta/engine.json", "put_if_match meta/head.json"


def test_a_vacuum_of_compacted_files_that_is_killed_changes_no_answer_and_another_ends_it(tmp_path: Path) -> None:
    original = Shop.create(open_objects((tmp_path / "store").as_uri()), "v2", tmp_path / "cache")
    with original.using() as repository:
        repository.compact(apply=True)
    original.commit([Customer(id="c1", name="Alice", age=50)])
    expected = original.state()
    half_deleted = {"at_call": "ontologia.objects.files:FileBackend._remove_empty", "when": "before"}
    for number, point in enumerate(
        [{"at_step": f"before {STAMP}"}, {"at_step": f"before {HEAD}"}, {"at_step": f"after {HEAD}"}, half_deleted]
    ):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "store", folder)
        shop = Shop(open_objects(folder.as_uri()), "v2", tmp_path / "cache")
        assert run_and_crash(writers.vacuum_one, shop.objects.uri, str(tmp_path / "cache"), **point).killed, point
        assert shop.state() == expected, point
        with shop.using(s3_lock_timeout_ms=10_000) as repository:
            repository.vacuum(0, apply=True, compacted=True)
            repository.vacuum(0, apply=True)  # the record that was replaced just now
            assert repository.vacuum(0, compacted=True).objects == [], point
        assert check(shop.objects).damages == [], point
        assert shop.state() == expected, point


def test_a_forgetting_that_is_killed_is_done_or_not_begun_and_another_ends_it(tmp_path: Path) -> None:
    Shop.create(open_objects((tmp_path / "store").as_uri()), "v2", tmp_path / "cache")
    for number, (point, is_done) in enumerate(
        [(f"before {STAMP}", False), (f"before {HEAD}", False), (f"after {HEAD}", True)]
    ):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "store", folder)
        shop = Shop(open_objects(folder.as_uri()), "v2", tmp_path / "cache")
        assert run_and_crash(writers.forget_one, shop.objects.uri, str(tmp_path / "cache"), at_step=point).killed
        with shop.using(s3_lock_timeout_ms=10_000) as repository:
            rows = latest(repository)
            assert repository.engine.catalog().base == (2 if is_done else 0), point
            plan = forgetting.preview(repository.engine, 2)
            assert plan.is_done == is_done
            forgetting.apply(repository.engine, plan, plan.token)
            assert commit(repository, [Product(sku="next")]) == 5, point
            repository.vacuum(0, apply=True)
            assert repository.index_verify().healthy, point
            assert set(latest(repository)["Customer"]) == set(rows["Customer"])
            with pytest.raises(HistoryForgottenError):
                repository.query_entities("Customer", window=Window("as_of", 1))
        assert check(shop.objects).damages == [], point
