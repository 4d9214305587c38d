"""Maintenance never takes what somebody needs: after it, beside it, and in any order with everything else."""

import shutil

import pytest

from ontologia import OntologiaConfig
from ontologia.errors import (
    BranchError,
    ConcurrentWriteError,
    HistoryGapError,
    LockContentionError,
    MergeConflictError,
    RecoveryPendingError,
)
from ontologia.objects import open_objects
from ontologia.omnigraph import branches, cleanup, history, maintenance, publisher
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.merge import merge
from ontologia.omnigraph.names import ACTORS, COMMITS, MANIFEST, RETIRED, table_path
from ontologia.omnigraph.snapshots import resolve
from support.graph_shop import KNOWS, PERSON, contents, killed, knows, new_graph, people, put, reopened


def clean(graph, keep=1):
    return cleanup.cleanup(graph, keep, "0s", dry_run=False)


@pytest.fixture
def compacted(local_graph):
    """A graph whose `__manifest` has just compacted itself: its newest versions carry no commit."""
    for age in range(60):
        put(local_graph, {PERSON: people(a=age)})
        if local_graph.datasets.open(MANIFEST).version != local_graph.manifest().head.manifest_version:
            return local_graph
    raise AssertionError("__manifest never compacted itself")


# --- what cleanup keeps ---


def test_cleanup_keeps_as_many_commits_as_it_was_told(compacted):
    newest = [record.graph_commit_id for record in compacted.commits()][:10]
    before = [contents(compacted, commit) for commit in newest]
    clean(compacted, keep=10)
    assert [contents(compacted, commit) for commit in newest] == before


def test_after_a_cleanup_the_head_can_be_read_by_its_commit(compacted):
    clean(compacted)
    assert contents(compacted, compacted.manifest().head.graph_commit_id) == contents(compacted)


def test_a_branch_made_after_a_cleanup_can_be_merged(compacted):
    clean(compacted)
    branches.create_branch(compacted, "dev")
    put(compacted, {PERSON: people(b=1)}, branch="dev")
    put(compacted, {PERSON: people(c=1)})
    merge(compacted, "dev")
    assert contents(compacted)[PERSON].keys() == {"a", "b", "c"}


def test_a_branch_made_from_a_tag_after_a_cleanup_can_be_merged(compacted):
    branches.create_tag(compacted, "v1")
    put(compacted, {PERSON: people(b=1)})
    put(compacted, {PERSON: people(b=2)})
    clean(compacted)
    branches.create_branch(compacted, "hotfix", "v1")
    put(compacted, {PERSON: people(c=1)}, branch="hotfix")
    merge(compacted, "hotfix")
    assert contents(compacted)[PERSON].keys() == {"a", "b", "c"}


def test_a_branch_made_from_any_commit_that_was_kept_can_be_merged(local_graph):
    put(local_graph, {PERSON: people(a=1)})
    branches.create_branch(local_graph, "dev")
    put(local_graph, {PERSON: people(b=1)}, branch="dev")
    kept = local_graph.manifest("dev").head.graph_commit_id
    put(local_graph, {PERSON: people(a=2)})
    merge(local_graph, "main", "dev")
    put(local_graph, {PERSON: people(a=3)})
    put(local_graph, {PERSON: people(a=4)})
    clean(local_graph, keep=2)
    branches.create_branch(local_graph, "late", kept)
    put(local_graph, {PERSON: people(c=1)}, branch="late")
    assert merge(local_graph, "late").outcome == "merged"


def test_a_state_that_was_cleaned_up_is_said_to_be(local_graph):
    put(local_graph, {PERSON: people(a=1)})
    old = local_graph.manifest().head
    for age in range(3):
        put(local_graph, {PERSON: people(a=age)})
    clean(local_graph)
    for reference in (old.graph_commit_id, old.manifest_version):
        with pytest.raises(HistoryGapError, match="cleaned up"):
            resolve(local_graph, reference)


def test_a_graph_whose_head_version_an_older_release_removed_can_still_be_merged(compacted):
    head = compacted.manifest().head
    compacted.datasets.open(MANIFEST).cleanup_old_versions(versions=[head.manifest_version])
    branches.create_branch(compacted, "dev")
    put(compacted, {PERSON: people(b=1)}, branch="dev")
    put(compacted, {PERSON: people(c=1)})
    assert merge(compacted, "dev").outcome == "merged"


def test_cleanup_covers_the_commit_graph_and_forgets_none_of_its_rows(local_graph):
    put(local_graph, {PERSON: people(a=1)})
    branches.create_branch(local_graph, "dev")
    for age in range(4):
        put(local_graph, {PERSON: people(a=age)}, actor="ann")
        put(local_graph, {PERSON: people(b=age)}, branch="dev")
    logs = [[it.graph_commit_id for it in local_graph.commits(name)] for name in ("main", "dev")]
    removed = clean(local_graph).versions.keys()
    assert {f"{COMMITS}@main", f"{COMMITS}@dev", f"{ACTORS}@main"} <= removed
    assert [[it.graph_commit_id for it in reopened(local_graph).commits(name)] for name in ("main", "dev")] == logs


# --- deleted branches ---


@pytest.fixture
def shared(local_graph):
    """A branch that was merged into two others, which both go on."""
    put(local_graph, {PERSON: people(a=1)})
    for name in ("dev", "feature"):
        branches.create_branch(local_graph, name)
    put(local_graph, {PERSON: people(d=1)}, branch="dev")
    put(local_graph, {PERSON: people(m=1)})
    put(local_graph, {PERSON: people(x=1, y=1)}, branch="feature", actor="ann")
    for name in ("dev", "main"):
        merge(local_graph, "feature", name)
    return local_graph


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_deletion_is_merged_after_the_branch_it_came_from_is_gone(shared, cleaned):
    branches.delete_branch(shared, "feature")
    if cleaned:
        clean(shared)
    put(shared, {}, {PERSON: ["x"]}, branch="dev")
    merge(shared, "dev")
    assert contents(shared)[PERSON].keys() == {"a", "d", "m", "y"}


def test_an_update_after_a_shared_merge_is_no_conflict_once_the_branch_is_gone(shared):
    branches.delete_branch(shared, "feature")
    put(shared, {PERSON: people(y=2)}, branch="dev")
    merge(shared, "dev")
    assert contents(shared)[PERSON]["y"] == people(y=2)["y"]


def test_commits_of_a_deleted_branch_stay_in_the_log_with_their_author(shared):
    before = [(it.graph_commit_id, it.actor_id, it.details) for it in shared.commits()]
    branches.delete_branch(shared, "feature")
    assert [(it.graph_commit_id, it.actor_id, it.details) for it in reopened(shared).commits()] == before
    assert "ann" in {actor for _, actor, _ in before}


def test_a_new_branch_of_a_deleted_name_is_not_taken_for_the_old_one(shared):
    old = shared.manifest("feature").head.graph_commit_id
    state = contents(shared, "feature")
    branches.delete_branch(shared, "feature")
    branches.create_branch(shared, "feature")
    for age in range(4):
        put(shared, {PERSON: people(x=7, z=age)}, branch="feature")
    assert contents(shared, old) == state
    put(shared, {}, {PERSON: ["x"]}, branch="dev")
    merge(shared, "dev")
    assert "x" not in contents(shared)[PERSON]


def test_a_chain_of_deleted_branches_keeps_the_common_ancestor(shared):
    branches.create_branch(shared, "next", "feature")
    put(shared, {PERSON: people(n=1)}, branch="next")
    for name in ("dev", "main"):
        merge(shared, "next", name)
    branches.delete_branch(shared, "next")
    branches.delete_branch(shared, "feature")
    clean(shared)
    put(shared, {}, {PERSON: ["n", "x"]}, branch="dev")
    merge(shared, "dev")
    assert contents(shared)[PERSON].keys() == {"a", "d", "m", "y"}


def test_what_was_kept_of_a_deleted_branch_goes_when_nobody_can_need_it(shared):
    branches.delete_branch(shared, "feature")
    merge(shared, "dev")
    branches.delete_branch(shared, "dev")
    clean(shared)
    clean(shared)
    assert shared.datasets.branch_names(table_path(PERSON)) == []
    assert all(not retired.states for retired in shared.retired.list())


def test_a_branch_that_nobody_merged_leaves_nothing(local_graph):
    put(local_graph, {PERSON: people(a=1)})
    branches.create_branch(local_graph, "dev")
    put(local_graph, {PERSON: people(b=1)}, branch="dev")
    branches.delete_branch(local_graph, "dev")
    assert list(local_graph.objects.list(f"{RETIRED}/")) == []


@pytest.mark.parametrize("step", ["retire table", "retire", "delete manifest", "delete fork"])
def test_a_deletion_that_died_can_be_done_again_and_loses_no_ancestor(shared, step):
    assert killed(shared, step, None, lambda: branches.delete_branch(shared, "feature"))
    graph = reopened(shared)
    if "feature" in graph.branches():
        branches.delete_branch(graph, "feature")
    clean(graph)
    put(graph, {}, {PERSON: ["x"]}, branch="dev")
    merge(graph, "dev")
    assert contents(graph)[PERSON].keys() == {"a", "d", "m", "y"}


# --- indexes of forks ---


@pytest.fixture
def fork(local_graph):
    """A branch whose table began with the indexes of main, and has rows of its own."""
    put(local_graph, {PERSON: people(a=1)})
    put(local_graph, {PERSON: people(b=2)})
    maintenance.optimize(local_graph)
    branches.create_branch(local_graph, "dev")
    put(local_graph, {PERSON: people(b=3)}, branch="dev")
    return local_graph


def looked_up(graph, branch):
    pin = graph.manifest(branch).pins[PERSON]
    return graph.datasets.open(*pin.place).to_table(filter="id = 'b'").column("age").to_pylist()


def test_a_branch_that_was_optimized_is_read_by_its_indexes(fork):
    maintenance.optimize(fork, "dev")
    assert looked_up(fork, "dev") == [3]


def break_index(graph, branch):
    """Compact a fork as releases before did."""

    def prepare(manifest):
        compact = maintenance._applying([maintenance._compact])
        return maintenance.GraphWrite([maintenance.TableWork(PERSON, compact, 1)])

    graph.write(branch, "Optimize", prepare)


def test_repair_finds_and_mends_indexes_whose_files_are_not_there(fork):
    break_index(fork, "dev")
    with pytest.raises((OSError, ValueError)):
        looked_up(fork, "dev")
    found = {(it.branch, it.classification) for it in maintenance.repair(fork)}
    assert found == {("main", "no_drift"), ("dev", "broken_index")}
    maintenance.repair(fork, confirm=True)
    assert looked_up(fork, "dev") == [3]
    assert {it.classification for it in maintenance.repair(fork)} == {"no_drift"}


# --- everything beside everything ---

CALLS = {
    "cleanup": lambda graph: clean(graph),
    "optimize": lambda graph: maintenance.optimize(graph),
    "optimize a branch": lambda graph: maintenance.optimize(graph, "dev"),
    "repair": lambda graph: maintenance.repair(graph, confirm=True),
    "delete a branch": lambda graph: branches.delete_branch(graph, "feature"),
    "compact the manifest": lambda graph: graph.publisher._compact(graph.datasets.open(MANIFEST)),
    "write": lambda graph: put(graph, {PERSON: people(w=1), KNOWS: knows("aw")}),
    "write to a branch": lambda graph: put(graph, {PERSON: people(v=1)}, branch="dev"),
    "create a branch": lambda graph: branches.create_branch(graph, "late", "t"),
    "tag": lambda graph: branches.create_tag(graph, "late-tag"),
    "merge": lambda graph: merge(graph, "dev", strategy="theirs"),
}
REFUSALS = (BranchError, ConcurrentWriteError, LockContentionError, MergeConflictError, RecoveryPendingError)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Two branches that share a merged one, a tag on an old state, indexes, and rows on all of them."""
    folder = tmp_path_factory.mktemp("template") / "graph"
    graph = new_graph(f"file://{folder}")
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")})
    branches.create_tag(graph, "t")
    put(graph, {PERSON: people(a=2)})
    maintenance.optimize(graph)
    for name in ("dev", "feature"):
        branches.create_branch(graph, name)
    put(graph, {PERSON: people(x=1, y=1)}, branch="feature")
    put(graph, {PERSON: people(d=1)}, branch="dev")
    for name in ("dev", "main"):
        merge(graph, "feature", name)
    put(graph, {PERSON: people(m=1)})
    return folder


class _Steps:
    """Counts the steps of a call, and does something at one of them."""

    def __init__(self, at=None, action=None):
        self.at, self.action, self.seen = at, action, 0

    def __call__(self, name, about):
        self.seen += 1
        if self.seen == self.at:
            self.action()


def open_copy(template, folder):
    shutil.copytree(template, folder)
    config = OntologiaConfig(s3_lock_timeout_ms=1)
    return [Graph.open(open_objects(f"file://{folder}"), config) for _ in range(2)]


def attempt(call, graph):
    """Whether a call did its work, rather than be refused because of the other."""
    try:
        CALLS[call](graph)
    except REFUSALS:
        return False
    return True


def check(graph, done):
    """Every row that was ever written is where it belongs, and what can be merged is merged right."""
    graph = reopened(graph)
    rows = contents(graph)
    assert contents(graph, "t") == {PERSON: people(a=1, b=2), KNOWS: knows("ab")}
    assert contents(graph, graph.manifest().head.graph_commit_id) == rows
    expected = people(a=2, b=2, x=1, y=1, m=1) | (people(w=1) if "write" in done else {})
    assert rows[PERSON].items() >= expected.items()
    assert contents(graph, "dev")[PERSON].items() >= people(a=2, b=2, x=1, y=1, d=1).items()
    assert looked_up(graph, "dev") == [2]
    assert len([it for it in graph.commits() if it.details.get("kind") == "Mutation"]) >= 4
    put(graph, {}, {PERSON: ["x"]}, branch="dev")
    merge(graph, "dev", strategy="theirs")
    assert "x" not in contents(graph)[PERSON]
    assert contents(graph)[PERSON].items() >= people(d=1, y=1, m=1).items()


def run_beside(template, tmp_path, outer, inner):
    """Run one call at every step of another, and after it, each time on a fresh copy."""
    counted = open_copy(template, tmp_path / "counted")[0]
    counted.step = _Steps()
    attempt(outer, counted)
    for at in range(1, counted.step.seen + 2):  # the last is after the call
        graph, other = open_copy(template, tmp_path / str(at))
        done = []
        graph.step = _Steps(at, lambda other=other, done=done: done.append(attempt(inner, other)))
        assert attempt(outer, graph) or any(done)
        graph.step = lambda name, about: None
        if not any(done):
            attempt(inner, other)
        check(graph, [inner, outer])


@pytest.mark.thorough
@pytest.mark.parametrize("inner", CALLS)
@pytest.mark.parametrize("outer", ["cleanup", "delete a branch"])
def test_whatever_runs_beside_a_removal_nothing_is_lost(template, tmp_path, outer, inner, monkeypatch):
    monkeypatch.setattr(publisher, "_COMPACT_AFTER", 2)
    run_beside(template, tmp_path, outer, inner)


@pytest.mark.slow
@pytest.mark.parametrize("inner", CALLS)
@pytest.mark.parametrize("outer", [call for call in CALLS if call not in ("cleanup", "delete a branch")])
def test_whatever_runs_beside_any_call_nothing_is_lost(template, tmp_path, outer, inner, monkeypatch):
    monkeypatch.setattr(publisher, "_COMPACT_AFTER", 2)
    run_beside(template, tmp_path, outer, inner)


def test_a_feed_goes_on_after_commits_were_kept(local_graph):
    for age in range(6):
        put(local_graph, {PERSON: people(a=age)})
    cursor = list(local_graph.commits())[2].graph_commit_id
    clean(local_graph, keep=3)
    assert [it.after["age"] for it in history.changes_since(local_graph, "main", cursor)] == [4, 5]
