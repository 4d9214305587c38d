"""Graphs of the original OmniGraph, which has no head row and notes no types: read, written, branched and merged, also
in turns with it. A small writer of its format stands in for it."""

import hashlib
import json
import subprocess
import sys
from datetime import UTC, date, datetime

import lance
import pyarrow as pa
import pytest

from ontologia import Entity, Field, Relation, Session
from ontologia.errors import (
    CorruptSidecarError,
    EngineVersionError,
    GraphValidationError,
    HeadMismatchError,
    MergeConflictError,
    MigrationError,
    RecoveryPendingError,
    SchemaOutdatedError,
    StorageBackendError,
)
from ontologia.omnigraph import Omnigraph, OpenMode
from support.original_graph import ANN, OriginalWriter, edge, knows, node, people_graph, person, prop

SCHEMA_FILES = ("_schema.pg", "_schema.ir.json", "__schema_state.json")


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int | None] = None
    born: Field[date | None] = None
    mood: Field[str | None] = None
    place: Field[list[float] | None] = Field(default=None, index="vector", dimensions=2)
    seen: Field[datetime | None] = None
    size: Field[int | None] = None
    tags: Field[list[str] | None] = None


class City(Entity):
    code: Field[str] = Field(primary_key=True)
    population: Field[int | None] = None


class Knows(Relation[Person, Person]):
    since: Field[int | None] = None


class LivesIn(Relation[Person, City]):
    pass


TYPES = [Person, City, Knows, LivesIn]


@pytest.fixture
def original(tmp_path):
    return people_graph(tmp_path / "graph")


def opened(original, types=TYPES, **options):
    return Omnigraph.open(original.root, types=types, **options)


def ages(graph, branch="main"):
    return {it.name: it.age for it in graph.query(branch=branch).entities(Person).collect()}


def upsert(graph, *objects, branch="main"):
    with graph.transaction(branch) as tx:
        tx.upsert(objects)
    return tx.commit


def tree(root):
    return {str(it.relative_to(root)): it.stat().st_mtime_ns for it in root.rglob("*")}


def schema_files(original):
    return [(original.root / name).read_bytes() for name in SCHEMA_FILES]


# --- reading ---


def test_rows_of_the_original_are_read_on_every_branch(original):
    graph = opened(original)
    assert [ages(graph), ages(graph, "review")] == [
        {"ann": 31, "bob": 43, "cy": None},
        {"ann": 31, "bob": 42, "cy": None, "dee": 5},
    ]


def test_values_of_all_its_types_are_read(original):
    found = opened(original).query().entities(Person).where(Person.name == "ann").first()
    assert {name: getattr(found, name) for name in ANN if name != "id"} == {
        **{name: value for name, value in ANN.items() if name != "id"},
        "seen": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
    }


def test_its_edges_are_read_and_found_by_their_ends(original):
    graph = opened(original)
    found = graph.query().relations(Knows).collect()
    assert [(it.left_key, it.right_key, it.since) for it in found] == [("ann", "bob", 2020)]
    assert graph.snapshot().get(Knows, ("ann", "bob")).since == 2020


def test_its_commits_are_in_the_log_with_their_parents_and_authors(original):
    graph = opened(original)
    rows = {row["graph_commit_id"]: row for row in [*original.commits(), *original.commits("done")]}
    want = {name: (row["parent_commit_id"], row["merged_parent_commit_id"]) for name, row in rows.items()}
    assert {it.graph_commit_id: (it.parent_commit_id, it.merged_parent_commit_id) for it in graph.commits()} == want
    assert graph.commits()[0].actor_id == "olga"


def test_earlier_states_of_it_are_read(original):
    graph = opened(original)
    load = graph.commits()[-2]
    assert {it.name: it.age for it in graph.query(commit=load.graph_commit_id).entities(Person).collect()} == {
        "ann": 31,
        "bob": 42,
        "cy": None,
    }


def test_without_classes_its_schema_files_say_what_is_exported_and_loaded(original, tmp_path):
    graph = opened(original, None)
    assert graph.export(tmp_path / "lines.jsonl") == 7
    graph.load(tmp_path / "lines.jsonl")
    (id,) = original.rows("edge:Knows")
    assert [len(original.export()), '"' in id] == [7, False]


def test_a_node_without_a_key_is_known_by_its_id(tmp_path):
    ir = {
        "ir_version": 1,
        "interfaces": [],
        "nodes": [node("Note", [prop("node:Note", "text", "String")], [])],
        "edges": [],
    }
    original = OriginalWriter.init(tmp_path / "notes", ir, "node Note {\n    text: String?\n}\n")
    original.write({"node:Note": [{"id": "01", "text": "x"}]})

    class Note(Entity):
        id: Field[str] = Field(primary_key=True)
        text: Field[str | None] = None

    graph = opened(original, [Note])
    upsert(graph, Note(id="01", text="y"))
    assert [(it.id, it.text) for it in graph.query().entities(Note).collect()] == [("01", "y")]
    assert original.rows("node:Note") == {"01": {"id": "01", "text": "y"}}


def test_reading_it_writes_nothing(original):
    before = tree(original.root)
    graph = opened(original, mode=OpenMode.READ_ONLY)
    ages(graph), ages(graph, "review"), graph.commits("review"), graph.branches()
    graph.merge("review", dry_run=True)
    assert tree(original.root) == before


def test_opening_it_for_writing_leaves_its_schema_files_as_they_are(original):
    before = schema_files(original)
    opened(original)
    assert schema_files(original) == before


def test_a_class_that_differs_from_its_schema_file_is_refused(original):
    class Changed(Entity, name="City"):
        code: Field[str] = Field(primary_key=True)
        population: Field[str | None] = None

    with pytest.raises(SchemaOutdatedError):
        upsert(opened(original, [Changed]), Changed(code="OSL"))


def test_a_graph_that_was_copied_elsewhere_is_read_with_its_branches(original, tmp_path):
    (tmp_path / "graph").rename(tmp_path / "moved")
    graph = Omnigraph.open(tmp_path / "moved", types=TYPES)
    assert ages(graph, "review")["dee"] == 5
    assert upsert(graph, Person(name="eve", age=1), branch="review") is not None
    assert graph.merge("review").outcome == "merged"
    assert ages(graph) == {"ann": 31, "bob": 43, "cy": None, "dee": 5, "eve": 1}


# --- writing ---


def test_what_we_write_the_original_reads(original):
    upsert(opened(original), Person(name="eve", age=1, born=date(2000, 1, 2), mood="cross", size=3, tags=["x"]))
    assert original.rows("node:Person")["eve"] == person(
        "eve", age=1, born=date(2000, 1, 2), mood="cross", place=None, seen=None, size=3, tags=["x"]
    )


def test_an_instant_is_stored_in_the_milliseconds_of_the_original(original):
    upsert(opened(original), Person(name="eve", seen=datetime(2024, 1, 1, 12, 0, 0, 5000, tzinfo=UTC)))
    pin = original.pins()["node:Person"]
    stored = original.dataset(pin["location"]).to_table(filter="id = 'eve'").column("seen").cast("int64")
    assert stored.to_pylist() == [1_704_110_400_005]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"size": 2**31}, "size as int32"),
        ({"seen": datetime(2024, 1, 1, 0, 0, 0, 7, tzinfo=UTC)}, "seen as date64"),
        ({"mood": "glad"}, "calm, cross"),
    ],
)
def test_values_that_the_original_has_no_room_for_are_refused_before_a_byte_changes(original, values, said):
    graph = opened(original)
    before = original.pins()
    with pytest.raises(GraphValidationError, match=said):
        upsert(graph, Person(name="eve", **values))
    assert [original.pins(), list(original.root.glob("__recovery/*"))] == [before, []]


def test_an_edge_of_the_original_is_updated_and_deleted_by_its_ends(original):
    graph = opened(original)
    (id,) = original.rows("edge:Knows")
    upsert(graph, Knows(left_key="ann", right_key="bob", since=2021))
    assert {name: row["since"] for name, row in original.rows("edge:Knows").items()} == {id: 2021}
    with graph.transaction() as tx:
        tx.delete(Knows, ("ann", "bob"))
    assert original.rows("edge:Knows") == {}


def test_inserting_an_edge_that_the_original_made_is_refused(original):
    with pytest.raises(GraphValidationError, match="already"), opened(original).transaction() as tx:
        tx.insert(Knows(left_key="ann", right_key="bob"))


def test_one_of_several_edges_with_the_same_ends_is_not_guessed(original):
    original.write({"edge:Knows": [knows("ann", "bob", 1), knows("ann", "bob", 2)]})
    graph = opened(original)
    assert sorted(it.since for it in graph.query().relations(Knows).collect()) == [1, 2, 2020]
    with pytest.raises(GraphValidationError, match="several edges"):
        upsert(graph, Knows(left_key="ann", right_key="bob", since=3))


def test_an_edge_of_the_original_needs_its_nodes(original):
    with pytest.raises(GraphValidationError, match="there is no such node:City"):
        upsert(opened(original), LivesIn(left_key="ann", right_key="XXX"))


def test_a_session_writes_to_its_graph(original):
    with Session(f"file://{original.root}") as session:
        session.ensure(Person(name="bob", age=44))
        session.ensure(Knows(left_key="ann", right_key="bob", since=2022))
        session.commit()
    assert [original.rows("node:Person")["bob"]["age"], len(original.rows("edge:Knows"))] == [44, 1]


def test_a_load_over_a_table_of_the_original_keeps_its_columns(original, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"type": "City", "data": {"code": "TOS", "population": 1}}\n')
    graph = opened(original)
    columns = original.dataset(original.pins()["node:City"]["location"]).schema
    with graph.transaction() as tx:
        tx.delete(LivesIn, ("ann", "OSL"))
    graph.load(lines, mode="overwrite")
    assert original.dataset(original.pins()["node:City"]["location"]).schema == columns
    assert sorted(original.rows("node:City")) == ["TOS"]


def test_our_commits_do_not_let_lance_delete_versions_that_the_graph_pins(original):
    graph = opened(original)
    upsert(graph, Person(name="eve"))
    pin = original.pins()["node:Person"]
    paths = ["__manifest", "_graph_commits.lance", pin["location"]]
    assert [key for path in paths for key in original.dataset(path).config() if "auto_cleanup" in key] == []


# --- branches and merges ---


def test_its_branch_is_merged(original):
    graph = opened(original)
    report = graph.merge("review")
    assert [report.outcome, ages(graph)] == ["merged", {"ann": 31, "bob": 43, "cy": None, "dee": 5}]
    assert original.commits()[-1]["merged_parent_commit_id"] == original.commits("review")[-1]["graph_commit_id"]


def test_what_both_sides_changed_is_a_conflict(original):
    original.write({"node:Person": [person("bob", age=50)]}, "review")
    with pytest.raises(MergeConflictError):
        opened(original).merge("review")


def test_a_deletion_on_its_branch_is_merged_beside_an_insert(original):
    original.write({"node:Person": [person("fay")]}, "review", deleted={"node:Person": ["cy"]})
    graph = opened(original)
    graph.merge("review")
    assert sorted(ages(graph)) == ["ann", "bob", "dee", "fay"]


def test_a_branch_of_ours_on_its_graph_is_written_and_merged(original):
    graph = opened(original)
    graph.create_branch("mine")
    upsert(graph, Person(name="eve", age=1), branch="mine")
    assert original.rows("node:Person", "mine")["eve"]["age"] == 1
    assert graph.merge("mine", delete_branch=True).outcome == "fast_forward"
    assert original.rows("node:Person")["eve"]["age"] == 1


def test_a_branch_that_it_deleted_can_be_made_again(original):
    graph = opened(original)
    graph.create_branch("gone")
    upsert(graph, City(code="TRD", population=2), branch="gone")
    assert original.rows("node:City", "gone")["TRD"]["population"] == 2


# --- in turns ---


def test_writes_in_turns_are_seen_by_both_and_the_schema_files_stay_whole(original):
    graph, before = opened(original), schema_files(original)
    upsert(graph, Person(name="eve", age=1))
    theirs = original.write({"node:Person": [person("fay", age=2)]}, actor="olga")
    assert ages(graph)["fay"] == 2
    ours = upsert(graph, Person(name="gus", age=3))
    last = original.write({"node:Person": [person("hal", age=4)]})
    log = graph.commits()
    assert [it.graph_commit_id for it in log[:3]] == [last, ours.graph_commit_id, theirs]
    assert [it.parent_commit_id for it in log[:2]] == [ours.graph_commit_id, theirs]
    lines = [line["data"] for line in original.export() if line.get("type") == "Person"]
    assert {line["id"]: line["age"] for line in lines} == ages(graph)
    assert schema_files(original) == before


def test_a_graph_of_ours_that_the_original_wrote_to_is_read_and_written_on(tmp_path):
    graph = Omnigraph.init(tmp_path / "ours", types=[City, Knows, Person, LivesIn])
    upsert(graph, City(code="OSL", population=1))
    original = OriginalWriter(tmp_path / "ours")
    original.write({"node:City": [{"id": "BGO", "code": "BGO", "population": 2}]})
    again = Omnigraph.open(tmp_path / "ours", types=[City])
    upsert(again, City(code="TRD", population=3))
    cities = {
        line["data"]["id"]: line["data"]["population"] for line in original.export() if line.get("type") == "City"
    }
    assert cities == {"OSL": 1, "BGO": 2, "TRD": 3}


def test_if_commit_notices_a_commit_of_the_original(original):
    graph = opened(original)
    head = graph.commits()[0].graph_commit_id
    original.write({"node:City": [{"id": "TRD", "code": "TRD"}]})
    with pytest.raises(HeadMismatchError), graph.transaction(if_commit=head) as tx:
        tx.upsert(City(code="TOS"))


def test_the_feed_has_what_the_original_changed(original):
    graph = opened(original)
    upsert(graph, Person(name="eve"))
    cursor = graph.changes().cursor
    commit = original.write({"node:Person": [person("fay")]}, deleted={"node:Person": ["cy"]})
    found = [(it.op, it.id, it.commit_id) for it in graph.changes(since=cursor)]
    assert found == [("delete", "cy", commit), ("insert", "fay", commit)]


def test_a_commit_that_the_original_published_and_did_not_write_down_is_noticed_and_kept(original):
    graph = opened(original)
    head = graph.commits()[0].graph_commit_id
    original.write({"node:Person": [person("fay")]}, record=False)
    assert graph.commits()[0].parent_commit_id == head
    with pytest.raises(HeadMismatchError), graph.transaction(if_commit=head) as tx:
        tx.upsert(City(code="TOS"))
    upsert(graph, City(code="TOS"))
    log = graph.commits()
    assert [it.parent_commit_id for it in log[:2]] == [log[1].graph_commit_id, head]
    assert original.commits()[-2]["graph_commit_id"] == log[1].graph_commit_id


def test_a_type_that_the_original_changed_is_what_its_schema_file_says_then(original):
    upsert(opened(original), City(code="TRD", population=3))
    ir = json.loads((original.root / "_schema.ir.json").read_text())
    ir["nodes"][0]["properties"].append(prop("node:City", "river", "String"))
    compact = json.dumps(ir, ensure_ascii=False, separators=(",", ":")).encode()
    state = {"format_version": 1, "schema_ir_hash": f"sha256:{hashlib.sha256(compact).hexdigest()}"}
    (original.root / "_schema.pg").write_text(
        (original.root / "_schema.pg").read_text().replace("U32?\n", "U32?\n    river: String?\n")
    )
    (original.root / "_schema.ir.json").write_text(json.dumps(ir, indent=2))
    (original.root / "__schema_state.json").write_text(json.dumps(state | {"schema_identity_version": 1}))
    pin = original.pins()["node:City"]
    original.dataset(pin["location"]).add_columns({"river": "cast(null as string)"})
    original.write({"node:City": [{"id": "OSL", "code": "OSL", "population": 1, "river": "Aker"}]})
    before = schema_files(original)

    class Town(Entity, name="City"):
        code: Field[str] = Field(primary_key=True)
        population: Field[int | None] = None
        river: Field[str | None] = None

    graph = opened(original, [Town])
    assert {it.code: it.river for it in graph.query().entities(Town).collect()} == {
        "BGO": None,
        "OSL": "Aker",
        "TRD": None,
    }
    upsert(graph, Town(code="TRD", river="Nid"))
    assert [original.rows("node:City")["TRD"]["river"], schema_files(original)] == ["Nid", before]


# --- what is not done ---


@pytest.fixture
def bounded(tmp_path):
    """Types with rules that a class of ours cannot have."""
    owner = "node:Item"
    item = [prop(owner, "code", "String", nullable=False, notes=["key"]), prop(owner, "stock", "I32")]
    rules = [{"Key": ["code"]}, {"Range": {"property": "stock", "min": {"Integer": 0}, "max": {"Integer": 9}}}]
    text = [prop("node:Text", "body", "String"), prop("node:Text", "name", "String", nullable=False, notes=["key"])]
    checked = [{"Key": ["name"]}, {"Check": {"property": "body", "pattern": "^a"}}]
    ir = {
        "ir_version": 1,
        "interfaces": [],
        "nodes": [node("Item", item, rules), node("Text", text, checked)],
        "edges": [edge("OwnedBy", "Item", "Item", most=1)],
    }
    source = (
        "node Item {\n    code: String @key\n    stock: I32? @range(0, 9)\n}\nnode Text {\n    name: String @key\n"
        '    body: String? @check("^a")\n}\nedge OwnedBy: Item -> Item @card(0..1)\n'
    )
    original = OriginalWriter.init(tmp_path / "bounded", ir, source)
    original.write({"node:Item": [{"id": "a", "code": "a", "stock": 1}], "node:Text": [{"id": "t", "name": "t"}]})
    return original


class Item(Entity):
    code: Field[str] = Field(primary_key=True)
    stock: Field[int | None] = None


class Text(Entity):
    name: Field[str] = Field(primary_key=True)
    body: Field[str | None] = None


class OwnedBy(Relation[Item, Item]):
    pass


def test_a_range_of_the_original_is_held(bounded):
    graph = opened(bounded, [Item])
    upsert(graph, Item(code="b", stock=9))
    with pytest.raises(GraphValidationError, match="at most 9"):
        upsert(graph, Item(code="c", stock=10))


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (Text(name="x", body="b"), "check constraint on body"),
        (OwnedBy(left_key="a", right_key="a"), "cardinality of 0 to 1"),
    ],
)
def test_types_with_rules_that_are_not_known_here_are_read_and_not_written(bounded, obj, said):
    graph = opened(bounded, [Item, Text, OwnedBy])
    assert [it.name for it in graph.query().entities(Text).collect()] == ["t"]
    before = tree(bounded.root)
    with pytest.raises(GraphValidationError, match=said):
        upsert(graph, obj)
    assert {name for name in tree(bounded.root) if "_versions" in name} == {
        name for name in before if "_versions" in name
    }


def test_a_type_with_blobs_is_read_without_them_and_not_written(tmp_path):
    owner = "node:File"
    columns = [prop(owner, "body", "Blob"), prop(owner, "name", "String", nullable=False, notes=["key"])]
    ir = {"ir_version": 1, "interfaces": [], "nodes": [node("File", columns, [{"Key": ["name"]}])], "edges": []}
    original = OriginalWriter.init(tmp_path / "files", ir, "node File {\n    body: Blob?\n    name: String @key\n}\n")
    place = str(original.root / original.pins()["node:File"]["location"])
    rows = {"id": ["a"], "body": lance.blob_array([b"x"]), "name": ["a"]}
    lance.write_dataset(pa.table(rows, schema=lance.dataset(place).schema), place, mode="append")
    original.write({"node:File": []})

    class File(Entity):
        name: Field[str] = Field(primary_key=True)

    graph = opened(original, [File])
    assert [it.name for it in graph.query().entities(File).collect()] == ["a"]
    with pytest.raises(GraphValidationError, match="body, which is a Blob"):
        upsert(graph, File(name="b"))


def test_a_schema_file_that_cannot_be_read_is_refused_before_a_byte_changes(original):
    (original.root / "_schema.ir.json").write_text('{"ir_version": 2}')
    before = tree(original.root)
    with pytest.raises(StorageBackendError, match="ir_version 2"):
        opened(original)
    assert tree(original.root) == before


def test_a_later_internal_schema_version_is_refused_before_a_byte_changes(original):
    original.dataset("__manifest").update_schema_metadata({"omnigraph:internal_schema_version": "4"})
    before = tree(original.root)
    with pytest.raises(EngineVersionError, match="version 4"):
        opened(original)
    assert tree(original.root) == before


def test_a_schema_change_that_the_original_did_not_finish_is_refused_for_writing(original):
    (original.root / "_schema.ir.json.staging").write_text("{}")
    before = tree(original.root)
    with pytest.raises(RecoveryPendingError, match="staging"):
        opened(original)
    assert tree(original.root) == before
    assert ages(opened(original, mode=OpenMode.READ_ONLY))["ann"] == 31


@pytest.mark.parametrize("sign", ["lock", "sidecar"])
def test_a_schema_change_in_progress_is_refused_for_writing(original, sign):
    if sign == "lock":
        original.create_branch("__schema_apply_lock__")
    else:
        original.sidecar("SchemaApply", "node:City", 0)
    before = tree(original.root)
    with pytest.raises(RecoveryPendingError, match="schema change"):
        opened(original)
    assert tree(original.root) == before


def test_a_sidecar_of_a_later_release_is_refused_before_a_byte_changes(original):
    original.sidecar("Mutation", "node:City", 0, schema_version=2)
    before = tree(original.root)
    with pytest.raises(CorruptSidecarError, match="schema_version 2"):
        opened(original)
    assert tree(original.root) == before


def test_a_write_that_the_original_did_not_publish_is_finished_as_it_would(original):
    original.sidecar("Mutation", "node:City", 1)
    original.dataset(original.pins()["node:City"]["location"]).delete("id = 'BGO'")
    graph = opened(original)
    assert [it.recovery_kind for it in graph.recoveries()] == ["RolledForward"]
    assert sorted(original.rows("node:City")) == ["OSL"]


def test_a_write_of_the_original_that_went_further_than_it_says_is_undone(original):
    original.sidecar("Load", "node:City", 1)
    for code in ("BGO", "OSL"):
        original.dataset(original.pins()["node:City"]["location"]).delete(f"id = '{code}'")
    graph = opened(original)
    assert [it.recovery_kind for it in graph.recoveries()] == ["RolledBack"]
    assert sorted(original.rows("node:City")) == ["BGO", "OSL"]


def test_a_write_of_the_original_that_was_published_needs_no_recovery(original):
    original.sidecar("Mutation", "node:City", 1)
    original.write({"node:City": [{"id": "TRD", "code": "TRD"}]})
    graph = opened(original)
    assert [it.recovery_kind for it in graph.recoveries()] == ["RolledForward"]
    assert [len(graph.commits()), list(original.root.glob("__recovery/*"))] == [6, []]


def test_a_type_that_says_more_than_a_class_can_is_not_changed_here(original):
    original.delete_branch("review")
    original.delete_branch("done")

    class Town(Entity, name="City"):
        code: Field[str] = Field(primary_key=True)
        population: Field[int | None] = None
        river: Field[str | None] = None

    class LivesInTown(Relation[Person, Town], name="LivesIn"):
        pass

    graph = opened(original)
    before = original.pins()
    with pytest.raises(MigrationError, match="City has more"):
        graph.apply_schema([Person, Town, Knows, LivesInTown])
    assert original.pins() == before


def test_a_new_type_leaves_what_the_original_says_of_the_others(original):
    original.delete_branch("review")
    original.delete_branch("done")

    class River(Entity):
        name: Field[str] = Field(primary_key=True)

    class KnowsWell(Relation[Person, Person], name="Knows"):
        since: Field[int | None] = None
        how: Field[str | None] = None

    types = original.ir()
    opened(original).apply_schema([Person, City, KnowsWell, LivesIn, River])
    ir, source = original.ir(), (original.root / "_schema.pg").read_text()
    assert [entry for entry in ir["nodes"] if entry["name"] != "River"] == types["nodes"]
    assert {item["name"] for item in ir["edges"][0]["properties"]} == {"how", "since"}
    assert [text in source for text in ("mood: enum(calm, cross)?", "node River", "how: String?")] == [True] * 3
    assert len(original.export()) == 7


def test_the_same_types_are_nothing_to_apply(original):
    original.delete_branch("review")
    original.delete_branch("done")
    graph = opened(original)
    assert graph.apply_schema(TYPES) is None
    assert graph.snapshot().count(Person) == 3


def test_lance_lists_the_data_that_we_write_under_the_format_of_the_original(original):
    upsert(opened(original), Person(name="eve"))
    assert lance.dataset(str(original.root / original.pins()["node:Person"]["location"])).data_storage_version == "2.2"


# --- on the console ---


def onto(*words):
    found = subprocess.run([sys.executable, "-m", "ontologia.cli", *words, "--json"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_the_console_reads_its_graph_without_a_class_and_writes_nothing(original, tmp_path):
    target, before = ("--storage-uri", f"file://{original.root}"), tree(original.root)
    assert [row["key"] for row in onto("query", "entities", "Person", *target)["rows"]] == ["ann", "bob", "cy"]
    assert [it["name"] for it in onto("branch", "list", *target)["branches"]] == ["main", "done", "review"]
    assert onto("log", *target)["commits"][0]["actor"] == "olga"
    onto("export", "--output", str(tmp_path / "out"), *target)
    assert tree(original.root) == before


def test_the_console_merges_a_branch_of_its_graph(original):
    onto("branch", "merge", "review", "--storage-uri", f"file://{original.root}")
    assert sorted(original.rows("node:Person")) == ["ann", "bob", "cy", "dee"]
