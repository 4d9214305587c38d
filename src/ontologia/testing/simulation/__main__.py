"""`python -m ontologia.testing.simulation [world] --seeds 1000`, or `--seed 17` to replay one."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

from ontologia.testing.simulation.frames import FramesWorld
from ontologia.testing.simulation.runs import Outcome, Plan, World, run, shrink
from ontologia.testing.simulation.types import TypesWorld

WORLDS: dict[str, type[World]] = {world.name: world for world in (FramesWorld, TypesWorld)}


def main() -> int:
    """How many seeds failed."""
    parser = argparse.ArgumentParser(prog="python -m ontologia.testing.simulation", description=__doc__)
    parser.add_argument("world", nargs="?", choices=sorted(WORLDS), help="which system; all of them if not given")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds per world")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay this one, with its whole trace")
    parser.add_argument("--plan", help="replay this plan, as a failure printed it")
    parser.add_argument("--no-shrink", action="store_true", help="print failures as they were found")
    said = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets would be another in every process
        command = [sys.executable, "-m", "ontologia.testing.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    logging.disable(logging.CRITICAL)
    worlds = [WORLDS[said.world]] if said.world else list(WORLDS.values())
    if said.seed is not None:
        return sum(_replay(world, said.seed, said.plan) for world in worlds)
    seeds = range(said.first, said.first + said.seeds)
    return min(sum(_search(world, seeds, shrinking=not said.no_shrink) for world in worlds), 100)


def _replay(world: type[World], seed: int, plan: str | None) -> int:
    outcome = run(world, Plan.draw(world, seed) if plan is None else Plan.from_json(world.name, seed, plan))
    print("\n".join(outcome.trace))
    print(outcome)
    return outcome.failure is not None


def _search(world: type[World], seeds: range, *, shrinking: bool) -> int:
    started, steps, failures = time.process_time(), 0, 0
    for seed in seeds:
        outcome: Outcome = run(world, Plan.draw(world, seed))
        steps += len(outcome.trace)
        if outcome.failure is not None:
            failures += 1
            print(shrink(world, outcome) if shrinking else outcome, flush=True)
    seconds = time.process_time() - started
    print(f"{world.name}: {len(seeds)} seeds, {steps} steps, {failures} failed, {seconds:.1f} s of processor time")
    return failures


if __name__ == "__main__":
    sys.exit(main())
