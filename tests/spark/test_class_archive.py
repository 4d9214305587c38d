"""The archive of Spark's classes: who makes it, who uses it, and what becomes of damaged ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ontologia.spark import class_archive
from ontologia.spark import session as sessions
from ontologia.spark.class_archive import MAGIC, archive_options

WHOLE = MAGIC.to_bytes(4, "little") + b"classes"


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A Java of its own, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17"')
    return str(program)


def place_in(options: list[str]) -> Path:
    return Path(options[0].partition("=")[2])


def test_the_first_makes_it_and_the_next_uses_it(java):
    made = archive_options(java)
    assert made[0].startswith("-XX:ArchiveClassesAtExit=")
    place_in(made).write_bytes(WHOLE)
    used = archive_options(java)
    assert used[0] == f"-XX:SharedArchiveFile={place_in(made)}"


def test_another_java_makes_its_own(java, tmp_path):
    place = place_in(archive_options(java))
    place.write_bytes(WHOLE)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21"')
    assert place_in(archive_options(java)) != place


def test_one_that_is_incomplete_is_made_again(java):
    place = place_in(archive_options(java))
    place.write_bytes(b"\0\0\0\0 half of the classes")
    assert archive_options(java)[0] == f"-XX:ArchiveClassesAtExit={place}"
    assert not place.exists()


def test_one_that_got_shorter_is_made_again(java):
    place = place_in(archive_options(java))
    place.write_bytes(WHOLE)
    assert "SharedArchiveFile" in archive_options(java)[0]
    place.write_bytes(WHOLE[:-1])
    assert archive_options(java)[0] == f"-XX:ArchiveClassesAtExit={place}"
    assert list(place.parent.iterdir()) == []


def test_only_a_few_stay(java):
    place = place_in(archive_options(java))
    for number in range(5):
        other = place.with_name(f"spark-{number}.jsa")
        other.write_bytes(WHOLE)
        os.utime(other, (number, number))
    archive_options(java)
    assert sorted(path.name for path in place.parent.iterdir()) == ["spark-3.jsa", "spark-4.jsa"]


def test_where_there_is_no_place_for_one_there_is_none(java, tmp_path, monkeypatch):
    for name in ("with blank", "o'brien", "a;b", "naïve"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        assert archive_options(java) == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert archive_options(java) == []


@pytest.mark.parametrize("chosen", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa"])
def test_the_users_own_choice_is_left_alone(java, monkeypatch, chosen):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", chosen)
    assert "Archive" not in sessions._java_options(java, brief=True)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "")
    assert "Archive" in sessions._java_options(java, brief=True)
    assert "Archive" not in sessions._java_options(java, brief=False)


PROGRAM = """
from ontologia.spark import spark_session
spark = spark_session(master="local[1]", brief=True)
print(spark.range(5).count(), spark.conf.get("spark.driver.extraJavaOptions"))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_jvm_leaves_it_behind_and_the_next_one_starts_with_it(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "SPARK_SUBMIT_OPTS": ""}

    def said() -> str:
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    assert said().startswith("5 ")
    deadline = time.monotonic() + 60
    while not any(class_archive._is_complete(path) for path in tmp_path.rglob("*.jsa")):
        assert time.monotonic() < deadline, "no archive was made"
        time.sleep(0.1)
    assert "-XX:SharedArchiveFile" in said()
    (archive,) = tmp_path.rglob("*.jsa")
    archive.chmod(0o600)
    os.truncate(archive, archive.stat().st_size // 2)
    assert said().startswith("5 "), "a session starts without an archive that is damaged"
