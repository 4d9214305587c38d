"""What needs a library that is not installed says which extra brings it, and does nothing."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ontologia.extras import EXTRAS
from support.without_extras import HIDDEN

ROOT = Path(__file__).parents[1]
ADVICE = r"needs (\w+), which is not installed: pip install 'ontologia\[(\w+)\]'"


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without_extras")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "support.without_extras", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def test_every_door_to_a_missing_library_names_its_extra(without_extras):
    others = {
        door: said
        for door, said in without_extras["said"].items()
        if not re.fullmatch(rf"(missing_extra|2): (onto: )?.* {ADVICE}", said)
    }
    assert others == {}


def test_a_missing_library_is_noticed_before_anything_is_written(without_extras):
    assert without_extras["wrote_something_new"] is False


def test_an_extra_brings_each_of_the_libraries_that_belong_to_it():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {extra: {Requirement(text).name for text in texts} for extra, texts in extras.items()}
    called = {"lance": "pylance"}
    assert {name: extra for name, extra in EXTRAS.items() if called.get(name, name) not in brought[extra]} == {}


def test_no_library_of_an_extra_was_there_when_the_doors_were_tried():
    assert set(HIDDEN) == set(EXTRAS)
