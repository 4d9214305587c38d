"""The console on graphs: every group of commands, from an empty place to a merge, and what it refuses."""

import json
from pathlib import Path

import jsonschema
import pytest

import ontologia
from ontologia import Entity, Field, Ontology
from ontologia.cli import main
from ontologia.omnigraph import Omnigraph
from support.graph_shop import PERSON, killed, new_graph, people, put

SCHEMAS = Path(ontologia.__file__).parent / "cli" / "schemas"


class City(Entity):
    name: Field[str] = Field(primary_key=True)
    people: Field[int] = 0


@pytest.fixture
def onto(capsys, tmp_path):
    uri = f"file://{tmp_path}/graph"

    def run(*arguments, code=0):
        found = main([*arguments, "--storage-uri", uri, "--json"])
        answer = capsys.readouterr()
        assert found == code, answer.err
        if code:
            return answer.err
        name = "-".join(arguments[:2]) if arguments[0] == "branch" else arguments[0]
        name = "query-rows" if name == "query" else name
        jsonschema.validate(json.loads(answer.out), json.loads((SCHEMAS / f"{name}.json").read_text()))
        return json.loads(answer.out)

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
    assert onto("branch", "create", "review", "--dry-run") == {"branch": "review", "from": "main", "made": False}
    assert [it["name"] for it in onto("branch", "list")["branches"]] == ["main"]
    assert "not a commit, branch or tag" in onto("branch", "create", "review", "--from", "x", "--dry-run", code=1)
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
    assert "--strategy ours" in onto("branch", "merge", "review", code=6)
    merged = onto("branch", "merge", "review", "--strategy", "theirs")
    assert merged["outcome"] == "merged"
    assert [(it["kind"], it["id"], it["base"]["age"]) for it in merged["conflicts"]] == [("DivergentUpdate", "a", 1)]


def test_care_is_previewed_and_done(onto, filled):
    for age in range(4):
        put(filled, {PERSON: people(a=age)})
    assert onto("optimize", "--dry-run")["tables"][PERSON][0] == "compact files"
    assert onto("optimize")["commit"]["kind"] == "Optimize"
    assert onto("optimize") == {"dry_run": False, "tables": {}, "commit": None}
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
        (["snapshot", "nope"], 1, "not a commit, branch or tag"),
        (["branch", "delete", "main"], 1, "main cannot be deleted"),
        (["branch", "create", "a b"], 1, "cannot name a branch"),
        (["cleanup", "--older-than", "soon"], 1, "is not an age: write it as 45s, 30m, 12h, 7d or 2w"),
        (["repair", "--force"], 2, "--confirm"),
    ],
)
def test_what_makes_no_sense_is_one_line(onto, filled, arguments, code, said):
    error = onto(*arguments, code=code)
    assert said in error


def files_of(graph):
    return sorted((info.key, info.size) for info in graph.objects.list())


def test_previews_and_reads_write_nothing_also_while_a_recovery_is_pending(onto, filled):
    assert killed(filled, "C", "", lambda: put(filled, {PERSON: people(a=9)}))
    before = files_of(filled)
    for arguments in (
        ["cleanup", "--keep", "1", "--older-than", "0s"],
        ["repair"],
        ["optimize", "--dry-run"],
        ["branch", "list"],
        ["log"],
        ["snapshot"],
        ["diff", "main", "main"],
        ["recoveries"],
    ):
        onto(*arguments)
    onto("info", code=5)  # no schema file describes the rows of this graph
    assert files_of(filled) == before


def test_a_branch_with_commits_of_its_own_is_deleted_by_token_only(onto, filled):
    onto("branch", "create", "review")
    put(filled, {PERSON: people(z=1)}, branch="review")
    assert "1 commit of review would be lost" in onto("branch", "delete", "review", code=7)
    preview = onto("branch", "delete", "review", "--dry-run")
    assert (preview["deleted"], len(preview["lost"])) == (False, 1)
    put(filled, {PERSON: people(y=1)}, branch="review")
    onto("branch", "delete", "review", "--token", preview["token"], code=7)
    token = onto("branch", "delete", "review", "--dry-run")["token"]
    assert onto("branch", "delete", "review", "--token", token)["deleted"] is True


def test_a_merged_branch_is_deleted_without_a_token(onto, filled):
    onto("branch", "create", "review")
    put(filled, {PERSON: people(z=1)}, branch="review")
    onto("branch", "merge", "review")
    assert onto("branch", "delete", "review")["lost"] == []


def test_questions_are_asked_of_a_branch_and_rows_imported_into_one(onto, capsys, tmp_path):
    graph = Omnigraph.init(onto.uri, [City])
    graph.create_branch("review")
    with Ontology(storage_uri=onto.uri, branch="review", entity_types=[City]) as store, store.session() as session:
        session.ensure(City(name="Odense", people=180))
    assert onto("query", "entities", "City")["count"] == 0
    assert onto("query", "entities", "City", "--branch", "review")["rows"][0]["fields"]["people"] == 180
    assert len(onto("commits", "--branch", "review")["commits"]) == 2
    onto("export", "--output", str(tmp_path / "out"), "--branch", "review")
    onto("branch", "create", "copy")
    onto("import", "--input", str(tmp_path / "out"), "--apply", "--branch", "copy")
    assert onto("query", "entities", "City", "--branch", "copy")["count"] == 1
    assert "there is no branch 'nope'" in onto("query", "entities", "City", "--branch", "nope", code=1)


def test_other_stores_are_no_graphs(capsys, tmp_path):
    assert main(["log", "--db", str(tmp_path / "x.db")]) == 2
    assert "is not a graph" in capsys.readouterr().err
