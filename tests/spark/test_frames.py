"""Frames on Spark: the same rows, the same rules, one entry per job."""

import json
import uuid

import pyarrow as pa
import pytest

from ontologia.apiary import Apiary
from ontologia.config import OntologiaConfig
from ontologia.errors import ValidationError
from ontologia.spark import Pipeline
from support.frames import NAME, ids, readings, sensors
from support.spark_shop import Customer, customers

pytestmark = pytest.mark.spark


@pytest.fixture
def ap(tmp_path):
    with Apiary("test", str(tmp_path / "frames"), config=OntologiaConfig(cache_directory=str(tmp_path / "c"))) as found:
        yield found


@pytest.fixture
def frame(ap):
    found = sensors(ap)
    found.write(readings(("north", 38.5, 1), ("north", 20.0, 2)))
    found.write(readings(("south", 42.1, 3), ("east", None, 4)))
    return found


def root(ap):
    return ap.node.location.uri


def test_a_frame_is_read_through_the_format_at_any_version(spark, ap, frame):
    reader = spark.read.format("ontologia").option("frame", NAME)
    assert sorted(row.id for row in reader.load(root(ap)).where("temp > 30").collect()) == [1, 3]
    assert reader.option("versionAsOf", "1").load(root(ap)).count() == 2


def test_a_frame_is_read_as_it_was_at_a_time(spark, ap, frame):
    first, second = (change.timestamp for change in reversed(frame.history(2)))
    reader = spark.read.format("ontologia").option("frame", NAME)
    assert reader.option("timestampAsOf", first.isoformat()).load(root(ap)).count() == 2
    assert reader.option("timestampAsOf", second.replace(tzinfo=None).isoformat()).load(root(ap)).count() == 4
    with pytest.raises(Exception, match="was created at"):
        reader.option("timestampAsOf", "2001-01-01").load(root(ap)).count()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"versionAsOf": "one"}, "takes the number of a version"),
        ({"timestampAsOf": "soon"}, "takes a time such as"),
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01"}, "give one of them"),
        ({"versionAsOf": "9"}, "versions 0 to 2"),
        ({"colour": "red"}, "there is no option"),
        ({"frame": "analytics.sensors.nothing"}, "frames in analytics.sensors: temperature"),
    ],
    ids=str,
)
def test_options_that_name_no_version_are_refused(spark, ap, frame, options, says):
    with pytest.raises(Exception, match=says):
        spark.read.format("ontologia").options(**{"frame": NAME, **options}).load(root(ap)).count()


def test_a_frame_becomes_a_dataframe_whose_cells_executors_read(spark, ap, frame):
    rows = frame.to_spark(columns=["id", "region"], filter="temp > 30")
    assert sorted(map(tuple, rows.collect())) == [(1, "north"), (3, "south")]
    assert frame.to_spark(version=1).count() == 2
    assert frame.to_spark(filter={"id": 99}).columns == ["region", "temp", "id"]


def test_a_frame_is_a_source_of_the_pipeline(spark, ap, frame, folder):
    people = ap.create_frame("analytics", "sensors", "people", {"id": "string", "name": "string", "age": "int64"})
    people.write([{"id": "c1", "name": "Ann", "age": 30}, {"id": "c2", "name": "Bob", "age": 40}])
    Pipeline(spark, folder).load(people.to_spark(filter="age > 35"), into=Customer).commit()
    Pipeline(spark, folder).load(people, into=Customer).commit()
    assert customers(folder) == {"c1": ("Ann", 30), "c2": ("Bob", 40)}


def test_a_pipeline_file_names_a_frame_by_its_root_and_its_name(spark, ap, frame, folder):
    people = ap.create_frame("analytics", "sensors", "people", {"id": "string", "name": "string", "age": "int64"})
    people.write([{"id": "c1", "name": "Ann", "age": 30}])
    people.write([{"id": "c2", "name": "Bob", "age": 40}])
    named = {"frame": "analytics.sensors.people", "versionAsOf": "1"}
    Pipeline(spark, folder).load(root(ap), into=Customer, format="frame", options=named).commit()
    assert customers(folder) == {"c1": ("Ann", 30)}
    with pytest.raises(ValidationError, match=r"hive\.box\.frame"):
        Pipeline(spark, folder).load(root(ap), into=Customer, format="frame", options={})


def test_a_frame_is_written_through_the_format_as_one_version(spark, ap, frame):
    rows = spark.createDataFrame([("west", 1.0, n) for n in range(10, 30)], "region string, temp double, id bigint")
    rows.repartition(3).write.format("ontologia").option("frame", NAME).mode("append").save(root(ap))
    assert (frame.version, ids(frame.read(filter={"region": "west"}))) == (3, list(range(10, 30)))
    rows.limit(1).write.format("ontologia").option("frame", NAME).mode("overwrite").save(root(ap))
    assert (frame.version, frame.read().num_rows) == (4, 1)


def test_a_dataframe_is_written_by_executors_and_committed_once(spark, ap, frame):
    rows = spark.range(100, 140).selectExpr("id", "concat('r', id % 3) AS region", "CAST(id AS double) AS temp")
    result = frame.write(rows.repartition(4))
    assert (result.version, result.rows_written) == (3, 40)
    assert ids(frame.read(filter="id >= 100")) == list(range(100, 140))
    assert frame.overwrite(rows.limit(3)).version == 4
    assert frame.read().num_rows == 3


def test_rows_that_do_not_fit_fail_the_job_and_leave_nothing(spark, ap, frame, tmp_path):
    bad = spark.createDataFrame([(None, 1.0, 5)], "region string, temp double, id bigint")
    before = sorted(tmp_path.rglob("cell_*.parquet"))
    with pytest.raises(Exception, match="partitioned by 'region'"):
        frame.write(bad)
    assert (frame.version, sorted(tmp_path.rglob("cell_*.parquet"))) == (2, before)


def test_a_statement_gives_the_same_answer_on_spark(spark, ap, frame):
    for query in (
        f"SELECT region, count(*) AS n, max(temp) AS hottest FROM {NAME} GROUP BY region ORDER BY region",
        f"SELECT a.id FROM {NAME} a JOIN {NAME} b USING (region) WHERE b.temp > 40",
        f"WITH hot AS (SELECT * FROM {NAME} WHERE temp > 30) SELECT count(*) AS n FROM hot",
        f"SELECT id FROM {NAME} FOR VERSION AS OF 1 WHERE region = 'north' ORDER BY id",
    ):
        assert ap.query(query, engine="spark").to_pylist() == ap.query(query).to_pylist(), query


def test_a_statement_on_spark_leaves_a_manifest_while_it_runs(spark, ap, frame, tmp_path, monkeypatch):
    from ontologia.spark.frames import work

    seen = []
    real = work.cells_frame

    def look(*arguments):
        (manifest,) = (tmp_path / "frames/_queries").rglob("manifest.json")
        seen.append(json.loads(manifest.read_text()))
        return real(*arguments)

    monkeypatch.setattr(work, "cells_frame", look)
    ap.query(f"SELECT id FROM {NAME} WHERE temp > 40", engine="spark")
    assert (seen[0]["engine"], seen[0]["cells"][0]["cells_scanned"]) == ("spark", "1")
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_compaction_on_spark_changes_no_row(spark, ap, frame):
    before = ids(frame.read())
    frame.write(readings(("north", 1.0, 9)))
    result = frame.compact(force=True, engine="spark")
    assert (result.cells_removed, result.cells_written) == (2, 1)
    assert ids(frame.read()) == [*before, 9]


def test_types_that_spark_has_not_take_the_next_larger_one(spark, ap, frame):
    wide = ap.create_frame("analytics", "sensors", "wide", {"a": "uint8", "b": "uint64", "c": "timestamp", "d": "date"})
    wide.write(pa.table({"a": pa.array([255], pa.uint8()), "b": pa.array([2**64 - 1], pa.uint64())}))
    (row,) = spark.read.format("ontologia").option("frame", "analytics.sensors.wide").load(root(ap)).collect()
    assert (row.a, int(row.b), row.c, row.d) == (255, 2**64 - 1, None, None)


def test_frames_in_a_bucket_are_read_written_and_compacted_by_executors(spark, s3, tmp_path):
    uri = s3.uri(f"frames-tests/{uuid.uuid4().hex}")
    with Apiary("test", uri, config=OntologiaConfig(cache_directory=str(tmp_path / "c"))) as ap:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1)))
        rows = spark.createDataFrame([("north", 2.0, 2), ("a/b ü", 3.0, 3)], "region string, temp double, id bigint")
        rows.write.format("ontologia").option("frame", NAME).mode("append").save(uri)
        assert (frame.version, ids(frame.read())) == (2, [1, 2, 3])
        assert frame.compact(force=True, engine="spark").cells_removed == 2
        query = f"SELECT region, max(id) AS id FROM {NAME} GROUP BY region ORDER BY region"
        assert ap.query(query, engine="spark").to_pylist() == ap.query(query).to_pylist()
        reader = spark.read.format("ontologia").option("frame", NAME).option("versionAsOf", 1)
        settings = json.dumps({"cache_directory": str(tmp_path / "of executors")})
        assert reader.option("settings", settings).load(uri).count() == 1
        assert (tmp_path / "of executors").exists()
