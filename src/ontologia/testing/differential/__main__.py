"""`python -m ontologia.testing.differential`: one suite of random checks for as long as asked, seed after seed."""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import time

from ontologia.testing.differential.checking import Disagreement

SUITES = {
    "types": "ontologia.testing.differential.checking",
    "frames": "ontologia.testing.differential.frames",
    "graphs": "ontologia.testing.differential.graphs",
    "loads": "ontologia.testing.differential.loads",
}
"""Suites by name. The module of a suite has `soak_seed(seed)`, which returns the number of checks it made and raises
`Disagreement` where one failed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ontologia.testing.differential", description=__doc__)
    parser.add_argument("--suite", choices=sorted(SUITES), default="types", help="what to check (default: types)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to ask (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: by the clock)")
    options = parser.parse_args()
    soak_seed = importlib.import_module(SUITES[options.suite]).soak_seed
    first = int(time.time()) if options.seed is None else options.seed
    end = time.monotonic() + options.seconds
    checks = 0
    for seed in itertools.count(first):
        try:
            checks += soak_seed(seed)
        except Disagreement as problem:
            print(f"{problem}\n\nto see it again: --suite {options.suite} --seed {seed}", file=sys.stderr)
            return 1
        if time.monotonic() > end:
            break
    print(f"{options.suite}: {checks:,} checks, seeds {first} to {seed}: no disagreement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
