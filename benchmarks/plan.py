"""Which suites there are, in their order, with their sizes and their share of the time.

Those beside peers come first, then how costs grow, and last the longest, which loses least where time runs out.
"""

from __future__ import annotations

from benchmarks import (
    across,
    console,
    depth,
    embedded,
    events,
    first_commit,
    frames,
    graphs,
    hops,
    memory,
    moving,
    objects,
    ordinary,
    removals,
    rows,
    spark,
)
from benchmarks.run import Suite

SECONDS = {True: 285.0, False: 2_250.0}
"""When a quick run and a whole one come to an end: nothing begins after it, and the page names what had no turn."""

ROWS = (10_000, 100_000, 1_000_000, 10_000_000)

SUITES = (
    # Name, work, sizes of a whole run and of a quick one, and seconds in each where it needs other than most.
    Suite("ordinary", ordinary.questions, {"rows": 3_000_000}, {"rows": 100_000}, 90, 12),
    Suite("ordinary-commits", ordinary.commits, {"rows": 1_000_000}, {"rows": 50_000}, 100, 15),
    Suite("hops", hops.traversals, {"people": 20_000}, {"people": 4_000}),
    Suite("first-commit", first_commit.beside_the_next, {"processes": 5}, {"processes": 2}),
    Suite("objects", objects.log, {"rows": 1_000_000}, {"rows": 100_000}, 50),
    Suite("console", console.small, {"spark_runs": 2}, {"spark_runs": 1}, 60, 22),
    Suite("memory-objects", memory.of_objects, {"rows": 200_000, "runs": 3}, {"rows": 20_000, "runs": 1}),
    Suite("commit", embedded.commit, {"rows": 100_000}, {"rows": 10_000}, 50),
    Suite("collect", embedded.collect, {"rows": 100_000}, {"rows": 10_000}),
    Suite("lookup", embedded.lookup, {"rows": 1_000_000}, {"rows": 20_000}),
    Suite("latest", embedded.latest, {"rows": 1_000_000}, {"rows": 50_000}, 65),
    Suite("across-versions", across.across, {"rows": 200_000}, {"rows": 20_000}, 60),
    Suite("removals", removals.questions, {"rows": 300_000}, {"rows": 30_000}, 45),
    Suite("erase-and-forget", removals.given_up, {"rows": 300_000}, {"rows": 10_000}),
    Suite("copies", moving.copies, {"commits": 500}, {"commits": 20}, 60),
    Suite("graphs", graphs.million, {"rows": 1_000_000}, {"rows": 50_000}, 40),
    Suite("graph-depth", graphs.depth, {"commits": 1_000}, {"commits": 50}, 80),
    Suite("frames", frames.commits),
    Suite(
        "frames-bulk",
        frames.bulk,
        {"appended": 5_000_000, "merged_into": 1_000_000},
        {"appended": 100_000, "merged_into": 50_000},
        60,
    ),
    Suite("frames-filters", frames.filters, {"cells": 500}, {"cells": 50}),
    Suite(
        "frames-growth", frames.growth, {"versions": 10_000, "cells": 50_000}, {"versions": 2_000, "cells": 2_000}, 60
    ),
    Suite("events", events.queues),
    # How costs grow:
    Suite("growth-rows-sqlite", rows.rows_sqlite, {"sizes": ROWS}, {"sizes": ROWS[:2]}, 150, 5),
    Suite("growth-rows-files", rows.rows_files, {"sizes": ROWS}, {"sizes": ROWS[:2]}, 60, 5),
    Suite(
        "growth-memory",
        memory.beside_rows,
        {"sizes": ROWS, "spark": True},
        {"sizes": ROWS[:2], "spark": False},
        100,
        10,
    ),
    Suite("growth-types", rows.types_files, {"sizes": (1, 10, 100)}, {"sizes": (1, 10, 30)}, 30, 5),
    Suite("growth-commits", depth.never_merged, {"sizes": (10, 100, 1_000, 10_000)}, {"sizes": (10, 100)}, 180, 5),
    Suite("growth-commits-merged", depth.merged_by_itself, {"sizes": (50, 350, 950, 9_950)}, {"sizes": (50, 150)}, 180),
    # The longest, and one without goals:
    Suite("spark", spark.pipeline, {"rows": 3_000_000, "commits": 1_000}, {"rows": 50_000, "commits": 20}, 380, 45),
    Suite("console-transfer", console.transfer, {"rows": 500_000}, {"rows": 20_000}, 60),
)
