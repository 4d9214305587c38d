"""The demo tells the whole story, plainly when piped, and what it says to try next works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ontologia

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("demo")]  # it is told once


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def environment():
    """Nothing of the caller's but a path on which the package is found, whether it is installed or not."""
    path = str(Path(ontologia.__file__).parents[1])
    quick = "-XX:TieredStopAtLevel=1"  # what its JVM would compile for speed is never worth it
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "SPARK_SUBMIT_OPTS": quick}


@pytest.fixture(scope="module")
def output(place, environment):
    """What the demo prints."""
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    demo = subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment)
    assert demo.returncode == 0, demo.stderr
    return demo.stdout


def section(output, title):
    """What stands under a title, up to the next one."""
    return re.split(r"^[A-Z][a-z ]+  [A-Z].*\n", output.partition(f"\n{title}  ")[2], maxsplit=1, flags=re.MULTILINE)[0]


def columns(output, title):
    """The cells of a table, without its headings."""
    lines = [line for line in section(output, title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def chart(output, title):
    """The values of a bar chart by their labels."""
    return dict(re.findall(r"^ +(\S.*?)  █+ (\S+)", section(output, title), re.MULTILINE))


def test_it_goes_from_files_to_types_and_travels_in_time(output):
    assert columns(output, "Load") == [
        ["Body", "20", "20", "0", "0", "1"],
        ["Orbits", "19", "19", "0", "0", "1"],
    ]
    planets = chart(output, "Travel in time")
    assert (planets["1800"], planets["1807"], planets["1930"], planets["2006"]) == ("7", "11", "9", "8")
    assert columns(output, "Look back") == [["2", "planet"], ["3", "asteroid"], ["8", "dwarf planet"]]


def test_it_migrates_streams_into_a_bucket_and_compacts_it(output):
    assert columns(output, "Migrate")[0][:6] == ["Mission", "2", "agency", "agencies", "25", "10"]
    moved = columns(output, "Stream")
    assert [row[1] for row in moved] == [row[2] for row in moved] == ["7", "11", "8", "8", "9", "9", "9", "8"]
    assert chart(output, "Compact") == {"before": "8", "after": "1"}
    assert "7, 11, 8, 8, 9, 9, 9, 8 (the same)" in output
    assert list(chart(output, "Analyse").values()) == ["20", "4", "6", "2", "1", "2", "1", "3"]


def test_it_shows_the_code_that_it_runs_and_is_plain_when_piped(output):
    assert '    pipeline.load(rows.where("orbits is not null"), into=Orbits, left="name", right="orbits")\n' in output
    assert "\x1b" not in output


def test_what_it_says_to_try_next_works_on_its_stores(output, place, environment):
    commands = [line.strip() for line in output.partition("\nTry next  ")[2].splitlines()[1:]]
    assert len(commands) == 6
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=place, env=environment)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert len(done.stdout.splitlines()) > 2


def test_the_readme_shows_what_it_prints(output):
    shown = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert shown in output


def test_it_does_not_touch_a_folder_with_something_else_in_it(place, environment):
    (place / "mine").mkdir()
    (place / "mine" / "letter.txt").write_text("keep me")
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "mine"]
    demo = subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment)
    assert demo.returncode == 1
    assert "letter.txt" in demo.stderr
    assert [path.name for path in (place / "mine").iterdir()] == ["letter.txt"]
