"""With Hadoop's S3A jars, Spark reads a bucket itself: the same rows, by its own Parquet reader, with our credentials.

The jars come from Maven Central when Spark starts, some 700 MB the first time: `make test-s3a`, and nothing else, runs
this. The keys are in a profile's file, where we look and S3A does not: what it has, it has from us.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pyspark
import pytest
from py4j.protocol import Py4JJavaError

from ontologia.objects import open_objects
from ontologia.spark import compact, read, read_stream, s3a, spark_session
from ontologia.testing.s3server import ACCESS_KEY, SECRET_KEY, s3_server
from support.spark_reads import NAMES, WINDOWS, embedded, fill, loaded, rows_of
from support.spark_shop import Buys, Customer, commit, commits, customers, new_store, session

pytestmark = [pytest.mark.s3a, pytest.mark.timeout(1_800)]


def hadoop_version() -> str:
    """The version of the Hadoop that PySpark carries; the connector must be of the same."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """An S3 server, its address in the environment, and its keys in a profile."""
    credentials = tmp_path_factory.mktemp("aws") / "credentials"
    credentials.write_text(f"[shop]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    with s3_server(set_environment=False) as found, pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(name)
        for name, value in found.environment.items():
            if "KEY" not in name:
                environment.setenv(name, value)
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        environment.setenv("AWS_PROFILE", "shop")
        yield found


@pytest.fixture(scope="module")
def spark(workers_path, server):
    settings = {
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
        "spark.sql.maxMetadataStringLength": "10000",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    if "IVY_SETTINGS" in os.environ:  # how to reach a mirror of Maven Central, as an ivysettings.xml
        settings["spark.jars.ivySettings"] = os.environ["IVY_SETTINGS"]
    try:
        found = spark_session("s3a", master="local[2]", config=settings)
    except Exception as problem:
        pytest.fail(f"Spark did not start with {settings['spark.jars.packages']}. Is Maven in reach? {problem}")
    yield found
    found.stop()


@pytest.fixture
def uri(server):
    """A filled store in the one bucket that most tests share: the server has room for few."""
    return fill(server.uri(f"s3a-tests/{uuid.uuid4().hex}"))


def plan_of(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def hadoop(spark):
    return spark._jsc.hadoopConfiguration()


def test_the_jars_are_there(spark):
    assert hadoop(spark).getClassByNameOrNull(s3a.CONNECTOR) is not None


@pytest.mark.parametrize("prefix", ["onto", "a b/ü+%20"])
def test_native_and_arrow_reads_are_equal_in_every_window(spark, server, prefix):
    uri = fill(server.uri(f"s3a-tests/{prefix}"))
    for window in WINDOWS:
        native = read(spark, uri, Customer, **window)
        assert "FileScan parquet" in plan_of(native) or window == {"as_of": 0}
        found = rows_of(native)
        assert found == rows_of(loaded(spark, uri, "Customer", **window))
        expected = [tuple(row[name] for name in NAMES) for row in embedded(uri, Customer, **window)]
        assert sorted(tuple(row[name] for name in NAMES) for row in found) == sorted(expected)
    assert rows_of(read(spark, uri, Buys)) == rows_of(loaded(spark, uri, "Buys"))


def test_the_plan_scans_parquet_in_the_bucket_with_filters_and_columns_pushed_down(spark, uri):
    native = read(spark, uri, Customer, as_of=4).where("age >= 3").select("id")
    plan = plan_of(native)
    assert "FileScan parquet" in plan
    assert uri.replace("s3://", "s3a://") in plan
    assert "GreaterThanOrEqual(age,3)" in plan
    assert "tags" not in plan
    assert "FileScan parquet" not in plan_of(loaded(spark, uri, "Customer", as_of=4))
    assert sorted(row.id for row in native.collect()) == ["c3", "c4", "c5", "c6"]


def test_a_query_and_a_compaction_read_natively_too(spark, uri):
    with session(uri) as opened:
        asked = opened.query().entities(Customer).where(Customer.age > 40)
        frame = asked.to_spark(spark)
        assert "FileScan parquet" in plan_of(frame)
        assert sorted(row.id for row in frame.collect()) == ["c1", "c9"]
        before = asked.with_history().to_arrow().to_pylist()
        assert compact(spark, opened, "Customer", apply=True).types[0].files > 1
        assert asked.with_history().to_arrow().to_pylist() == before


def test_a_commit_made_since_is_in_the_next_read(spark, uri):
    assert read(spark, uri, Customer).count() == 7
    commit(uri, Customer(id="new", name="n", age=1))
    assert read(spark, uri, Customer).count() == 8


def test_keys_and_region_of_the_environment_reach_spark_as_well(spark, server, monkeypatch):
    uri = fill(server.uri("s3a-environment/onto"))
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    frame = read(spark, uri, Customer)
    assert "FileScan parquet" in plan_of(frame)
    assert frame.count() == 7
    assert hadoop(spark).get("fs.s3a.bucket.s3a-environment.endpoint.region") == "eu-central-1"


def test_other_buckets_keep_their_settings(spark, server, uri):
    """What we read tells Spark of the one bucket. For another it has no credentials, and so cannot read it."""
    for name in ("s3a-tests", "s3a-other"):
        open_objects(server.uri(name)).put("notes.txt", b"hello\n")
    hadoop(spark).set("fs.s3a.bucket.s3a-other.attempts.maximum", "1")
    hadoop(spark).set("fs.s3a.bucket.s3a-other.endpoint", server.endpoint_url)
    read(spark, uri, Customer).count()
    assert spark.read.text("s3a://s3a-tests/notes.txt").first().value == "hello"
    with pytest.raises(Py4JJavaError, match=r"No AWS Credentials|Unable to load credentials"):
        spark.read.text("s3a://s3a-other/notes.txt").first()
    assert hadoop(spark).get("fs.s3a.access.key") is None


def test_a_bucket_that_is_set_otherwise_is_read_through_arrow(spark, server):
    hadoop(spark).set("fs.s3a.bucket.s3a-other.endpoint", "http://127.0.0.1:1")
    frame = read(spark, fill(server.uri("s3a-other/onto")), Customer)
    assert "FileScan parquet" not in plan_of(frame)
    assert frame.count() == 7
    assert hadoop(spark).get("fs.s3a.bucket.s3a-other.access.key") is None


def test_a_whole_stream_keeps_its_checkpoint_in_the_bucket_and_goes_on_from_it(spark, server):
    """From a store in the bucket into another one, with the checkpoint beside them, and a batch that is run again."""
    place = server.uri(f"s3a-tests/{uuid.uuid4().hex}")
    source, target = new_store(f"{place}/source"), new_store(f"{place}/target")
    checkpoint = f"{place}/check point#1".replace("s3://", "s3a://")
    commit(source, Customer(id="a", name="Ann", age=1))
    read(spark, source, Customer).count()  # tells S3A of this bucket

    def run():
        rows = read_stream(spark, source, Customer, max_commits_per_batch=1).select("id", "name", "age")
        sink = rows.writeStream.format("ontologia").option("models", "support.spark_shop:Customer")
        sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target).awaitTermination()

    run()
    commit(source, Customer(id="a", name="Ann", age=2))
    commit(source, Customer(id="b", name="Bob", age=3))
    run()
    assert customers(target) == {"a": ("Ann", 2), "b": ("Bob", 3)}
    batches = [one["metadata"]["stream_batch"] for one in commits(target)]
    assert (batches, len({one["metadata"]["stream_id"] for one in commits(target)})) == (["2", "1", "0"], 1)
    # Died after its commit and before Spark noted it: the batch is run again, and is there already.
    open_objects(place).delete_many(["check point#1/commits/2"])
    run()
    assert (len(commits(target)), customers(target)) == (3, {"a": ("Ann", 2), "b": ("Bob", 3)})
