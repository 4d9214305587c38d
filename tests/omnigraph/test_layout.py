"""What lies where on disk, as the storage documents have it."""

import hashlib
import json
from pathlib import Path

import pytest

from ontologia import Entity, Field, Relation
from ontologia.errors import UninitializedStorageError, ValidationError
from ontologia.objects import open_objects
from ontologia.omnigraph import Omnigraph, OpenMode, branches, maintenance
from ontologia.omnigraph.datasets import Datasets
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.migrations import stamp_of
from ontologia.omnigraph.names import fnv1a64_hex
from support.graph_shop import KNOWS, PERSON, Killed, contents, killed, knows, new_graph, people, put, reopened


class User(Entity):
    id: Field[str] = Field(primary_key=True)
    mail: Field[str | None] = Field(default=None, index=True, unique=True)
    at: Field[list[float] | None] = Field(default=None, index="vector", dimensions=2)


class Follows(Relation[User, User]):
    since: Field[int] = 0


def test_dataset_names_are_the_fnv1a64_of_the_bare_type_name():
    assert (fnv1a64_hex("Person"), fnv1a64_hex("Knows")) == ("40d76f1f51639ec0", "602a25a3bd0b455b")


def test_a_graph_reads_back_what_was_written_on_every_storage(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")}, actor="ann")
    assert contents(reopened(graph)) == {PERSON: people(a=1, b=2), KNOWS: knows("ab")}


def dataset_paths(graph):
    """Every dataset and every lineage of one, as paths below the root."""
    return sorted({info.key.split("/_versions/")[0] for info in graph.objects.list() if "/_versions/" in info.key})


def test_one_dataset_per_type_lies_where_the_documents_say(graph):
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")}, actor="ann")
    assert dataset_paths(graph) == [
        "__manifest",
        "_graph_commit_actors.lance",
        "_graph_commits.lance",
        "edges/602a25a3bd0b455b",
        "nodes/40d76f1f51639ec0",
    ]


def test_every_dataset_has_stable_row_ids_also_after_all_kinds_of_writes(graph):
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")}, actor="ann")
    branches.create_branch(graph, "dev")
    put(graph, {PERSON: people(a=3)}, branch="dev")
    assert killed(graph, "C", "", lambda: put(graph, {PERSON: people(a=4)}))
    graph = reopened(graph)
    maintenance.optimize(graph)
    paths = dataset_paths(graph)
    assert "_graph_commit_recoveries.lance" in paths
    assert [path for path in paths if not graph.datasets.open(path).has_stable_row_ids] == []


def test_manifest_rows_have_the_columns_and_ids_of_the_format(graph):
    put(graph, {PERSON: people(a=1)})
    dataset = graph.datasets.open("__manifest")
    rows = {row["object_id"]: row for row in dataset.to_table().to_pylist()}
    assert dataset.schema.names == [
        "object_id",
        "object_type",
        "location",
        "metadata",
        "base_objects",
        "table_key",
        "table_version",
        "table_branch",
        "row_count",
    ]
    assert rows.keys() == {"node:Person", "node:Person$00000000000000000002", "graph_head"}
    version = rows["node:Person$00000000000000000002"]
    assert (version["object_type"], version["table_branch"], version["row_count"]) == ("table_version", None, 1)
    assert rows["node:Person"]["location"] == "nodes/40d76f1f51639ec0"


def test_the_version_file_named_by_a_manifest_row_is_there(local_graph):
    graph = local_graph
    put(graph, {PERSON: people(a=1)})
    metadata = graph.manifest().pins[PERSON].metadata
    assert Path("/" + metadata["manifest_path"]).is_file()
    assert metadata["naming_scheme"] == "V2"


def schema_files(graph):
    return {
        key: graph.objects.get(key).data.decode() for key in ("_schema.pg", "_schema.ir.json", "__schema_state.json")
    }


def test_the_schema_files_say_what_the_types_of_main_are(root):
    graph = Omnigraph.init(root, [User, Follows])
    files = schema_files(graph._graph)
    ir, state = json.loads(files["_schema.ir.json"]), json.loads(files["__schema_state.json"])
    compact = json.dumps(ir, ensure_ascii=False, separators=(",", ":")).encode()
    assert state == {
        "format_version": 1,
        "schema_ir_hash": f"sha256:{hashlib.sha256(compact).hexdigest()}",
        "schema_identity_version": 1,
    }
    assert [list(ir), [node["name"] for node in ir["nodes"]], ir["edges"][0]["to_type"]] == [
        ["ir_version", "interfaces", "nodes", "edges"],
        ["User"],
        "User",
    ]
    assert ir["nodes"][0]["constraints"] == [
        {"Index": ["at"]},
        {"Index": ["mail"]},
        {"Key": ["id"]},
        {"Unique": ["mail"]},
    ]
    assert files["_schema.pg"].startswith("node User {\n    at: Vector(2)? @index\n    id: String @key\n")


def test_schema_files_follow_schema_changes_and_are_mended_by_the_next_open(root):
    graph = Omnigraph.init(root, [User, Follows])
    graph.apply_schema([User], allow_data_loss=True)
    assert "edge Follows" not in schema_files(graph._graph)["_schema.pg"]
    graph._graph.objects.delete("__schema_state.json")
    graph._graph.objects.put("_schema.pg", b"")
    Omnigraph.open(root, mode=OpenMode.READ_ONLY)
    assert graph._graph.objects.get("_schema.pg").data == b""
    Omnigraph.open(root)
    assert "node User" in schema_files(graph._graph)["_schema.pg"]


def test_a_branch_has_no_schema_files_and_a_merge_brings_its_types_into_those_of_main(root):
    graph = Omnigraph.init(root, [User])
    graph.create_branch("dev")
    with graph.transaction("dev") as tx:
        tx.upsert([User(id="a"), Follows(left_key="a", right_key="a")])
    assert "edge Follows" not in schema_files(graph._graph)["_schema.pg"]
    graph.merge("dev")
    assert "edge Follows: User -> User" in schema_files(graph._graph)["_schema.pg"]


def test_a_moved_root_reads_and_writes_as_before(local_graph, tmp_path):
    put(local_graph, {PERSON: people(a=1)})
    (tmp_path / "graph").rename(tmp_path / "moved")
    moved = Graph.open(open_objects(f"file://{tmp_path}/moved"))
    put(moved, {PERSON: people(b=2)})
    assert contents(moved) == {PERSON: people(a=1, b=2)}


def test_branches_of_a_moved_root_are_read_written_and_branched(local_graph, tmp_path):
    put(local_graph, {PERSON: people(a=1)})
    branches.create_branch(local_graph, "dev")
    put(local_graph, {PERSON: people(b=2)}, branch="dev")
    branches.create_branch(local_graph, "dev2", "dev")
    put(local_graph, {PERSON: people(c=3)}, branch="dev2")
    (tmp_path / "graph").rename(tmp_path / "moved")
    moved = Graph.open(open_objects(f"file://{tmp_path}/moved"))
    branches.create_branch(moved, "dev3", "dev2")
    put(moved, {PERSON: people(d=4)}, branch="dev3")
    assert contents(moved, "dev3") == {PERSON: people(a=1, b=2, c=3, d=4)}


def test_every_publish_appends_one_commit_and_actors_are_joined(graph):
    first = put(graph, {PERSON: people(a=1)}, actor="ann")
    second = put(graph, {PERSON: people(a=2)})
    log = list(graph.commits())
    assert [(it.graph_commit_id, it.actor_id) for it in log[:2]] == [
        (second.graph_commit_id, None),
        (first.graph_commit_id, "ann"),
    ]
    assert log[0].parent_commit_id == first.graph_commit_id
    assert log[2].parent_commit_id is None


def test_a_transaction_that_changes_nothing_makes_no_version(graph):
    put(graph, {PERSON: people(a=1)})
    before = graph.manifest().version
    assert put(graph, {}, {PERSON: ["nobody"]}) is None
    assert graph.manifest().version == before


def test_a_second_init_is_refused(graph):
    with pytest.raises(ValidationError, match="holds a graph already"):
        Graph.init(open_objects(graph.objects.uri))


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_an_init_that_died_is_completed_by_the_next_open_or_begun_anew(root, monkeypatch, stop):
    """Datasets are made one after the other: the manifest, commits, actors. The first makes it a graph."""
    made, create = [], Datasets.create

    def dying(*given):
        if len(made) == stop - 1:
            raise Killed
        made.append(given)
        return create(*given)

    monkeypatch.setattr(Datasets, "create", dying)
    with pytest.raises(Killed):
        new_graph(root)
    monkeypatch.undo()
    graph = new_graph(root) if stop == 1 else Graph.open(open_objects(root))
    put(graph, {PERSON: people(a=1)}, actor="ann")
    assert [it.actor_id for it in reopened(graph).commits()] == ["ann", None]
    assert stamp_of(graph.datasets.open("__manifest")) == 3


def test_no_dataset_has_lances_auto_cleanup_which_would_delete_pinned_versions(graph):
    put(graph, {PERSON: people(a=1), KNOWS: knows("aa")}, actor="ann")
    configs = {path: graph.datasets.open(path).config() for path in dataset_paths(graph)}
    assert [path for path, config in configs.items() if any("auto_cleanup" in key for key in config)] == []


def test_opening_a_place_without_a_graph_says_how_to_make_one(local):
    with pytest.raises(UninitializedStorageError, match="onto init --engine omnigraph"):
        Graph.open(open_objects(local))


def test_the_sidecar_has_the_keys_of_the_format(graph):
    seen = []

    def step(name, about):
        if name == "B":
            seen.append(json.loads(graph.objects.get(graph.sidecars.names()[0]).data))

    graph.step = step
    put(graph, {PERSON: people(a=1)}, actor="ann")
    assert list(seen[0])[:7] == [
        "schema_version",
        "operation_id",
        "started_at",
        "branch",
        "actor_id",
        "writer_kind",
        "tables",
    ]
    assert seen[0]["tables"][0]["expected_version"] == 0
    assert graph.sidecars.names() == []
