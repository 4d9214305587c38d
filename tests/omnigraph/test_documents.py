"""Sentences of the storage documents that no other module here has, in their order; on a directory and on a bucket."""

import json
import threading

import pyarrow as pa
import pytest

from ontologia import Entity, Field
from ontologia.errors import BranchError, ValidationError
from ontologia.objects import open_objects
from ontologia.omnigraph import Omnigraph, branches, maintenance
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.manifest import (
    PRIMARY_KEY,
    CommitRecord,
    Pin,
    Table,
    head_row,
    manifest_schema,
    read_manifest,
    rows_table,
    tombstone_row,
)
from ontologia.omnigraph.merge import merge
from ontologia.omnigraph.migrations import STAMP, stamp_of
from ontologia.omnigraph.names import COMMITS, MANIFEST, SCHEMA_APPLY_LOCK, table_path
from support.graph_shop import KNOWS, PERSON, contents, knows, new_graph, people, put, reopened


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = 0
    bio: Field[str | None] = Field(default=None, index="fts")


# --- L1 ---


def test_each_property_is_a_column(root):
    graph = Omnigraph.init(root, [Person])
    schema = graph._graph.datasets.open(table_path("node:Person")).schema
    assert [(field.name, str(field.type)) for field in schema] == [
        ("id", "string"),
        ("age", "int64"),
        ("bio", "string"),
        ("name", "string"),
    ]
    assert not schema.field("id").nullable


def test_new_writes_create_new_fragments_and_old_versions_remain_readable(graph):
    put(graph, {PERSON: people(a=1)})
    first = graph.manifest().pins[PERSON].version
    put(graph, {PERSON: people(b=2)})
    path = table_path(PERSON)
    assert len(graph.datasets.open(path).get_fragments()) == 2
    assert graph.datasets.open(path, None, first).to_table().column("id").to_pylist() == ["a"]


def test_rows_know_the_versions_they_were_created_and_last_updated_at(graph):
    put(graph, {PERSON: people(a=1)})
    created = graph.manifest().pins[PERSON].version
    put(graph, {PERSON: people(a=2)})
    columns = ["_row_created_at_version", "_row_last_updated_at_version"]
    for path in (MANIFEST, COMMITS):
        assert graph.datasets.open(path).to_table(columns=columns).num_rows
    found = graph.datasets.open(table_path(PERSON)).to_table(columns=columns).to_pylist()
    assert found == [{columns[0]: created, columns[1]: created + 1}]


def test_stage_overwrite_preserves_stable_row_ids(graph):
    put(graph, {PERSON: people(a=1)})
    dataset = graph.datasets.open(table_path(PERSON))
    transaction = graph.datasets.stage_overwrite(dataset, pa.table({"id": ["x"], "new": [1]}))
    assert graph.datasets.commit(dataset, transaction, "op").has_stable_row_ids


def test_indexes_survive_optimize(graph):
    put(graph, {PERSON: people(a=1)})
    maintenance.ensure_indices(graph)
    before = {index.name for index in graph.datasets.open(table_path(PERSON)).describe_indices()}
    put(graph, {PERSON: people(b=2, c=3)})
    maintenance.optimize(graph)
    after = graph.datasets.open(table_path(PERSON)).describe_indices()
    assert {index.name for index in after} == before == {"id_idx", "name_idx"}
    assert [index.num_rows_indexed for index in after] == [3, 3]


@pytest.mark.parametrize("uri", ["gs://bucket/graph", "memory://graph"])
def test_graphs_are_wired_to_directories_and_s3(uri):
    with pytest.raises(ValidationError):
        Omnigraph.init(uri)


def test_a_local_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = Omnigraph.init("here", [Person])
    monkeypatch.chdir("/")
    with graph.transaction() as tx:
        tx.upsert(Person(name="a"))
    assert Omnigraph.open(tmp_path / "here").snapshot().count(Person) == 1


# --- L2 ---


def test_the_manifest_has_the_types_of_the_format_and_its_key_is_marked(graph):
    schema = graph.datasets.open(MANIFEST).schema
    assert schema.types == manifest_schema().types
    assert schema.field("object_id").metadata == {PRIMARY_KEY.encode(): b"true"}
    assert [field.name for field in schema if not field.nullable] == ["object_id", "object_type", "table_key"]


def test_table_branch_is_null_on_main_and_the_name_of_the_branch_elsewhere(graph):
    put(graph, {PERSON: people(a=1), KNOWS: knows("aa")})
    branches.create_branch(graph, "dev")
    put(graph, {PERSON: people(a=2)}, branch="dev")
    rows = graph.datasets.open(MANIFEST, "dev").to_table(filter="object_type = 'table_version'").to_pylist()
    assert {(row["table_key"], row["table_branch"]) for row in rows} == {(KNOWS, None), (PERSON, None), (PERSON, "dev")}


@pytest.mark.parametrize(("tombstone", "visible"), [(4, True), (5, False), (6, False)])
def test_a_tombstone_hides_versions_up_to_its_number(graph, tombstone, visible):
    record = CommitRecord("1" * 26, None, None, None, 0)
    pins = [Pin(PERSON, table_path(PERSON), number, None, 0) for number in (3, 5)]
    rows = [Table(PERSON, table_path(PERSON)).row(), *(pin.row() for pin in pins)]
    dataset = graph.datasets.create("made", rows_table([*rows, tombstone_row(PERSON, tombstone), head_row(record)]))
    assert {key: pin.version for key, pin in read_manifest(dataset).pins.items()} == ({PERSON: 5} if visible else {})


def test_rows_of_unknown_kinds_are_skipped(graph):
    unknown = {**Table(PERSON, "x").row(), "object_id": "later", "object_type": "graph_commit"}
    dataset = graph.datasets.create("made", rows_table([unknown]))
    assert (read_manifest(dataset).tables, read_manifest(dataset).pins) == ({}, {})


def test_a_branch_is_a_ref_in_each_dataset_with_slashes_encoded(graph):
    put(graph, {PERSON: people(a=1)})
    branches.create_branch(graph, "team/review")
    put(graph, {PERSON: people(a=2)}, branch="team/review")
    for path in (MANIFEST, COMMITS, table_path(PERSON)):
        content = json.loads(graph.objects.get(f"{path}/_refs/branches/team%2Freview.json").data)
        assert content["parentBranch"] is None
    assert contents(graph, "team/review")[PERSON]["a"]["age"] == 2
    assert graph.branches() == ["main", "team/review"]


# --- internal schema versions ---


def as_v2(graph, *run_branches):
    dataset = graph.datasets.open(MANIFEST)
    dataset.update_schema_metadata({STAMP: "2"})
    for name in run_branches:
        graph.datasets.fork(MANIFEST, name, None, dataset.version)


def test_legacy_run_branch_is_swept_on_open_and_does_not_block_schema_apply(root):
    as_v2(Omnigraph.init(root, [])._graph, "__run__1")
    graph = Omnigraph.open(root)
    assert [branch.name for branch in graph.branches()] == ["main"]
    graph.apply_schema([Person])
    assert graph.snapshot().count(Person) == 0


def test_two_processes_may_sweep_one_old_graph_at_once(graph):
    as_v2(graph, *(f"__run__{number}" for number in range(4)))
    opened, problems = [], []

    def open_it():
        try:
            opened.append(reopened(graph))
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=open_it) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [it.branches() for it in opened] == [["main"]] * 3
    assert stamp_of(graph.datasets.open(MANIFEST)) == 3


def test_the_inert_datasets_of_runs_stay_and_are_in_nobodys_way(graph):
    graph.objects.put("_graph_runs.lance/data/x.lance", b"inert")
    put(reopened(graph), {PERSON: people(a=1)})
    assert graph.objects.get("_graph_runs.lance/data/x.lance").data == b"inert"


def test_public_branch_apis_reject_internal_system_refs(graph):
    put(graph, {PERSON: people(a=1)})
    graph.datasets.fork(MANIFEST, SCHEMA_APPLY_LOCK, None, graph.manifest().version)
    for call in (
        lambda: branches.create_branch(graph, SCHEMA_APPLY_LOCK),
        lambda: branches.delete_branch(graph, SCHEMA_APPLY_LOCK),
        lambda: merge(graph, SCHEMA_APPLY_LOCK),
        lambda: merge(graph, "main", SCHEMA_APPLY_LOCK),
        lambda: put(graph, {PERSON: people(a=2)}, branch=SCHEMA_APPLY_LOCK),
    ):
        with pytest.raises(BranchError):
            call()
    assert graph.branches() == ["main"]
    assert branches.create_branch(graph, "__run__mine") == "__run__mine"


def test_the_environment_of_the_documents_reaches_a_bucket(s3_prefix):
    """AWS_ENDPOINT_URL_S3, AWS_ALLOW_HTTP, AWS_S3_FORCE_PATH_STYLE and the credentials, and nothing else, are set."""
    put(new_graph(s3_prefix), {PERSON: people(a=1)})
    assert contents(Graph.open(open_objects(s3_prefix))) == {PERSON: people(a=1)}
