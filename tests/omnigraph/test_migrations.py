"""Internal schema versions: graphs of every older stamp are built for real, then opened."""

import lance
import pyarrow as pa
import pytest

from ontologia.errors import EngineVersionError
from ontologia.omnigraph import branches
from ontologia.omnigraph.graph import OpenMode
from ontologia.omnigraph.manifest import PRIMARY_KEY, manifest_schema
from ontologia.omnigraph.migrations import INTERNAL_SCHEMA_VERSION, STAMP, stamp_of
from ontologia.omnigraph.names import MANIFEST
from support.graph_shop import PERSON, contents, new_graph, people, put, reopened


def as_v1(graph, *, stable_row_ids=True):
    """Write `__manifest` anew as releases before the stamp did: no key annotation, no stamp."""
    rows = graph.datasets.open(MANIFEST).to_table()
    rows = pa.Table.from_pylist(rows.to_pylist(), schema=manifest_schema(keyed=False))
    place = graph.datasets.uri(MANIFEST)
    for info in list(graph.objects.list(f"{MANIFEST}/")):
        graph.objects.delete(info.key)
    lance.write_dataset(
        rows,
        place,
        enable_stable_row_ids=stable_row_ids,
        data_storage_version="2.2",
        storage_options=graph.datasets.options,
    )
    return graph


def as_v2(graph, *run_branches):
    """The state before the sweep: annotated, stamped 2, with staging branches of runs."""
    dataset = graph.datasets.open(MANIFEST)
    dataset.update_schema_metadata({STAMP: "2"})
    for name in run_branches:
        graph.datasets.fork(MANIFEST, name, None, dataset.version)
    return graph


@pytest.fixture
def filled(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1)})
    return graph


def test_init_stamps_internal_schema_version(graph):
    dataset = graph.datasets.open(MANIFEST)
    assert stamp_of(dataset) == INTERNAL_SCHEMA_VERSION == 3
    assert dataset.schema.metadata[STAMP.encode()] == b"3"


def test_publish_migrates_pre_stamp_manifest_to_current_version(filled):
    as_v1(filled)
    assert stamp_of(filled.datasets.open(MANIFEST)) == 1
    put(filled, {PERSON: people(b=2)})
    dataset = filled.datasets.open(MANIFEST)
    assert stamp_of(dataset) == 3
    assert dataset.schema.field("object_id").metadata[PRIMARY_KEY.encode()] == b"true"
    assert contents(filled) == {PERSON: people(a=1, b=2)}


def test_publish_rejects_manifest_stamped_at_future_version(filled):
    filled.datasets.open(MANIFEST).update_schema_metadata({STAMP: "4"})
    before = filled.datasets.open(MANIFEST).version
    with pytest.raises(EngineVersionError, match="upgrade ontologia first"):
        put(filled, {PERSON: people(b=2)})
    assert filled.datasets.open(MANIFEST).version == before


@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_newer_stamp_is_refused_in_every_mode(graph, mode):
    graph.datasets.open(MANIFEST).update_schema_metadata({STAMP: "9"})
    with pytest.raises(EngineVersionError, match="upgrade"):
        reopened(graph, mode)


def test_legacy_run_branches_are_swept_on_open_before_any_branch_is_looked_at(filled):
    as_v2(filled, "__run__1", "__run__2", "__run__3")
    assert reopened(filled).branches() == ["main"]


def test_the_sweep_leaves_real_branches_and_stamps_the_graph_so_that_later_run_names_stay(filled):
    branches.create_branch(filled, "dev")
    as_v2(filled, "__run__1")
    opened = reopened(filled)
    branches.create_branch(opened, "__run__mine")
    assert reopened(opened).branches() == ["main", "__run__mine", "dev"]


def test_reading_an_old_graph_writes_nothing(filled):
    as_v2(filled, "__run__1")
    before = sorted(info.key for info in filled.objects.list())
    opened = reopened(filled, OpenMode.READ_ONLY)
    assert contents(opened) == {PERSON: people(a=1)}
    assert "__run__1" in opened.branches()
    assert sorted(info.key for info in filled.objects.list()) == before


def test_a_step_that_stopped_halfway_is_run_again(graph):
    put(graph, {PERSON: people(a=1)})
    as_v1(graph)
    graph.datasets.open(MANIFEST).update_field_metadata({"object_id": {PRIMARY_KEY: "true"}})  # no stamp after it
    assert stamp_of(reopened(graph).datasets.open(MANIFEST)) == 3


def test_a_graph_without_stable_row_ids_is_read_and_refused_for_writing_before_a_byte_changes(filled):
    as_v1(filled, stable_row_ids=False)
    before = sorted((info.key, info.size) for info in filled.objects.list())
    with pytest.raises(EngineVersionError, match="load that into a new graph"):
        reopened(filled)
    assert contents(reopened(filled, OpenMode.READ_ONLY)) == {PERSON: people(a=1)}
    assert sorted((info.key, info.size) for info in filled.objects.list()) == before


def test_a_publish_to_a_manifest_without_stable_row_ids_is_refused(filled):
    as_v1(filled, stable_row_ids=False)
    with pytest.raises(EngineVersionError, match="stable row ids"):
        put(filled, {PERSON: people(b=2)})
    assert contents(reopened(filled, OpenMode.READ_ONLY)) == {PERSON: people(a=1)}


def test_a_current_graph_is_not_written_to_on_open(graph):
    before = graph.datasets.open(MANIFEST).version
    reopened(graph)
    assert graph.datasets.open(MANIFEST).version == before


def test_a_branch_that_is_called_like_a_run_survives_the_migration_of_an_older_branch(filled):
    branches.create_branch(filled, "feature")
    as_v2(filled, "__run__old")
    filled.datasets.open(MANIFEST, "feature").update_schema_metadata({STAMP: "2"})
    graph = reopened(filled)
    assert graph.branches() == ["main", "feature"]
    branches.create_branch(graph, "__run__mine")
    put(graph, {PERSON: people(z=1)}, branch="feature")
    assert graph.branches() == ["main", "__run__mine", "feature"]
    assert stamp_of(graph.datasets.open(MANIFEST, "feature")) == INTERNAL_SCHEMA_VERSION
