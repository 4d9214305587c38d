"""The recovery matrix: every writer, killed at every phase and table. Then open: all of it happened, or none."""

import json

import pytest

from ontologia.errors import CorruptSidecarError, RecoveryPendingError, StorageBackendError
from ontologia.omnigraph import branches, maintenance, merge
from ontologia.omnigraph.graph import OpenMode
from ontologia.omnigraph.manifest import Table
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.names import table_path
from ontologia.omnigraph.sidecars import Sidecar
from support.graph_shop import (
    EDGE,
    KNOWS,
    NODE,
    PERSON,
    contents,
    drift,
    killed,
    knows,
    new_graph,
    people,
    put,
    reopened,
)

pytestmark = pytest.mark.thorough

STATE = {PERSON: people(a=1, b=2, c=3), KNOWS: knows("ab", "bc")}


def mutation(graph):
    put(graph, {PERSON: people(a=9), KNOWS: knows("ab", since=9)}, {KNOWS: ["bc"]})


def schema_apply(graph):
    """Both tables are written anew under new notes, as a schema change does it."""

    def prepare(manifest):
        changes = []
        for key, schema, rows in ((PERSON, NODE, people(a=1)), (KNOWS, EDGE, {})):
            import pyarrow as pa

            table = pa.Table.from_pylist(list(rows.values()), schema=schema)
            notes = {**manifest.tables[key].notes, "version": 2}
            changes.append(TableChange(key, table, table=Table(key, table_path(key), notes), replace_all=True))
        return plan_mutation(graph, manifest, changes, Checks(endpoints=False), {})

    graph.write("main", "SchemaApply", prepare)


def branch_merge(graph):
    merge.merge(graph, "dev")


def ensure_indices(graph):
    maintenance.ensure_indices(graph)


def optimize(graph):
    maintenance.optimize(graph)


WRITERS = {
    "Mutation": mutation,
    "SchemaApply": schema_apply,
    "BranchMerge": branch_merge,
    "EnsureIndices": ensure_indices,
    "Optimize": optimize,
}
PHASES = [("B", KNOWS), ("B", PERSON), ("C", ""), ("D", "")]


def prepared(uri):
    """Two tables with several fragments, and a branch that changed both."""
    graph = new_graph(uri)
    put(graph, {PERSON: people(a=0, b=2), KNOWS: {}})
    put(graph, STATE)
    branches.create_branch(graph, "dev")
    put(graph, {PERSON: people(d=4), KNOWS: knows("cd")}, {KNOWS: ["ab"]}, branch="dev")
    return graph


def logical(graph):
    """The contents, and what is noted about the tables."""
    manifest = graph.manifest()
    return contents(graph), {key: dict(manifest.tables[key].notes) for key in manifest.pins}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_writer_killed_at_any_phase_has_done_all_or_nothing_after_the_next_open(root, kind):
    """Before C every table has committed, so D and C roll forward; earlier, all is undone. Both publish."""
    write = WRITERS[kind]
    plain = prepared(f"{root}/plain")
    before = logical(plain)
    write(plain)
    after = logical(plain)
    for number, (phase, table) in enumerate(PHASES):
        graph = prepared(f"{root}/{number}")
        version_before = graph.manifest().version
        assert killed(graph, phase, table, lambda graph=graph: write(graph)), f"{kind} has no step {phase} {table}"
        operation = json.loads(graph.objects.get(graph.sidecars.names()[0]).data)["operation_id"]
        opened = reopened(graph)
        forward = phase in ("C", "D")
        assert logical(opened) == (after if forward else before)
        assert opened.manifest().version > version_before, "both ways publish"
        assert drift(opened) == {}, "the manifest equals the newest version of every table"
        assert opened.sidecars.names() == []
        audit = [row for row in opened.commit_log.recoveries() if row.operation_id == operation]
        assert [row.recovery_kind for row in audit] == ["RolledForward" if forward else "RolledBack"]
        assert audit[0].sidecar_writer_kind == kind
        commit = next(it for it in opened.commits() if it.graph_commit_id == audit[0].graph_commit_id)
        assert commit.actor_id == ("omnigraph:recovery" if phase != "D" else None)
        schema_apply(opened)  # the writer that is strictest about versions goes through
        assert drift(opened) == {}


@pytest.mark.slow_on("s3")
def test_recovery_killed_at_any_of_its_own_steps_ends_the_same(root):
    for number, step in enumerate(("recovery publish", "recovery commit row", "recovery delete sidecar")):
        for phase, table in (("B", PERSON), ("C", "")):
            graph = prepared(f"{root}/{number}{phase}")
            before = contents(graph)
            assert killed(graph, phase, table, lambda graph=graph: mutation(graph))
            sweeper = type(graph)(graph.objects, graph.config)
            assert killed(sweeper, step, None, sweeper.recovery.sweep)
            opened = reopened(graph)
            assert (contents(opened) == before) == (phase == "B")
            assert drift(opened) == {}
            assert opened.sidecars.names() == []
            assert len(opened.commit_log.recoveries()) == 1


def test_a_write_on_a_branch_that_stopped_before_its_fork_was_published_leaves_the_branch_as_it_was(root):
    graph = prepared(root)
    branches.create_branch(graph, "fresh")
    before = contents(graph, "fresh")
    assert killed(graph, "B", PERSON, lambda: put(graph, {KNOWS: knows("ac"), PERSON: people(a=8)}, branch="fresh"))
    opened = reopened(graph)
    assert contents(opened, "fresh") == before
    put(opened, {PERSON: people(a=7)}, branch="fresh")
    assert contents(opened, "fresh")[PERSON]["a"]["age"] == 7
    assert contents(opened)[PERSON]["a"]["age"] == 1


def test_the_next_writer_recovers_without_a_reopen(graph):
    put(graph, STATE)
    assert killed(graph, "C", "", lambda: mutation(graph))
    put(graph, {PERSON: people(z=1)})
    assert contents(graph)[PERSON]["a"]["age"] == 9


def test_a_commit_row_lost_after_the_publish_is_written_by_the_next_writer(graph):
    put(graph, STATE)
    assert killed(graph, "D", "", lambda: mutation(graph))
    lost = graph.manifest().head.graph_commit_id
    for key in graph.sidecars.names():
        graph.objects.delete(key)
    assert lost not in graph.commit_log.pool("main")
    put(graph, {PERSON: people(z=1)})
    assert lost in graph.commit_log.pool("main")


def test_read_only_opens_leave_sidecars_alone(graph):
    put(graph, STATE)
    assert killed(graph, "C", "", lambda: mutation(graph))
    opened = reopened(graph, OpenMode.READ_ONLY)
    assert contents(opened) == STATE
    assert len(opened.sidecars.names()) == 1


def test_a_living_writers_sidecar_is_not_recovered_by_another_process(graph):
    """The original's recovery could bury a live commit of a second process: the lease of the branch says who lives."""
    put(graph, STATE)
    seen = []

    def step(name, about):
        if name == "C":
            seen.append(reopened(graph).recovered)

    graph.step = step
    mutation(graph)
    assert seen == [[]]
    assert contents(graph)[PERSON]["a"]["age"] == 9
    assert graph.commit_log.recoveries() == []


def test_optimize_refuses_while_a_recovery_is_pending(graph):
    put(graph, STATE)
    assert killed(graph, "C", "", lambda: mutation(graph))
    with pytest.raises(RecoveryPendingError, match="read-write"):
        maintenance.optimize(graph)
    reopened(graph)
    assert maintenance.optimize(graph) is not None


def test_optimize_publishes_what_it_compacted_so_that_strict_writes_go_on(graph):
    for age in range(5):
        put(graph, {PERSON: people(a=age)})
    maintenance.optimize(graph)
    assert drift(graph) == {}
    assert len(graph.datasets.open(table_path(PERSON)).get_fragments()) == 1
    put(graph, {PERSON: people(a=7)})
    assert contents(reopened(graph))[PERSON] == people(a=7)


def test_a_sidecar_of_a_branch_that_is_gone_blocks_nothing(graph):
    put(graph, STATE)
    graph.sidecars.write(Sidecar("01ARZ3NDEKTSV4RRFFQ69G5FAV", "Mutation", "gone", "ann"))
    opened = reopened(graph)
    assert [row.recovery_kind for row in opened.recovered] == ["OrphanedBranchDiscarded"]
    assert opened.sidecars.names() == []


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"schema_version": 2}', b"[]"])
def test_a_corrupt_sidecar_stops_writing_and_is_kept(graph, body):
    put(graph, STATE)
    graph.objects.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", body)
    with pytest.raises(CorruptSidecarError, match="01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        reopened(graph)
    assert len(graph.sidecars.names()) == 1
    assert contents(reopened(graph, OpenMode.READ_ONLY)) == STATE


def test_a_missing_dataset_is_named(graph):
    put(graph, STATE)
    graph.objects.delete_many([info.key for info in graph.objects.list(f"{table_path(PERSON)}/")])
    with pytest.raises(StorageBackendError, match=table_path(PERSON)):
        contents(reopened(graph))


def test_a_failed_write_in_a_living_process_is_undone_at_once(graph):
    put(graph, STATE)

    def step(name, about):
        if (name, about) == ("B", PERSON):
            raise StorageBackendError("the bucket is gone")

    graph.step = step
    with pytest.raises(StorageBackendError, match="the bucket is gone"):
        mutation(graph)
    graph.step = lambda name, about: None
    assert contents(graph) == STATE
    assert drift(graph) == {}
    assert [row.recovery_kind for row in graph.commit_log.recoveries()] == ["RolledBack"]


def test_a_new_type_whose_first_write_was_undone_can_be_written_again(graph):
    assert killed(graph, "B", PERSON, lambda: put(graph, STATE))
    opened = reopened(graph)
    assert contents(opened) == {}
    put(opened, STATE)
    assert contents(opened) == STATE
