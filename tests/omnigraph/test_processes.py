"""Several processes on one graph at once: committing, branching, merging, optimizing, cleaning up, and dying."""

import subprocess
import sys

import pytest

from ontologia.objects import open_objects
from ontologia.omnigraph import branches
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.names import MANIFEST
from support.graph_shop import KNOWS, PERSON, contents, drift, new_graph, people, put, reopened
from support.graph_workers import PATIENT

pytestmark = pytest.mark.thorough


def start(kind, uri, name, rounds):
    command = [sys.executable, "-m", "support.graph_workers", kind, uri, name, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def work_together(uri, workers, rounds, victims, workers_path):
    """Run them all, kill some after their first commits; what the others and the dead had been told is there."""
    graph = new_graph(uri, PATIENT)
    put(graph, {PERSON: people(hub=0), KNOWS: {}})
    branches.create_tag(graph, "start")
    started = [start(kind, uri, f"{kind[0]}{number}", rounds) for number, kind in enumerate(workers)]
    told = []
    for process in started[:victims]:
        told += [process.stdout.readline().strip() for _ in range(2)]
        process.kill()
    for process in started:
        told += process.stdout.read().split()
        process.wait(timeout=280)
    assert [process.returncode for process in started[victims:]] == [0] * (len(started) - victims)
    return {person for person in told if person}


def check(uri, told):
    graph = Graph.open(open_objects(uri), PATIENT)
    put(graph, {PERSON: people(last=1)})  # waits for the leases of the dead, and recovers what they left
    found = contents(graph)
    assert told <= found[PERSON].keys(), "an acknowledged commit is lost"
    assert {edge["src"] for edge in found[KNOWS].values()} <= found[PERSON].keys(), "half a commit is visible"
    assert drift(graph) == {}
    assert graph.sidecars.names() == []
    log = list(graph.commits())
    assert len({it.graph_commit_id for it in log}) == len(log)
    for branch in graph.branches():
        assert contents(reopened(graph), branch)[PERSON].keys() >= {"hub"}
    assert contents(graph, "start") == {PERSON: people(hub=0)}, "a state that a tag needs is gone"


def test_three_processes_and_one_that_dies_lose_no_commit(root, workers_path):
    told = work_together(root, ["commits", "commits", "merges"], 3, 1, workers_path)
    assert len(told) >= 5
    check(root, told)


@pytest.mark.slow
def test_ten_processes_of_all_kinds_some_killed_lose_no_commit(root, workers_path):
    workers = ["commits"] * 6 + ["merges"] * 2 + ["optimizes", "cleans"]
    told = work_together(root, workers, 10, 3, workers_path)
    assert len(told) >= 40
    check(root, told)
    manifest = Graph.open(open_objects(root), PATIENT).datasets.open(MANIFEST)
    assert len(manifest.versions()) < manifest.version, "the cleanup found nothing to do"
