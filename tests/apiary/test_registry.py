"""The registry: idempotent creation, races, names that are refused, and what it says when something is not there."""

import threading

import pytest

from ontologia.apiary.registry import Registry
from ontologia.errors import FrameSchemaError, UnknownNameError, ValidationError
from ontologia.objects import open_objects
from ontologia.testing.crash import run_and_crash
from support.frames import NAME, SCHEMA, apiary, readings, sensors

HOSTILE = [
    "../x",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "a=b",
    "a.b",
    "_registry",
    "x_checkpoint",
    "übung",
    "a b",
    "x" * 1000,
    "a\0b",
    "*",
    None,
    7,
]


def create_names(uri, cache, number):
    with apiary(uri, cache) as ap:
        ap.create_hive("shared")
        ap.create_box("shared", f"box{number}")
        ap.create_frame("shared", f"box{number}", "f", {"a": "int64"})


def test_creating_what_is_there_again_adds_no_version(ap, frame):
    version = ap.node.registry.state().version
    sensors(ap)
    assert ap.node.registry.state().version == version


def test_another_schema_under_the_same_name_is_refused(ap, frame):
    with pytest.raises(FrameSchemaError, match=r"exists with other columns.*humidity"):
        ap.create_frame("analytics", "sensors", "temperature", {"humidity": "float32"})


@pytest.mark.parametrize(
    "change",
    [
        {"partition_by": []},
        {"schema": {**SCHEMA, "id": "int64"}},
        {"schema": {**SCHEMA, "temp": "float32"}},
    ],
)
def test_a_frame_that_differs_in_one_thing_is_another_frame(ap, frame, change):
    wanted = {"schema": SCHEMA, "partition_by": ["region"]} | change
    with pytest.raises(FrameSchemaError, match="exists with other columns or partitions"):
        ap.create_frame("analytics", "sensors", "temperature", **wanted)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name)[:20])
def test_a_name_that_could_be_a_path_is_refused(ap, root, frame, name):
    before = sorted(root.rglob("*.json"))
    for create in (
        lambda: ap.create_hive(name),
        lambda: ap.create_box("analytics", name),
        lambda: ap.create_frame("analytics", "sensors", name, {"a": "int64"}),
    ):
        with pytest.raises(ValidationError, match="is not a name for a"):
            create()
    assert sorted(root.rglob("*.json")) == before


def test_what_is_not_there_is_said_with_what_is(ap, frame):
    for call, says in [
        (lambda: ap.frame("analytics.sensors.humidity"), "frames in analytics.sensors: temperature"),
        (lambda: ap.frame("analytics.nothing.x"), "boxes in analytics: sensors"),
        (lambda: ap.frame("nothing.a.b"), "hives: analytics"),
        (lambda: ap.list_boxes("nothing"), "hives: analytics"),
        (lambda: ap.create_box("nothing", "b"), "there is no hive 'nothing'"),
        (lambda: frame.read(columns=["humidity"]), "there are region, temp, id"),
    ]:
        with pytest.raises(UnknownNameError, match=says):
            call()


@pytest.mark.parametrize("name", ["a.b", "a.b.c.d", "", "temperature"])
def test_a_frame_is_asked_for_by_three_parts(ap, name):
    with pytest.raises(ValidationError, match=r"hive\.box\.frame"):
        ap.frame(name)


def test_two_nodes_that_create_the_same_frame_agree(uri, tmp_path):
    with apiary(uri, tmp_path / "c") as one, apiary(uri, tmp_path / "c") as other:
        threads = [threading.Thread(target=sensors, args=(ap,)) for ap in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.node.registry.state().version == 4
        assert other.frame(NAME).version == 0


def test_two_nodes_that_create_a_frame_with_different_schemas_do_not_both_win(uri, tmp_path):
    with apiary(uri, tmp_path / "c") as one, apiary(uri, tmp_path / "c") as other:
        one.create_hive("h")
        one.create_box("h", "b")
        other.node.registry.state()
        one.create_frame("h", "b", "f", {"a": "int64"})
        with pytest.raises(FrameSchemaError, match="exists with other columns"):
            other.create_frame("h", "b", "f", {"a": "string"})
        assert other.get_frame("h", "b", "f")["schema"] == {"a": "int64"}


def test_what_racing_processes_create_is_all_there(ap, uri, tmp_path):
    open_objects(uri).map(lambda n: run_and_crash(create_names, uri, tmp_path / f"c{n}", n), range(3))
    assert ap.list_boxes("shared") == ["box0", "box1", "box2"]
    assert [ap.list_frames("shared", f"box{n}") for n in range(3)] == [["f"]] * 3


def test_a_frame_whose_creator_was_stopped_before_its_ledger_gets_one(ap, uri, frame, tmp_path):
    open_objects(uri).delete("analytics/sensors/temperature/_ledger/000000.json")
    with apiary(uri, tmp_path / "c") as other:
        again = other.frame(NAME)
        again.write(readings(("north", 1.0, 1)))
        assert [field.nullable for field in again.schema] == [True, True, False]
        assert again.partition_by == ("region",)


def test_the_registry_is_checkpointed_and_found_with_three_requests(ap, uri):
    for number in range(105):
        ap.create_hive(f"hive{number}")
    assert open_objects(uri).names("_registry/_checkpoint") == ["checkpoint_000100.json"]
    objects = open_objects(uri)
    with objects.counting() as count:
        assert len(Registry(objects).state().hives) == 105
    assert count.total == 3, count.log


def test_the_words_of_databases_are_understood(ap):
    ap.create_database("analytics")
    ap.create_schema("analytics", "sensors")
    ap.create_table("analytics", "sensors", "t", {"a": "int"})
    assert (ap.list_databases(), ap.list_schemas("analytics"), ap.list_tables("analytics", "sensors")) == (
        ["analytics"],
        ["sensors"],
        ["t"],
    )
    assert ap.get_table("analytics", "sensors", "t")["schema"] == {"a": "int64"}


def test_nothing_works_before_start_and_the_error_says_so(root):
    from ontologia.apiary import Apiary

    ap = Apiary("test", str(root))
    with pytest.raises(ValidationError, match=r"call start\(\)"):
        ap.list_hives()
    ap.shutdown()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, "at least one column"),
        ({"a": "integer32"}, "there is no type 'integer32'"),
        ({"a": {"type": "int64", "null": False}}, "declared by 'type' and 'nullable'"),
        ({"a": "int64", "A": "string"}, "differ by more than case"),
        ({"": "int64"}, "needs a name"),
        ({"a\nb": "int64"}, "needs a name"),
        (["a"], "pyarrow.Schema or"),
    ],
)
def test_a_schema_that_makes_no_frame_is_refused(ap, frame, schema, says):
    with pytest.raises(FrameSchemaError, match=says):
        ap.create_frame("analytics", "sensors", "other", schema)


def test_a_partition_column_must_be_there_and_suit(ap, frame):
    with pytest.raises(UnknownNameError, match="there is no column 'c'"):
        ap.create_frame("analytics", "sensors", "o", {"a": "int64"}, ["c"])
    with pytest.raises(FrameSchemaError, match="cannot be partitioned by 'a'"):
        ap.create_frame("analytics", "sensors", "o", {"a": "binary"}, ["a"])
    with pytest.raises(FrameSchemaError, match="names a column twice"):
        ap.create_frame("analytics", "sensors", "o", {"a": "int64"}, ["a", "a"])
