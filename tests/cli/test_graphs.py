"""The console on graphs: every group of commands, from an empty place to a merge, and what it refuses."""

import pytest

from ontologia.cli import main
from support.graph_shop import PERSON, killed, new_graph, people, put


@pytest.fixture
def onto(capsys, tmp_path):
    uri = f"file://{tmp_path}/graph"

    def run(*arguments, code=0):
        import json

        found = main([*arguments, "--storage-uri", uri, "--json"])
        answer = capsys.readouterr()
        assert found == code, answer.err
        return json.loads(answer.out) if code == 0 else answer.err

    run.uri = uri
    return run


@pytest.fixture
def filled(onto):
    graph = new_graph(onto.uri)
    put(graph, {PERSON: people(a=1, b=2)}, actor="ann")
    return graph


def test_a_graph_is_made_and_looked_at(onto):
    assert onto("init", "--engine", "omnigraph")["backend"] == "omnigraph"
    assert onto("snapshot")["tables"] == []
    assert onto("info")["backend"] == "omnigraph"
    assert "holds" in onto("init", "--engine", "omnigraph", code=1)


def test_a_branch_is_made_changed_compared_merged_and_deleted(onto, filled):
    onto("branch", "create", "review")
    put(filled, {PERSON: people(a=5, c=3)}, {PERSON: ["b"]}, branch="review")
    assert onto("diff", "main", "review")["stats"] == {
        "inserts": 1,
        "updates": 1,
        "deletes": 1,
        "types_affected": 1,
    }
    assert onto("branch", "merge", "review", "--dry-run")["outcome"] == "fast_forward"
    merged = onto("branch", "merge", "review", "--as", "bob", "--delete-branch")
    assert (merged["written"], merged["commit"]["actor"]) == ({PERSON: 2}, "bob")
    assert [it["name"] for it in onto("branch", "list")["branches"]] == ["main"]
    assert [it["kind"] for it in onto("log", "--last", "2")["commits"]] == ["BranchMerge", "Mutation"]


def test_a_conflict_has_its_exit_code_and_says_what_to_do(onto, filled):
    onto("branch", "create", "review")
    put(filled, {PERSON: people(a=5)}, branch="review")
    put(filled, {PERSON: people(a=6)})
    assert "strategy='ours'" in onto("branch", "merge", "review", code=6)
    assert onto("branch", "merge", "review", "--strategy", "theirs")["outcome"] == "merged"


def test_care_is_previewed_and_done(onto, filled):
    for age in range(4):
        put(filled, {PERSON: people(a=age)})
    assert onto("optimize")["commit"]["kind"] == "Optimize"
    assert onto("cleanup", "--keep", "1", "--older-than", "0s")["applied"] is False
    assert onto("cleanup", "--keep", "1", "--older-than", "0s", "--apply")["total"] > 0
    assert {it["classification"] for it in onto("repair")["tables"]} == {"no_drift"}


def test_recoveries_are_shown_and_reading_them_recovers_nothing(onto, filled):
    assert killed(filled, "C", "", lambda: put(filled, {PERSON: people(a=9)}))
    assert onto("recoveries")["recoveries"] == []
    onto("optimize")
    assert [it["kind"] for it in onto("recoveries")["recoveries"]] == ["RolledForward"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["log", "--branch", "nope"], 1, "no branch 'nope'"),
        (["snapshot", "nope"], 1, "no commit, branch or tag"),
        (["branch", "delete", "main"], 1, "main cannot be deleted"),
        (["branch", "create", "a b"], 1, "cannot name a branch"),
        (["cleanup", "--older-than", "soon"], 1, "as in 7d"),
        (["repair", "--force"], 2, "--confirm"),
    ],
)
def test_what_makes_no_sense_is_one_line(onto, filled, arguments, code, said):
    error = onto(*arguments, code=code)
    assert said in error


def test_other_stores_are_no_graphs(capsys, tmp_path):
    assert main(["log", "--db", str(tmp_path / "x.db")]) == 2
    assert "is no graph" in capsys.readouterr().err
