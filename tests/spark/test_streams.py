"""Commits as a stream, and a stream as commits: in order, and each batch once."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

from ontologia import Entity, Field, Session, ValidationError, initialize_storage
from ontologia.engines.dispatch import open_engine
from ontologia.files.key_ranges import KeyRange
from ontologia.objects import open_objects
from ontologia.runtime.delta import OPERATION
from ontologia.spark import read_stream
from ontologia.spark.reading.changes import change_rows
from ontologia.spark.source import OntologiaSource
from ontologia.spark.streaming.sink import BATCH, STREAM, Stream, _metadata, stream_of
from support.spark_shop import Customer, Knows, commit, commits, customers, head, session

COLUMNS = "id string, name string, age int, tags array<string>"


def delivered(frame, checkpoint):
    """Run a stream over what is there and give its batches: commit, operation, key and age of every row."""
    batches = {}

    def take(rows, batch_id):
        batches[batch_id] = [(row.commit_id, row.operation, row.id, row.age) for row in rows.collect()]

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return [batches[number] for number in sorted(batches)]


def fill(uri):
    """Five commits: two customers, another type, one customer twice, a compaction, a new customer."""
    commit(uri, Customer(id="a", name="Ann", age=1), Customer(id="b", name="Bob", age=1))
    commit(uri, Knows(left_key="a", right_key="b", since=1))
    commit(uri, Customer(id="a", name="Ann", age=3))
    commit(uri, Customer(id="a", name="Ann", age=4))
    if "://" in uri:
        with session(uri) as opened:
            opened.repository.compact(apply=True)
    commit(uri, Customer(id="c", name="Cy", age=5))
    return uri


def test_commits_arrive_in_order_and_a_restarted_stream_goes_on_where_it_stopped(spark, folder, tmp_path):
    history = fill(folder)
    stream = spark.readStream.format("ontologia").option("type", "Customer").option("changes", "true")
    every_two = stream.option("maxCommitsPerBatch", "2").load(history)
    assert delivered(every_two, tmp_path / "checkpoint") == [
        [(1, "insert", "a", 1), (1, "insert", "b", 1)],
        [(3, "update_version", "a", 3), (4, "update_version", "a", 4)],
        [(5, "insert", "c", 5)],
    ]
    commit(history, Customer(id="b", name="Bob", age=6), Customer(id="d", name="Di", age=6))
    assert delivered(every_two, tmp_path / "checkpoint") == [[(6, "update_version", "b", 6), (6, "insert", "d", 6)]]


def test_a_stream_from_a_file_starts_after_the_commit_it_is_given(spark, tmp_path):
    path = fill(str(tmp_path / "onto.db"))
    found = delivered(read_stream(spark, path, Customer, since=3), tmp_path / "checkpoint")
    assert found == [[(4, "update_version", "a", 4), (5, "insert", "c", 5)]]


def test_a_stream_begins_with_the_state_at_which_history_begins_and_not_before_it(spark, tmp_path):
    for number, path in enumerate((str(tmp_path / "onto.db"), (tmp_path / "bucket").as_uri())):
        initialize_storage(path)
        fill(path)
        with session(path) as opened:
            opened.forget(3, dry_run=False, token=opened.forget(3).token)
        one_by_one = read_stream(spark, path, Customer, max_commits_per_batch=1)
        found = [batch for batch in delivered(one_by_one, tmp_path / f"checkpoint{number}") if batch]
        assert found == [
            [(1, "insert", "b", 1), (3, "insert", "a", 3)],
            [(4, "update_version", "a", 4)],
            [(5, "insert", "c", 5)],
        ]
        with pytest.raises(PySparkException, match="history begins at commit 3"):
            delivered(read_stream(spark, path, Customer, since=2), tmp_path / f"other{number}")
        rows = spark.read.format("ontologia").options(type="Customer")
        assert sorted(row.id for row in rows.option("asOf", 3).load(path).collect()) == ["a", "b"]
        with pytest.raises(PySparkException, match="history begins at commit 3"):
            rows.option("asOf", 2).load(path).collect()


@pytest.mark.slow
def test_a_slow_stream_goes_on_when_files_of_commits_are_compacted_and_vacuumed_between_its_batches(spark, tmp_path):
    path = (tmp_path / "bucket").as_uri()
    initialize_storage(path)
    fill(path)
    batches = {}

    def take(rows, batch_id):
        batches[batch_id] = [(row.commit_id, row.operation, row.id, row.age) for row in rows.collect()]
        with session(path) as opened:
            opened.repository.compact(apply=True)
            opened.repository.vacuum(0, apply=True, compacted=True)

    frame = read_stream(spark, path, Customer, max_commits_per_batch=1)
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [batches[number] for number in sorted(batches) if batches[number]] == [
        [(1, "insert", "a", 1), (1, "insert", "b", 1)],
        [(3, "update_version", "a", 3)],
        [(4, "update_version", "a", 4)],
        [(5, "insert", "c", 5)],
    ]


def test_changes_can_be_read_at_once(spark, folder):
    fill(folder)
    changes = spark.read.format("ontologia").options(type="Customer", changes="true", since="1").load(folder)
    found = changes.where("age > 3").select("commit_id", "operation", "age").collect()
    assert list(map(tuple, found)) == [(4, "update_version", 4), (5, "insert", 5)]


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
@pytest.mark.parametrize(("after", "upto"), [(0, 6), (0, 3), (3, 6), (1, 4), (5, 6)])
def test_operations_are_those_of_the_log_across_compaction_and_migration(uri, after, upto):
    fill(uri)
    wider = type(
        "Customer",
        (Entity,),
        {"__annotations__": {"id": Field[str], "name": Field[str]}, "id": Field(primary_key=True)},
        name="Customer",
    )
    with Session(uri, entity_types=[wider]) as opened:
        opened.migrate(
            dry_run=False, force=True, upgraders={("Customer", 1): lambda row: {k: row[k] for k in ("id", "name")}}
        )
        opened.ensure(wider(id="e", name="Eve"))
        assert opened.commit() == 7
        rows = change_rows(opened.engine, wider.__declaration__.schema, KeyRange(), after, upto + 1).to_pylist()
        found = {(row["commit_id"], row["entity_key"], row[OPERATION]) for row in rows}
        logged = {
            (number, change["key"], change["operation"])
            for number in range(max(after + 1, 6), upto + 2)
            for change in opened.list_commit_changes(number)
        }
    assert found == logged  # what was written under the old schema is not read under the new one


class Inbox:
    """A folder of JSON files as a stream into a store."""

    def __init__(self, spark, folder: Path, uri: str) -> None:
        self.spark = spark
        self.files = folder / "inbox"
        self.files.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.uri = uri

    def drop(self, name, *rows):
        (self.files / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))

    def run(self, **options):
        source = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1").json(str(self.files))
        sink = source.writeStream.format("ontologia").option("type", "Customer").options(**options)
        query = sink.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start(self.uri)
        query.awaitTermination()

    def batches(self):
        return [one["metadata"].get("stream_batch") for one in reversed(commits(self.uri))]


def row(key, age):
    return {"id": key, "name": key.upper(), "age": age, "tags": []}


def test_each_batch_is_one_commit_and_a_batch_run_again_is_not_committed_again(spark, folder, tmp_path):
    uri = folder
    commit(uri, Customer(id="z", name="Z", age=0))
    inbox = Inbox(spark, tmp_path, uri)
    inbox.drop("1", row("a", 1), row("b", 1))
    inbox.run()
    inbox.drop("2", row("a", 2))
    inbox.run()
    assert inbox.batches() == [None, "0", "1"]
    assert customers(uri) == {"z": ("Z", 0), "a": ("A", 2), "b": ("B", 1)}
    # Died after the commit and before Spark noted it: batch 1 is run again, when somebody else wrote in between.
    (inbox.checkpoint / "commits" / "1").unlink()
    (inbox.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    commit(uri, Customer(id="a", name="A", age=99))
    inbox.run()
    assert (head(uri), customers(uri)["a"]) == (4, ("A", 99))


def test_a_new_checkpoint_in_the_place_of_an_old_one_is_another_stream(spark, tmp_path):
    folder = str(tmp_path / "onto.db")
    commit(folder, Customer(id="z", name="Z", age=0))
    inbox = Inbox(spark, tmp_path, folder)
    inbox.drop("1", row("a", 1))
    inbox.run()
    shutil.rmtree(inbox.checkpoint)
    inbox.drop("1", row("a", 7))
    inbox.run()
    assert customers(folder)["a"] == ("A", 7)


@pytest.mark.parametrize("names", [("orders#1", "orders#2"), ("items?a", "items?b"), ("50% a", "50%25 a")])
def test_streams_are_told_apart_by_the_ids_in_their_checkpoints_whatever_those_are_called(spark, tmp_path, names):
    uri = str(tmp_path / "onto.db")
    commit(uri, Customer(id="z", name="Z", age=0))
    for number, name in enumerate(names):
        (tmp_path / f"in-{number}").mkdir()
        inbox = Inbox(spark, tmp_path / f"in-{number}", uri)
        inbox.checkpoint = tmp_path / name
        inbox.drop("1", row(f"k{number}", 1))
        inbox.run()
    assert set(customers(uri)) == {"z", "k0", "k1"}


@pytest.mark.parametrize("place", ["hdfs://cluster/checkpoint", "/no/such/checkpoint", "abfss://c@a.dfs.core/x", "x:y"])
def test_a_stream_whose_checkpoint_cannot_be_read_is_refused_unless_it_is_named(place):
    with pytest.raises(ValidationError, match=r"cannot be read from its checkpoint .* name the stream with"):
        stream_of({"checkpointLocation": place})
    assert stream_of({"checkpointLocation": place, "streamId": "mine"}).id == "mine"


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("/a b/c#d", ("file:///a%20b/c%23d", "metadata")),
        ("file:/a%20b", ("file:///a%2520b", "metadata")),
        ("file:///a?b", ("file:///a%3Fb", "metadata")),
        ("s3a://bucket/a #b%20?c/", ("s3://bucket", "a #b%20?c/metadata")),
    ],
)
def test_a_checkpoint_is_named_as_hadoop_means_it(place, found):
    assert _metadata(place) == found


@pytest.mark.s3
def test_the_id_of_a_stream_is_read_from_a_checkpoint_in_a_bucket(s3_prefix):
    open_objects(s3_prefix).put("check point#1/metadata", b'{"id":"7c1f"}')
    place = f"{s3_prefix}/check point#1".replace("s3://", "s3a://")
    assert stream_of({"checkpointLocation": place}).id == "7c1f"
    with pytest.raises(ValidationError, match="name the stream with"):
        stream_of({"checkpointLocation": place.replace("#1", "#2")})


def test_compaction_vacuum_and_retention_take_nothing_from_a_stream_that_is_behind(spark, folder, tmp_path):
    stream = spark.readStream.format("ontologia").option("type", "Customer").option("changes", "true")
    every_two = stream.option("maxCommitsPerBatch", "2")
    commit(folder, Customer(id="a", name="Ann", age=1))
    assert delivered(every_two.load(folder), tmp_path / "checkpoint") == [[(1, "insert", "a", 1)]]
    for age in range(2, 6):
        commit(folder, Customer(id="a", name="Ann", age=age), Customer(id=f"k{age}", name="K", age=age))
    with session(folder) as opened:
        opened.repository.compact(apply=True)
        opened.repository.vacuum(0.0, apply=True)
    commit(folder, Customer(id="a", name="Ann", age=6))
    with session(folder) as opened:
        opened.repository.compact(apply=True)
        opened.repository.vacuum(0.0, apply=True)
        opened.repository.vacuum(0.0, apply=True, compacted=True)
    assert not list(Path(folder.removeprefix("file://")).glob("commits/*/entities/**/*.parquet")), "files are gone"
    found = delivered(every_two.load(folder), tmp_path / "checkpoint")
    assert [len(batch) for batch in found] == [4, 4, 1]
    assert sorted(itertools.chain(*found)) == sorted(
        [
            *((age, "update_version", "a", age) for age in range(2, 7)),
            *((age, "insert", f"k{age}", age) for age in range(2, 6)),
        ]
    )


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
@pytest.mark.slow_on("sqlite")
def test_a_stream_that_forgetting_overtook_says_from_which_commit_it_can_go_on(spark, uri, tmp_path):
    stream = spark.readStream.format("ontologia").option("type", "Customer").option("changes", "true")
    commit(uri, Customer(id="a", name="Ann", age=1))
    commit(uri, Customer(id="b", name="Bob", age=2))
    assert len(delivered(stream.load(uri), tmp_path / "checkpoint")) == 1
    for age in range(3, 7):
        commit(uri, Customer(id="a", name="Ann", age=age))
    with session(uri) as opened:
        opened.forget(5, dry_run=False, token=opened.forget(5).token)
    said = "asked for from commit 3 on, and .* history begins at commit 5.*since=5.*a new checkpoint"
    with pytest.raises(PySparkException, match=said):
        delivered(stream.load(uri), tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match=said):
        spark.read.format("ontologia").options(type="Customer", changes="true", since="2").load(uri).collect()
    after = delivered(stream.option("since", "5").load(uri), tmp_path / "after")
    assert [row for batch in after for row in batch] == [(6, "update_version", "a", 6)]


class Wider(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


def migrated(uri):
    with Session(uri, entity_types=[Wider]) as opened:
        upgrade = {("Customer", 1): lambda row: {name: row[name] for name in ("id", "name")}}
        opened.migrate(dry_run=False, force=True, upgraders=upgrade)


@pytest.mark.slow_on("sqlite")
def test_a_stream_that_a_migration_overtook_says_which_commit_it_cannot_deliver(spark, uri, tmp_path):
    stream = spark.readStream.format("ontologia").option("type", "Customer").option("changes", "true")
    commit(uri, Customer(id="a", name="Ann", age=1))
    assert delivered(stream.load(uri), tmp_path / "checkpoint") == [[(1, "insert", "a", 1)]]
    commit(uri, Knows(left_key="a", right_key="b", since=1))
    commit(uri, Customer(id="b", name="Bob", age=1))
    migrated(uri)
    said = "commit 3 wrote rows of an earlier version of its schema, which ended with the migration in commit 4"
    with pytest.raises(PySparkException, match=said):
        delivered(stream.load(uri), tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match=said):
        spark.read.format("ontologia").options(type="Customer", changes="true", since="1").load(uri).collect()
    after = stream.option("since", "3").load(uri).selectExpr("commit_id", "operation", "id", "name AS age")
    found = delivered(after, tmp_path / "another")
    assert found == [[(4, "update_version", "a", "Ann"), (4, "update_version", "b", "Bob")]]


def test_a_stream_that_had_all_rows_before_a_migration_goes_on(spark, folder, tmp_path):
    stream = spark.readStream.format("ontologia").option("type", "Customer").option("changes", "true")
    commit(folder, Customer(id="a", name="Ann", age=1))
    delivered(stream.load(folder), tmp_path / "checkpoint")
    commit(folder, Knows(left_key="a", right_key="b", since=1))
    migrated(folder)
    frame = stream.load(folder).selectExpr("commit_id", "operation", "id", "name AS age")
    assert delivered(frame, tmp_path / "checkpoint") == [[(3, "update_version", "a", "Ann")]]


def test_a_batch_that_does_not_fit_stops_the_stream_and_commits_nothing(spark, folder, tmp_path):
    commit(folder, Customer(id="z", name="Z", age=0))
    inbox = Inbox(spark, tmp_path, folder)
    inbox.drop("1", row("a", 1), row("a", 2))
    with pytest.raises(PySparkException, match="'a' occurs more than once"):
        inbox.run()
    assert head(folder) == 1


def test_a_stream_without_changes_or_with_a_bad_limit_or_without_a_name_is_refused(spark, folder, tmp_path):
    commit(folder, Customer(id="z", name="Z", age=0))

    def source(**options):
        return OntologiaSource(CaseInsensitiveDict({"path": folder, "type": "Customer", **options}))

    with pytest.raises(ValidationError, match="maxCommitsPerBatch"):
        source(changes="true", maxCommitsPerBatch="0").streamReader(source(changes="true").schema()).initialOffset()
    with pytest.raises(ValidationError, match="name the stream"):
        source().streamWriter(source().schema(), False)
    stream = spark.readStream.format("ontologia").option("type", "Customer").load(folder)
    sink = stream.writeStream.format("memory").queryName("refused").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(PySparkException, match=r"^a stream delivers changes: add"):
        sink.start().awaitTermination()


def test_a_restored_checkpoint_commits_no_batch_again_whatever_the_age_of_its_files(folder, tmp_path):
    commit(folder, Customer(id="a", name="Ann", age=1))
    with open_engine(folder) as engine:
        with engine.write() as transaction:
            transaction.publish({STREAM: "orders", BATCH: "4"})
        commit(folder, Customer(id="b", name="Bob", age=1))
        stream = Stream("orders")
        assert [stream.has_committed(engine, batch) for batch in (3, 4, 5)] == [True, True, False]
    place = tmp_path / "checkpoint"
    place.mkdir()
    (place / "metadata").write_text('{"id": "orders"}')
    later = time.time() + 3 * 86_400
    os.utime(place / "metadata", (later, later))
    assert stream_of({"checkpointLocation": str(place)}) == stream
