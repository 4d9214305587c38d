"""What lies where on disk, as the storage documents have it."""

import json
from pathlib import Path

import lance
import pytest

from ontologia.errors import UninitializedStorageError, ValidationError
from ontologia.objects import open_objects
from ontologia.omnigraph import branches, maintenance
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.names import fnv1a64_hex
from support.graph_shop import KNOWS, PERSON, contents, knows, new_graph, people, put, reopened


def test_dataset_names_are_the_fnv1a64_of_the_bare_type_name():
    assert (fnv1a64_hex("Person"), fnv1a64_hex("Knows")) == ("40d76f1f51639ec0", "602a25a3bd0b455b")


def test_a_graph_reads_back_what_was_written_on_every_storage(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")}, actor="ann")
    assert contents(reopened(graph)) == {PERSON: people(a=1, b=2), KNOWS: knows("ab")}


def test_one_dataset_per_type_lies_where_the_documents_say(graph, tmp_path):
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")}, actor="ann")
    root = tmp_path / "graph"
    found = {str(path.parent.parent.relative_to(root)) for path in root.rglob("_versions/*.manifest")}
    assert found == {
        "__manifest",
        "_graph_commits.lance",
        "_graph_commit_actors.lance",
        "nodes/40d76f1f51639ec0",
        "edges/602a25a3bd0b455b",
    }


def test_every_dataset_has_stable_row_ids_also_after_all_kinds_of_writes(graph, tmp_path):
    put(graph, {PERSON: people(a=1, b=2), KNOWS: knows("ab")}, actor="ann")
    branches.create_branch(graph, "dev")
    put(graph, {PERSON: people(a=3)}, branch="dev")
    maintenance.optimize(graph)
    datasets = {path.parent.parent for path in (tmp_path / "graph").rglob("_versions/*.manifest")}
    assert [str(path) for path in datasets if not lance.dataset(str(path)).has_stable_row_ids] == []


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


def test_the_version_file_named_by_a_manifest_row_is_there(graph):
    put(graph, {PERSON: people(a=1)})
    metadata = graph.manifest().pins[PERSON].metadata
    assert Path("/" + metadata["manifest_path"]).is_file()
    assert metadata["naming_scheme"] == "V2"


def test_a_moved_root_reads_and_writes_as_before(graph, tmp_path):
    put(graph, {PERSON: people(a=1)})
    (tmp_path / "graph").rename(tmp_path / "moved")
    moved = Graph.open(open_objects(f"file://{tmp_path}/moved"))
    put(moved, {PERSON: people(b=2)})
    assert contents(moved) == {PERSON: people(a=1, b=2)}


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


def test_opening_a_place_without_a_graph_says_how_to_make_one(local):
    with pytest.raises(UninitializedStorageError, match="onto init --engine omnigraph"):
        Graph.open(open_objects(local))


def test_the_sidecar_has_the_keys_of_the_format(graph, tmp_path):
    seen = []

    def step(name, about):
        if name == "B":
            seen.append(json.loads(next((tmp_path / "graph/__recovery").glob("*.json")).read_text()))

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
    assert not list((tmp_path / "graph/__recovery").glob("*.json"))
