"""Processes that work on one graph at once: `python -m support.graph_workers KIND URI NAME ROUNDS`.

Every acknowledged commit is printed at once, so that a test knows what must be there even if the process is killed.
"""

from __future__ import annotations

import contextlib
import sys

from ontologia import OntologiaConfig
from ontologia.errors import BranchError, ConcurrentWriteError, MergeConflictError, RecoveryPendingError
from ontologia.objects import open_objects
from ontologia.omnigraph import branches, cleanup, maintenance
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.merge import merge
from support.graph_shop import KNOWS, PERSON, people, put

PATIENT = OntologiaConfig(s3_lock_timeout_ms=60_000, s3_lease_ttl_ms=3_000)
AGAIN = (ConcurrentWriteError, RecoveryPendingError)


def commits(graph: Graph, name: str, rounds: int) -> None:
    """A person and an edge to them, in one commit: neither may ever be seen without the other."""
    for number in range(rounds):
        person = f"{name}{number}"
        edge = {person: {"id": person, "src": person, "dst": "hub", "since": number}}
        while True:
            with contextlib.suppress(*AGAIN):
                put(graph, {PERSON: people(**{person: number}), KNOWS: edge})
                break
        print(person, flush=True)


def merges(graph: Graph, name: str, rounds: int) -> None:
    for number in range(rounds):
        branch, person = f"{name}-{number}", f"{name}m{number}"
        with contextlib.suppress(*AGAIN, BranchError, MergeConflictError):
            branches.create_branch(graph, branch)
            put(graph, {PERSON: people(**{person: number})}, branch=branch)
            merge(graph, branch)
            print(person, flush=True)
            branches.delete_branch(graph, branch)


def optimizes(graph: Graph, name: str, rounds: int) -> None:
    for _ in range(rounds):
        with contextlib.suppress(*AGAIN):
            maintenance.optimize(graph)


def cleans(graph: Graph, name: str, rounds: int) -> None:
    for _ in range(rounds):
        with contextlib.suppress(*AGAIN):
            cleanup.cleanup(graph, 3, "3s", dry_run=False)


WORK = {"commits": commits, "merges": merges, "optimizes": optimizes, "cleans": cleans}

if __name__ == "__main__":
    kind, uri, name, rounds = sys.argv[1:]
    WORK[kind](Graph.open(open_objects(uri), PATIENT), name, int(rounds))
