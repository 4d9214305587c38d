"""Copies with history by executors: the same store as the embedded copy makes, cut off or not."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from ontologia import CopyMismatchError, UnfinishedCopyError, open_repository
from ontologia.cli import main
from ontologia.engines import shares
from ontologia.spark import copy_history
from ontologia.spark.transfer import copying
from support.copied_shop import CASES, everything, place, shop
from support.spark_shop import Customer, commit, session


@pytest.fixture
def in_shares(monkeypatch):
    """More than one task, also for a commit of few rows."""
    monkeypatch.setattr(shares, "ROWS_PER_SHARE", 2)


def copied(spark, source: str, target: str, **options: Any):
    """Every commit that has a row is copied and compared by executors."""
    return copy_history(spark, source, target, **{"above_rows": 0, **options})


@pytest.mark.slow
@pytest.mark.parametrize(("source", "name"), list(itertools.product(CASES, CASES)))
def test_executors_copy_what_this_process_would(spark, tmp_path, in_shares, source, name):
    removals = source.endswith("v2") and name.endswith("v2")
    origin = shop(source, tmp_path / "source", removals=removals)
    report = copied(spark, origin, place(name, tmp_path), engine_version=name[-2:])
    assert everything(report.target) == everything(origin)
    by_workers = 0 if name.startswith("sqlite") else sum(bool(found) for *_, found in everything(origin)["commits"])
    assert report.commits_by_workers == by_workers
    if removals:
        with open_repository(report.target) as repository:
            assert repository.storage_info()["features"] == ["removals"]


def test_a_copy_that_was_cut_off_between_the_jobs_of_spark_goes_on(spark, folder, tmp_path, in_shares, monkeypatch):
    target = place("s3/v2", tmp_path)
    commit(folder, *(Customer(id=f"c{number}", name="N", age=number) for number in range(5)))
    with session(folder) as opened:
        opened.remove(Customer, "c1", "c2")
        opened.ensure([Customer(id=f"c{number}", name="M", age=number) for number in (3, 4, 5)])
        opened.commit()
        opened.repository.compact(apply=True)
    commit(folder, Customer(id="c1", name="again", age=1))
    write = copying._Executors.write

    def dies(self, parts, staging):
        found = write(self, parts, staging)
        if staging.commit_id > 1:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(copying._Executors, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        copied(spark, folder, target, above_rows=2)
    with pytest.raises(UnfinishedCopyError):
        open_repository(target)
    monkeypatch.setattr(copying._Executors, "write", write)
    report = copied(spark, folder, target, above_rows=2)
    assert (report.resumed_after, report.commits_by_workers) == (1, 1)
    assert everything(target) == everything(folder)


@pytest.mark.slow
@pytest.mark.s3
def test_executors_copy_into_a_bucket_and_between_buckets(spark, s3_prefix, tmp_path, in_shares):
    origin = shop("sqlite/v2", tmp_path / "source", removals=True)
    for source, target in ((origin, f"{s3_prefix}/one"), (f"{s3_prefix}/one", f"{s3_prefix}/two")):
        assert copied(spark, source, target).commits_by_workers > 0
        assert everything(target) == everything(origin)


@pytest.mark.slow
def test_parts_that_went_missing_are_found_before_the_copy_counts(spark, tmp_path, in_shares, monkeypatch):
    origin, target = shop("sqlite/v2", tmp_path / "source"), place("s3/v2", tmp_path)
    write = copying._Executors.write
    monkeypatch.setattr(copying._Executors, "write", lambda self, parts, staging: write(self, parts[1:], staging))
    with pytest.raises(CopyMismatchError, match="commit 1: entity Customer, version 1, has 1 rows and should have 3"):
        copied(spark, origin, target)
    with pytest.raises(UnfinishedCopyError):
        open_repository(target)


def test_the_console_copies_on_spark_where_it_is_told_to_or_a_commit_is_large(spark, folder, tmp_path, capsys):
    commit(folder, *(Customer(id=f"c{number}", name="N", age=number) for number in range(25)))
    config = tmp_path / "onto.toml"
    config.write_text("spark_above_rows = 1\n")

    def copy(target: str, *words: str) -> tuple[int, str]:
        assert main(["copy", folder, target, "--with-history", "--json", *words]) == 0
        said = capsys.readouterr()
        return json.loads(said.out)["commits_by_spark"], said.err

    assert copy((tmp_path / "auto").as_uri(), "--config", str(config))[0] == 1
    assert copy((tmp_path / "local").as_uri(), "--engine", "local", "--config", str(config))[0] == 0
    count, told = copy((tmp_path / "spark").as_uri(), "--engine", "spark")
    assert (count, "Spark wrote nothing: no commit is large enough" in told) == (0, True)
    count, told = copy(str(tmp_path / "copy.db"), "--engine", "spark")
    assert (count, "a SQLite file is written by one process" in told) == (0, True)
