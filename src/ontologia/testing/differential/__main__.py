"""`python -m ontologia.testing.differential`: questions for as long as asked, of every embedded engine in turn."""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from ontologia.testing.conformance.case import directory, graph, sqlite
from ontologia.testing.differential.checking import Disagreement, check_seed

CASES = [sqlite("v1"), sqlite("v2"), directory("v1"), directory("v2"), graph()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ontologia.testing.differential", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to ask (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: by the clock)")
    parser.add_argument("--questions", type=int, default=40, help="questions per history (default: 40)")
    options = parser.parse_args()
    first = int(time.time()) if options.seed is None else options.seed
    end = time.monotonic() + options.seconds
    asked = histories = 0
    for seed in itertools.count(first):
        for case in CASES:
            try:
                asked += check_seed(case, seed, options.questions)
            except Disagreement as problem:
                print(f"{problem}\n\nto see it again: --seed {seed} --questions {options.questions}", file=sys.stderr)
                return 1
            histories += 1
        if time.monotonic() > end:
            break
    print(f"{asked:,} questions about {histories:,} histories, from seed {first}: no disagreement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
