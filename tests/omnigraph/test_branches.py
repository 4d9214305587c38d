"""Branches and tags: lazy forks, names, what is refused, and what a crash leaves."""

from itertools import islice

import pytest

from ontologia.errors import BranchError, HistoryGapError, ValidationError
from ontologia.omnigraph import branches, cleanup, history, maintenance
from ontologia.omnigraph.merge import merge
from ontologia.omnigraph.names import COMMITS, MANIFEST, table_path
from ontologia.omnigraph.snapshots import resolve
from support.graph_shop import FIRM, KNOWS, PERSON, contents, killed, knows, new_graph, people, put, reopened


@pytest.fixture
def filled(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1, b=2), FIRM: people(x=1), KNOWS: knows("ab")})
    return graph


def test_a_branch_forks_only_the_tables_it_writes_to(filled):
    branches.create_branch(filled, "dev")
    assert {path: "dev" in filled.datasets.branches(path) for path in (MANIFEST, COMMITS, table_path(PERSON))} == {
        MANIFEST: True,
        COMMITS: True,
        table_path(PERSON): False,
    }
    put(filled, {PERSON: people(a=5)}, branch="dev")
    pins = filled.manifest("dev").pins
    assert (pins[PERSON].branch, pins[FIRM].branch) == ("dev", None)
    assert contents(filled)[PERSON]["a"]["age"] == 1
    assert contents(filled, "dev")[PERSON]["a"]["age"] == 5


@pytest.mark.slow_on("s3")
def test_creating_a_branch_costs_the_same_however_much_there_is(graph):
    """Requests of our own; Lance's are constant, too, since no table is opened."""
    put(graph, {PERSON: people(a=1)})
    costs = []
    for round_ in range(2):
        with graph.objects.counting() as count:
            branches.create_branch(graph, f"b{round_}")
        costs.append(count.total)
        for number in range(10):
            put(graph, {PERSON: people(a=number), FIRM: people(x=number)})
    assert costs[1] <= costs[0] < 10


def test_a_branch_begins_at_a_commit_of_the_past(filled):
    first = filled.manifest().head.graph_commit_id
    put(filled, {PERSON: people(a=9)})
    branches.create_branch(filled, "old", first)
    assert contents(filled, "old")[PERSON]["a"]["age"] == 1
    assert next(filled.commits("old")).graph_commit_id == first


def test_the_log_of_a_branch_has_its_own_commits_and_those_before_the_fork(filled):
    branches.create_branch(filled, "dev")
    own = put(filled, {PERSON: people(a=5)}, branch="dev")
    put(filled, {PERSON: people(a=6)})
    log = [it.graph_commit_id for it in filled.commits("dev")]
    assert (log[0], len(log)) == (own.graph_commit_id, 3)


def test_names_that_a_branch_cannot_have(graph):
    branches.create_branch(graph, "dev")
    odd = ("", "  ", "a b", "/a", "a/", "a//b", "a..b", "a\\b", "x.lock", "ä", "a~1")
    for name in (*odd, "main", "__schema_apply_lock__", "dev"):
        with pytest.raises(BranchError):
            branches.create_branch(graph, name)
    assert graph.branches() == ["main", "dev"]


def test_branches_whose_names_would_share_a_folder_are_refused(graph):
    branches.create_branch(graph, "team/one")
    for name in ("team", "team/one/two"):
        with pytest.raises(BranchError, match="share a folder"):
            branches.create_branch(graph, name)
    branches.create_branch(graph, "team/two")


def test_run_names_are_ordinary_names(graph):
    branches.create_branch(graph, "__run__1")
    assert "__run__1" in reopened(graph).branches()


def test_writing_to_a_branch_that_is_not_there_names_those_that_are(filled):
    with pytest.raises(BranchError, match="there are main"):
        put(filled, {PERSON: people(a=1)}, branch="nope")


def test_main_parents_and_tagged_branches_cannot_be_deleted(filled):
    branches.create_branch(filled, "dev")
    put(filled, {PERSON: people(a=2)}, branch="dev")
    branches.create_branch(filled, "child", "dev")
    branches.create_tag(filled, "v1", "child")
    for name, said in (("main", "main"), ("dev", "parent of child"), ("child", "tags v1"), ("nope", "no branch")):
        with pytest.raises(BranchError, match=said):
            branches.delete_branch(filled, name)
    branches.delete_tag(filled, "v1")
    branches.delete_branch(filled, "child")
    branches.delete_branch(filled, "dev")
    assert filled.branches() == ["main"]


def test_a_deleted_name_can_be_used_again_for_something_else(filled):
    branches.create_branch(filled, "dev")
    put(filled, {PERSON: people(a=5, z=1)}, branch="dev")
    branches.delete_branch(filled, "dev")
    branches.create_branch(filled, "dev")
    put(filled, {PERSON: people(b=6)}, branch="dev")
    assert contents(filled, "dev")[PERSON] == people(a=1, b=6)


def test_another_process_sees_a_branch_that_was_made_again_under_its_name_as_it_is_now(filled):
    branches.create_branch(filled, "one")
    branches.create_branch(filled, "two")
    put(filled, {PERSON: people(x=1)}, branch="one")
    put(filled, {PERSON: people(y=2)}, branch="two")
    branches.create_branch(filled, "dev", "one")
    other = reopened(filled)
    assert "x" in contents(other, "dev")[PERSON]
    branches.delete_branch(filled, "dev")
    branches.create_branch(filled, "dev", "two")
    assert other.manifest("dev").version == filled.manifest("one").version, "the same number, another state"
    assert contents(other, "dev")[PERSON].keys() == contents(filled, "two")[PERSON].keys()


def test_creating_and_deleting_that_died_halfway_leaves_nothing_that_is_in_the_way(local):
    for number, (act, step) in enumerate(
        [("create", "branch commits"), ("delete", "delete manifest"), ("delete", "delete fork")]
    ):
        graph = new_graph(f"{local}/{number}")
        put(graph, {PERSON: people(a=1)})
        if act == "create":
            assert killed(graph, step, None, lambda graph=graph: branches.create_branch(graph, "dev"))
            graph = reopened(graph)
            assert graph.branches() == ["main", "dev"]  # the manifest is the authority
            put(graph, {PERSON: people(a=4)}, branch="dev")
            assert len(list(graph.commits("dev"))) >= 1
            continue
        branches.create_branch(graph, "dev")
        put(graph, {PERSON: people(a=5)}, branch="dev")
        assert killed(graph, step, None, lambda graph=graph: branches.delete_branch(graph, "dev"))
        graph = reopened(graph)
        if "dev" in graph.branches():
            branches.delete_branch(graph, "dev")
        branches.create_branch(graph, "dev")
        put(graph, {PERSON: people(b=2)}, branch="dev")
        assert contents(graph, "dev")[PERSON] == people(a=1, b=2)


def test_a_half_made_lance_branch_does_not_block_its_name(graph):
    """Lance writes the branch's folder, then its ref; a crash between the two leaves a folder nobody lists."""
    put(graph, {PERSON: people(a=1)})
    branches.create_branch(graph, "dev")
    graph.objects.delete(f"{MANIFEST}/_refs/branches/dev.json")
    graph = reopened(graph)
    branches.create_branch(graph, "dev")
    put(graph, {PERSON: people(b=2)}, branch="dev")
    assert contents(graph, "dev")[PERSON] == people(a=1, b=2)


# --- tags and time travel ---


def test_a_tag_keeps_its_state_whatever_is_cleaned_up(filled):
    branches.create_tag(filled, "v1")
    for age in range(3, 9):
        put(filled, {PERSON: people(a=age)})
    maintenance.optimize(filled)
    cleanup.cleanup(filled, 1, "0s", dry_run=False)
    assert contents(filled, "v1")[PERSON]["a"]["age"] == 1
    assert contents(filled)[PERSON]["a"]["age"] == 8


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "v1.lock", None])
def test_names_that_a_tag_cannot_have(graph, name):
    with pytest.raises(ValidationError, match="cannot name a tag"):
        branches.create_tag(graph, name)


def test_states_are_named_by_commit_version_branch_and_tag(filled):
    first = filled.manifest().head
    branches.create_tag(filled, "v1")
    put(filled, {PERSON: people(a=9)})
    for reference in (first.graph_commit_id, first.manifest_version, "v1"):
        assert contents(filled, reference)[PERSON]["a"]["age"] == 1
    for wrong in ("nope", 99, 0, "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        with pytest.raises(ValidationError):
            resolve(filled, wrong)


# --- cleanup ---


def test_cleanup_is_a_preview_unless_told_otherwise(filled):
    for age in range(5):
        put(filled, {PERSON: people(a=age)})
    before = sorted(info.key for info in filled.objects.list())
    report = cleanup.cleanup(filled, 1, "0s")
    assert report.total > 0
    assert sorted(info.key for info in filled.objects.list() if "__leases" not in info.key) == [
        key for key in before if "__leases" not in key
    ]


def test_cleanup_removes_old_states_of_all_datasets_and_keeps_what_branches_inherit(filled):
    branches.create_branch(filled, "lazy")  # reads main's tables at their old versions
    branches.create_branch(filled, "own")
    put(filled, {PERSON: people(a=7)}, branch="own")
    for age in range(10, 16):
        put(filled, {PERSON: people(a=age)})
    maintenance.optimize(filled)
    report = cleanup.cleanup(filled, 2, "0s", dry_run=False)
    assert {"__manifest@main", f"{table_path(PERSON)}@main"} <= set(report.versions)
    opened = reopened(filled)
    assert contents(opened, "lazy")[PERSON]["a"]["age"] == 1
    assert contents(opened, "own")[PERSON]["a"]["age"] == 7
    put(opened, {PERSON: people(b=5)}, branch="lazy")
    merge(opened, "lazy")
    assert contents(opened)[PERSON] == people(a=15, b=5)
    with pytest.raises(BranchError):
        branches.delete_branch(opened, "main")


@pytest.mark.parametrize("phase", ["B", "C"])
def test_cleanup_keeps_what_a_pending_recovery_needs(filled, phase):
    before = contents(filled)
    write = lambda: put(filled, {PERSON: people(a=9), KNOWS: knows("ab", since=9)})  # noqa: E731
    assert killed(filled, phase, PERSON if phase == "B" else "", write)
    report = cleanup.cleanup(filled, 1, "0s", dry_run=False)
    assert report.total > 0
    assert len(filled.sidecars.names()) == 1
    found = contents(reopened(filled))
    assert (found == before) == (phase == "B")
    assert found[PERSON]["a"]["age"] == (1 if phase == "B" else 9)


def test_cleanup_keeps_what_is_younger_than_the_age(filled):
    for age in range(5):
        put(filled, {PERSON: people(a=age)})
    assert cleanup.cleanup(filled, 1, "7d").total == 0


@pytest.mark.parametrize(("keep", "age"), [(0, "7d"), (1, "soon"), (1, "7"), (1, "-1d")])
def test_a_cleanup_that_means_nothing_is_refused(graph, keep, age):
    with pytest.raises(ValidationError):
        cleanup.cleanup(graph, keep, age)


def test_leftover_forks_of_deleted_branches_go_at_cleanup(graph):
    put(graph, {PERSON: people(a=1)})
    graph.datasets.fork(table_path(PERSON), "gone", None, graph.manifest().pins[PERSON].version)
    assert cleanup.cleanup(graph, 1, "7d", dry_run=False).forks == [f"{table_path(PERSON)}@gone"]
    assert graph.datasets.branches(table_path(PERSON)) == {}


# --- the feed of changes ---


def test_the_newest_commits_are_read_without_the_others(graph, monkeypatch):
    monkeypatch.setattr(history, "READ_AT_ONCE", 4)
    for number in range(12):
        put(graph, {PERSON: people(a=number)}, actor=f"actor {number}")
    asked = []
    between = graph.commit_log.between
    monkeypatch.setattr(graph.commit_log, "between", lambda *window: asked.append(window) or between(*window))
    found = list(islice(history.first_parents(graph, graph.manifest()), 3))
    assert [it.actor_id for it in found] == ["actor 11", "actor 10", "actor 9"]
    assert len(asked) == 1
    assert len(list(history.first_parents(graph, graph.manifest()))) == 13


def test_a_feed_is_taken_up_where_it_was_left(filled):
    start = history.changes_since(filled, "main", None)
    put(filled, {PERSON: people(a=5)})
    put(filled, {}, {KNOWS: ["ab"]})
    one = history.changes_since(filled, "main", start.cursor, limit=1)
    two = history.changes_since(filled, "main", one.cursor)
    assert [(it.op, it.id) for it in (*one, *two)] == [("update", "a"), ("delete", "ab")]
    assert history.changes_since(filled, "main", two.cursor).changes == []
    assert {it.commit_id for it in two} == {two.cursor}


def test_a_feed_across_states_that_were_cleaned_up_is_a_gap(filled):
    cursor = filled.manifest().head.graph_commit_id
    for age in range(5):
        put(filled, {PERSON: people(a=age)})
    cleanup.cleanup(filled, 1, "0s", dry_run=False)
    for since in (cursor, None, "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        with pytest.raises(HistoryGapError, match=r"snapshot\(\)"):
            history.changes_since(filled, "main", since)


# --- repair ---


def test_maintenance_by_other_tools_is_recognised_and_healed(graph):
    put(graph, {PERSON: people(a=1, b=1)})
    put(graph, {PERSON: people(a=2)})
    graph.datasets.open(table_path(PERSON)).optimize.compact_files()
    preview = maintenance.repair(graph)
    assert [(it.classification, it.action) for it in preview] == [("verified_maintenance", "preview")]
    assert [it.action for it in maintenance.repair(graph, confirm=True)] == ["healed"]
    assert [it.classification for it in maintenance.repair(graph)] == ["no_drift"]
    assert next(graph.commits()).actor_id == "omnigraph:repair"


def test_a_strangers_rows_are_published_only_by_force(graph):
    put(graph, {PERSON: people(a=1, b=2)})
    graph.datasets.open(table_path(PERSON)).delete("id = 'b'")
    assert [it.action for it in maintenance.repair(graph, confirm=True)] == ["refused"]
    assert contents(graph)[PERSON] == people(a=1, b=2)
    assert [it.action for it in maintenance.repair(graph, confirm=True, force=True)] == ["forced"]
    assert contents(graph)[PERSON] == people(a=1)


def test_a_zero_row_delete_leaves_no_drift(graph):
    put(graph, {PERSON: people(a=1, b=2), KNOWS: {}})
    before = graph.datasets.open(table_path(KNOWS)).version
    put(graph, {}, {PERSON: ["b"]})
    assert graph.datasets.open(table_path(KNOWS)).version == before
