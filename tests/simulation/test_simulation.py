"""The simulator itself: seeds replay, failures shrink, and the systems hold under some hundreds of seeds."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from ontologia.testing.simulation.frames import FramesWorld
from ontologia.testing.simulation.runs import Plan, run
from ontologia.testing.simulation.types import TypesWorld

WORLDS = [FramesWorld, TypesWorld]
BY_NAME = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@BY_NAME
def test_a_seed_gives_the_same_trace_again(world):
    plans = [Plan.draw(world, seed) for seed in range(3)]
    assert [run(world, plan).trace for plan in plans] == [run(world, plan).trace for plan in plans]


@BY_NAME
def test_a_plan_survives_the_command_line(world):
    plan = Plan.draw(world, 17)
    assert Plan.from_json(world.name, 17, plan.to_json()) == plan


@pytest.mark.thorough
@BY_NAME
def test_invariants_hold_under_many_seeds(world):
    assert simulate(world.name, "--seeds", "120") == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@BY_NAME
def test_invariants_hold_under_thousands_of_seeds(world):
    assert simulate(world.name, "--first", "1000", "--seeds", "3000") == ""


def simulate(*arguments: str) -> str:
    """What a run of the simulator complains about. In a process of its own, where sets have one order, so that a seed
    that fails here fails when it is replayed."""
    command = [sys.executable, "-m", "ontologia.testing.simulation", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "0"})
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr
