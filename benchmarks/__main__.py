"""`python -m benchmarks [name...]`: run all suites, or those whose names are given."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks import console, embedded, events, frames, graphs, objects, spark
from benchmarks.report import measure, save, show

SUITES = {
    **embedded.SUITES,
    **objects.SUITES,
    **events.SUITES,
    **graphs.SUITES,
    **frames.SUITES,
    **console.SUITES,
    **spark.SUITES,
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(SUITES)
    if unknown:
        print(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    measured = []
    for name, suite in SUITES.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="ontologia-bench-") as folder:
            for case in suite(Path(folder)):
                print(f"{name}: {case.name} …", file=sys.stderr, flush=True)
                measured.append(measure(case))
    show(measured)
    print(f"as JSON: {save(measured)}")
    return 0 if all(item.met is not False for item in measured) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
